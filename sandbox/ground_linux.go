package sandbox

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
)

// A ground is where a backend starts the commands of a run and clears away what
// they leave.
type ground interface {
	// start starts the shim of a phase with these streams and returns its process
	// id. The shim waits for a word before it installs its filter. What shim and pid
	// 1 say comes through recording.words.
	start(kind journal.Phase, streams [3]int, terminal int) (pid int, err error)
	// sweep kills every process of the phase. It returns when they are reaped, or
	// at once if the run was killed.
	sweep()
	// kill ends the run: everything in it is killed. It may be called at any time,
	// from any goroutine.
	kill()
	// end returns when no process is left, after the last phase or kill.
	end() error
	// born is told by the tracer of a process or thread that has not run yet.
	born(tid int)
	// died is told by the tracer how the command of a phase ended.
	died(exit int)
	// showTests makes the hidden tests appear, when grading starts.
	showTests() error
}

// namespaces is the ground of pid 1 and its namespaces.
type namespaces struct {
	r     *recording
	kills sync.Once
}

func (n *namespaces) start(kind journal.Phase, streams [3]int, terminal int) (int, error) {
	fds := []int{streams[0], streams[1], streams[2], streams[max(terminal, 0)]}
	if err := unix.Sendmsg(n.r.link, []byte(wordPhase+string(rune('0'+kind))), unix.UnixRights(fds...), nil, 0); err != nil {
		return 0, fmt.Errorf("tell pid 1: %w", err)
	}
	pid, _, err := n.r.hear(wordHello)
	return pid, err
}

func (n *namespaces) sweep() {
	if n.r.tell(wordSweep) != nil {
		return
	}
	for w := range n.r.words { // closed when pid 1 is gone, and so everything
		if string(w.text) == wordGone {
			return
		}
	}
}

// born and died do nothing: pid 1 kills all at once, and tells how the command ended.
func (n *namespaces) born(int) {}
func (n *namespaces) died(int) {}

func (n *namespaces) showTests() error {
	if n.r.tests < 0 {
		return nil
	}
	fd := n.r.tests
	n.r.tests = -1
	return mounts.Attach(fd, n.r.testsAt())
}

func (n *namespaces) kill() {
	n.kills.Do(func() { _ = unix.Kill(n.r.init, unix.SIGKILL) }) // ESRCH: it ended by itself
}

// end lets pid 1 go. It was started by the main thread.
func (n *namespaces) end() error {
	_ = unix.Shutdown(n.r.link, unix.SHUT_WR) // its link is at its end
	reaped := false
	for {
		pid, err := unix.Wait4(-1, nil, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD && reaped:
			return nil
		case err == unix.ECHILD:
			return errors.New("pid 1 was never reaped")
		case err != nil:
			return fmt.Errorf("wait for pid 1: %w", err)
		default:
			reaped = reaped || pid == n.r.init
		}
	}
}
