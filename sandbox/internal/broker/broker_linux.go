// Package broker answers the system calls of a run: it opens files itself, hands
// the descriptors over, performs changes of names and metadata itself, and
// writes a row before each answer.
//
// Its process is a member of the sandbox's user and mount namespaces and has the
// run's root, but stands outside its process namespace. Each worker thread has
// exactly the program's rights and a root, directory and umask of its own.
package broker

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/privs"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// A Broker serves one listener after another: each phase of a run has its own.
type Broker struct {
	Listener *seccomp.Listener // of the present phase, see Start
	Arch     *seccomp.Arch
	Recorder *record.Recorder
	Proc     int         // outer procfs, O_PATH
	Root     bool        // the program runs as root
	Observe  bool        // the host's own files are visible
	Control  string      // path of the control file, "" for none
	Abort    func(error) // ends the run; called at most once
	Plain    *Plain      // of a run without namespaces, else nil
	Path     []string    // clean folders in which programs are looked for

	Reward    string      // folder of the reward files in the grade phase, "" for none
	Unwritten atomic.Bool // a write in it failed

	Received, Answered, Void atomic.Uint64
	Busy                     atomic.Int64 // nanoseconds that calls took, summed over the workers

	handlers map[int32]handler
	abort    sync.Once
	group    sync.WaitGroup
	late     sync.WaitGroup // answers of calls that waited for a peer
	mu       sync.Mutex
	expected map[int]image            // by calling thread
	stuck    map[uint64]*record.Event // opens that wait for a peer, by notification
	phase    journal.Phase            // that the command belongs to
	command  bool                     // the command's exec was seen
	environ  bool                     // the environment is recorded
	devices  map[uint64]bool          // device number to pseudo file system

	names sync.Mutex // held while a name of a file goes or comes, but for creating it
}

type handler func(w *worker, c *call)

// A call is one notification.
type call struct {
	seccomp.Notif
	tid  int
	proc uint32
	name string
	// waits: the call waits for a peer. EINTR means that its caller has a signal.
	waits bool
}

// worker is one thread.
type worker struct {
	*Broker
	proc    int
	rights  privs.Worker
	umask   int
	page    [pathMax]byte // scratch of text and nameOf
	scratch [64]byte      // scratch for names in procfs
}

// Start starts n workers for the command of a phase. They end when no task is left
// under the filter; Wait before the next Start.
func (b *Broker) Start(l *seccomp.Listener, phase journal.Phase, n int) error {
	b.Listener, b.phase, b.command = l, phase, false
	b.expected, b.stuck = map[int]image{}, map[uint64]*record.Event{}
	if b.handlers == nil {
		b.devices = map[uint64]bool{}
		b.handlers = map[int32]handler{}
		if err := catchWake(); err != nil {
			return err
		}
		for name, h := range calls {
			if nr, ok := b.Arch.Number(name); ok {
				b.handlers[nr] = h
			}
		}
	}
	ready := make(chan error, n) // after one error nobody listens
	for range n {
		b.group.Go(func() {
			w, err := b.thread()
			ready <- err
			if err == nil {
				w.serve()
			}
		})
	}
	for range n {
		if err := <-ready; err != nil {
			return err
		}
	}
	return nil
}

// thread prepares the calling goroutine's thread, for good: it is never
// unlocked, so it ends with the goroutine.
func (b *Broker) thread() (*worker, error) {
	runtime.LockOSThread()
	if err := seccomp.MaskSignals(); err != nil {
		return nil, fmt.Errorf("mask signals: %w", err)
	}
	if b.Plain == nil { // else they are left alone: a container may refuse to part them
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return nil, fmt.Errorf("unshare file system attributes: %w", err)
		}
		unix.Umask(0)
	}
	rights, err := privs.NewWorker(b.Root)
	if err != nil {
		return nil, fmt.Errorf("worker capabilities: %w", err)
	}
	return &worker{Broker: b, proc: b.Proc, rights: rights}, nil
}

// Wait returns when all workers have ended and no call is open.
func (b *Broker) Wait() {
	b.group.Wait()
	b.settle()
}

func (w *worker) serve() {
	c := new(call)
	for {
		err := w.Listener.Recv(&c.Notif)
		if err == io.EOF {
			return
		}
		if err != nil {
			w.fatal(err)
			return
		}
		began := time.Now() // read for its monotonic part only
		w.Received.Add(1)
		c.tid = int(c.PID)
		c.proc = w.Recorder.Process(c.tid)
		c.name = w.Arch.Call(c.Nr)
		w.handle(c)
		w.Busy.Add(int64(time.Since(began)))
	}
}

// Commanded tells whether the command of the phase was seen to be executed.
func (b *Broker) Commanded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.command
}

func (w *worker) handle(c *call) {
	if c.proc == 0 {
		w.fatal(fmt.Errorf("thread %d called %s without a recorded birth", c.tid, c.name))
		w.reply(c, 0, func() error { return w.Listener.Fail(c.ID, unix.EIO) })
		return
	}
	verdict := w.Arch.Decide(c.Nr, c.Args)
	h := w.handlers[c.Nr]
	switch {
	case verdict.Class == seccomp.Notify && h != nil:
		h(w, c)
	case verdict.Class == seccomp.Refuse:
		w.denied(c, verdict.Errno)
	default:
		w.denied(c, unix.ENOSYS)
	}
}

// denied records a call that the sandbox refuses.
func (w *worker) denied(c *call, e syscall.Errno) {
	args := map[string]uint64{"number": uint64(uint32(c.Nr))}
	w.fail(c, &record.Event{Op: journal.OpDenied, Detail: journal.Detail{Args: args}}, e)
}

func isGone(err error) bool { return errors.Is(err, seccomp.ErrGone) }

func (b *Broker) fatal(err error) { b.abort.Do(func() { b.Abort(err) }) }

// finish writes the row of e and then answers. An answer that fails for another
// reason than a caller that is gone is returned.
func (w *worker) finish(c *call, e *record.Event, answer func() error) error {
	e.Proc = c.proc
	e.Detail.Syscall = c.name
	seq, err := w.Recorder.Add(e)
	if err != nil {
		w.fatal(err)
		answer = func() error { return w.Listener.Fail(c.ID, unix.EIO) }
	}
	return w.reply(c, seq, answer)
}

func (w *worker) reply(c *call, seq uint64, answer func() error) error {
	err := answer()
	switch {
	case err == nil:
		w.Answered.Add(1)
	case errors.Is(err, seccomp.ErrGone):
		w.Void.Add(1)
		if err := w.Recorder.Void(c.proc, seq); err != nil {
			w.fatal(err)
		}
		return nil
	}
	return err
}

// fail writes the row and answers with an errno; 0 is success.
func (w *worker) fail(c *call, e *record.Event, result syscall.Errno) {
	e.Result = result
	w.unwritten(e, result, e.Path, e.Path2)
	e.Path, e.Path2 = shorten(e.Path), shorten(e.Path2)
	if c.waits && result == unix.EINTR {
		result = restart
	}
	if err := w.finish(c, e, func() error { return w.Listener.Fail(c.ID, result) }); err != nil {
		w.fatal(err)
	}
}

// proceed writes the row and lets the kernel perform the call.
func (w *worker) proceed(c *call, e *record.Event) {
	if err := w.finish(c, e, func() error { return w.Listener.Continue(c.ID) }); err != nil {
		w.fatal(err)
	}
}

// gone tells, right before a side effect, that the caller does not wait any
// more. It then records the call as void.
func (w *worker) gone(c *call, e *record.Event) bool {
	if w.Listener.Valid(c.ID) {
		return false
	}
	e.Result = unix.EINTR
	if err := w.finish(c, e, func() error { return seccomp.ErrGone }); err != nil {
		w.fatal(err)
	}
	return true
}

// takeUmask gives the thread the caller's umask, so that the kernel applies it,
// or a default ACL in its place.
func (w *worker) takeUmask(c *call) syscall.Errno {
	field, err := record.Status(w.proc, c.tid)
	if err != nil {
		return unix.ESRCH
	}
	m := 0
	for _, d := range field("Umask") {
		m = m<<3 | int(d-'0')&7
	}
	if m != w.umask && w.Plain == nil {
		unix.Umask(m)
	}
	w.umask = m
	return 0
}

// mode is the mode for a new name, after takeUmask.
func (w *worker) mode(m uint32) uint32 {
	if w.Plain != nil {
		return m &^ uint32(w.umask)
	}
	return m
}

// maxApart bounds the threads that wait for a peer.
const maxApart = 512

// apart does what may block on a thread of its own, so that the workers go on.
// e is the row as it stands if no peer ever comes. f does the waiting and
// returns what is to be done then, which is left out if the run has ended
// meanwhile: the call is void already.
func (w *worker) apart(c *call, e *record.Event, f func(t *worker) func()) {
	id := c.ID
	e.Proc = c.proc
	e.Detail.Syscall = c.name
	pending, mine := *e, *c
	w.mu.Lock()
	full := len(w.stuck) >= maxApart
	if !full {
		w.stuck[id] = &pending
	}
	w.mu.Unlock()
	if full {
		w.fail(c, e, unix.ENFILE)
		return
	}
	go func() {
		t, err := w.thread()
		if err != nil {
			w.fatal(err)
			return
		}
		var then func()
		if err := t.interruptible(&mine, func() { then = f(t) }); err != nil {
			w.fatal(err)
			return
		}
		w.mu.Lock()
		_, waiting := w.stuck[id]
		delete(w.stuck, id)
		w.late.Add(1)
		w.mu.Unlock()
		if waiting {
			then()
		}
		w.late.Done()
	}()
}

// settle makes the calls void that still wait for a peer when no caller is
// left.
func (b *Broker) settle() {
	b.mu.Lock()
	stuck := b.stuck
	b.stuck = map[uint64]*record.Event{}
	b.mu.Unlock()
	b.late.Wait()
	for len(stuck) > 0 {
		var next *record.Event
		var id uint64
		for i, e := range stuck {
			// Rows of one process differ by nothing but the number of the call.
			if next == nil || e.Proc < next.Proc || e.Proc == next.Proc && i < id {
				next, id = e, i
			}
		}
		delete(stuck, id)
		next.Result = unix.EINTR
		b.Void.Add(1)
		seq, err := b.Recorder.Add(next)
		if err == nil {
			err = b.Recorder.Void(next.Proc, seq)
		}
		if err != nil {
			b.fatal(err)
		}
	}
}
