package runlog

import (
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// Of a compact bundle each CHECKPOINT is proved to be how the journal begins, and of
// another there are no such proofs.
func TestHeadsOfACompactBundle(t *testing.T) {
	b := newBench(t)
	r := b.run()
	b.register(r)
	var heads []journal.Head
	for range 3 {
		heads = append(heads, b.rows(4))
		r.Head(heads[len(heads)-1])
		b.wait(2 + len(heads))
	}
	b.end()
	if _, _, err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, whole, err := readJournal(b.c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	members := func() *receipt.LogMember {
		_, member, err := b.c.Members(t.Context(), b.attest())
		if err != nil {
			t.Fatal(err)
		}
		m, err := receipt.ParseLog(member)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := members(); len(m.Heads) != 0 || len(m.Checkpoints) != 3 {
		t.Errorf("got %d heads of %d CHECKPOINTs, want none of 3", len(m.Heads), len(m.Checkpoints))
	}
	b.c.Compact = true
	m := members()
	if len(m.Heads) != 3 {
		t.Fatalf("got %d heads, want 3", len(m.Heads))
	}
	for i, path := range m.Heads {
		if err := journal.VerifyConsistency(heads[i], whole, path); err != nil {
			t.Errorf("head %d: %v", i, err)
		}
		other := heads[i]
		other.Root[0] ^= 1
		if journal.VerifyConsistency(other, whole, path) == nil {
			t.Errorf("head %d: another root passes", i)
		}
	}
}
