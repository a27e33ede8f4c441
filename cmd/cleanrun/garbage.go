package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// littleGarbage lets garbage take a tenth of the memory in use, or 24 MiB if that is
// more, until restore is called. The evidence of a large run is the better part of
// the memory; of a small one the collector would run all the time. One at a time.
func littleGarbage() (restore func()) {
	var mu sync.Mutex
	ended := false
	old := debug.SetGCPercent(maxGarbage)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var next func()
	next = func() { // at the end of each collection
		runtime.SetFinalizer(&struct{ self *byte }{}, func(*struct{ self *byte }) {
			mu.Lock()
			defer mu.Unlock()
			if ended {
				return
			}
			metrics.Read(live)
			debug.SetGCPercent(garbagePercent(live[0].Value.Uint64()))
			next()
		})
	}
	next()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		debug.SetGCPercent(old)
	}
}

const minGarbage, maxGarbage = 10, 400 // percent

// garbagePercent is how much garbage may stand beside so many live bytes, in percent
// of them.
func garbagePercent(live uint64) int {
	return int(min(max(24<<20*100/max(live, 1), minGarbage), maxGarbage))
}
