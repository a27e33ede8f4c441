package compact_test

import (
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// reshow gives a proof whose rows were changed the paths that fit them.
func reshow(t *testing.T, a *run, p *compact.Proof) {
	t.Helper()
	var rows, contents []uint64
	for i := range p.Rows {
		r, err := journal.ParseRow(p.Rows[i].Row)
		if err != nil {
			t.Fatal(err)
		}
		if rows = append(rows, r.Seq); p.Rows[i].Entry != nil {
			contents = append(contents, r.Seq)
		}
	}
	ev := a.evidence(t)
	byRow, byEntry, seq := merkle.NewProver(ev.Size(), rows), merkle.NewProver(ev.Size(), contents), uint64(0)
	for raw, e := range ev.Items() {
		var n uint64
		if e != nil {
			n = uint64(len(e.Digests) / attest.DigestSize)
		}
		byRow.Push(journal.LeafHash(raw))
		byEntry.Push(attest.EntryLeaf(seq, e, n))
		seq++
	}
	p.RowPath, p.EntryPath = nil, nil
	for _, h := range byRow.Path() {
		p.RowPath = append(p.RowPath, h[:]...)
	}
	for _, h := range byEntry.Path() {
		p.EntryPath = append(p.EntryPath, h[:]...)
	}
}

// Each proof shows other rows than it must, with every path right.
func TestRT32_OtherRowsShown(t *testing.T) {
	a := record(t, fixture.Groups(), cheat)
	seq := func(r compact.Row) uint64 {
		row, err := journal.ParseRow(r.Row)
		if err != nil {
			t.Fatal(err)
		}
		return row.Seq
	}
	without := func(want func(journal.Row, *compact.Entry) bool) func(*compact.Proof) {
		return func(p *compact.Proof) {
			n := seq(*row(p, want))
			p.Rows = slices.DeleteFunc(p.Rows, func(r compact.Row) bool { return seq(r) == n })
		}
	}
	agent := func(r journal.Row, e *compact.Entry) bool { return r.Phase == journal.PhaseAgent && shows(r, e) }
	graded := func(r journal.Row, e *compact.Entry) bool {
		return r.Phase == journal.PhaseGrade && r.Dir == journal.DirIn
	}
	for name, c := range map[string]struct {
		change func(*compact.Proof)
		want   string
	}{
		"positive control":                                     {func(*compact.Proof) {}, ""},
		"where an item came in first is not shown":             {without(agent), compact.RuleFirst},
		"where an item was first seen in grading is not shown": {without(graded), compact.RuleFirst},
		"it is shown without the items":                        {func(p *compact.Proof) { e := *row(p, agent).Entry; e.Shown = nil; row(p, agent).Entry = &e }, compact.RuleFirst},
		"a row that nothing asks for": {func(p *compact.Proof) {
			for i, it := range a.pack.Items {
				r, err := journal.ParseRow(it.Row)
				if err != nil {
					t.Fatal(err)
				}
				if r.Op == journal.OpDir {
					at := slices.IndexFunc(p.Rows, func(r compact.Row) bool { return seq(r) > uint64(i) })
					p.Rows = slices.Insert(p.Rows, at, compact.Row{Row: it.Row})
					return
				}
			}
			t.Fatal("no such row")
		}, compact.RuleUnneeded},
		"digests of the grade phase": {func(p *compact.Proof) {
			r := row(p, graded)
			e := *r.Entry
			full := a.pack.Items[seq(*r)].Entry.Digests
			paths := merkle.NewProver(e.Count, []uint64{0})
			for d := range slices.Chunk(full, attest.DigestSize) {
				paths.Push(attest.DigestLeaf([attest.DigestSize]byte(d)))
			}
			e.Shown = &compact.Shown{Places: []uint64{0}, Digests: full[:attest.DigestSize]}
			for _, h := range paths.Path() {
				e.Shown.Path = append(e.Shown.Path, h[:]...)
			}
			r.Entry = &e
		}, compact.RuleUnneeded},
	} {
		p := a.prove(t)
		c.change(p)
		reshow(t, a, p)
		if _, err := p.Check(a.set, a.stated); rule(err) != c.want {
			t.Errorf("%s: got %v, want rule %q", name, err, c.want)
		}
	}

	// A later row that holds the items again may be left out: that there is none is
	// trusted. Then the statement is at odds with what is shown.
	p := a.prove(t)
	without(func(_ journal.Row, e *compact.Entry) bool { return e != nil && e.Same != nil })(p)
	reshow(t, a, p)
	ev, err := p.Check(a.set, a.stated)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := attest.DeriveShown(a.set, ev, a.stated); err == nil && len(d.Matches) == len(attest.Derive(a.set, a.evidence(t)).Matches) {
		t.Error("a row with sealed items was left out, and nothing differs")
	}
}
