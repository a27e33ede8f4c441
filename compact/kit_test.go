package compact_test

import (
	"crypto/sha256"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
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

// liar attests a run with true rows and entries, and the tree of entries that lie
// has changed. It returns what was signed, the compact proof that holds under it,
// and the evidence that convicts.
func liar(t testing.TB, a *run, lie func(*fixture.Pack)) (*attest.Predicate, *compact.Proof, *attest.Evidence) {
	t.Helper()
	s, p, err := fixture.Lie(a.set, []byte("sealed"), a.pack, lie)
	if err != nil {
		t.Fatal(err)
	}
	return &s.Predicate, p, a.evidence(t)
}
