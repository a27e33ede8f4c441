package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/snapshot"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
)

// message goes from the broker to the launcher, one a packet.
type message struct {
	Rows   uint64
	Phase  journal.Phase
	Result *Result
	// Register asks to be registered before the run starts; Head is what is on the disk.
	Register bool
	Head     *journal.Head
	Error    string
	What     string // of an Unavailable, or whatCommand
	Hint     string
}

// whatCommand marks the message of a NotExecuted.
const whatCommand = "command"

// failure is the error that a message carries, nil if it carries none.
func (m message) failure() error {
	switch {
	case m.What == whatCommand:
		return &NotExecuted{errors.New(m.Error)}
	case m.What != "":
		return &Unavailable{What: m.What, Err: errors.New(m.Error), Hint: m.Hint}
	case m.Error != "":
		return errors.New("sandbox: " + m.Error)
	}
	return nil
}

// workers of the broker. More do not help: the program waits for each answer.
const workers = 2

// Run runs the command and closes its journal. An error means that there is no
// result: *Unavailable, *Refused, *NotExecuted, or a failure of the recorder, which
// leaves the journal open or abandoned. The command's own failure is no error.
//
// Canceling ctx, or a second SIGTERM, SIGHUP or SIGINT, kills the run; the first
// of each goes to the program, which may end in its own way.
func Run(ctx context.Context, c Config) (*Result, error) {
	switch c.Backend {
	case Backend, PlainBackend:
		return run(ctx, c)
	case "":
	default:
		return nil, refused("Backend", Backend+" or "+PlainBackend, c.Backend, "leave it out to have it chosen")
	}
	return choose(ctx, c)
}

// choose tries the whole set-up with namespaces. Only one that fails before any program
// ran is tried without.
func choose(ctx context.Context, c Config) (*Result, error) {
	before, err := os.ReadDir(c.RunDir)
	if err != nil {
		return nil, refused("RunDir", "an existing folder", err.Error(), "make it first")
	}
	c.Backend = Backend
	asked := false
	if register := c.Register; register != nil {
		c.Register = func(ctx context.Context, s *journal.Start) error {
			asked = true
			return register(ctx, s)
		}
	}
	res, err := run(ctx, c)
	var why *Unavailable
	if !errors.As(err, &why) || asked {
		return res, err
	}
	after, err := os.ReadDir(c.RunDir)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	for _, e := range after {
		if !slices.ContainsFunc(before, func(b os.DirEntry) bool { return b.Name() == e.Name() }) {
			if err := snapshot.Remove(filepath.Join(c.RunDir, e.Name())); err != nil {
				return nil, fmt.Errorf("sandbox: %w", err)
			}
		}
	}
	c.Backend = PlainBackend
	if c.Chosen != nil {
		c.Chosen(c.Backend, why)
	}
	res, err = run(ctx, c)
	var also *Unavailable
	if errors.As(err, &also) {
		also.Err = fmt.Errorf("%w; and with namespaces, %s is not: %v", also.Err, why.What, why.Err)
	}
	return res, err
}

func run(ctx context.Context, c Config) (*Result, error) {
	s, err := prepare(&c)
	if err != nil {
		return nil, err
	}
	if err := s.keep(&c); err != nil {
		return nil, err
	}
	if err := s.keepSecret(c.Recipients); err != nil {
		return nil, err
	}
	registrar := newRegistrar(&c, s)
	if c.Head != nil {
		s.Heads = headEvery
	}
	group, err := s.limit()
	if err != nil {
		return nil, err
	}
	if group != nil {
		defer group.close()
	}
	config, err := sealedFile(s)
	if err != nil {
		return nil, err
	}
	defer config.Close()
	if err := createFiles(s); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	control, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer control.Close()
	defer theirs.Close()

	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{stageBroker}
	cmd.Env = []string{
		"GOMAXPROCS=" + strconv.Itoa(workers+2), // fewer than blocked workers would stall it
		"GOGC=400",                              // its live memory is small
		"GODEBUG=" + os.Getenv("GODEBUG"),
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.ExtraFiles = []*os.File{theirs, config}
	if group != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, group.fd)
	}
	cmd.SysProcAttr = brokerAttr(s)
	cmd.WaitDelay = 5 * time.Second // of a reader that never returns

	restore := stdio.SaveTerminals(0, 1, 2)
	defer restore()
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		// The broker dies with the thread that started it, so that thread stays.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		return nil, startError(err)
	}
	theirs.Close()
	stop := make(chan struct{})
	defer close(stop)
	go forwardSignals(ctx, control, stop)
	res, err := receive(control, listeners{c.Progress, c.Head, func() { registrar.answer(ctx, s.Start, control) }})
	werr := <-ended
	if failed := registrar.end(); failed != nil {
		res, err = nil, failed
	}
	if errors.Is(werr, exec.ErrWaitDelay) {
		werr = nil
	}
	// The kernel's scratch of the overlay; it makes a folder of mode 0 in it.
	scratch := filepath.Join(s.RunDir, stateDir, "work")
	_ = os.Chmod(filepath.Join(scratch, "work"), 0o700)
	_ = os.RemoveAll(scratch)
	_ = os.RemoveAll(filepath.Join(s.RunDir, lowerDir)) // compared; the workspace itself is unchanged
	if err := s.clearPlain(); err != nil {
		return nil, fmt.Errorf("sandbox: remove what the run worked in: %w", err)
	}
	if !c.ApplyFirst || res == nil {
		if err := s.scrub(len(c.Recipients) > 0); err != nil {
			return nil, err
		}
	}
	if res != nil {
		if group != nil {
			res.Limits = append(res.Limits, group.met()...)
		}
		return res, nil
	}
	if err == nil {
		err = fmt.Errorf("sandbox: the broker ended without a result: %v: the journal stays open", werr)
	}
	return nil, err
}

func brokerAttr(s *stage) *syscall.SysProcAttr {
	if s.Plain != nil {
		return &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	}
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if s.Root {
		a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = sameIDs("uid_map"), sameIDs("gid_map"), true
		return a
	}
	// The same number inside: git, ssh and their like compare owners.
	uid, gid := os.Getuid(), os.Getgid()
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	// A user loses capabilities at exec unless they are ambient.
	a.AmbientCaps = []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP,
		unix.CAP_SYS_CHROOT, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH,
	}
	return a
}

// sameIDs maps every number that exists here to itself. In a container that may
// be a part of them.
func sameIDs(name string) []syscall.SysProcIDMap {
	var out []syscall.SysProcIDMap
	b, err := os.ReadFile("/proc/self/" + name)
	for line := range strings.Lines(string(b)) {
		var first, outside, n int
		if _, e := fmt.Sscan(line, &first, &outside, &n); e != nil {
			err = e
			break
		}
		out = append(out, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: n})
	}
	if err != nil || len(out) == 0 {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
	}
	return out
}

func startError(err error) error {
	u := &Unavailable{What: "user-namespace", Err: err}
	switch {
	case errors.Is(err, unix.ENOSPC):
		u.Hint = "raise /proc/sys/user/max_user_namespaces, or run outside the container"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		u.Hint = "user namespaces are blocked (a container's seccomp profile, or kernel.apparmor_restrict_unprivileged_userns): allow them, or run on the host"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		u.Hint = "the kernel must be built with user namespaces"
	default:
		return fmt.Errorf("sandbox: start broker: %w", err)
	}
	return u
}

// sealedFile is the broker's configuration in memory, readable by offset from
// each stage.
func sealedFile(s *stage) (*os.File, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	fd, err := unix.MemfdCreate("cleanrun", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("sandbox: memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("sandbox: memfd: %w", err)
	}
	return f, nil
}

// createFiles makes what the broker opens by descriptor.
func createFiles(s *stage) error {
	for _, d := range []string{objectsDir, stateDir, stateDir + "/upper", stateDir + "/work"} {
		if err := os.Mkdir(filepath.Join(s.RunDir, d), 0o700); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	return nil
}

func drawRun(s *journal.Start) {
	if s.Run == ([16]byte{}) {
		rand.Read(s.Run[:])
	}
}

// forwardSignals keeps the launcher alive while the program decides about
// Ctrl-C, and tells the broker when to kill.
func forwardSignals(ctx context.Context, control *os.File, stop <-chan struct{}) {
	ch := make(chan os.Signal, 8)
	catch := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGWINCH}
	if !signal.Ignored(unix.SIGHUP) {
		catch = append(catch, unix.SIGHUP)
	}
	signal.Notify(ch, catch...)
	defer signal.Stop(ch)
	interrupts, asked := 0, 0
	var last time.Time
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			_, _ = control.Write([]byte{byte(unix.SIGKILL)}) // a broker that is gone needs no telling
			<-stop
			return
		case sig := <-ch:
			n := sig.(syscall.Signal)
			if n == unix.SIGINT {
				interrupts++
			}
			if n == unix.SIGTERM || n == unix.SIGHUP {
				// timeout(1) sends the same request twice, to us and to our group.
				if time.Since(last) < time.Second {
					continue
				}
				last = time.Now()
				asked++
			}
			if interrupts > 1 || asked > 1 {
				n = unix.SIGKILL
			}
			_, _ = control.Write([]byte{byte(n)})
		}
	}
}

// listeners are told what the broker says while it works.
type listeners struct {
	progress func(Progress)
	head     func(journal.Head)
	register func()
}

// receive reads the broker's messages until it ends.
func receive(control *os.File, tell listeners) (*Result, error) {
	var res *Result
	var failure error
	b := make([]byte, 1<<20)
	for {
		n, err := control.Read(b)
		if n == 0 || err != nil {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && failure == nil {
				failure = fmt.Errorf("sandbox: read from broker: %w", err)
			}
			if failure != nil {
				return nil, failure
			}
			return res, nil
		}
		var m message
		if err := json.Unmarshal(b[:n], &m); err != nil {
			return nil, fmt.Errorf("sandbox: message from broker: %w", err)
		}
		switch {
		case m.What != "" || m.Error != "":
			failure = m.failure()
		case m.Result != nil:
			res = m.Result
		case m.Register:
			tell.register()
		case m.Head != nil:
			tell.head(*m.Head)
		case tell.progress != nil:
			tell.progress(Progress{Rows: m.Rows, Phase: m.Phase})
		}
	}
}
