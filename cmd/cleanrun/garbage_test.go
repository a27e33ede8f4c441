package main

import (
	"runtime/debug"
	"testing"
)

func TestLittleGarbage(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {24 << 20, 100}, {48 << 20, 50}, {240 << 20, 10}, {8 << 30, 10}} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("%d live bytes: got %d percent, want %d", c.live, got, c.want)
		}
	}
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	littleGarbage()()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("afterwards: got %d percent, want the 77 of before", got)
	}
}
