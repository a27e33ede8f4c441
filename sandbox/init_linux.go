package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/landlock"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/privs"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
)

// Words on the link between broker, pid 1 and shim. "go" is the broker's
// permission for the next step; a link that ends means that the broker is gone.
const (
	wordReady = "ready" // pid 1: /proc is mounted
	wordPhase = "phase" // broker: start the shim of this phase, with these streams
	wordHello = "hello" // shim: here is my process id
	wordGo    = "go"    // broker, to the shim
	wordFD    = "fd"    // shim: here is the listener
	wordExit  = "exit"  // pid 1: the command ended, with its wait status
	wordSweep = "sweep" // broker: kill everything that is left of the phase
	wordGone  = "gone"  // pid 1: nothing is left
)

func await() error {
	var b [16]byte
	for {
		n, err := unix.Read(linkFD, b[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("the broker is gone (%v)", err)
		}
		if string(b[:n]) != wordGo {
			return fmt.Errorf("broker said %q, want %q", b[:n], wordGo)
		}
		return nil
	}
}

func say(word string) error {
	_, err := unix.Write(linkFD, []byte(word))
	return err
}

// initProcess is pid 1 of the sandbox: it mounts /proc, starts the shim of each
// phase, and reaps. When its link ends it ends too, and the kernel kills what is
// left.
func initProcess(s *stage) error {
	catchSignals()
	if err := mounts.Proc(); err != nil {
		return &Unavailable{What: "procfs", Err: err, Hint: "a container that masks parts of /proc does not let a new one be mounted: run outside of it"}
	}
	if err := loopback(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make pid 1 undumpable: %w", err)
	}
	if err := say(wordReady); err != nil {
		return err
	}
	for {
		word, fds, err := listen()
		if err != nil || word == "" {
			return err
		}
		kind, start := strings.CutPrefix(word, wordPhase)
		switch {
		case start && len(fds) == 4:
			err = initPhase(s, kind, fds)
		case word == wordSweep:
			err = sweep()
		}
		if err != nil {
			return err
		}
	}
}

// listen takes the next word, "" at the end of the link.
func listen() (string, []int, error) {
	b, oob := make([]byte, 64), make([]byte, 256)
	for {
		n, on, _, _, err := unix.Recvmsg(linkFD, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return "", nil, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			return "", nil, err
		}
		var fds []int
		for _, m := range messages {
			if list, err := unix.ParseUnixRights(&m); err == nil {
				fds = append(fds, list...)
			}
		}
		return string(b[:n]), fds, nil
	}
}

// initPhase starts the shim of a phase and tells when it, or what it became, has
// ended. The shim uses the link meanwhile.
func initPhase(s *stage, kind string, fds []int) error {
	var attr syscall.SysProcAttr
	if !s.Root {
		attr.AmbientCaps = []uintptr{unix.CAP_SETPCAP}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{stageShim, kind}, &syscall.ProcAttr{
		Dir: s.Workspace, Sys: &attr,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2]), linkFD, configFD, uintptr(fds[3])},
	})
	// The program alone holds its streams: closing one must be seen.
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	for {
		var ws unix.WaitStatus
		p, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the program: %w", err)
		}
		if p == pid && (ws.Exited() || ws.Signaled()) {
			return say(wordExit + string(binary.LittleEndian.AppendUint32(nil, uint32(ws))))
		}
	}
}

// sweep kills all other processes. The kernel lets no fork through while it is
// under way: a child of a process that has the signal is not made.
func sweep() error {
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill what is left: %w", err)
	}
	for {
		_, err := unix.Wait4(-1, nil, unix.WALL, nil)
		if err == unix.ECHILD {
			return say(wordGone)
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for what is left: %w", err)
		}
	}
}

// loopback brings the only interface up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil // a kernel without IPv4
	}
	defer unix.Close(fd)
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = unix.IFF_UP | unix.IFF_RUNNING
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); e != 0 {
		return fmt.Errorf("bring up loopback: %w", e)
	}
	return nil
}

// shim becomes the program: it gives up its rights, installs the filter, opens
// the control file as the program would, and executes.
func shim(s *stage) error {
	if len(os.Args) != 2 || len(os.Args[1]) != 1 || os.Args[1] < "0" || os.Args[1] > "2" {
		return errors.New("a shim without a phase")
	}
	kind := journal.Phase(os.Args[1][0] - '0')
	argv, env := s.argv(kind), s.environ(kind)
	path, err := lookPath(argv[0], lookup(env, "PATH"))
	if err != nil {
		return err
	}
	unix.Umask(s.Umask)
	terminal := -1
	if _, err := unix.IoctlGetTermios(terminalFD, unix.TCGETS); err == nil {
		terminal = terminalFD
	}
	if err := stdio.TakeTerminal(terminal); err != nil {
		return err
	}
	if err := say(wordHello); err != nil {
		return err
	}
	if err := await(); err != nil {
		return err
	}
	if err := privs.Drop(s.Root); err != nil {
		return err
	}
	if s.Landlock > 0 {
		if err := landlock.Restrict(s.domain()); err != nil {
			return &Unavailable{What: "landlock", Err: err}
		}
	}
	// What exec would do for a program that it may read: /proc/self belongs to
	// the program.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	arch, err := s.arch()
	if err != nil {
		return &Unavailable{What: "architecture", Err: err}
	}
	// From here on this thread's calls are notified; none may be before the
	// broker has the listener.
	listener, err := seccomp.Install(arch.Filter())
	if err != nil {
		return &Unavailable{What: "seccomp-notify", Err: err, Hint: "run outside the container, or use Linux 5.19 or newer"}
	}
	if err := unix.Sendmsg(linkFD, []byte(wordFD), unix.UnixRights(listener), nil, 0); err != nil {
		os.Exit(OwnFailure)
	}
	unix.Close(listener)
	if err := await(); err != nil {
		os.Exit(OwnFailure)
	}
	if s.Control && kind == s.first() && readControl(s.controlAt()) != nil {
		os.Exit(OwnFailure)
	}
	// exec closes the rest. Closing it here would take its poller from under the
	// Go runtime, whose other threads still run; and the link must be open to tell
	// the broker that exec failed.
	if err := unix.CloseRange(linkFD+1, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		os.Exit(OwnFailure)
	}
	err = syscall.Exec(path, argv, env)
	return &NotExecuted{fmt.Errorf("execute %s: %w", path, err)}
}

func readControl(at string) error {
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var b [4096]byte
	for {
		n, err := unix.Read(fd, b[:])
		if err != nil || n == 0 {
			return err
		}
	}
}

// first is the phase of the first program.
func (s *stage) first() journal.Phase {
	if len(s.Setup) > 0 {
		return journal.PhaseSetup
	}
	return journal.PhaseAgent
}

// lookPath finds the command on the PATH of its own environment.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if path == "" {
		path = "/usr/bin:/bin"
	}
	for _, d := range strings.Split(path, ":") {
		if d == "" {
			d = "."
		}
		p := d + "/" + name
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", &NotExecuted{fmt.Errorf("command %q: not found on the PATH inside the sandbox, %s", name, short(path))}
}

// short cuts a list of folders.
func short(path string) string {
	const most = 200
	if len(path) <= most {
		return path
	}
	return fmt.Sprintf("%s... (%d folders)", path[:most], strings.Count(path, ":")+1)
}
