// Package record turns what the broker and the tracer see into journal rows. It
// numbers processes, directories and files, decides scope, and knows which
// versions of files the run produced.
//
// Rows are in the kernel's hands when Add returns: a broker that is killed
// afterwards loses none of them. Any failed write is final; every later call
// returns the first error.
package record

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Log takes rows; *journal.Writer is one. It adds paths, directories and the
// scope flag from the details.
type Log interface {
	Append(*journal.Row, *journal.Detail) error
	Flush() error
}

// A Recorder belongs to one run. Its methods may be called from several threads.
type Recorder struct {
	log       Log
	store     *objects.Store
	proc      int // outer procfs, O_PATH
	workspace string
	roots     []scope.Root
	hidden    func(path string) bool

	mu       sync.Mutex
	err      error
	phase    journal.Phase
	rows     uint64
	tasks    map[int]uint32  // thread id, outside, to process number
	leaders  map[int]uint32  // process id, outside, to process number
	alive    map[uint32]bool // processes without an exit row
	born     uint32
	parents  map[uint32]uint32 // who made a process; 0 or absent: not known
	inner    map[int]uint32    // thread id, inside, to process number
	files    map[fileID]*File
	objects  uint32
	touched  map[string]struct{} // paths with a journaled write
	moved    map[string]struct{} // directories that were renamed, with all below
	early    *earlier            // set when grading starts
	streams  [3]uint32
	most     int     // handles before the oldest are dated
	handles  []*File // that have one, oldest first; some may have closed it since
	progress func(rows uint64)

	remove   *redact.Redactor
	paths    *redact.Redactor // remove, without shapes of keys
	clean    [3]cleaner       // of the streams
	isFull   atomic.Bool      // the store takes nothing more, and a row says so
	overtold atomic.Bool      // a row says that a key was left
	left     atomic.Bool      // a key was left, whoever it is from
}

// Options of a Recorder.
type Options struct {
	Log       Log
	Store     *objects.Store
	Proc      int          // outer procfs, O_PATH
	Roots     []scope.Root // of the start row
	Workspace string
	Hidden    func(path string) bool // absent inside, present outside and worth a flag
	Progress  func(rows uint64)
	Handles   int              // of written files that may be open at once
	Remove    *redact.Redactor // what is replaced in details and streams; the store does it in files
}

// New returns a Recorder for a log whose start row is written.
func New(o Options) *Recorder {
	r := &Recorder{
		log: o.Log, store: o.Store, proc: o.Proc, workspace: o.Workspace, hidden: o.Hidden, progress: o.Progress,
		roots: o.Roots, rows: 1, most: max(o.Handles, 2),
		alive: map[uint32]bool{}, tasks: map[int]uint32{}, leaders: map[int]uint32{}, parents: map[uint32]uint32{}, inner: map[int]uint32{}, files: map[fileID]*File{},
		touched: map[string]struct{}{}, moved: map[string]struct{}{},
		remove: o.Remove, paths: o.Remove.WithoutShapes(),
	}
	for i := range r.clean {
		r.clean[i].stream = o.Remove.Stream()
	}
	return r
}

// An Event is one row in the making.
type Event struct {
	Proc   uint32 // number of the acting process
	Op     journal.Op
	Dir    journal.Direction
	Origin journal.Origin
	Result syscall.Errno
	Flags  journal.Flags
	Size   uint64
	Object uint32
	Child  uint32
	Path   string // resolved, inside the sandbox; "" if the operation names none
	Path2  string
	End    *journal.PhaseEnd
	Reward *journal.Reward
	Guard  *journal.Guard
	Detail journal.Detail
}

// Add writes the row of e and returns its number.
func (r *Recorder) Add(e *Event) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(e)
}

func (r *Recorder) add(e *Event) (uint64, error) {
	if r.err != nil {
		return 0, r.err
	}
	e.Detail.Path, e.Detail.Path2 = e.Path, e.Path2
	row := journal.Row{
		Phase: r.phase, Proc: e.Proc, Op: e.Op, Dir: e.Dir, Origin: e.Origin, Result: int32(e.Result),
		Flags: e.Flags, Size: e.Size, Object: e.Object, Child: e.Child, End: e.End, Reward: e.Reward, Guard: e.Guard,
	}
	if e.Path != "" && scope.ResultOf(row.Result) == scope.Absent && (r.isHidden(e.Path) || r.isHidden(e.Path2)) {
		row.Flags |= journal.FlagHidden
	}
	over := r.removeFrom(&row, &e.Detail)
	if err := r.log.Append(&row, &e.Detail); err != nil {
		return 0, r.fail(fmt.Errorf("operation %d: %w", e.Op, err))
	}
	if err := r.log.Flush(); err != nil {
		return 0, r.fail(err)
	}
	r.rows = row.Seq + 1
	if r.progress != nil {
		r.progress(r.rows)
	}
	if over {
		r.left.Store(true)
	}
	if over && row.Dir == journal.DirIn && r.overtold.CompareAndSwap(false, true) {
		if _, err := r.add(&Event{Op: journal.OpLost, Detail: journal.Detail{Note: keyLeft}}); err != nil {
			return 0, err
		}
	}
	return row.Seq, nil
}

// isHidden tells whether a path that is absent inside lies outside every root
// and names an object that the sandbox hides.
func (r *Recorder) isHidden(p string) bool {
	if p == "" || r.hidden == nil {
		return false
	}
	depth, inside := -1, false
	for _, root := range r.roots {
		tree := root.Mode != scope.ReadOne && root.Mode != scope.WriteOne
		if (p == root.Path || tree && strings.HasPrefix(p, root.Path+"/")) && len(root.Path) > depth {
			depth, inside = len(root.Path), root.Mode != scope.NoTree
		}
	}
	return !inside && r.hidden(p)
}

func (r *Recorder) fail(err error) error {
	if r.err == nil {
		r.err = fmt.Errorf("journal: %w", err)
	}
	return r.err
}

// Err is the error that ended the recording, if any.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// SetPhase moves to a later phase.
func (r *Recorder) SetPhase(p journal.Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = max(r.phase, p)
}

// Phase is the present phase.
func (r *Recorder) Phase() journal.Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// Void records that the call of row seq could not be answered.
func (r *Recorder) Void(proc uint32, seq uint64) error {
	_, err := r.Add(&Event{Proc: proc, Op: journal.OpVoid, Object: uint32(seq)})
	return err
}

// Lost records that something could not be recorded.
func (r *Recorder) Lost(proc uint32, note string) error {
	_, err := r.Add(&Event{Proc: proc, Op: journal.OpLost, Detail: journal.Detail{Note: note}})
	return err
}

// Touched records that a journaled write named path.
func (r *Recorder) Touched(paths ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range paths {
		if p == r.workspace || strings.HasPrefix(p, r.workspace+"/") {
			r.touched[p] = struct{}{}
		}
	}
}

// Moved records that a directory moved, with all below it.
func (r *Recorder) Moved(paths ...string) {
	r.Touched(paths...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range paths {
		r.moved[p] = struct{}{}
	}
}

// Explained tells whether a journaled write accounts for a change at p.
func (r *Recorder) Explained(p string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.touched[p]; ok {
		return true
	}
	for d := p; len(d) > 1; d = path.Dir(d) {
		if _, ok := r.moved[d]; ok {
			return true
		}
	}
	return false
}

// Rows written so far, the start row included.
func (r *Recorder) Rows() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows
}
