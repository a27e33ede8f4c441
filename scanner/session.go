package scanner

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// inFlight bounds the bytes of contents between reading a row and writing its
// item. A larger content is worked on alone.
const inFlight = 48 << 20

// minWeight is what the smallest content counts for.
const minWeight = 256 << 10

// maxAhead bounds the rows in the same place.
const maxAhead = 4096

// A session is one scan under way. Rows are read in order, contents are
// fingerprinted by any worker, items are written in order.
type session struct {
	cfg    Config
	folder *folder
	over   *overview
	base   *manifest.Manifest
	sizes  map[[32]byte]uint64 // of base
	salt   [16]byte
	first  *worker // does the streams; the other workers are its clones
	cache  map[key]*job
	budget *budget
	tree   sorter
	check  *checks
	out    io.Writer
	buf    []byte
	rep    Report
	done   uint64
}

// A key names content under one treatment. The same bytes under another have
// other digests.
type key struct {
	sum  [32]byte
	text bool
}

// A job is one row on its way.
type job struct {
	c       *content // nil for a row without content
	raw     []byte
	exempt  bool
	same    *job // the earlier row with this content
	weight  int64
	ready   chan struct{}
	finding *finding
	err     error
}

func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *job)
	line := make(chan *job, maxAhead)
	var wg sync.WaitGroup
	workers := []*worker{}
	for range s.cfg.Workers {
		workers = append(workers, s.first.clone(s.cfg.Key))
	}
	for _, w := range workers {
		wg.Go(func() {
			for j := range work {
				j.finding, j.err = s.object(w, j.c)
				close(j.ready)
			}
		})
	}
	wg.Go(func() {
		defer close(line)
		defer close(work)
		if err := s.dispatch(ctx, work, line); err != nil {
			cancel(err)
		}
	})
	err := s.write(ctx, line)
	if err != nil {
		cancel(err)
	}
	for range line { // dispatch may wait for room
	}
	wg.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return s.finish()
}

// object fingerprints a content that is no stream's.
func (s *session) object(w *worker, c *content) (*finding, error) {
	b, large, err := c.read(s.folder.store)
	if err != nil {
		return nil, err
	}
	if large != nil {
		defer large.Close()
	}
	return w.object(c, b, large)
}

// dispatch reads the rows and hands them out.
func (s *session) dispatch(ctx context.Context, work, line chan<- *job) error {
	rows, err := s.folder.rows()
	if err != nil {
		return err
	}
	next, stop, err := s.folder.details()
	if err != nil {
		return err
	}
	defer stop()
	chain := journal.NewChecker()
	streams := map[journal.Op]*stream{}
	for l, err := range rows {
		if err != nil {
			return err
		}
		if _, err := chain.Add(l.Raw); err != nil {
			return err
		}
		detail, err := next()
		if err != nil {
			return err
		}
		c, err := contentOf(l, detail, s.folder.secret)
		if err != nil {
			return err
		}
		j := &job{c: c, raw: l.Raw, ready: make(chan struct{})}
		if err := s.hand(ctx, j, streams, work); err != nil {
			return err
		}
		select {
		case line <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if got := chain.Summary().Head; got != s.over.sum.Head {
		return fmt.Errorf("scan: the journal changed while it was read: got %d rows, want %d (is the run still going on?)", got.Size, s.over.sum.Head.Size)
	}
	return nil
}

// hand decides how a row is treated and starts what must be done.
func (s *session) hand(ctx context.Context, j *job, streams map[journal.Op]*stream, work chan<- *job) error {
	c := j.c
	if c == nil {
		close(j.ready)
		return nil
	}
	if j.exempt = s.exempt(c); j.exempt {
		close(j.ready)
		if size := s.sizes[c.sum]; size != c.row.Size {
			return c.size(size)
		}
		return nil
	}
	if !chunked(&c.row) {
		k := key{c.sum, c.text}
		if same, ok := s.cache[k]; ok {
			close(j.ready)
			j.same = same
			if same.c.row.Size != c.row.Size {
				return c.size(same.c.row.Size)
			}
			return nil
		}
		s.cache[k] = j
	}
	// Views may make much of little.
	j.weight = min(max(int64(c.row.Size), minWeight), inFlight)
	if err := s.budget.take(ctx, j.weight); err != nil {
		return err
	}
	if !chunked(&c.row) {
		select {
		case work <- j:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(j.ready)
	b, large, err := c.read(s.folder.store)
	if err != nil {
		return err
	}
	if large != nil {
		large.Close()
		return &ContentError{Event: c.row.Seq, Got: fmt.Sprintf("a chunk of %d bytes", c.row.Size), Want: fmt.Sprintf("at most %d", small)}
	}
	st := streams[c.row.Op]
	if st == nil {
		st = new(stream)
		streams[c.row.Op] = st
	}
	last, end := s.over.ends(&c.row)
	j.finding, j.err = s.first.chunk(st, c, b, last, end)
	return nil
}

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
	var t attest.Trailer
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

// A budget is a number of bytes that may be under way.
type budget struct {
	mu   sync.Mutex
	free int64
	more chan struct{}
}

func newBudget(n int64) *budget { return &budget{free: n, more: make(chan struct{}, 1)} }

// take waits until n bytes are free. Only one goroutine takes.
func (b *budget) take(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.free >= n {
			b.free -= n
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		select {
		case <-b.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.free += n
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}
