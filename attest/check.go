package attest

import (
	"fmt"
	"runtime"
	"sync"
)

// checkDigests compares each entry's root with its digests, on all processors.
// The error is that of the first event that is wrong, however the work fell.
func (ev *Evidence) checkDigests() error {
	workers := runtime.GOMAXPROCS(0)
	first := make([]int, workers) // entry that a worker found wrong, or none
	none := len(ev.entries)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			first[w] = none
			for i := w; i < none; i += workers {
				e := &ev.entries[i]
				if e.Same == nil && DigestRoot(e.Digests) != e.Root {
					first[w] = i
					return
				}
			}
		})
	}
	wg.Wait()
	wrong := none
	for _, i := range first {
		wrong = min(wrong, i)
	}
	if wrong == none {
		return nil
	}
	e := &ev.entries[wrong]
	return &EvidenceError{
		Rule: RuleRoot, Event: ev.eventOf(wrong),
		Got:  fmt.Sprintf("root %x", e.Root),
		Want: fmt.Sprintf("%x, of its %d digests", DigestRoot(e.Digests), len(e.Digests)/DigestSize),
	}
}

// eventOf finds the row of an entry.
func (ev *Evidence) eventOf(entry int) uint64 {
	for i := range ev.events {
		if ev.events[i].entry == int32(entry) {
			return uint64(i)
		}
	}
	return 0
}
