package seccomp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Notif is struct seccomp_notif: one call that waits for an answer. PID is the
// id of the calling thread in the supervisor's pid namespace.
type Notif struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

type addFD struct {
	id                            uint64
	flags, src, newfd, newfdFlags uint32
}

// ErrGone says that the caller died, or was killed, before its answer arrived:
// the call is void. It is no fault of the supervisor.
var ErrGone = errors.New("the calling thread is gone")

// Install puts the filter on the calling thread and returns the descriptor of
// its listener, close-on-exec. It sets no_new_privs. The thread must be locked;
// threads started before it are not covered (exec ends them).
//
// The kernel must know SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19): without
// it a signal restarts a call that the supervisor has already performed.
func Install(filter []Insn) (int, error) {
	if len(filter) == 0 || len(filter) > maxInsns {
		return -1, fmt.Errorf("filter of %d instructions, want 1 to %d", len(filter), maxInsns)
	}
	if _, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return -1, fmt.Errorf("set no_new_privs: %w", e)
	}
	prog := struct {
		n     uint16
		insns *Insn
	}{uint16(len(filter)), &filter[0]}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	switch e {
	case 0:
		return int(fd), nil
	case unix.EBUSY:
		return -1, fmt.Errorf("install filter: %w: another supervisor already listens to this process (a container runtime?)", e)
	case unix.EINVAL:
		return -1, fmt.Errorf("install filter: %w: the kernel must be Linux 5.19 or newer", e)
	}
	return -1, fmt.Errorf("install filter: %w", e)
}

// MaskSignals blocks all signals of the calling thread. Every thread that calls
// [Listener.AddFD] must be locked and masked: a signal between the two halves of
// that ioctl (Go sends SIGURG all the time) makes the program's open return 0
// without a descriptor.
func MaskSignals() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil)
}

// A Listener answers the notifications of one filter. Its methods may be called
// from several threads.
type Listener struct {
	fd int
}

// NewListener takes over the descriptor that Install returned in the program's
// process. It refuses a kernel whose structures differ from ours.
func NewListener(fd int) (*Listener, error) {
	var sizes [3]uint16
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes))); e != 0 {
		return nil, fmt.Errorf("seccomp notification sizes: %w", e)
	}
	want := [3]uint16{uint16(unsafe.Sizeof(Notif{})), uint16(unsafe.Sizeof(response{})), 64}
	if sizes != want {
		return nil, fmt.Errorf("seccomp notification sizes: got %v, want %v: this kernel needs a newer recorder", sizes, want)
	}
	unix.CloseOnExec(fd)
	return &Listener{fd}, nil
}

// Close closes the listener. Every waiting and later call of the program then
// fails with ENOSYS.
func (l *Listener) Close() error { return unix.Close(l.fd) }

// SyncWakeUp asks the kernel to hand the processor from caller to supervisor and
// back (Linux 6.6). It is only faster; an older kernel refuses it.
func (l *Listener) SyncWakeUp() error {
	return unix.IoctlSetInt(l.fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
}

// Recv waits for the next notification. io.EOF: no task is left under the
// filter. Before Linux 6.11 the kernel does not end a waiting Recv then; use
// [Listener.Hangup].
func (l *Listener) Recv(n *Notif) error {
	for {
		*n = Notif{} // the kernel refuses a structure that is not zero
		switch e := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)); e {
		case 0:
			return nil
		case unix.EINTR:
		case unix.ENOENT: // the caller died in between, or all did
			if over, err := l.Hangup(0); err != nil {
				return err
			} else if over {
				return io.EOF
			}
		default:
			return fmt.Errorf("receive notification: %w", e)
		}
	}
}

// Hangup waits up to ms milliseconds (-1: for ever) until no task is left under
// the filter. It returns false when the time is over, or when a notification is
// waiting to be received.
func (l *Listener) Hangup(ms int) (bool, error) {
	p := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("poll listener: %w", err)
		}
		return p[0].Revents&unix.POLLHUP != 0, nil
	}
}

// Valid reports whether the caller still waits. Ask after reading its memory (the
// thread id may have been given to another) and right before side effects.
func (l *Listener) Valid(id uint64) bool {
	for {
		switch l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) {
		case 0:
			return true
		case unix.EINTR:
		default:
			return false
		}
	}
}

// Continue lets the kernel perform the call. Only for calls whose arguments are
// registers, or whose outcome is checked otherwise: another thread may change
// memory between our look and the kernel's.
func (l *Listener) Continue(id uint64) error {
	return l.send(response{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

// Return answers with a value.
func (l *Listener) Return(id uint64, val int64) error { return l.send(response{id: id, val: val}) }

// Fail answers with an errno. Zero is an answer of 0.
func (l *Listener) Fail(id uint64, e syscall.Errno) error {
	return l.send(response{id: id, errno: -int32(e)})
}

func (l *Listener) send(r response) error {
	for {
		e := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
		if e != unix.EINTR {
			return voidOr("answer notification", e)
		}
	}
}

// AddFD puts a copy of fd into the caller's table, close-on-exec if cloexec, and
// answers the call with its number, in one step. ErrGone: void. Any other error
// leaves the call waiting: EMFILE is the program's own limit and is to be passed
// on with Fail. The kernel refuses O_PATH descriptors with EBADF.
//
// The calling thread must be locked and masked, see [MaskSignals].
func (l *Listener) AddFD(id uint64, fd int, cloexec bool) error {
	a := addFD{id: id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, src: uint32(fd)}
	if cloexec {
		a.newfdFlags = unix.O_CLOEXEC
	}
	// No retry: after an interrupted ADDFD the call may have been answered.
	return voidOr("hand over descriptor", l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a)))
}

// Replace puts a copy of fd where the caller has the descriptor number at. The call
// still waits for its answer. The calling thread must be locked and masked.
func (l *Listener) Replace(id uint64, fd, at int, cloexec bool) error {
	a := addFD{id: id, flags: unix.SECCOMP_ADDFD_FLAG_SETFD, src: uint32(fd), newfd: uint32(at)}
	if cloexec {
		a.newfdFlags = unix.O_CLOEXEC
	}
	return voidOr("replace descriptor", l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a)))
}

// ioctl takes a pointer, not a number, so that the runtime keeps it valid while
// stacks move. It must let the Go scheduler know that it blocks (no RawSyscall): a waiting
// Recv would otherwise hold up the garbage collector.
func (l *Listener) ioctl(req uint, arg unsafe.Pointer) syscall.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), uintptr(req), uintptr(arg))
	return e
}

func voidOr(what string, e syscall.Errno) error {
	switch e {
	case 0:
		return nil
	case unix.ENOENT, unix.EINPROGRESS:
		return ErrGone
	}
	return fmt.Errorf("%s: %w", what, e)
}
