package attest_test

import (
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// TestRT30_ManyDigests breaks a pack that several workers read. Small packs, as
// in the other tests, are read by one.
func TestRT30_ManyDigests(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	for _, name := range []string{"/work/a", "/work/b", "/work/c"} {
		r.Read(name, fixture.Content{Items: []string{"f2"}, Filler: 6000, Size: 1 << 20})
	}
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var rows []int
	for i := range p.Items {
		if e := p.Items[i].Entry; e != nil && len(e.Digests) > 6000*attest.DigestSize {
			rows = append(rows, i)
		}
	}
	if len(rows) != 3 || len(p.Bytes()) <= 256<<10 {
		t.Fatalf("got %d rows of many digests in %d bytes, want 3 in more than 256 KiB", len(rows), len(p.Bytes()))
	}
	last := p.Items[rows[2]].Entry
	for _, c := range []struct {
		name string
		rule string // "": it holds
		brk  func()
	}{
		{"control", "", func() {}},
		{"digest-changed", attest.RuleRoot, func() { last.Digests[len(last.Digests)-1] ^= 1 }},
		{"tree-changed", attest.RuleTree, func() { p.Trailer.Tree[3] ^= 1 }},
		{"tree-count", attest.RuleTree, func() { p.Trailer.Digests++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			digests, trailer := append([]byte(nil), last.Digests...), p.Trailer
			defer func() { last.Digests, p.Trailer = digests, trailer }()
			c.brk()
			_, err := attest.ReadEvidence(p.Bytes())
			var e *attest.EvidenceError
			switch {
			case c.rule == "" && err != nil:
				t.Errorf("got %v, want a pack that holds", err)
			case c.rule != "" && (!errors.As(err, &e) || e.Rule != c.rule):
				t.Errorf("got %v, want rule %s", err, c.rule)
			}
		})
	}
}
