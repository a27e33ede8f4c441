package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

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
			p := r.now.Load()
			switch sig {
			case unix.SIGKILL:
				r.cancel.Store(true)
				r.ground.kill()
			case unix.SIGWINCH:
				if p != nil {
					p.relay.Resize()
				}
			case unix.SIGINT:
				if p != nil && !p.relay.Interrupt() {
					p.signal(sig)
				}
			case unix.SIGTERM, unix.SIGHUP:
				r.cancel.Store(true)
				fallthrough
			case unix.SIGQUIT:
				if p != nil {
					p.signal(sig)
				}
			}
		}
	}()
	for range signals { // caught; the launcher passes on what counts
	}
}

// signal sends a signal to the command's process group.
func (p *phase) signal(sig syscall.Signal) { _ = unix.Kill(-p.main, sig) } // it may be gone

// giveUp ends the run because of a failure of the recorder.
func (r *recording) giveUp(err error) {
	r.mu.Lock()
	if r.reason == nil {
		r.reason = err
	}
	r.mu.Unlock()
	r.ground.kill()
}

// why is the reason that the recorder gave up, nil if it did not.
func (r *recording) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}
