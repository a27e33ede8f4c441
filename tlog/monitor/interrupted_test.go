package monitor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/monitor"
)

// long is a log of two bundles that begins with these entries.
func long(first ...[]byte) [][]byte {
	for i := len(first); i < 300; i++ {
		first = append(first, seal(fmt.Sprint("filler ", i)))
	}
	return first
}

// interrupted is a monitor that was shown the first bundle of entries under the
// checkpoint of all, and then an error.
func interrupted(t *testing.T, log *memory, entries [][]byte) *monitor.Monitor {
	t.Helper()
	o := options()
	o.Wait = 0
	m, err := monitor.New(log, o)
	if err != nil {
		t.Fatal(err)
	}
	log.entries = entries
	log.sign(len(entries))
	log.entries = entries[:256]
	if found, err := m.Step(t.Context()); err == nil || len(found) != 0 || m.Newest() != nil {
		t.Fatalf("got %v, %v, want an error alone", found, err)
	}
	return m
}

// RT82: entries that a log shows to the monitor alone, before an answer that fails,
// close no run and count for no attempt.
func TestRT82_ShownOnce(t *testing.T) {
	shown := long(seal("head"), register(1), final(1, 20))
	hidden := long(seal("head"), register(1))

	log := &memory{}
	m := interrupted(t, log, shown) // control: the log goes on as it began
	log.entries = shown
	if found := step(t, m); len(found) != 0 || m.Newest().Checkpoint().Size != 300 {
		t.Errorf("control: got %v", found)
	}

	m = interrupted(t, log, shown)
	log.entries = hidden // the tree that is signed stays the same
	if found, err := m.Step(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("the second bundle is that of the signed tree: got %v, %v", found, err)
	}

	m = interrupted(t, log, shown)
	log.entries = hidden
	log.sign(300)
	found, err := m.Step(t.Context())
	if !errors.Is(err, monitor.ErrLost) || len(found) != 1 || found[0].ID != monitor.EntriesDiffer {
		t.Errorf("another tree: got %v, %v, want entries-differ", found, err)
	}
	if _, found = first(t, log, m0()); !slices.ContainsFunc(found, func(f monitor.Finding) bool { return f.ID == monitor.RunOpen }) {
		t.Errorf("a new monitor: got %v, want run-open", found)
	}
}

func m0() monitor.Options {
	o := options()
	o.Wait = 0
	return o
}

// What was found before the error is told once the tree is known to be the log's, and
// once.
func TestFoundBeforeAnError(t *testing.T) {
	entries := long(seal("head"), register(1), register(1, func(r *entry.Register) { r.Run = runID(50) }))
	log := &memory{}
	m := interrupted(t, log, entries)
	for range 2 { // still down
		if found, err := m.Step(t.Context()); err == nil || len(found) != 0 {
			t.Fatalf("got %v, %v, want an error alone", found, err)
		}
	}
	log.entries = entries
	count := 0
	for range 2 {
		for _, f := range step(t, m) {
			if f.ID == monitor.ID(entry.RegisterAgain) && f.Index == 2 {
				count++
			}
		}
	}
	if count != 1 {
		t.Errorf("got the contradiction %d times, want once", count)
	}
}

// RT78: a checkpoint whose entries could not be read is not forgotten.
func TestRT78_InterruptedCheckpoint(t *testing.T) {
	shown := long(seal("head"), register(1))
	log := &memory{}
	m := interrupted(t, log, shown)
	log.entries = append(slices.Clone(shown[:299]), seal("another"), seal("one more"))
	log.sign(301)
	found := step(t, m)
	if !slices.ContainsFunc(found, func(f monitor.Finding) bool { return f.ID == monitor.SplitView && len(f.Evidence) == 2 }) {
		t.Errorf("got %v, want split-view", found)
	}

	m = interrupted(t, log, shown)
	log.entries = shown
	log.sign(290)
	if found := step(t, m); len(found) == 0 || found[0].ID != monitor.Rollback {
		t.Errorf("got %v, want rollback", found)
	}

	m = interrupted(t, log, shown)
	log.entries = shown
	log.sign(100)
	if found, err := m.Step(t.Context()); !errors.Is(err, monitor.ErrLost) || len(found) != 1 || found[0].ID != monitor.Rollback {
		t.Errorf("got %v, %v, want rollback, and no way on", found, err)
	}
}
