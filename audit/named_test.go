package audit_test

import (
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// RT81: a grid in which every cell names one receipt. It is verified once, however
// often it is named, and every other cell is told.
func TestRT81_OneReceiptForAllCells(t *testing.T) {
	k := newKit()
	k.statement = func(s *submission.Statement) {
		one := *cell(s, "task-a", 1, 1)
		bundle := k.bundles[one.Bundle]
		for i := range s.Predicate.Grid {
			c := &s.Predicate.Grid[i]
			delete(k.bundles, c.Bundle)
			c.Bundle, c.Receipt, c.Root, c.Run = one.Bundle, one.Receipt, one.Root, one.Run
		}
		k.bundles[one.Bundle] = bundle
		reroot(t, s, k.bundles)
	}
	r := run(policy(), k.make(t))
	expect(t, r, 1, audit.ReceiptSwapped, audit.HeadReused)
	s := r.Submissions[0]
	if r.Bundles != 1 || s.Counts.Clean != 1 || s.Counts.Invalid != 5 {
		t.Errorf("got %d bundles verified, %+v, want 1, and 1 cell of 6 that holds", r.Bundles, s.Counts)
	}
}
