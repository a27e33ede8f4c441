// Package tracer follows the processes of a run with ptrace event stops:
// births, execs and deaths. It never stops a process at a system call, and its
// EXITKILL option ends all of them if the broker dies.
//
// A child is held at its first stop until the row of its birth is written, so
// every notification comes from a process that has a number.
package tracer

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const options = unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
	unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// Events of the traced processes, called on the tracing thread. An error ends
// the run.
type Events interface {
	// Birth of a thread or process tid, made by thread parent (0: not known). The
	// new task has not run yet.
	Birth(parent, tid int) error
	// Exec happened: pid now runs another program, called by its thread caller.
	// False: it is not what was recorded, and is killed.
	Exec(caller, pid int) (bool, error)
	// Death of thread tid. exit is the exit code, or -signal.
	Death(tid, exit int) error
}

// A Tracer belongs to one thread: Seize and Wait must be called there. Each phase
// of a run has its own.
type Tracer struct {
	Events  Events
	Status  func(tid int) (name func(string) string, err error) // fields of /proc/tid/status
	Init    int                                                 // who gets children whose parent is dead
	Abort   func(error)                                         // ends the run: called once, at the first error
	Exiting func(tid int)                                       // a task is about to end and has still all it had; nil: not asked for
	Most    int                                                 // tasks that may live at once; 0 is no limit; Exec may set it

	live    map[int]bool // born, and not seen to end
	held    map[int]*held
	gone    map[int]int          // died before the birth was reported, with the exit
	threads map[int]map[int]bool // of live, without the leaders, by leader
	leader  map[int]int          // the other way round
	count   atomic.Int64         // of live
	refused atomic.Int64
}

// held is a task in its first stop: it waits for its maker to report it.
type held struct {
	parent int // at that stop, 0: not known
	since  time.Time
}

// New returns a Tracer without tasks.
func New(e Events) *Tracer {
	return &Tracer{Events: e, live: map[int]bool{}, held: map[int]*held{}, gone: map[int]int{}, threads: map[int]map[int]bool{}, leader: map[int]int{}}
}

// Seize attaches to all threads of pid. list gives its threads; it is asked
// again until nothing new appears, since a thread may start another meanwhile.
func (t *Tracer) Seize(pid int, list func(pid int) ([]int, error)) error {
	for {
		tids, err := list(pid)
		if err != nil {
			return err
		}
		fresh := false
		for _, tid := range tids {
			if t.live[tid] {
				continue
			}
			options := uintptr(options)
			if t.Exiting != nil {
				options |= unix.PTRACE_O_TRACEEXIT
			}
			e := ptrace(unix.PTRACE_SEIZE, tid, 0, options)
			if e == unix.ESRCH {
				continue
			}
			// EPERM: traced already. By us, if its maker's seizure passed on to it;
			// by a debugger, if we are run under one.
			if e != 0 && (e != unix.EPERM || t.number(tid, "TracerPid") != unix.Gettid()) {
				return fmt.Errorf("trace thread %d: %w", tid, e)
			}
			t.begin(tid)
			fresh = true
		}
		if !fresh {
			return nil
		}
	}
}

// Live is the number of tasks that were born and have not been seen to end. It may
// be called from any thread.
func (t *Tracer) Live() int { return int(t.count.Load()) }

// Refused is the number of tasks that were killed at birth because of Most. It may
// be called from any thread.
func (t *Tracer) Refused() int { return int(t.refused.Load()) }

func (t *Tracer) begin(tid int) {
	delete(t.held, tid)
	if !t.live[tid] {
		t.live[tid] = true
		t.count.Add(1)
	}
	if leader := t.number(tid, "Tgid"); leader != 0 && leader != tid {
		if t.threads[leader] == nil {
			t.threads[leader] = map[int]bool{}
		}
		t.threads[leader][tid] = true
		t.leader[tid] = leader
	}
}

func (t *Tracer) end(tid int) {
	if t.live[tid] {
		t.count.Add(-1)
	}
	delete(t.live, tid)
	if leader, thread := t.leader[tid]; thread {
		delete(t.leader, tid)
		if delete(t.threads[leader], tid); len(t.threads[leader]) == 0 {
			delete(t.threads, leader)
		}
	}
}

// Wait handles events until no task of this thread's is left.
func (t *Tracer) Wait() error {
	var first error
	check := func(err error) {
		if err != nil && first == nil {
			first = err
			t.Abort(err)
			t.Kill()
		}
	}
	var stops []stop
	for pause := shortest; ; {
		var err error
		stops, err = t.collect(stops[:0])
		switch {
		case err == unix.ECHILD:
			return first
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		}
		for _, s := range stops {
			// After an error go on reaping: pid 1 cannot end while a traced zombie
			// waits. What was not reported as born is killed here: nobody else knows it.
			if first != nil {
				t.kill(s.tid)
			}
			check(t.event(s))
			pause = shortest
		}
		if len(stops) > 0 {
			continue
		}
		if check(t.adopt()); len(t.held) > 0 {
			time.Sleep(pause)
			pause = min(2*pause, 10*time.Millisecond)
		}
	}
}

// Kill kills all tasks that are traced. Call it on the tracing thread.
func (t *Tracer) Kill() {
	for tid := range t.live {
		t.kill(tid)
	}
	for tid := range t.held {
		t.kill(tid)
	}
}

func (t *Tracer) kill(tid int) { _ = unix.Kill(tid, unix.SIGKILL) } // it may have ended

func (t *Tracer) event(s stop) error {
	pid, ws := s.tid, s.status
	if ws.Exited() || ws.Signaled() {
		return t.ended(s)
	}
	if !ws.Stopped() {
		return nil
	}
	switch s.event() {
	case unix.PTRACE_EVENT_EXEC:
		return t.executed(s)
	case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
		return t.forked(s)
	case unix.PTRACE_EVENT_EXIT:
		if t.Exiting != nil {
			t.Exiting(pid)
		}
		return cont(pid, 0)
	case unix.PTRACE_EVENT_STOP:
		if !t.live[pid] && t.held[pid] == nil {
			// First stop of a child: held until its birth, which its maker
			// reports, if it lives.
			t.held[pid] = &held{parent: t.number(pid, "PPid"), since: time.Now()}
			return nil
		}
		switch ws.StopSignal() {
		case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			// EIO: it was killed in this stop, and stops at its end now.
			if e := ptrace(unix.PTRACE_LISTEN, pid, 0, 0); e != 0 && e != unix.ESRCH && e != unix.EIO {
				return fmt.Errorf("listen to %d: %w", pid, e)
			}
			return nil
		}
		return cont(pid, 0)
	default:
		sig := 0
		if s.event() == 0 {
			sig = int(ws.StopSignal())
		}
		return cont(pid, sig)
	}
}

func (t *Tracer) ended(s stop) error {
	exit := s.status.ExitStatus()
	if s.status.Signaled() {
		exit = -int(s.status.Signal())
	}
	if !t.live[s.tid] {
		delete(t.held, s.tid)
		t.gone[s.tid] = exit
		return nil
	}
	// A leader ends last. What is left took over its id in an exec, and was killed before
	// it could report that.
	for tid := range t.threads[s.tid] {
		if err := t.vanished(tid, exit); err != nil {
			return err
		}
	}
	t.end(s.tid)
	return t.Events.Death(s.tid, exit)
}

func (t *Tracer) vanished(tid, exit int) error {
	t.end(tid)
	return t.Events.Death(tid, exit)
}

func (t *Tracer) executed(s stop) error {
	if !s.told {
		return ignoreGone(unix.Kill(s.tid, unix.SIGKILL)) // it was: it never runs the new program
	}
	if s.message != s.tid && t.live[s.message] {
		// The caller took over its leader's id; its own is never reported again.
		if err := t.vanished(s.message, 0); err != nil {
			return err
		}
	}
	ok, err := t.Events.Exec(s.message, s.tid)
	if err != nil {
		return err
	}
	if !ok {
		return ignoreGone(unix.Kill(s.tid, unix.SIGKILL))
	}
	return cont(s.tid, 0)
}

func (t *Tracer) forked(s stop) error {
	child := s.message
	if !s.told {
		return ignoreGone(unix.Kill(s.tid, unix.SIGKILL)) // it was; its child is adopted
	}
	if t.live[child] { // adopted already
		return cont(s.tid, 0)
	}
	_, stopped := t.held[child]
	if err := t.Events.Birth(s.tid, child); err != nil {
		return err
	}
	exit, dead := t.gone[child]
	delete(t.gone, child)
	// If this thread traces it, that was an earlier task of this id. What it has reaped
	// is still there for its parent.
	if dead && t.number(child, "TracerPid") != unix.Gettid() {
		if err := t.Events.Death(child, exit); err != nil {
			return err
		}
		return cont(s.tid, 0)
	}
	t.begin(child)
	if t.Most > 0 && t.Live() > t.Most {
		t.refused.Add(1)
		if err := ignoreGone(unix.Kill(child, unix.SIGKILL)); err != nil {
			return err
		}
	}
	if stopped {
		if err := cont(child, 0); err != nil {
			return err
		}
	}
	return cont(s.tid, 0)
}

// shortest is the first pause while a task is held and nothing happens.
const shortest = 100 * time.Microsecond

// longest is how long a task may be held for a parent that is at work: it may be its
// maker, or one that took over the children of its maker and waits in a loop.
const longest = time.Second

// adopt releases tasks whose maker was killed before it could report them. Call it
// when no event waits: a maker that lives has yet to come to its stop, and runs.
func (t *Tracer) adopt() error {
	for tid, h := range t.held {
		parent := t.number(tid, "PPid")
		if parent == 0 {
			continue // it ended: that is an event
		}
		if parent == h.parent && parent != t.Init && t.runs(parent) && time.Since(h.since) < longest {
			continue
		}
		if h.parent == t.Init { // its maker was dead at its first stop
			h.parent = 0
		}
		if err := t.Events.Birth(h.parent, tid); err != nil {
			return err
		}
		t.begin(tid)
		if err := cont(tid, 0); err != nil {
			return err
		}
	}
	return nil
}

func cont(pid, sig int) error { return ignoreGone(unix.PtraceCont(pid, sig)) }

// ignoreGone drops ESRCH: a SIGKILL ends a stop at any time, and the death
// itself is always reported.
func ignoreGone(err error) error {
	if err == unix.ESRCH {
		return nil
	}
	return err
}

func ptrace(req, pid int, addr, data uintptr) syscall.Errno {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(req), uintptr(pid), addr, data, 0, 0)
	return e
}
