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
	Events   Events
	Orphaned func(tid int) bool // the maker of a held task is dead
	Ours     func(tid int) bool // this thread traces it already
	Abort    func(error)        // ends the run: called once, at the first error
	Exiting  func(tid int)      // a task is about to end and has still all it had; nil: not asked for
	Most     int                // tasks that may live at once; 0 is no limit; Exec may set it

	live    map[int]bool // false: seen to stop, birth not reported yet
	gone    map[int]int  // died before the birth was reported, with the exit
	count   atomic.Int64 // of live that are true
	refused atomic.Int64
}

// New returns a Tracer without tasks.
func New(e Events) *Tracer { return &Tracer{Events: e, live: map[int]bool{}, gone: map[int]int{}} }

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
			if e != 0 && (e != unix.EPERM || !t.Ours(tid)) {
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
	if !t.live[tid] {
		t.live[tid] = true
		t.count.Add(1)
	}
}

func (t *Tracer) end(tid int) {
	if t.live[tid] {
		t.count.Add(-1)
	}
	delete(t.live, tid)
}

// Wait handles events until no task of this thread's is left.
func (t *Tracer) Wait() error {
	var first error
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECHILD {
			return first
		}
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		// After an error go on reaping: pid 1 cannot end while a traced zombie
		// waits. What was not reported as born is killed here: nobody else knows it.
		if first != nil {
			t.kill(pid)
		}
		if err := t.event(pid, ws); err != nil && first == nil {
			first = err
			t.Abort(err)
			t.Kill()
		}
	}
}

// Kill kills all tasks that are traced. Call it on the tracing thread.
func (t *Tracer) Kill() {
	for tid := range t.live {
		t.kill(tid)
	}
}

func (t *Tracer) kill(tid int) { _ = unix.Kill(tid, unix.SIGKILL) } // it may have ended

func (t *Tracer) event(pid int, ws unix.WaitStatus) error {
	if ws.Exited() || ws.Signaled() {
		exit := ws.ExitStatus()
		if ws.Signaled() {
			exit = -int(ws.Signal())
		}
		if !t.live[pid] {
			t.gone[pid] = exit
			delete(t.live, pid)
			return nil
		}
		t.end(pid)
		if err := t.adopt(pid); err != nil {
			return err
		}
		return t.Events.Death(pid, exit)
	}
	if !ws.Stopped() {
		return nil
	}
	switch event := uint32(ws) >> 16; event {
	case unix.PTRACE_EVENT_EXEC:
		caller, err := unix.PtraceGetEventMsg(pid)
		if err != nil {
			return nil // killed meanwhile; its death follows
		}
		if int(caller) != pid && t.live[int(caller)] {
			// The caller took over its leader's id; its own is never reported again.
			t.end(int(caller))
			if err := t.Events.Death(int(caller), 0); err != nil {
				return err
			}
		}
		ok, err := t.Events.Exec(int(caller), pid)
		if err != nil {
			return err
		}
		if !ok {
			return ignoreGone(unix.Kill(pid, unix.SIGKILL))
		}
		return cont(pid, 0)
	case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
		msg, err := unix.PtraceGetEventMsg(pid)
		if err != nil {
			return nil
		}
		child := int(msg)
		born, stopped := t.live[child]
		if born {
			return cont(pid, 0)
		}
		if err := t.Events.Birth(pid, child); err != nil {
			return err
		}
		if exit, dead := t.gone[child]; dead {
			delete(t.gone, child)
			if err := t.Events.Death(child, exit); err != nil {
				return err
			}
			return cont(pid, 0)
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
		return cont(pid, 0)
	case unix.PTRACE_EVENT_EXIT:
		if t.Exiting != nil {
			t.Exiting(pid)
		}
		return cont(pid, 0)
	case unix.PTRACE_EVENT_STOP:
		if _, known := t.live[pid]; !known {
			// First stop of a child: held until its birth, which its maker
			// reports, if it lives.
			t.live[pid] = false
			return t.adopt(0)
		}
		switch ws.StopSignal() {
		case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
			if e := ptrace(unix.PTRACE_LISTEN, pid, 0, 0); e != 0 && e != unix.ESRCH {
				return fmt.Errorf("listen to %d: %w", pid, e)
			}
			return nil
		}
		return cont(pid, 0)
	default:
		sig := 0
		if event == 0 {
			sig = int(ws.StopSignal())
		}
		return cont(pid, sig)
	}
}

// adopt releases tasks whose maker was killed before it could report them. dead
// may be that maker.
func (t *Tracer) adopt(dead int) error {
	for tid, born := range t.live {
		if born || !t.Orphaned(tid) {
			continue
		}
		if err := t.Events.Birth(dead, tid); err != nil {
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
