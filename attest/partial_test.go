package attest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
)

// reproved derives a statement again from its compact proof.
func reproved(t *testing.T, p *played, a *attest.Attestation) ([]byte, *attest.Derivation) {
	t.Helper()
	made, err := compact.Prove(p.set, p.evidence)
	if err != nil {
		t.Fatal(err)
	}
	data, err := made.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	proof, err := compact.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	stated, err := attest.ParseStatement(a.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := proof.Check(p.set, &stated.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	seal := sha256.Sum256(p.sealed)
	if err := attest.Bind(p.set, seal, ev); err != nil {
		t.Fatal(err)
	}
	d, err := attest.DeriveShown(p.set, ev, &stated.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	s, err := attest.ComposeShown(p.set, seal, ev, &stated.Predicate, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return again, d
}

// From the compact proof of each vector and of random runs comes the statement
// that comes from the whole evidence, byte for byte.
func TestCompactGivesTheSameStatement(t *testing.T) {
	var scripts []Script
	files, err := filepath.Glob("../testvectors/verdict/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v vector
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, v.Run, v.Control.Run)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		scripts = append(scripts, randomScript(rng))
	}
	verdicts, reasons := map[attest.Verdict]int{}, map[string]bool{}
	for _, s := range scripts {
		// No row can have these origins yet, so no proof can show them.
		if slices.ContainsFunc(s.Rows, func(s Step) bool { return s.Do == "reply" || s.Do == "fetch" }) {
			continue
		}
		p := play(t, s)
		a, err := attest.Build(p.set, p.sealed, p.pack, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, d := reproved(t, p, a)
		if !bytes.Equal(again, a.Bytes) {
			t.Fatalf("%+v\ngot  %s\nwant %s", s, again, a.Bytes)
		}
		if d.Verdict != a.Derivation.Verdict || !slices.Equal(d.Findings, a.Derivation.Findings) {
			t.Fatalf("%+v: got %s, %v, want %s, %v", s, d.Verdict, d.Findings, a.Derivation.Verdict, a.Derivation.Findings)
		}
		verdicts[d.Verdict]++
		for _, r := range d.Reasons {
			reasons[r.ID] = true
		}
	}
	if len(verdicts) != 3 || verdicts[attest.Clean] < 20 || verdicts[attest.Dirty] < 50 {
		t.Errorf("got %v, want runs of each verdict", verdicts)
	}
	if len(reasons) < 28 {
		t.Errorf("got %d reasons, want nearly all", len(reasons))
	}
}

// A statement that hides a reason which shown rows give is at odds with them; so
// is one that makes up a row, a count or a match.
func TestRT32_CompactStatementAtOdds(t *testing.T) {
	s := Script{Rows: []Step{{Do: "command"}, {Do: "read", Path: "/usr/bin/cat"}, {Do: "read", Path: "/hidden/a", Items: "f1..f40 file-raw"}, {Do: "read", Path: "/hidden/b"}, {Do: "read", Opaque: 700}}}
	p := play(t, s)
	a, err := attest.Build(p.set, p.sealed, p.pack, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := compact.Prove(p.set, p.evidence)
	if err != nil {
		t.Fatal(err)
	}
	derive := func(change func(*attest.Predicate)) (*attest.Statement, *attest.Statement, error) {
		stated, err := attest.ParseStatement(a.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := made.Check(p.set, &stated.Predicate)
		if err != nil {
			t.Fatal(err)
		}
		change(&stated.Predicate)
		d, err := attest.DeriveShown(p.set, ev, &stated.Predicate)
		if err != nil {
			return nil, nil, err
		}
		again, err := attest.ComposeShown(p.set, sha256.Sum256(p.sealed), ev, &stated.Predicate, d, nil)
		return stated, again, err
	}
	fits := func(stated, again *attest.Statement, err error) bool {
		if err != nil {
			return false
		}
		x, err := stated.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		y, err := again.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Equal(x, y)
	}
	without := func(id string) func(*attest.Predicate) {
		return func(p *attest.Predicate) {
			p.Reasons = slices.DeleteFunc(p.Reasons, func(r attest.Reason) bool { return r.ID == id })
		}
	}
	reason := func(id string, change func(*attest.Reason)) func(*attest.Predicate) {
		return func(p *attest.Predicate) {
			at := slices.IndexFunc(p.Reasons, func(r attest.Reason) bool { return r.ID == id })
			if at < 0 {
				t.Fatalf("no reason %s in %v", id, p.Reasons)
			}
			change(&p.Reasons[at])
		}
	}
	if !fits(derive(func(*attest.Predicate) {})) {
		t.Fatal("positive control")
	}
	for name, change := range map[string]func(*attest.Predicate){
		"no out-of-scope":     without(attest.ReasonOutOfScope),
		"no whole object":     without(attest.ReasonObject),
		"no fragments":        without(attest.ReasonFragments),
		"no opaque":           without(attest.ReasonOpaque),
		"fewer fragments":     reason(attest.ReasonFragments, func(r *attest.Reason) { r.Count-- }),
		"later out-of-scope":  reason(attest.ReasonOutOfScope, func(r *attest.Reason) { r.Event++ }),
		"more out-of-scope":   reason(attest.ReasonOutOfScope, func(r *attest.Reason) { r.Count++ }),
		"no row out of scope": reason(attest.ReasonOutOfScope, func(r *attest.Reason) { r.Count = 0 }),
		"CLEAN":               func(p *attest.Predicate) { p.Verdict = attest.Clean },
		"a reason without a row": func(p *attest.Predicate) {
			p.Reasons = append(p.Reasons, attest.Reason{ID: attest.ReasonKilled, Event: 3, Count: 1})
		},
		"a hint without reward": func(p *attest.Predicate) {
			p.Reasons = append(p.Reasons, attest.Reason{ID: attest.ReasonNoSignal, Count: 1})
		},
		"a final that is not": func(p *attest.Predicate) {
			p.Reasons = append(p.Reasons, attest.Reason{ID: attest.ReasonAbandoned, Count: 1})
		},
		"lost without a row": func(p *attest.Predicate) {
			p.Reasons = append(p.Reasons, attest.Reason{ID: attest.ReasonLost, Count: 1})
		},
		"fewer inbound":      func(p *attest.Predicate) { p.Counts.Inbound-- },
		"fewer out of scope": func(p *attest.Predicate) { p.Counts.OutOfScope-- },
		"no activity":        func(p *attest.Predicate) { p.Counts.Activity = 0 },
		"other processes":    func(p *attest.Predicate) { p.Counts.Processes++ },
		"less coverage":      func(p *attest.Predicate) { p.Coverage.Opaque = 0 },
		"a match of no row":  func(p *attest.Predicate) { p.Matches.First[0].Reason = attest.ReasonCanary },
		"a match less":       func(p *attest.Predicate) { p.Matches.First = p.Matches.First[1:] },
		"fewer matches":      func(p *attest.Predicate) { p.Matches.Total-- },
		"other classes":      func(p *attest.Predicate) { p.Matches.Classes[0].Count++ },
		"another agent":      func(p *attest.Predicate) { p.Asserted.Agent = "other" },
		"another root":       func(p *attest.Predicate) { p.Scope.Roots = p.Scope.Roots[1:] },
		"another outcome":    func(p *attest.Predicate) { p.Run.Outcome = "failed" },
	} {
		if fits(derive(change)) {
			t.Errorf("%s: the statement fits the rows shown", name)
		}
	}
}
