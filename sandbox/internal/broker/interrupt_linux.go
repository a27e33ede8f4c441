package broker

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// A caller of a notified call sleeps so that only SIGKILL wakes it (otherwise a
// call could be made twice), and under a tracer even a deadly SIGTERM is no
// SIGKILL. So a call that waits for a peer must look for the caller's signals
// itself, stop waiting, and answer "restart": the caller then takes its signal.

// wakeSignal makes the system call of a waiting thread of ours return EINTR.
const wakeSignal = unix.SIGUSR2

// restart is the kernel's own ERESTARTSYS. The caller never sees it: with a
// signal at hand the kernel turns it into EINTR, or makes the call again, as the
// handler asks.
const restart = syscall.Errno(512)

// catchWake installs Go's handler for wakeSignal and takes SA_RESTART from it.
func catchWake() error {
	signal.Notify(make(chan os.Signal, 1), wakeSignal)
	var action struct { // struct sigaction of the kernel
		handler  uintptr
		flags    uint64
		restorer uintptr
		mask     uint64
	}
	const flagRestart = 0x10000000 // SA_RESTART
	if err := sigaction(nil, unsafe.Pointer(&action)); err != 0 {
		return fmt.Errorf("read signal handler: %w", err)
	}
	action.flags &^= flagRestart
	if err := sigaction(unsafe.Pointer(&action), nil); err != 0 {
		return fmt.Errorf("change signal handler: %w", err)
	}
	return nil
}

func sigaction(set, old unsafe.Pointer) syscall.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(wakeSignal), uintptr(set), uintptr(old), 8, 0, 0)
	return e
}

// interruptible runs f, which may block, on the calling thread. While it does,
// the thread takes wakeSignal, which comes when the caller is gone or has a signal.
func (w *worker) interruptible(c *call, f func()) error {
	done := make(chan struct{})
	defer close(done)
	go w.watchCaller(*c, unix.Gettid(), done)
	var one unix.Sigset_t
	one.Val[0] = 1 << (uint(wakeSignal) - 1)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &one, nil); err != nil {
		return fmt.Errorf("take signals: %w", err)
	}
	f()
	return seccomp.MaskSignals() // before a descriptor is handed over
}

// watchCaller wakes the thread tid of ours. A signal to a process of several
// threads may be taken by another one at once, so it must be seen twice.
func (w *worker) watchCaller(c call, tid int, done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	seen := 0
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if w.Listener.Valid(c.ID) && !w.signaled(c.tid) {
			seen = 0
			continue
		}
		if seen++; seen > 1 {
			_ = unix.Tgkill(os.Getpid(), tid, wakeSignal) // again until it was not too early
		}
	}
}

// signaled tells whether a signal waits for a thread.
func (w *worker) signaled(tid int) bool {
	field, err := record.Status(w.proc, tid)
	if err != nil {
		return true
	}
	set := func(name string) uint64 {
		n, err := strconv.ParseUint(field(name), 16, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return (set("SigPnd")|set("ShdPnd"))&^set("SigBlk") != 0
}
