package verify_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// bound has the set allow b, which an honest run writes, and opens names. do, which may
// be nil, is what the agent does besides.
func bound(k *kit, gate bool, do func(*fixture.Run), names ...string) {
	k.set = func(s *contraband.Set) { s.Footprint = &contraband.Footprint{Allowed: []string{"b"}, Gate: gate} }
	record := k.record
	k.record = func(r *fixture.Run) {
		record(r)
		if do != nil {
			do(r)
		}
	}
	k.openings = func(r *fixture.Run, p *fixture.Pack) { r.OpenPaths(p, names...) }
}

func deleteKey(r *fixture.Run) { r.Change(journal.OpUnlink, 0, "/work/keys/private.key", "") }

// deleteAndRestore leaves nothing behind that a final state shows.
func deleteAndRestore(r *fixture.Run) {
	deleteKey(r)
	r.Make("/work/keys/private.key")
}

const keyFile = "/work/keys/private.key"

func TestFootprint(t *testing.T) {
	const passes, reported, unnamed = "within: 1 path changed", "outside: 2 paths changed, 1 path not allowed (reported; the task has no gate)", "the evidence does not name 1 path"
	cache := func(r *fixture.Run) {
		r.Change(journal.OpMkdir, 0, "/work/__pycache__", "")
		r.Make("/work/__pycache__/m.cpython-312.pyc")
	}
	for name, c := range map[string]struct {
		gate      bool
		do        func(*fixture.Run)
		names     string
		exit      int    // without a requirement
		required  int    // under require footprint
		says, why string // in the text; reason
	}{
		"within":                    {true, nil, "/work/b", verify.ExitClean, verify.ExitClean, passes, ""},
		"key deleted":               {true, deleteKey, "/work/b " + keyFile, verify.ExitDirty, verify.ExitDirty, "unlink by p1  " + keyFile, attest.ReasonFootprint},
		"RT58b_deleted, restored":   {true, deleteAndRestore, "/work/b " + keyFile, verify.ExitDirty, verify.ExitDirty, "open by p1  " + keyFile, attest.ReasonFootprint},
		"key deleted, no gate":      {false, deleteKey, "/work/b " + keyFile, verify.ExitClean, verify.ExitUndecided, reported, ""},
		"a name kept back":          {true, deleteKey, "/work/b", verify.ExitUndecided, verify.ExitUndecided, unnamed, attest.ReasonUnopened},
		"a name kept back, no gate": {false, deleteKey, "/work/b", verify.ExitClean, verify.ExitUndecided, unnamed, ""},
		"a cached module": {true, cache, "/work/b,/work/__pycache__,/work/__pycache__/m.cpython-312.pyc compiled", verify.ExitClean, verify.ExitClean,
			"the sources of 1 cached module of Python, which the footprint leaves out", ""},
		"RT58e_a cached module, beside the outcome": {true, cache, "/work/b,/work/__pycache__,/work/__pycache__/m.cpython-312.pyc compiled", verify.ExitClean, verify.ExitClean,
			"within: 3 paths changed; 1 cached module left out on the runner's word", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit()
			bound(k, c.gate, c.do, strings.FieldsFunc(c.names, func(r rune) bool { return r == ',' || r == ' ' && !strings.Contains(c.names, ",") })...)
			data := k.make(t)
			r := verify.Verify(data, k.policy(), now)
			text := strings.Join(strings.Fields(r.Text("x")), " ")
			if r.Exit != c.exit || !strings.Contains(text, strings.Join(strings.Fields(c.says), " ")) {
				t.Errorf("got exit %d, want %d and %q\n%s", r.Exit, c.exit, c.says, r.Text("x"))
			}
			if c.why == attest.ReasonFootprint { // first and last change are told apart, and the overview has both
				for _, want := range []string{"; this event is the first [footprint]", " last event ", "next cleanrun explain x\n"} {
					if !strings.Contains(strings.ReplaceAll(r.Text("x"), "next        ", "next "), want) {
						t.Errorf("got no %q in\n%s", want, r.Text("x"))
					}
				}
			}
			if got := slices.ContainsFunc(r.Why, func(w verify.Why) bool { return w.Reason == c.why && w.Event > 0 }); got != (c.why != "") {
				t.Errorf("got reasons %+v, want %q", r.Why, c.why)
			}
			policy := k.policy()
			policy.Footprint = true
			required := verify.Verify(data, policy, now)
			if required.Exit != c.required {
				t.Errorf("required: got exit %d, want %d\n%s", required.Exit, c.required, required.Text("x"))
			}
			// On the runner's word is not observed.
			policy = k.policy()
			policy.FootprintObserved = true
			want, word := c.required, strings.Contains(c.names, " compiled")
			if word {
				want = verify.ExitUndecided
			}
			if got := verify.Verify(data, policy, now); got.Exit != want || word != strings.Contains(got.Text("x"), "1 cached module of Python is left out on the runner's word, and the policy") {
				t.Errorf("observed: got exit %d, want %d\n%s", got.Exit, want, got.Text("x"))
			}
			policy = k.policy()
			policy.Footprint = true
			if got := verify.NewSession(policy, now).Check(data); got.Exit != c.required {
				t.Errorf("session: got exit %d, want %d", got.Exit, c.required)
			}
			var said struct{ Footprint *attest.FootprintClaim }
			if b, err := json.Marshal(r); err != nil || json.Unmarshal(b, &said) != nil || said.Footprint == nil || said.Footprint.Gate != c.gate {
				t.Errorf("JSON: got %+v, %v", said.Footprint, err)
			}
		})
	}
	// A set that states none: nothing is said, and a policy that requires one decides nothing.
	k := newKit()
	data := k.make(t)
	if r := verify.Verify(data, k.policy(), now); r.Exit != verify.ExitClean || r.Footprint != nil || strings.Contains(r.Text("x"), "footprint") {
		t.Errorf("got %s", r.Text("x"))
	}
	policy, err := verify.ParsePolicy([]byte("owner " + k.owner.public.String() + "\nrunner " + k.runner.public.String() + "\nrequire footprint\nrequire footprint-observed\n"))
	if err != nil || !policy.Footprint || !policy.FootprintObserved {
		t.Fatalf("got %+v, %v", policy, err)
	}
	r := verify.Verify(data, policy, now)
	if r.Exit != verify.ExitUndecided || !strings.Contains(r.Text("x"), "states no footprint") {
		t.Errorf("got %s", r.Text("x"))
	}
}

// A runner who signs another footprint than the evidence gives.
func TestFootprintLies(t *testing.T) {
	for name, c := range map[string]struct {
		gate      bool
		statement func(*attest.Statement)
	}{
		"the outcome":   {true, func(s *attest.Statement) { s.Predicate.Footprint.Outcome = attest.FootprintWithin }},
		"the gate":      {true, func(s *attest.Statement) { s.Predicate.Footprint.Gate = false }},
		"no path":       {true, func(s *attest.Statement) { s.Predicate.Footprint.Outside.First = []attest.OutsidePath{} }},
		"another path":  {true, func(s *attest.Statement) { s.Predicate.Footprint.Outside.First[0].Path = "/work/b" }},
		"another event": {false, func(s *attest.Statement) { s.Predicate.Footprint.Outside.First[0].Event-- }},
		"the total":     {false, func(s *attest.Statement) { s.Predicate.Footprint.Outside.Total = 0 }},
		"no footprint":  {false, func(s *attest.Statement) { s.Predicate.Footprint = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit()
			bound(k, c.gate, deleteKey, "/work/b", keyFile)
			if r := verify.Verify(k.make(t), k.policy(), now); r.Exit == verify.ExitInvalid {
				t.Fatalf("control: got %s", r.Text("x"))
			}
			k.statement = c.statement
			if r := verify.Verify(k.make(t), k.policy(), now); of(r) != (result{verify.ExitInvalid, verify.CheckFields}) {
				t.Errorf("got %s", r.Text("x"))
			}
		})
	}
}

// A compact proof cannot carry a footprint: neither is one made nor believed.
func TestFootprintIsNotCompact(t *testing.T) {
	k := newKit()
	bound(k, true, deleteKey, "/work/b", keyFile)
	proof := func(b *receipt.Bundle, open func(*contraband.Set)) error {
		sealed, err := receipt.ParseSealed(b.Sealed)
		if err != nil {
			t.Fatal(err)
		}
		set, err := contraband.ParseSet(sealed.Set())
		if err != nil {
			t.Fatal(err)
		}
		ev, err := attest.ReadEvidence(b.Evidence)
		if err != nil {
			t.Fatal(err)
		}
		open(set)
		p, err := compact.Prove(set, ev)
		if err != nil {
			return err
		}
		if b.Proof, err = p.Marshal(); err != nil {
			t.Fatal(err)
		}
		b.Evidence = nil
		return nil
	}
	k.bundle = func(b *receipt.Bundle) {
		if err := proof(b, func(*contraband.Set) {}); err == nil || !strings.Contains(err.Error(), compact.RuleWhole) || !strings.Contains(err.Error(), "footprint") {
			t.Errorf("made: got %v, want rule %s", err, compact.RuleWhole)
		}
		if err := proof(b, func(s *contraband.Set) { s.Footprint = nil }); err != nil {
			t.Fatal(err)
		}
	}
	r := verify.Verify(k.make(t), k.policy(), now)
	if of(r) != (result{verify.ExitInvalid, verify.CheckCompact}) || !strings.Contains(r.FailedCheck().Detail, compact.RuleWhole) || !strings.Contains(r.FailedCheck().Hint, "evidence") {
		t.Errorf("got %s", r.Text("x"))
	}
	k = newKit()
	k.bundle = compacted(t, nil)
	if r := verify.Verify(k.make(t), k.policy(), now); r.Exit != verify.ExitClean {
		t.Errorf("control: got %s", r.Text("x"))
	}
}

// A terminal gets no byte of a name that it would act on.
func TestFootprintTextIsPrintable(t *testing.T) {
	k := newKit()
	const name = "/work/a\x1b[2J\u202eb\nCLEAN"
	bound(k, true, func(r *fixture.Run) { r.Make(name) }, "/work/b", name)
	r := verify.Verify(k.make(t), k.policy(), now)
	if text := r.Text("x"); r.Exit != verify.ExitDirty || !strings.Contains(text, "/work/a?[2J?b?CLEAN\n") || strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("got %q", text)
	}
	if r.Footprint.Outside.First[0].Path != name {
		t.Errorf("got %q in JSON", r.Footprint.Outside.First[0].Path)
	}
}
