package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	brokerpkg "github.com/cleanrun-dev/cleanrun/sandbox/internal/broker"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/tracer"
)

// watch runs the program to its end.
func (r *recording) watch(signals <-chan os.Signal) error {
	t := tracer.New(r)
	t.Orphaned = func(tid int) bool {
		parent, ok := r.status(tid, "PPid")
		return !ok || parent == r.init
	}
	t.Ours = func(tid int) bool {
		by, ok := r.status(tid, "TracerPid")
		return ok && by == os.Getpid()
	}
	arch, err := seccomp.Native()
	if err != nil {
		return err
	}
	r.broker = &brokerpkg.Broker{Arch: arch, Recorder: r.rec, Proc: r.proc, Root: r.Root, Observe: r.Start.Observe, Abort: r.giveUp}
	if r.Control {
		r.broker.Control = ControlPath
	}
	go r.obey(signals)
	if err := r.seize(t); err != nil {
		close(r.farewell)
		r.giveUp(err)
		return r.finish(t, err)
	}
	// On another thread: the shim's threads stop for the tracer at any time, and
	// only this thread can let them go on.
	go r.attend()
	return r.finish(t, nil)
}

// seize traces the shim, which waits for a word, and numbers it as process 1.
func (r *recording) seize(t *tracer.Tracer) error {
	if err := t.Seize(r.shim, r.threads); err != nil {
		return &Unavailable{What: "ptrace", Err: err, Hint: "tracing is blocked (a container, or kernel.yama.ptrace_scope=3), or another tracer is at work"}
	}
	if err := r.rec.Birth(0, r.shim); err != nil {
		return err
	}
	tids, err := r.threads(r.shim)
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if tid == r.shim {
			continue
		}
		if err := r.rec.Birth(0, tid); err != nil {
			return err
		}
	}
	return nil
}

// attend takes the listener, starts the workers, lets the program start, and
// hears pid 1 to its end.
func (r *recording) attend() {
	defer close(r.farewell)
	begin := func() error {
		if err := r.tell(); err != nil {
			return err
		}
		_, fd, err := r.hear(wordFD)
		if err != nil {
			return err
		}
		l, err := seccomp.NewListener(fd)
		if err != nil {
			return &Unavailable{What: "seccomp-notify", Err: err}
		}
		r.broker.Listener = l
		if err := r.given(); err != nil {
			return err
		}
		_ = l.SyncWakeUp() // only faster, and only from Linux 6.6
		if err := r.broker.Start(workers); err != nil {
			return err
		}
		return r.tell()
	}
	if err := begin(); err != nil {
		r.giveUp(err)
	}
	r.listen()
}

// status is a number of /proc/tid/status.
func (r *recording) status(tid int, name string) (int, bool) {
	field, err := record.Status(r.proc, tid)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(field(name))
	return n, err == nil
}

func (r *recording) threads(pid int) ([]int, error) {
	fd, err := unix.Openat(r.proc, strconv.Itoa(pid)+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("list threads of %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "task")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, n := range names {
		tid, err := strconv.Atoi(n)
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// Birth, Exec and Death are the tracer's events.
func (r *recording) Birth(parent, tid int) error { return r.rec.Birth(parent, tid) }

func (r *recording) Exec(caller, pid int) (bool, error) { return r.broker.Executed(caller, pid) }

func (r *recording) Death(tid, exit int) error { return r.rec.Death(tid, exit) }

// listen takes the program's status from pid 1.
func (r *recording) listen() {
	for {
		b, _, _, err := r.packet()
		if err != nil {
			return
		}
		if status, ok := cutWord(b, wordExit); ok && len(status) == 4 {
			r.mu.Lock()
			r.ending, r.exited = unix.WaitStatus(binary.LittleEndian.Uint32(status)), true
			r.mu.Unlock()
			continue
		}
		r.giveUp(stageFailure(b))
	}
}

// obey handles the launcher's words and the signals of the terminal.
func (r *recording) obey(signals <-chan os.Signal) {
	go func() { // a launcher that ends kills this process; a word of it is a signal
		var b [16]byte
		for {
			n, err := unix.Read(linkFD, b[:])
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			sig := syscall.Signal(b[0])
			if r.closing.Load() != running && sig != unix.SIGWINCH {
				r.interrupt() // the numbers of what ran may be others' by now
				continue
			}
			switch sig {
			case unix.SIGKILL:
				r.cancel.Store(true)
				r.killAll()
			case unix.SIGWINCH:
				r.relay.Resize()
			case unix.SIGINT:
				if !r.relay.Interrupt() {
					_ = unix.Kill(-r.shim, unix.SIGINT) // it may be gone
				}
			case unix.SIGTERM, unix.SIGHUP:
				r.cancel.Store(true)
				_ = unix.Kill(-r.shim, sig)
			case unix.SIGQUIT:
				_ = unix.Kill(-r.shim, unix.SIGQUIT)
			}
		}
	}()
	for range signals { // caught; the launcher passes on what counts
	}
}

func (r *recording) killAll() {
	r.kill.Do(func() { _ = unix.Kill(r.init, unix.SIGKILL) }) // ESRCH: it ended by itself
}

// giveUp ends the run because of a failure of the recorder.
func (r *recording) giveUp(err error) {
	r.mu.Lock()
	if r.reason == nil {
		r.reason = err
	}
	r.mu.Unlock()
	r.killAll()
}
