package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// compacted puts a compact proof in place of the evidence. change, which may be
// nil, breaks it.
func compacted(t testing.TB, change func(*compact.Proof)) func(*receipt.Bundle) {
	return func(b *receipt.Bundle) {
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
		p, err := compact.Prove(set, ev)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(p)
		}
		if b.Proof, err = p.Marshal(); err != nil {
			t.Fatal(err)
		}
		b.Evidence = nil
	}
}

// The same signed statement verifies with the evidence and with a compact proof,
// and the report says which.
func TestRT32_CompactSaysAggregationTrusted(t *testing.T) {
	for name, record := range map[string]func(*fixture.Run){"CLEAN": honest, "DIRTY": cheat, "INCONCLUSIVE": trace} {
		k := newKit()
		k.record = record
		full := verify.Verify(k.make(t), k.policy(), now)
		k.bundle = compacted(t, nil)
		data := k.make(t)
		r := verify.Verify(data, k.policy(), now)
		if full.Verdict != name || r.Verdict != name || r.Exit != full.Exit {
			t.Fatalf("%s: got %s with the evidence, and with the compact proof\n%s", name, full.Verdict, r.Text("x"))
		}
		if full.Checked.Rederived != verify.RederivedFull || len(full.Trusted) != 0 || r.Checked.Rederived != verify.RederivedCompact || len(r.Trusted) < 4 {
			t.Errorf("%s: got %+v, %q and %+v, %q", name, full.Checked, full.Trusted, r.Checked, r.Trusted)
		}
		if text := r.Text("x"); !strings.Contains(text, "\n re-derived: compact (aggregation trusted)") || !strings.Contains(text, "\n trusted     aggregation: ") {
			t.Errorf("got %s", text)
		}
		if !slices.Equal(r.Why, full.Why) || *r.Counts != *full.Counts || *r.Coverage != *full.Coverage {
			t.Errorf("%s: got %+v, %+v, want %+v, %+v", name, r.Why, r.Counts, full.Why, full.Counts)
		}
		if got := verify.NewSession(k.policy(), now).Check(data); got.Exit != r.Exit || got.Statement == nil || got.Rederived != verify.RederivedCompact {
			t.Errorf("%s: a session says %+v", name, got)
		}
		if r := verify.Verify(data, nil, now); r.Exit != verify.ExitUndecided || string(r.Derived) != name {
			t.Errorf("%s, no policy: got %s", name, r.Text("x"))
		}

		policy := k.policy()
		policy.FullEvidence = true
		r = verify.Verify(data, policy, now)
		if of(r) != (result{verify.ExitInvalid, verify.CheckMembers}) || !strings.Contains(r.FailedCheck().Detail, "aggregation") {
			t.Errorf("%s: require full-evidence: got %s", name, r.Text("x"))
		}
	}
}

// A statement that says CLEAN of a run whose compact proof shows more is INVALID.
func TestRT83_CompactStoredClean(t *testing.T) {
	for name, c := range map[string]struct {
		record    func(*fixture.Run)
		statement func(*attest.Statement)
		want      string
	}{
		"the verdict alone": {cheat, func(s *attest.Statement) { s.Predicate.Verdict = attest.Clean }, verify.CheckVerdict},
		"verdict and reasons": {cheat, func(s *attest.Statement) {
			s.Predicate.Verdict, s.Predicate.Reasons = attest.Clean, []attest.Reason{}
		}, verify.CheckVerdict},
		"all of it but the proof": {trace, func(s *attest.Statement) {
			s.Predicate.Verdict, s.Predicate.Reasons, s.Predicate.Counts.Inbound = attest.Clean, []attest.Reason{}, 0
		}, verify.CheckVerdict},
		"trusted counts below what is shown": {honest, func(s *attest.Statement) { s.Predicate.Counts.Activity = 0 }, verify.CheckSubject},
	} {
		k := newKit()
		k.record, k.bundle = c.record, compacted(t, nil)
		if r := verify.Verify(k.make(t), k.policy(), now); r.Exit == verify.ExitInvalid {
			t.Fatalf("%s: positive control: got %s", name, r.Text("x"))
		}
		k.statement = c.statement
		if r := verify.Verify(k.make(t), k.policy(), now); of(r) != (result{verify.ExitInvalid, c.want}) {
			t.Errorf("%s: got %s, want it refused by %s", name, r.Text("x"), c.want)
		}
	}
}

// Any changed byte of a compact proof is noticed by the check that guards it.
func TestTamperEveryByteOfCompactProof(t *testing.T) {
	k := newKit()
	k.record = cheat
	k.bundle = compacted(t, nil)
	data := k.make(t)
	b, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	from := bytes.Index(data, b.Proof)
	flips := 0
	for at := 0; at < len(b.Proof); at += 5 {
		flips++
		broken := bytes.Clone(data)
		broken[from+at] ^= 1 << (at % 8)
		if got := of(verify.Verify(broken, k.policy(), now)); got != (result{verify.ExitInvalid, verify.CheckCompact}) {
			t.Fatalf("byte %d of %d: got %v, want exit 1 by %s", at, len(b.Proof), got, verify.CheckCompact)
		}
	}
	if flips < 300 {
		t.Errorf("got %d flips, want at least 500", flips)
	}
}
