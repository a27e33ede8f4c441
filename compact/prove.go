package compact

import (
	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Prove makes the compact proof of a run from its whole evidence. It is pure and
// deterministic. ev must be whole and bound to set (attest.Bind). A set that asks what
// no compact proof shows is refused with an *Error of RuleWhole.
func Prove(set *contraband.Set, ev *attest.Evidence) (*Proof, error) {
	if err := attest.Showable(set); err != nil {
		return nil, &Error{RuleWhole, err}
	}
	m := &maker{ev: ev, asked: ask(set, ev.Salt(), ev.Controls()), held: map[uint64]*Shown{}}
	p := &Proof{Version: Version, Controls: ev.Controls()}
	if err := m.choose(attest.Derive(set, ev)); err != nil {
		return nil, err
	}
	m.rows(p)
	if len(m.asked.list) == 0 {
		return p, nil
	}
	tree := bucket.NewProver(ev.Digests(), m.asked.list)
	for e := range ev.Tree() {
		if err := tree.Add(e); err != nil {
			return nil, err
		}
	}
	buckets, _, err := tree.Proof()
	if err != nil {
		return nil, err
	}
	p.Buckets, p.BucketPath = buckets.Buckets, joined(buckets.Path)
	return p, nil
}

type maker struct {
	ev    *attest.Evidence
	asked *asked
	held  map[uint64]*Shown // asked digests by the row whose entry holds them, without paths
	shown []uint64          // chosen rows, in order
	rest  map[uint64]bool   // those among them that show their digests
}

// choose walks all rows and lists those that the proof shows.
func (m *maker) choose(d *attest.Derivation) error {
	c := newChooser(m.asked, m.ev.Size())
	for _, r := range d.Reasons {
		if r.Event > 0 {
			c.reasons[r.Event] = true
		}
	}
	chosen := map[uint64]bool{}
	m.rest = map[uint64]bool{}
	seen := map[digest]bool{}
	for raw, entry := range m.ev.Items() {
		row, err := journal.ParseRow(raw)
		if err != nil {
			return err
		}
		base, holds := m.holds(row.Seq, entry)
		if row.Phase == journal.PhaseGrade {
			// Nothing counts here, but where an item was first seen must be shown.
			var news []digest
			for _, d := range holds {
				if m.asked.items[d] && !seen[d] {
					news = append(news, d)
				}
			}
			if holds = news; c.need(&row, entry != nil, holds) {
				chosen[row.Seq] = true
			}
		} else if c.need(&row, entry != nil, holds) {
			chosen[row.Seq] = true
			if len(holds) > 0 {
				chosen[base], m.rest[base] = true, true
			}
		}
		for _, d := range holds {
			seen[d] = true
		}
	}
	for n := range m.ev.Size() {
		if chosen[n] {
			m.shown = append(m.shown, n)
		}
	}
	return nil
}

// holds returns the asked digests of a row's content, and the row whose entry
// lists them.
func (m *maker) holds(seq uint64, e *attest.Entry) (base uint64, list []digest) {
	if e == nil {
		return seq, nil
	}
	if base = seq; e.Same != nil {
		base = *e.Same
	} else {
		var s Shown
		for i := 0; i < len(e.Digests); i += attest.DigestSize {
			if d := digest(e.Digests[i:]); m.asked.items[d] || m.asked.controls[d] {
				s.Places = append(s.Places, uint64(i/attest.DigestSize))
				s.Digests = append(s.Digests, d[:]...)
			}
		}
		if len(s.Places) > 0 {
			m.held[seq] = &s
		}
	}
	if s := m.held[base]; s != nil {
		for i := 0; i < len(s.Digests); i += attest.DigestSize {
			list = append(list, digest(s.Digests[i:]))
		}
	}
	return base, list
}

// rows puts the chosen rows and their paths into p.
func (m *maker) rows(p *Proof) {
	var contents []uint64 // chosen rows with an entry
	todo, seq := m.shown, uint64(0)
	for raw, entry := range m.ev.Items() {
		if len(todo) > 0 && todo[0] == seq {
			todo = todo[1:]
			r := Row{Row: raw}
			if entry != nil {
				r.Entry = m.entry(seq, entry)
				contents = append(contents, seq)
			}
			p.Rows = append(p.Rows, r)
		}
		seq++
	}
	p.RowPath, p.EntryPath = paths(m.ev, m.shown, contents)
}

// paths returns the multiproofs of rows and of the entries of some of them.
func paths(ev *attest.Evidence, rows, contents []uint64) (rowPath, entryPath []byte) {
	byRow := merkle.NewProver(ev.Size(), rows)
	byEntry := merkle.NewProver(ev.Size(), contents)
	seq := uint64(0)
	for raw, e := range ev.Items() {
		byRow.Push(journal.LeafHash(raw))
		if len(contents) > 0 {
			byEntry.Push(attest.EntryLeaf(seq, e, owned(e)))
		}
		seq++
	}
	if len(contents) > 0 {
		entryPath = joined(byEntry.Path())
	}
	return joined(byRow.Path()), entryPath
}

// owned is how many digests of its own an entry has.
func owned(e *attest.Entry) uint64 {
	if e == nil {
		return 0
	}
	return uint64(len(e.Digests) / attest.DigestSize)
}

func (m *maker) entry(seq uint64, e *attest.Entry) *Entry {
	out := &Entry{Seen: e.Seen, Scanned: e.Scanned, Baseline: e.Baseline, Declared: e.Declared, Opaque: e.Opaque,
		Canonical: e.Canonical, Bounds: e.Bounds, Root: e.Root, Count: owned(e)}
	if e.Same != nil {
		same := *e.Same
		out.Same = &same
	}
	if m.rest[seq] {
		s := m.held[seq]
		paths := merkle.NewProver(out.Count, s.Places)
		for i := 0; i < len(e.Digests); i += attest.DigestSize {
			paths.Push(attest.DigestLeaf([attest.DigestSize]byte(e.Digests[i:])))
		}
		s.Path = joined(paths.Path())
		out.Shown = s
	}
	return out
}
