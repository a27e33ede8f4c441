package benchmark

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// Options say how a whole benchmark is sealed.
type Options struct {
	Key      contraband.BenchmarkKey
	Public   bool                     // publish Key in the head; the benchmark needs a revision
	SkipWeak bool                     // leave bad tasks out and count them
	Workers  int                      // goroutines; 0 is one for each processor
	Random   io.Reader                // crypto/rand: control texts
	Dir      string                   // where sets wait for their place; "" is the system's folder for temporary files
	Progress func(done, total uint64) // of tasks, twice where there are several; may be nil
}

// A Problem is why a task cannot be sealed well.
type Problem struct {
	Task   string
	Place  string // file, or file:line
	Kind   string // leak, small, given-away, overlap, twin: what SkipWeak leaves out; data: what must be repaired
	Reason string
}

// problemData is the kind that is no weakness of a task but a broken data set.
const problemData = "data"

// A BadTasksError lists every task that cannot be sealed well. Nothing is sealed.
type BadTasksError struct {
	Benchmark string
	Tasks     int // of the benchmark
	Problems  []Problem
}

func (e *BadTasksError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d tasks of %s cannot be sealed well:", countTasks(e.Problems), e.Tasks, e.Benchmark)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s: task %s: %s: %s", p.Place, p.Task, p.Kind, p.Reason)
	}
	return b.String()
}

// Weak tells whether leaving the tasks out would do.
func (e *BadTasksError) Weak() bool {
	return !slices.ContainsFunc(e.Problems, func(p Problem) bool { return p.Kind == problemData })
}

func countTasks(list []Problem) int {
	seen := map[string]bool{}
	for _, p := range list {
		seen[p.Task] = true
	}
	return len(seen)
}

// A TaskSeal is what sealing found out about one task.
type TaskSeal struct {
	seal.Summary
	Size int // bytes of the set
}

// Built is a whole benchmark, sealed and not yet signed.
type Built struct {
	Head     *contraband.Head
	Tasks    []TaskSeal // ascending
	Left     []Problem  // why tasks were left out
	Warnings []string
	spool    *os.File
	sets     []spooled // ascending by task
}

type spooled struct {
	offset, size int64
	leaf         [32]byte
}

// Seal seals all tasks. The error is a *BadTasksError if some cannot be sealed
// well and SkipWeak does not leave them out. Close frees what the result holds.
func (b *Benchmark) Seal(o Options) (*Built, error) {
	if o.Public && b.Revision == "" {
		return nil, &seal.TaskError{File: b.File, Item: "revision", Problem: "missing; a public key is bound to the revision of the data"}
	}
	w := &sealing{b: b, o: o, names: b.IDs(), sets: make([]*sealedTask, len(b.entries)), data: newDataList(b), warnings: slices.Clone(b.Warnings), around: map[string][]string{}}
	spool, err := os.CreateTemp(o.Dir, ".cleanrun-sets-*")
	if err != nil {
		return nil, err
	}
	w.spool = spool
	built, err := w.all()
	if err != nil {
		return nil, errors.Join(err, removeSpool(spool))
	}
	return built, nil
}

func removeSpool(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// sealing is the state that the workers share.
type sealing struct {
	b     *Benchmark
	o     Options
	names []string
	data  *dataList
	done  atomic.Uint64

	mu       sync.Mutex
	spool    *os.File
	end      int64
	sets     []*sealedTask
	problems []Problem
	warnings []string
	around   map[string][]string // tasks by what seal.Summary.Surroundings says of them
	fatal    error
}

type sealedTask struct {
	TaskSeal
	spooled
}

func (w *sealing) all() (*Built, error) {
	var shared *overlaps
	total := uint64(len(w.names))
	if len(w.names) > 1 {
		shared = newOverlaps(w.o.Key)
		total *= 2
		w.each(total, func() func(i int) error {
			f, mem := shared.base.Clone(), new(seal.Builder)
			return func(i int) error {
				// What fails here fails again below, where it is reported.
				if t, err := w.b.entries[i].read(); err == nil {
					if m, err := t.LoadSources(); err == nil {
						_ = shared.add(i, m, f, mem)
					}
				}
				return nil
			}
		})
		shared.freeze()
	}
	w.each(total, func() func(i int) error {
		h, mem := shared.holder(), new(seal.Builder)
		return func(i int) error { return w.one(i, h.of(i), mem) }
	})
	if w.fatal != nil {
		return nil, w.fatal
	}
	if shared != nil {
		w.judge(shared)
	}
	slices.SortStableFunc(w.problems, func(a, b Problem) int { return cmp.Compare(a.Task, b.Task) })
	bad := &BadTasksError{Benchmark: w.b.Name, Tasks: len(w.names), Problems: w.problems}
	if len(w.problems) > 0 && !(w.o.SkipWeak && bad.Weak()) {
		return nil, bad
	}
	return w.build()
}

// each calls work for all tasks, from several goroutines.
func (w *sealing) each(total uint64, worker func() func(i int) error) {
	n := w.o.Workers
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, len(w.names)) {
		group.Go(func() {
			work := worker()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(w.names) {
					return
				}
				if err := work(i); err != nil {
					w.mu.Lock()
					w.fatal = errors.Join(w.fatal, err)
					w.mu.Unlock()
					return
				}
				if done := w.done.Add(1); w.o.Progress != nil {
					w.o.Progress(done, total)
				}
			}
		})
	}
	group.Wait()
}

// one seals one task. An error is not about the task.
func (w *sealing) one(i int, h *holder, mem *seal.Builder) error {
	e := w.b.entries[i]
	bad := func(kind, at, reason string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problems = append(w.problems, Problem{Task: e.id, Place: cmp.Or(at, place(e.at)), Kind: kind, Reason: reason})
	}
	failed := func(err error) error {
		var task *seal.TaskError
		var leak *seal.LeakError
		switch {
		case errors.As(err, &leak):
			bad("leak", "", err.Error())
		case errors.As(err, &task):
			bad(problemData, place(seal.Value{File: task.File, Line: task.Line}), strings.TrimPrefix(task.Item+": "+task.Problem, ": "))
		default:
			bad(problemData, "", err.Error())
		}
		return nil
	}
	t, err := e.read()
	if err != nil {
		return failed(err)
	}
	m, err := t.Load()
	if err != nil {
		return failed(err)
	}
	w.data.add(m)
	control, err := w.control()
	if err != nil {
		return err
	}
	_, payload, sum, err := mem.Build(m, w.o.Key, control, h)
	if err != nil {
		return failed(err)
	}
	switch {
	case len(payload) > receipt.MaxSealedSet-2*receipt.MaxBenchmark: // a part holds the head too
		bad(problemData, "", fmt.Sprintf("its set has %d bytes, want at most %d; split the task", len(payload), receipt.MaxSealedSet-2*receipt.MaxBenchmark))
		return nil
	case sum.TooSmall:
		bad("small", "", "it seals nothing strong: no whole object and fewer than 8 items; no run of it could be CLEAN")
		return nil
	case 2*sum.Kept < sum.Novel:
		bad("given-away", "", fmt.Sprintf("the workspace or prompt holds %d of the %d fragments and lines of its answer; no run of it could be CLEAN", sum.Novel-sum.Kept, sum.Novel))
		return nil
	}
	leaf := [32]byte(rfc6962.DefaultHasher.HashLeaf(payload))
	w.mu.Lock()
	at := w.end
	w.end += int64(len(payload))
	w.sets[i] = &sealedTask{TaskSeal{Summary: *sum, Size: len(payload)}, spooled{at, int64(len(payload)), leaf}}
	for _, text := range sum.Warnings {
		w.warnings = append(w.warnings, fmt.Sprintf("%s: %s", e.id, text))
	}
	for _, text := range sum.Surroundings {
		w.around[text] = append(w.around[text], e.id)
	}
	w.mu.Unlock()
	_, err = w.spool.WriteAt(payload, at)
	return err
}

// control draws a control text. The random source need not be safe for several
// goroutines.
func (w *sealing) control() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return seal.NewControl(w.o.Random)
}

// judge turns what tasks give away of each other into problems or warnings.
func (w *sealing) judge(shared *overlaps) {
	given, same, warnings := shared.findings(w.names)
	w.warnings = append(w.warnings, warnings...)
	for _, list := range []struct {
		kind string
		all  []overlap
	}{{"overlap", given}, {"twin", same}} {
		for _, f := range list.all {
			e := w.b.entries[f.task]
			if list.kind == "overlap" && w.b.Overlap == OverlapReport {
				w.warnings = append(w.warnings, fmt.Sprintf("%s: %v", e.id, f.err))
				continue
			}
			w.problems = append(w.problems, Problem{Task: e.id, Place: place(e.at), Kind: list.kind, Reason: f.err.Error()})
		}
	}
}

// build puts the sealed tasks under one root.
func (w *sealing) build() (*Built, error) {
	out := &Built{Left: w.problems, spool: w.spool}
	left := map[string]bool{}
	for _, p := range w.problems {
		left[p.Task] = true
	}
	var tree merkle.Tree
	weak, weakIn := 0, 0
	for i, s := range w.sets {
		if s == nil || left[w.names[i]] {
			continue
		}
		out.Tasks = append(out.Tasks, s.TaskSeal)
		out.sets = append(out.sets, s.spooled)
		tree.Push(s.leaf)
		if n := s.Weak(); n > 0 {
			weak, weakIn = weak+n, weakIn+1
		}
	}
	if len(out.sets) == 0 {
		return nil, &BadTasksError{Benchmark: w.b.Name, Tasks: len(w.names), Problems: w.problems}
	}
	if weak > 0 {
		w.warnings = append(w.warnings, fmt.Sprintf("lines or files too short or too weak to seal: %d, in %d of %d tasks; a run that reads nothing else is not noticed", weak, weakIn, len(out.sets)))
	}
	for text, ids := range w.around { // sorted below
		if len(ids) == 1 {
			text = fmt.Sprintf("%s: %s", ids[0], text)
		} else {
			text = fmt.Sprintf("%s (%d tasks, such as %s)", text, len(ids), slices.Min(ids))
		}
		w.warnings = append(w.warnings, text)
	}
	slices.Sort(w.warnings)
	out.Warnings = slices.Compact(w.warnings)
	out.Head = &contraband.Head{
		Version: contraband.BenchmarkVersion, Benchmark: w.b.Name, Period: w.b.Period, Revision: w.b.Revision,
		Tasks: uint64(len(out.sets)), Root: tree.Root(), Weak: uint64(len(left)),
	}
	if w.o.Public {
		out.Head.Key, out.Head.Data = w.o.Key.Publish(), w.data.digest()
	}
	_, err := out.Head.Marshal()
	return out, err
}

// Write writes the seal: signed is the COSE_Sign1 of Head. It may be called
// again and writes the same.
func (b *Built) Write(to io.Writer, signed []byte) error {
	w := bufio.NewWriterSize(to, 1<<20)
	for _, part := range [][]byte{bytesHead(len(signed)), signed} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	for _, s := range b.sets {
		if _, err := w.Write(bytesHead(int(s.size))); err != nil {
			return err
		}
		if _, err := io.Copy(w, io.NewSectionReader(b.spool, s.offset, s.size)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Close removes the sets that wait on disk.
func (b *Built) Close() error { return removeSpool(b.spool) }
