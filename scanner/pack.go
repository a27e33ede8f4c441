package scanner

import (
	"context"
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
)

// write writes the pack up to its last item.
func (s *session) write(ctx context.Context, line <-chan *job) error {
	head := attest.Header{Version: attest.EvidenceVersion, Rows: s.over.sum.Head.Size, Root: s.over.sum.Head.Root}
	if _, err := s.out.Write(head.Append(nil)); err != nil {
		return err
	}
	for j := range line {
		select {
		case <-j.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if j.err != nil {
			return j.err
		}
		if err := s.item(j); err != nil {
			return err
		}
		s.budget.give(j.weight)
		j.raw = nil // the cache keeps the job
		if j.c != nil {
			j.c.raw, j.c.inline = nil, nil
		}
		s.rep.Rows++
		if j.c != nil {
			s.done += j.c.row.Size
			if s.cfg.Progress != nil {
				s.cfg.Progress(s.done, s.over.sum.Bytes)
			}
		}
	}
	return nil
}

func (s *session) item(j *job) error {
	it := attest.Item{Row: j.raw}
	if j.c == nil {
		_, err := s.out.Write(it.Append(s.buf[:0]))
		return err
	}
	it.Entry = s.entry(j)
	f := j.finding
	if f == nil || j.same != nil {
		return s.put(it.Append(s.buf[:0]))
	}
	if err := s.check.row(s, j); err != nil {
		return err
	}
	tag := j.c.row.Seq<<2 | uint64(j.c.row.Dir)
	if err := f.digests.each(func(d [16]byte) error { s.tree.add(recordOf(d, tag)); return nil }); err != nil {
		return err
	}
	if f.digests.disk != nil {
		return s.spread(it, &f.digests)
	}
	it.Entry.Digests = f.digests.all
	err := s.put(it.Append(s.buf[:0]))
	s.first.drop(&f.digests)
	return err
}

func (s *session) put(b []byte) error {
	s.buf = b[:0]
	_, err := s.out.Write(b)
	return err
}

// spread writes an item whose digests are on disk. They are the last field of
// the entry, so the item is encoded without them and their head put in place.
func (s *session) spread(it attest.Item, d *digests) error {
	b := it.Append(s.buf[:0])
	b = appendBytesHead(b[:len(b)-1], d.n*attest.DigestSize)
	if err := s.put(b); err != nil {
		return err
	}
	b = s.buf[:0]
	err := d.each(func(x [16]byte) error {
		if b = append(b, x[:]...); len(b) < 1<<16 {
			return nil
		}
		_, err := s.out.Write(b)
		b = b[:0]
		return err
	})
	if err != nil {
		return err
	}
	return s.put(b)
}

// entry is the row's entry without its digests.
func (s *session) entry(j *job) *attest.Entry {
	r := &j.c.row
	e := &attest.Entry{Seen: r.Size, Root: attest.DigestRoot(nil)}
	switch {
	case j.exempt:
		e.Baseline = r.Size
		s.rep.Baseline += r.Size
		return e
	case declared(r):
		e.Declared = r.Size
		e.Root = j.finding.digests.root
		s.rep.Declared += r.Size
		s.rep.Objects++
		return e
	}
	f := j.finding
	if j.same != nil {
		f = j.same.finding
		seq := j.same.c.row.Seq
		e.Same = &seq
	} else {
		s.rep.Objects++
	}
	e.Scanned, e.Canonical, e.Bounds, e.Root = r.Size, f.canonical, f.bounds, f.digests.root
	if judged(r) {
		e.Opaque = min(f.opaque, r.Size)
	}
	s.rep.Scanned += r.Size
	s.rep.Opaque += e.Opaque
	if e.Bounds != 0 {
		s.rep.Bounded++
	}
	return e
}

// finish writes the trailer and runs the self-check.
func (s *session) finish() error {
	if err := s.tree.finish(); err != nil {
		return err
	}
	t := attest.Trailer{Openings: s.cfg.Openings}
	if err := s.tree.each(func(record) error { t.Digests++; return nil }); err != nil {
		return err
	}
	b := bucket.New(t.Digests)
	err := s.tree.each(func(r record) error {
		return b.Add(bucket.Entry{Digest: r.digest(), First: r.tag >> 2, Direction: uint8(r.tag & 3)})
	})
	if err != nil {
		return err
	}
	if t.Tree, t.Depth, err = b.Root(); err != nil {
		return err
	}
	t.Controls = controls(s.first, s.cfg.Set, s.over.sum.Head)
	if err := s.put(t.Append(s.buf[:0])); err != nil {
		return err
	}
	s.rep.Head, s.rep.Digests = s.over.sum.Head, t.Digests
	s.rep.Checked, err = s.check.run(s)
	return err
}

func concat(list [][32]byte) []byte {
	slices.SortFunc(list, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	var out []byte
	for _, x := range list {
		out = append(out, x[:]...)
	}
	return out
}

// appendBytesHead appends the head of a CBOR byte string (RFC 8949, section 3.1).
func appendBytesHead(b []byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, 0x40|byte(n))
	case n < 1<<8:
		return append(b, 0x58, byte(n))
	case n < 1<<16:
		return append(b, 0x59, byte(n>>8), byte(n))
	case n < 1<<32:
		return append(b, 0x5a, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, 0x5b, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}
