package audit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/contraband"
	expectation "github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// TestSurroundings: footprints and named paths that no policy requires change no verdict.
// They are counted all the same, in the text and in JSON.
func TestSurroundings(t *testing.T) {
	const skill = "/srv/skills/SKILL.md"
	seal, err := fixture.NewSeal(owner, "bench", tasks, func(s *contraband.Set) {
		s.Footprint = &contraband.Footprint{Allowed: []string{"b"}}
		if s.Task == "task-c" {
			s.Scope.Grants = []contraband.Grant{{Path: skill, Mode: uint8(scope.ReadOne)}}
			s.Expect = &contraband.Expect{Read: skill, Template: "The id is {{cleanrun.marker}}.\n", Reply: expectation.Stdout}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	k := newKit()
	k.seal = seal
	for i := range k.attempts {
		k.attempts[i].Names = []string{"/work/b"}
	}
	k.at("task-a", 2, 1).Names = nil
	outside := k.at("task-b", 1, 1)
	outside.Names = append(outside.Names, "/work/key")
	outside.Do = func(r *fixture.Run) {
		fixture.Honest(r)
		r.Change(journal.OpUnlink, 0, "/work/key", "")
	}
	dir := k.make(t)
	r := run(policy(), dir)
	expect(t, r, 0)
	s := r.Submissions[0]
	if s.Footprints == nil || *s.Footprints != (audit.Footprints{Within: 4, Outside: 1, Inconclusive: 1}) || s.NamedPaths == nil || *s.NamedPaths != (audit.NamedPaths{Failed: 2}) {
		t.Errorf("got %+v, %+v", s.Footprints, s.NamedPaths)
	}
	for _, want := range []string{
		" footprint   4 within, 1 outside, 1 inconclusive (reported; the policy does not say require footprint)\n",
		" named path  2 failed (reported; the policy does not say require expect)\n",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("got no %q in\n%s", want, r.Text())
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"footprints":{"within":4,"outside":1,"inconclusive":1}`, `"named_paths":{"passed":0,"failed":2,"not-established":0}`, `"footprint":"outside"`, `"named_path":"failed"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("got no %s in %s", want, b)
		}
	}
	// Required, they leave it undecided, and the finding names the bundle to look at.
	r = run(policy("require footprint"), dir)
	expect(t, r, 3, audit.BundleUndecided)
	at := slices.IndexFunc(s.Cells, func(c audit.Cell) bool { return c.Footprint == "outside" })
	if !slices.ContainsFunc(r.Submissions[0].Findings, func(f audit.Finding) bool {
		return strings.Contains(f.Detail, "the file "+s.Cells[at].Bundle+audit.BundleExt+": footprint: got 1 path out of it")
	}) {
		t.Errorf("got %+v", r.Submissions[0].Findings)
	}
	// Nothing is said where no task asks.
	r = run(policy(), newKit().make(t))
	if s := r.Submissions[0]; s.Footprints != nil || s.NamedPaths != nil || strings.Contains(r.Text(), "footprint") || strings.Contains(r.Text(), "named path") {
		t.Errorf("got %s", r.Text())
	}
}
