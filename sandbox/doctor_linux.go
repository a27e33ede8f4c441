package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/landlock"
)

// stageProbe tries one ability in a process of its own; its name is the first
// argument.
const stageProbe = "cleanrun: probe"

const probeTime = 20 * time.Second

// probe is one ability that the recorder needs.
type probe struct {
	id    string
	flags uintptr // namespaces to try it in
	try   func() error
	ok    string
	hint  string
}

const (
	twoNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	allNamespaces = twoNamespaces | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
)

func probes() []probe {
	return []probe{
		{"user-namespace", twoNamespaces, func() error { return nil }, "user and mount namespaces can be made",
			"allow unprivileged user namespaces (user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns, a container's seccomp profile)"},
		{"mount", twoNamespaces, probeMount, "tmpfs and read-only binds can be mounted in them",
			"an AppArmor profile blocks mounts in user namespaces: allow them for this program"},
		{"overlay", twoNamespaces, probeOverlay, "an overlay works on the folder for temporary files",
			"needs Linux 5.11; the run folder must not lie on an overlay itself: choose a volume with TMPDIR or -o"},
		{"procfs", allNamespaces, probeProc, "a process namespace with its own /proc and loopback works",
			"a container masks parts of /proc: run outside of it"},
		{"seccomp-notify", 0, probeSeccomp, "system calls can be answered by the recorder",
			"needs Linux 5.19, and no other supervisor on this process (a container runtime)"},
		{"ptrace", twoNamespaces, probePtrace, "births, execs and deaths can be followed",
			"set kernel.yama.ptrace_scope below 3, or run outside the container"},
	}
}

// Doctor tries each ability for real, then a whole run.
func Doctor() []Check {
	var out []Check
	for _, p := range probes() {
		c := Check{ID: p.id, OK: true, Got: p.ok}
		if err := runProbe(p); err != nil {
			c.OK, c.Got, c.Hint = false, err.Error(), p.hint
		}
		out = append(out, c)
	}
	wall := Check{ID: "landlock", OK: true, Got: "not here: nothing but the recorder itself keeps the run in"}
	if abi := landlock.ABI(); abi > 0 {
		wall.Got = fmt.Sprintf("version %d is a second wall around the run", abi)
	}
	out = append(out, wall)
	for _, w := range []struct{ id, backend string }{{checkRun, Backend}, {checkPlainRun, PlainBackend}} {
		c := Check{ID: w.id, OK: true, Got: w.backend + ": a recorded command ran and its journal closed"}
		if err := wholeRun(w.backend); err != nil {
			c.OK, c.Got, c.Hint = false, w.backend+": "+err.Error(), "see the failed checks above"
			var u *Unavailable
			if errors.As(err, &u) && u.Hint != "" {
				c.Hint = u.Hint
			}
		}
		out = append(out, c)
	}
	return out
}

func runProbe(p probe) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{stageProbe, p.id}
	cmd.Env = []string{"TMPDIR=" + os.TempDir()}
	var out bytes.Buffer
	cmd.Stdout = &out
	if p.flags != 0 {
		cmd.SysProcAttr = brokerAttr(&stage{Root: os.Getuid() == 0})
		cmd.SysProcAttr.Cloneflags = p.flags
		cmd.SysProcAttr.Pdeathsig = 0 // this thread may end before the probe
	}
	err := cmd.Run()
	if text := strings.TrimSpace(out.String()); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}

// tryProbe is the stage of a probe.
func tryProbe(id string) {
	for _, p := range probes() {
		if p.id != id {
			continue
		}
		if err := p.try(); err != nil {
			fmt.Println(err)
			os.Exit(OwnFailure)
		}
		os.Exit(0)
	}
	if id == "child" { // of probePtrace
		time.Sleep(probeTime)
	}
	os.Exit(OwnFailure)
}

func probeMount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Mkdir("/tmp/usr", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/usr", "/tmp/usr", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind /usr: %w", err)
	}
	a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/tmp/usr", unix.AT_RECURSIVE, &a); err != nil {
		return fmt.Errorf("make a bind read-only (mount_setattr, Linux 5.12): %w", err)
	}
	return nil
}

func probeOverlay() error {
	dir, err := os.MkdirTemp("", "cleanrun-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // best effort in a folder for temporary files
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := os.Chdir(dir); err != nil { // relative layers: the path may hold a comma
		return err
	}
	if err := unix.Mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work,userxattr"); err != nil {
		return fmt.Errorf("mount overlay in %s: %w", dir, err)
	}
	err = os.WriteFile("merged/file", []byte("x"), 0o600)
	return errors.Join(err, unix.Unmount("merged", unix.MNT_DETACH))
}

func probeProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=4"); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return loopback()
}

func probeSeccomp() error {
	arch, err := seccomp.Native()
	if err != nil {
		return err
	}
	fd, err := seccomp.Install(arch.Filter())
	if err != nil {
		return err
	}
	_, err = seccomp.NewListener(fd)
	return err
}

func probePtrace() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{stageProbe, "child"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_EXITKILL, 0, 0)
	killed := cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if e != 0 {
		return fmt.Errorf("trace a child: %w", e)
	}
	var b [1]byte
	local, remote := unix.Iovec{Base: &b[0], Len: 1}, unix.RemoteIovec{Base: 0, Len: 1}
	_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	if err == unix.EPERM || err == unix.ENOSYS {
		return fmt.Errorf("read the memory of a process: %w", err)
	}
	return killed
}

// wholeRun records a shell that does nothing.
func wholeRun(backend string) error {
	dir, err := os.MkdirTemp("", "cleanrun-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // best effort in a folder for temporary files
	c := Config{
		Command: []string{"/bin/sh", "-c", ":"}, Env: []string{"PATH=/usr/bin:/bin"},
		Workspace: filepath.Join(dir, "workspace"), RunDir: filepath.Join(dir, "run"), Backend: backend,
	}
	for _, d := range []string{c.Workspace, c.RunDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	res, err := Run(ctx, c)
	if err != nil {
		return err
	}
	if res.Outcome != journal.Completed {
		return fmt.Errorf("the command ended with code %d", res.Code)
	}
	return nil
}
