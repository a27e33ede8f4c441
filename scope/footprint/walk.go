package footprint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Limits of one walk. A walk that meets one has a gap.
type Limits struct {
	Entries int   // names
	Bytes   int64 // sizes of the files that are read, holes too
	Depth   int   // folders below each other
}

// DefaultLimits of a walk: ten million names, 1 TiB.
var DefaultLimits = Limits{Entries: 10_000_000, Bytes: 1 << 40, Depth: 1024}

// Gap reasons.
const (
	GapUnreadable = "unreadable"
	GapSwapped    = "replaced while it was looked at"
	GapLimit      = "a limit was reached"
	GapVanished   = "gone while it was looked at"
)

// Take lists the open folder. With read it reads contents and extended attributes too.
// It follows no symbolic link, opens regular files and folders alone, and only if they are
// what it looked at before: on Linux by the descriptor of the folder above. What cannot be
// seen is a gap; the error is only ever ctx's. The digest is the SHA-256 of a content of at most
// 1 MiB, of a longer one that of the SHA-256s of its pieces of 1 MiB: what lies in a hole
// of a sparse file is not read, and is zeros.
func Take(ctx context.Context, root *os.Root, read bool, limits Limits) (*Manifest, error) {
	var m *Manifest
	err := twice(func(workers int) (cut bool, err error) {
		m, _, cut, err = look(ctx, root, nil, read, limits, workers)
		return cut, err
	})
	return m, err
}

// Compare is Diff of a manifest and what Take would give now, of which no manifest is made.
func Compare(ctx context.Context, before *Manifest, root *os.Root, read bool, limits Limits) (changes []Change, gaps []Gap, err error) {
	err = twice(func(workers int) (bool, error) {
		now, c, cut, err := look(ctx, root, before, read, limits, workers)
		if err == nil {
			changes, gaps = c, bothGaps(before.Gaps, now.Gaps)
		}
		return cut, err
	})
	return changes, gaps, err
}

// twice looks again with one worker if a limit for all was reached: which names are beyond
// it must not depend on who was faster.
func twice(look func(workers int) (cut bool, err error)) error {
	cut, err := look(min(4, runtime.GOMAXPROCS(0)))
	if cut && err == nil {
		_, err = look(1)
	}
	return err
}

// look walks with several workers. With a manifest of before it gives the changes since,
// and keeps nothing but the gaps. cut tells that a limit for all was reached.
func look(ctx context.Context, root *os.Root, before *Manifest, read bool, limits Limits, workers int) (m *Manifest, changes []Change, cut bool, err error) {
	m = &Manifest{}
	s := &walk{ctx: ctx, read: read, keep: before == nil, limits: limits}
	s.wake.L = &s.mu
	s.bytes.Store(limits.Bytes)
	all := []*worker{s.worker()}
	for len(all) < workers {
		all = append(all, s.worker())
	}
	w := all[0]
	if first, err := w.top(m, root, before); err != nil {
		w.gap(".", err)
	} else {
		s.push([]job{first})
	}
	var group sync.WaitGroup
	for _, w := range all[1:] {
		group.Go(w.run)
	}
	w.run()
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, false, err
	}
	for _, w := range all {
		m.Gaps = append(m.Gaps, w.gaps...)
		changes = append(changes, w.out...)
	}
	slices.SortFunc(m.Gaps, func(a, b Gap) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	m.Gaps = slices.CompactFunc(m.Gaps, func(a, b Gap) bool { return a.Path == b.Path }) // a folder is opened twice
	return m, sorted(changes), s.cut.Load(), nil
}

// top is the entry of the folder itself.
func (w *worker) top(m *Manifest, root *os.Root, before *Manifest) (job, error) {
	open := func() (*handle, error) { return openRoot(root) }
	fi, err := root.Lstat(".")
	if err != nil {
		return job{}, err
	}
	st := statusOf(fi)
	e := st.entry()
	if err := w.folderAttributes(open, &e); err != nil {
		w.gap(".", err)
	}
	w.entries.Store(1)
	w.draft.add(".", w.kinds.fact(&e), true)
	m.top.kinds = w.kinds
	w.draft.into(&m.top)
	j := job{open: open, slot: &m.top.below[0], path: "."}
	if before != nil && len(before.top.facts) > 0 {
		w.level(&before.top, &m.top, "", func(_ int, was *listing) { j.was = was })
	}
	return j, nil
}

// walk is what the workers share: the folders that are still to be listed, the last found
// first, so that few of the folders above are open.
type walk struct {
	ctx     context.Context
	read    bool
	keep    bool // make a manifest, do not compare
	limits  Limits
	bytes   atomic.Int64 // that may still be read
	entries atomic.Int64 // so far
	full    atomic.Bool  // too many names: the walk ends
	cut     atomic.Bool  // full, or some file was not read for its size and those before

	mu   sync.Mutex
	wake sync.Cond
	jobs []job
	busy int
}

// A job is one folder to list.
type job struct {
	open  func() (*handle, error)
	slot  *child   // where its listing goes
	was   *listing // what it is compared with, nil for nothing
	path  string
	depth int
}

func (s *walk) worker() *worker {
	return &worker{walk: s, kinds: newKinds()}
}

func (s *walk) push(jobs []job) {
	if len(jobs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, jobs...)
	s.wake.Broadcast()
}

func (s *walk) pop() (j job, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.jobs) == 0 && s.busy > 0 {
		s.wake.Wait()
	}
	n := len(s.jobs)
	if n == 0 {
		return j, false
	}
	j = s.jobs[n-1]
	s.jobs[n-1] = job{}
	s.jobs = s.jobs[:n-1]
	s.busy++
	return j, true
}

func (s *walk) did() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 && len(s.jobs) == 0 {
		s.wake.Broadcast()
	}
}

func (s *walk) done() bool { return s.full.Load() || s.ctx.Err() != nil }

type worker struct {
	*walk
	differ
	kinds *kinds
	gaps  []Gap
	buf   []byte
	list  lister
	draft draft
}

var (
	errLimit = errors.New("limit of names or folders")
	errBytes = errors.New("limit of bytes")
)

func reasonOf(err error) string {
	switch {
	case errors.Is(err, errLimit), errors.Is(err, errBytes):
		return GapLimit
	case errors.Is(err, regular.ErrReplaced):
		return GapSwapped
	case errors.Is(err, fs.ErrNotExist):
		return GapVanished
	}
	return GapUnreadable
}

func (w *worker) gap(p string, err error) { w.gaps = append(w.gaps, Gap{p, reasonOf(err)}) }

func (w *worker) run() {
	for {
		j, ok := w.pop()
		if !ok {
			return
		}
		w.push(w.folder(j))
		w.did()
	}
}

// folder lists one folder and gives the folders in it.
func (w *worker) folder(j job) []job {
	h, err := j.open() // also if the walk is over: it closes the folder above
	if err != nil {
		if !w.done() {
			w.gap(j.path, err)
		}
		return nil
	}
	defer h.release()
	if w.done() {
		return nil
	}
	names, err := h.list(&w.list, w.limits.Entries)
	if err != nil {
		w.gap(j.path, err)
		return nil
	}
	slices.Sort(names)
	w.draft.reset()
	var below []status
	part := false
	for _, name := range names {
		if part = w.done(); part {
			break
		}
		p := func() string { return join(j.path, filepath.ToSlash(name)) }
		if w.entries.Add(1) > int64(w.limits.Entries) {
			part = true
			w.cut.Store(true)
			if w.full.CompareAndSwap(false, true) {
				w.gap(p(), errLimit)
			}
			break
		}
		st, err := h.lstat(name)
		if err != nil {
			w.gap(p(), err)
			continue
		}
		e := st.entry()
		if err := w.content(h, name, &st, &e); err != nil {
			w.gap(p(), err)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		w.draft.add(filepath.ToSlash(name), w.kinds.fact(&e), e.Mode.IsDir())
		if e.Mode.IsDir() {
			below = append(below, st)
		}
	}
	return w.below(h, j, below, w.end(j, part))
}

// end keeps the listing, or compares it, and gives it with what was in its folders.
func (w *worker) end(j job, part bool) (was []*listing) {
	if w.keep {
		l := &listing{kinds: w.kinds, part: part}
		w.draft.into(l)
		j.slot.to = l
		return nil
	}
	w.level(j.was, w.draft.view(w.kinds, part), j.path, func(_ int, l *listing) { was = append(was, l) })
	return was
}

// below gives the folders in the folder as jobs.
func (w *worker) below(h *handle, j job, seen []status, was []*listing) (jobs []job) {
	for i := range seen {
		l := w.draft.view(w.kinds, false)
		name := string(l.name(int(w.draft.folders[i])))
		next := job{path: join(j.path, name), depth: j.depth + 1}
		if j.depth >= w.limits.Depth {
			w.gap(next.path, errLimit)
			continue
		}
		if w.keep {
			next.slot = &j.slot.to.below[i]
		} else {
			next.was = was[i]
		}
		h.hold()
		next.open = func() (*handle, error) {
			defer h.release()
			return h.enter(filepath.FromSlash(name), &seen[i])
		}
		jobs = append(jobs, next)
	}
	slices.Reverse(jobs) // the first is taken first
	return jobs
}
