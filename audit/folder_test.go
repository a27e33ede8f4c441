package audit

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cleanrun-dev/cleanrun/verify"
)

// No more bytes are inside than the gate lets in, and what is larger than the
// gate comes in alone.
func TestGate(t *testing.T) {
	g := newGate(100)
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range int64(60) {
		size := i * 5 % 250
		wg.Go(func() {
			taken := g.enter(size)
			now := inside.Add(min(size, 100))
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			inside.Add(-min(size, 100))
			g.leave(taken)
		})
	}
	wg.Wait()
	if most.Load() > 100 || g.left != 100 {
		t.Errorf("got %d bytes inside and %d left, want at most 100 and 100", most.Load(), g.left)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	s := &Submission{found: map[string]int{}}
	for range 3 * MaxFindings {
		s.find(MemberUnknown, -1, "x", "y")
	}
	s.find(SealMixed, -1, "", "z")
	s.sortFindings()
	if n := len(s.Findings); n != MaxFindings+2 {
		t.Fatalf("got %d findings, want %d", n, MaxFindings+2)
	}
	if last := s.Findings[MaxFindings]; last.ID != MemberUnknown || !strings.HasPrefix(last.Detail, "200 more") {
		t.Errorf("got %+v", last)
	}
}

func TestBundleName(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for name, want := range map[string]bool{
		sum + BundleExt: true, sum: false, sum + ".tar": false, strings.ToUpper(sum) + BundleExt: false, sum[1:] + BundleExt: false, BundleExt: false,
		sum + BundleExt + BundleExt: false, "." + sum + BundleExt: false,
	} {
		if got, ok := bundleName(name); ok != want || ok && got != sum {
			t.Errorf("%s: got %q, %v, want %v", name, got, ok, want)
		}
	}
}

// INVALID before DIRTY before undecided.
func TestWorse(t *testing.T) {
	order := []int{verify.ExitInvalid, verify.ExitDirty, verify.ExitUndecided, verify.ExitClean}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); got != order[min(i, j)] {
				t.Errorf("worse of %d and %d: got %d", a, b, got)
			}
		}
	}
}
