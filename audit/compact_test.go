package audit_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// Bundles with compact proofs count like others, and the report says how many they
// are. A policy that requires full evidence refuses them.
func TestCompactBundles(t *testing.T) {
	k := newKit()
	k.at("task-b", 1, 1).Do = fixture.Cheat
	full := run(policy(), k.make(t)).Submissions[0]
	k.at("task-a", 1, 1).Compact, k.at("task-b", 1, 1).Compact = true, true
	dir := k.make(t)
	r := run(policy(), dir)
	expect(t, r, verify.ExitDirty)
	s := r.Submissions[0]
	if s.Compact != 2 || full.Compact != 0 || s.Counts != full.Counts || s.Score != full.Score {
		t.Errorf("got %d compact, %+v, %+v, want 2, %+v, %+v", s.Compact, s.Counts, s.Score, full.Counts, full.Score)
	}
	compact := 0
	for _, c := range s.Cells {
		if c.Compact {
			compact++
		}
	}
	if compact != 2 || !strings.Contains(r.Text(), "compact     2 bundles: aggregation trusted") {
		t.Errorf("got %d cells\n%s", compact, r.Text())
	}
	expect(t, run(policy("require full-evidence"), dir), verify.ExitInvalid, "bundle-invalid")
}
