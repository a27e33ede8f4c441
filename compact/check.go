package compact

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Check holds a proof to a statement whose signature was verified, and returns
// what it shows of the evidence (spec/compact.md, steps 2 to 9). set is the one
// that the statement's run is bound to. The error is an *Error.
func (p *Proof) Check(set *contraband.Set, stated *attest.Predicate) (*attest.Evidence, error) {
	if err := attest.Showable(set); err != nil {
		return nil, &Error{RuleWhole, err}
	}
	roots, err := parseRoots(stated)
	if err != nil {
		return nil, err
	}
	c := &checker{proof: p, roots: roots, at: map[uint64]int{}}
	if err := c.rows(); err != nil {
		return nil, err
	}
	if err := c.entries(); err != nil {
		return nil, err
	}
	var shown []attest.Shown
	for i := range p.Rows {
		shown = append(shown, attest.Shown{Raw: p.Rows[i].Row, Entry: p.Rows[i].Entry.entry()})
	}
	ev, err := attest.Partial(roots.head, shown, p.Controls)
	if err != nil {
		return nil, &Error{RuleRows, err}
	}
	asked := ask(set, ev.Salt(), p.Controls)
	if err := c.tree(asked); err != nil {
		return nil, err
	}
	if err := c.firsts(asked); err != nil {
		return nil, err
	}
	return ev, c.needed(asked, stated)
}

// roots are what the runner signed.
type roots struct {
	head    journal.Head
	entries [32]byte
	tree    [32]byte
	depth   uint8
}

func parseRoots(stated *attest.Predicate) (r roots, err error) {
	e := &stated.Evidence
	r.depth, r.head.Size = e.Depth, stated.Journal.Size
	for _, f := range []struct {
		name, hex string
		to        []byte
	}{
		{"run.id", stated.Run.ID, r.head.Run[:]}, {"journal.root", stated.Journal.Root, r.head.Root[:]},
		{"evidence.entries", e.Entries, r.entries[:]}, {"evidence.tree", e.Tree, r.tree[:]},
	} {
		data, err := hex.DecodeString(f.hex)
		if err != nil || len(data) != len(f.to) || hex.EncodeToString(data) != f.hex {
			return r, broken(RuleStatement, "%s: got %q, want %d bytes in lower-case hex", f.name, f.hex, len(f.to))
		}
		copy(f.to, data)
	}
	if want := bucket.Depth(e.Digests); e.Depth != want {
		return r, broken(RuleStatement, "evidence.depth: got %d, want %d for %d digests", e.Depth, want, e.Digests)
	}
	if r.head.Size == 0 {
		return r, broken(RuleStatement, "journal.size: got 0, want at least 1")
	}
	if e.Level != attest.LevelFull {
		return r, broken(RuleStatement, "evidence.level: got %q, want %q", e.Level, attest.LevelFull)
	}
	return r, nil
}

type checker struct {
	proof  *Proof
	roots  roots
	parsed []journal.Row
	at     map[uint64]int // row number to place in proof.Rows
	found  map[digest]bucket.Entry
}

// rows checks that the shown rows are in the journal, the first and the last
// among them.
func (c *checker) rows() error {
	var numbers []uint64
	var leaves [][32]byte
	for i := range c.proof.Rows {
		row, err := journal.ParseRow(c.proof.Rows[i].Row)
		if err != nil {
			return &Error{RuleRows, err}
		}
		if i > 0 && numbers[i-1] >= row.Seq || row.Seq >= c.roots.head.Size {
			return broken(RuleRows, "got row %d at place %d of a journal of %d rows, want them by number", row.Seq, i, c.roots.head.Size)
		}
		numbers, c.parsed = append(numbers, row.Seq), append(c.parsed, row)
		leaves = append(leaves, journal.LeafHash(c.proof.Rows[i].Row))
		c.at[row.Seq] = i
	}
	if n := len(numbers); n == 0 || numbers[0] != 0 || numbers[n-1]+1 != c.roots.head.Size {
		return broken(RuleRows, "got rows %v, want the first, 0, and the last, %d, among them", ends(numbers), c.roots.head.Size-1)
	}
	return under(RuleRowPath, "rows", c.roots.head.Root, c.roots.head.Size, numbers, leaves, c.proof.RowPath)
}

func ends(list []uint64) []uint64 {
	if len(list) > 2 {
		return []uint64{list[0], list[len(list)-1]}
	}
	return list
}

func under(rule, what string, root [32]byte, size uint64, places []uint64, leaves [][32]byte, path []byte) error {
	got, err := merkle.MultiRoot(size, places, leaves, hashes(path))
	if err != nil {
		return &Error{rule, err}
	}
	if got != root {
		return broken(rule, "got %s of the root %x, want %x", what, got, root)
	}
	return nil
}

// entries checks that the shown entries are those of their rows, and the shown
// digests in them.
func (c *checker) entries() error {
	var places []uint64
	var leaves [][32]byte
	for i := range c.proof.Rows {
		e, row := c.proof.Rows[i].Entry, &c.parsed[i]
		if (e != nil) != (row.Size > 0) {
			return broken(RuleEntry, "row %d of %d bytes of content: got entry %t, want one exactly if there is content", row.Seq, row.Size, e != nil)
		}
		if e == nil {
			continue
		}
		places, leaves = append(places, row.Seq), append(leaves, attest.EntryLeaf(row.Seq, e.entry(), e.Count))
		if err := c.shown(row, e); err != nil {
			return err
		}
	}
	if len(places) == 0 {
		if len(c.proof.EntryPath) > 0 {
			return broken(RuleEntryPath, "got a path for no entry, want none")
		}
		return nil
	}
	return under(RuleEntryPath, "entries", c.roots.entries, c.roots.head.Size, places, leaves, c.proof.EntryPath)
}

func (c *checker) shown(row *journal.Row, e *Entry) error {
	if e.Same != nil {
		if e.Shown != nil || e.Count > 0 || *e.Same >= row.Seq {
			return broken(RuleEntry, "row %d: got a reference to row %d, want an earlier one, and no digests beside it", row.Seq, *e.Same)
		}
		if at, ok := c.at[*e.Same]; ok {
			if b := c.proof.Rows[at].Entry; b == nil || b.Same != nil || b.Root != e.Root {
				return broken(RuleEntry, "row %d: got a reference to row %d, which has another root or refers on", row.Seq, *e.Same)
			}
		}
		return nil
	}
	s := e.Shown
	if s == nil {
		return nil
	}
	leaves := make([][32]byte, len(s.Places))
	for i := range leaves {
		leaves[i] = attest.DigestLeaf(digest(s.Digests[i*attest.DigestSize:]))
	}
	return under(RuleShown, fmt.Sprintf("digests of row %d", row.Seq), e.Root, e.Count, s.Places, leaves, s.Path)
}

// tree asks the signed tree for every sealed item and opened control.
func (c *checker) tree(a *asked) error {
	p := c.proof
	if len(a.list) == 0 {
		if len(p.Buckets) > 0 || len(p.BucketPath) > 0 {
			return broken(RuleBuckets, "got %d buckets, want none: nothing is asked for", len(p.Buckets))
		}
		return nil
	}
	proof := &bucket.Proof{Buckets: p.Buckets, Path: hashes(p.BucketPath)}
	found, err := proof.Check(c.roots.tree, c.roots.depth, a.list)
	if err != nil {
		return &Error{RuleBuckets, err}
	}
	c.found = found
	return nil
}

// firsts holds tree and rows to each other: where the tree has an item first, that
// row is shown and has it, and what a row shows is in the tree, not later.
func (c *checker) firsts(a *asked) error {
	for _, d := range a.list {
		f, ok := c.found[d]
		if !ok || !a.items[d] {
			continue
		}
		at, ok := c.at[f.First]
		if !ok {
			return broken(RuleFirst, "row %d, which the tree has as the first with digest %x, is not shown", f.First, d)
		}
		row, e := &c.parsed[at], c.proof.Rows[at].Entry
		if uint8(row.Dir) != f.Direction || e == nil || e.Same != nil {
			return broken(RuleFirst, "row %d: the tree has it as the first with digest %x, direction %d; got direction %d", f.First, d, f.Direction, row.Dir)
		}
		if row.Phase != journal.PhaseGrade && !holds(e.Shown, d) {
			return broken(RuleFirst, "row %d: the tree has it as the first with digest %x, which it does not show", f.First, d)
		}
	}
	for i := range c.proof.Rows {
		e := c.proof.Rows[i].Entry
		if e == nil || e.Shown == nil {
			continue
		}
		seq := c.parsed[i].Seq
		for at := 0; at < len(e.Shown.Digests); at += attest.DigestSize {
			d := digest(e.Shown.Digests[at:])
			if !a.items[d] && !a.controls[d] {
				return broken(RuleShown, "row %d: got digest %x, which is no sealed item and no opened control", seq, d)
			}
			if f, ok := c.found[d]; !ok || f.First > seq {
				return broken(RuleFirst, "row %d shows digest %x, which the tree does not have so early: the tree was made of other rows", seq, d)
			}
		}
	}
	return nil
}

func holds(s *Shown, d digest) bool {
	if s == nil {
		return false
	}
	for at := 0; at < len(s.Digests); at += attest.DigestSize {
		if digest(s.Digests[at:]) == d {
			return true
		}
	}
	return false
}

// needed refuses rows that nothing asks for: a proof has one form.
func (c *checker) needed(a *asked, stated *attest.Predicate) error {
	choose := newChooser(a, c.roots.head.Size)
	for _, r := range stated.Reasons {
		if r.Event > 0 {
			choose.reasons[r.Event] = true
		}
	}
	first := map[uint64][]digest{}
	for d, f := range c.found {
		if a.items[d] {
			first[f.First] = append(first[f.First], d)
		}
	}
	need := make([]bool, len(c.parsed))
	for i := range c.parsed {
		row, e := &c.parsed[i], c.proof.Rows[i].Entry
		var held []digest
		base := i
		switch {
		case e == nil:
		case row.Phase == journal.PhaseGrade:
			if e.Shown != nil {
				return broken(RuleUnneeded, "row %d shows digests of the grade phase, where nothing counts", row.Seq)
			}
			held = first[row.Seq]
		default:
			s := e.Shown
			if e.Same != nil {
				s = nil
				if at, ok := c.at[*e.Same]; ok {
					base, s = at, c.proof.Rows[at].Entry.Shown
				}
			}
			if s != nil {
				for at := 0; at < len(s.Digests); at += attest.DigestSize {
					held = append(held, digest(s.Digests[at:]))
				}
			}
		}
		if choose.need(row, e != nil, held) {
			need[i] = true
			if len(held) > 0 && row.Phase != journal.PhaseGrade {
				need[base] = true
			}
		}
	}
	if i := slices.Index(need, false); i >= 0 {
		return broken(RuleUnneeded, "row %d decides nothing, want it left out", c.parsed[i].Seq)
	}
	return nil
}
