package tracer

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stop is what the kernel reports of a task: a stop, or its end.
type stop struct {
	tid     int
	status  unix.WaitStatus
	message int  // of an exec: its caller; of a fork: the child
	told    bool // message is known: the task was not killed in this stop
}

func (s stop) event() int { return int(uint32(s.status) >> 16) }

// patience is how often collect yields before it sleeps while a task is held: its
// maker stops a moment after it.
const patience = 50

// collect waits for events and takes all that there are. The kernel shows the newest
// task first: one by one, what forks all the time would keep the others from ever
// being seen. It returns nothing if a task is held and nothing happens, and ECHILD if no
// task is left.
func (t *Tracer) collect(stops []stop) ([]stop, error) {
	for yields := 0; ; {
		flags := unix.WALL | unix.WNOTHREAD
		if len(stops) > 0 || len(t.held) > 0 {
			flags |= unix.WNOHANG
		}
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, flags, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD && len(stops) > 0:
			return stops, nil
		case err != nil:
			return stops, err
		case tid > 0:
			s := stop{tid: tid, status: ws}
			if ws.Stopped() {
				switch s.event() {
				case unix.PTRACE_EVENT_EXEC, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
					s.message, s.told = message(tid, s.event())
				}
			}
			stops = append(stops, s)
		case len(stops) > 0 || yields == patience:
			return stops, nil
		default:
			yields++
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// message is that of the stop for event. A task that is killed in a stop goes on to
// its end, and may stop there for us once more, with another message: what is read
// counts only if the task is still in the stop that it was read for.
func message(tid, event int) (int, bool) {
	m, err := unix.PtraceGetEventMsg(tid)
	if err != nil {
		return 0, false
	}
	var info unix.Siginfo
	if ptrace(unix.PTRACE_GETSIGINFO, tid, 0, uintptr(unsafe.Pointer(&info))) != 0 {
		return 0, false
	}
	return int(m), int(info.Code)>>8 == event
}

// number is one of /proc/tid/status, 0 if there is none.
func (t *Tracer) number(tid int, name string) int {
	field, err := t.Status(tid)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(field(name)) // not a number: not known
	return n
}

// runs tells whether a process may be on its way to a stop. One thread is looked at:
// of others it cannot be told, so they are taken to run.
func (t *Tracer) runs(pid int) bool {
	field, err := t.Status(pid)
	if err != nil {
		return false
	}
	return field("Threads") != "1" || !strings.HasPrefix(field("State"), "S")
}
