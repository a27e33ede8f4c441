package scanner

import (
	"context"
	"fmt"
	"io"
	"sync"

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
