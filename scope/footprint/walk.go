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
	m, cut, err := takeBy(ctx, root, read, limits, min(4, runtime.GOMAXPROCS(0)))
	if cut && err == nil {
		// Which names are beyond a limit must not depend on who was faster.
		m, _, err = takeBy(ctx, root, read, limits, 1)
	}
	return m, err
}

// takeBy walks with several workers. cut tells that a limit for all was reached.
func takeBy(ctx context.Context, root *os.Root, read bool, limits Limits, workers int) (m *Manifest, cut bool, err error) {
	m = &Manifest{}
	st, err := root.Lstat(".")
	if err != nil {
		m.Gaps = []Gap{{".", reasonOf(err)}}
		return m, false, ctx.Err()
	}
	s := &walk{ctx: ctx, read: read, limits: limits}
	s.wake.L = &s.mu
	s.bytes.Store(limits.Bytes)
	s.entries.Store(1)
	w := s.worker()
	top := statusOf(st)
	e := top.entry()
	e.Read = read
	w.draft.add(".", w.kinds.fact(&e), true)
	m.top.kinds = w.kinds
	w.draft.into(&m.top)
	s.push([]job{{slot: &m.top.below[0], path: ".", open: func() (*handle, error) { return openRoot(root) }}})
	all := []*worker{w}
	for len(all) < workers {
		all = append(all, s.worker())
	}
	var group sync.WaitGroup
	for _, w := range all[1:] {
		group.Go(w.run)
	}
	w.run()
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	for _, w := range all {
		m.Gaps = append(m.Gaps, w.gaps...)
	}
	slices.SortFunc(m.Gaps, func(a, b Gap) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	m.Gaps = slices.CompactFunc(m.Gaps, func(a, b Gap) bool { return a.Path == b.Path })
	return m, s.cut.Load(), nil
}

// walk is what the workers share: the folders that are still to be listed, the last found
// first, so that few of the folders above are open.
type walk struct {
	ctx     context.Context
	read    bool
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
	slot  *child
	path  string
	depth int
}

func (s *walk) worker() *worker {
	return &worker{walk: s, kinds: newKinds(), buf: make([]byte, piece+1)}
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
	l := &listing{kinds: w.kinds}
	if w.read {
		attrs, err := h.attributes()
		if err != nil {
			w.gap(j.path, err)
		}
		if l.unread = err != nil; attrs != [32]byte{} {
			l.attrs = &attrs
		}
	}
	names, err := h.list(&w.list, w.limits.Entries)
	if err != nil {
		w.gap(j.path, err)
		return nil
	}
	slices.Sort(names)
	w.draft.reset()
	var below []status
	for _, name := range names {
		if l.part = w.done(); l.part {
			break
		}
		p := func() string { return join(j.path, filepath.ToSlash(name)) }
		if w.entries.Add(1) > int64(w.limits.Entries) {
			l.part = true
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
	w.draft.into(l)
	j.slot.to = l
	var jobs []job
	for i := range below {
		name := string(l.name(int(l.below[i].at)))
		if j.depth >= w.limits.Depth {
			w.gap(join(j.path, name), errLimit)
			continue
		}
		h.hold()
		seen := below[i]
		jobs = append(jobs, job{slot: &l.below[i], path: join(j.path, name), depth: j.depth + 1, open: func() (*handle, error) {
			defer h.release()
			return h.enter(filepath.FromSlash(name), &seen)
		}})
	}
	slices.Reverse(jobs) // the first is taken first
	return jobs
}

// content completes an entry that is no folder.
func (w *worker) content(h *handle, name string, st *status, e *Entry) (err error) {
	switch {
	case e.Mode.Type() == fs.ModeSymlink:
		e.Target, err = h.readlink(name)
		e.Read = err == nil && w.read
		return err
	case !w.read:
		return nil
	case !e.Mode.IsRegular():
		e.Read = true // a pipe, a socket or a device has no content of its own; a folder's attributes come later
		return nil
	}
	if e.Size > w.limits.Bytes { // also of a sparse file, which takes no room
		return errBytes
	}
	if w.bytes.Add(-e.Size) < 0 {
		w.bytes.Add(e.Size)
		w.cut.Store(true)
		return errBytes
	}
	f, err := h.open(name, st)
	if err != nil {
		return err
	}
	defer f.close()
	if e.Attrs, err = f.attributes(); err != nil {
		return err
	}
	if e.Digest, err = w.digest(f, e.Size); err != nil {
		return err
	}
	e.Read = true
	return nil
}

// Look reads the entry of one path in an open folder, nil if there is none: everything but
// the content.
func Look(ctx context.Context, root *os.Root, p string) (*Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := filepath.FromSlash(p)
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st := statusOf(fi)
	e := st.entry()
	e.Path = p
	var f *os.File
	switch {
	case e.Mode.Type() == fs.ModeSymlink:
		if e.Target, err = root.Readlink(name); err != nil {
			return nil, err
		}
	case e.Mode.IsDir():
		f, err = root.Open(name)
	case e.Mode.IsRegular():
		f, err = regular.In(root, name)
	}
	if err != nil {
		return nil, err
	}
	if f != nil {
		defer f.Close()
		if e.Attrs, err = fileAttributes(f); err != nil {
			return nil, err
		}
	}
	e.Read = true
	return &e, nil
}
