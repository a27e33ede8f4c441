package compact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A run that was attested.
type run struct {
	set    *contraband.Set
	pack   *fixture.Pack
	stated *attest.Predicate
}

func record(t testing.TB, groups []fixture.Group, do func(*fixture.Run)) *run {
	t.Helper()
	set, err := fixture.Set(groups, func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) })
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	do(r)
	r.Close(journal.Final{})
	pack, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	a := &run{set: set, pack: pack}
	s := a.build(t, pack)
	a.stated = &s.Predicate
	return a
}

func (a *run) build(t testing.TB, pack *fixture.Pack) *attest.Statement {
	t.Helper()
	b, err := attest.Build(a.set, []byte("sealed"), pack.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.Statement
}

func (a *run) evidence(t testing.TB) *attest.Evidence {
	t.Helper()
	ev, err := attest.ReadEvidence(a.pack.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func (a *run) prove(t testing.TB) *compact.Proof {
	t.Helper()
	p, err := compact.Prove(a.set, a.evidence(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cheat reads sealed content, again and again, and grading reads a hidden test.
func cheat(r *fixture.Run) {
	r.Argv(true, fixture.Content{Size: 40})
	first := r.Read("/work/copy", fixture.Content{Items: fixture.Names("f", 12), Filler: 5})
	r.Read("/work/other", fixture.Content{Same: &first})
	r.Read("/hidden/solution", fixture.Content{Items: []string{"file-raw", "f1"}})
	_, answer := r.Write("/work/answer", fixture.Content{Filler: 2})
	r.Grade(journal.PhaseEnd{How: journal.Exited})
	r.Read("/cleanrun/tests/t", fixture.Content{Items: fixture.Names("g", 20)})
	r.Reread("/work/answer", answer, fixture.Content{Filler: 2})
	r.Graded([]journal.Reward{{Value: "1", Source: journal.FromExit}}, &journal.PhaseEnd{How: journal.Exited})
}

// liar attests a run with evidence whose entries and rows are true, but whose
// tree was made after lie has changed the entries. It returns the statement, the
// compact proof that fits it, and the evidence that convicts.
func liar(t testing.TB, a *run, lie func(*fixture.Pack)) (*attest.Predicate, *compact.Proof, *attest.Evidence) {
	t.Helper()
	honest := a.evidence(t)
	entries := honest.Entries()
	lying := *a.pack
	lying.Items = slices.Clone(a.pack.Items)
	for i := range lying.Items {
		if e := lying.Items[i].Entry; e != nil {
			copied := *e
			lying.Items[i].Entry = &copied
		}
	}
	lie(&lying)
	for i := range lying.Items {
		if e := lying.Items[i].Entry; e != nil && e.Same == nil {
			e.Root = attest.DigestRoot(e.Digests)
		}
	}
	for i := range lying.Items {
		if e := lying.Items[i].Entry; e != nil && e.Same != nil {
			e.Root = lying.Items[*e.Same].Entry.Root
		}
	}
	lying.Grow()
	s := a.build(t, &lying)
	stated := &s.Predicate
	stated.Evidence.Entries = hex.EncodeToString(entries[:])
	ev, err := attest.ReadEvidence(lying.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	p, err := compact.Prove(a.set, ev)
	if err != nil {
		t.Fatal(err)
	}
	// The shown entries are the true ones, under the root that was signed.
	var places []uint64
	for i := range p.Rows {
		if e := p.Rows[i].Entry; e != nil {
			row, err := journal.ParseRow(p.Rows[i].Row)
			if err != nil {
				t.Fatal(err)
			}
			if e.Root != a.pack.Items[row.Seq].Entry.Root {
				t.Fatalf("row %d is shown, but the liar changed it", row.Seq)
			}
			places = append(places, row.Seq)
		}
	}
	paths, seq := merkle.NewProver(honest.Size(), places), uint64(0)
	for _, e := range honest.Items() {
		n := 0
		if e != nil {
			n = len(e.Digests) / 16
		}
		paths.Push(attest.EntryLeaf(seq, e, uint64(n)))
		seq++
	}
	p.EntryPath = nil
	for _, h := range paths.Path() {
		p.EntryPath = append(p.EntryPath, h[:]...)
	}
	return stated, p, honest
}
