package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A filter cannot be taken off, so the program under it is this test binary
// again, in the role that the variable names.
const roleVar = "CLEANRUN_SECCOMP_TEST"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		program(role)
	}
	os.Exit(m.Run())
}

// program installs the filter, sends the listener over descriptor 3, waits for a
// byte and plays its role. It ends with the status that the test expects.
func program(role string) {
	runtime.LockOSThread()
	a, err := Native()
	if err != nil {
		fmt.Println(err)
		os.Exit(125)
	}
	var one [1]byte
	fd, err := Install(a.Filter())
	if err != nil {
		fmt.Println(err)
		os.Exit(125)
	}
	if err := unix.Sendmsg(3, []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
		os.Exit(124)
	}
	unix.Close(fd)
	if n, _ := unix.Read(3, one[:]); n != 1 {
		os.Exit(123)
	}
	role, count, _ := strings.Cut(role, ":")
	repeat, _ = strconv.Atoi(count)
	os.Exit(roles[role]())
}

var repeat int

// call is a system call of this thread, the only one under the filter.
func call(name string, args ...uintptr) (uintptr, syscall.Errno) {
	a, _ := Native()
	nr, ok := a.Number(name)
	if !ok {
		return 0, syscall.ENOSYS
	}
	var b [6]uintptr
	copy(b[:], args)
	r, _, e := unix.RawSyscall6(uintptr(nr), b[0], b[1], b[2], b[3], b[4], b[5])
	return r, e
}

var path = []byte("/role/path\x00")

var roles = map[string]func() int{
	"open": func() int { // prints what it read from the descriptor it got
		fd, e := call("openat", ^uintptr(99), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY, 0)
		if e != 0 {
			return int(e)
		}
		var b [64]byte
		n, err := unix.Read(int(fd), b[:])
		if err != nil {
			return 99
		}
		fmt.Print(string(b[:n]))
		return 0
	},
	"refused": func() int {
		_, e := call("io_uring_setup", 1, 0)
		_, e2 := call("ptrace", 0)
		_, e3 := call("socket", 40, 1, 0)
		_, e4 := call("clone3", 0, 0)
		fmt.Print(e, "|", e2, "|", e3, "|", e4)
		return 0
	},
	"x32": func() int {
		unix.RawSyscall(x32Bit|1, 1, 0, 0)
		return 0
	},
	"many": func() int { // a wrong descriptor is 0, or one that does not read zeros
		wrong := 0
		for range repeat {
			fd, e := call("openat", 0, uintptr(unsafe.Pointer(&path[0])), 0, 0)
			var b [1]byte
			b[0] = 1
			if n, err := unix.Read(int(fd), b[:]); e != 0 || int(fd) < 3 || n != 1 || err != nil || b[0] != 0 {
				wrong++
			}
			unix.Close(int(fd))
		}
		fmt.Print(repeat, " opens, ", wrong, " wrong")
		return 0
	},
	"sleep": func() int {
		call("openat", 0, uintptr(unsafe.Pointer(&path[0])), 0, 0)
		return 0
	},
}

// start runs a role and returns the listener of its filter.
func start(t *testing.T, role string) (*exec.Cmd, *Listener, *bytes.Buffer, func()) {
	t.Helper()
	sp, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(sp[1]), "pair")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() { cmd.Process.Kill(); unix.Close(sp[0]) })
	var b, oob [64]byte
	n, on, _, _, err := unix.Recvmsg(sp[0], b[:], oob[:], unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 {
		cmd.Wait()
		t.Skipf("no listener on this machine: %v %s", err, out.String())
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(msgs) != 1 {
		t.Fatal(err, len(msgs))
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return cmd, l, &out, func() { unix.Write(sp[0], []byte{1}) }
}

// serve answers notifications on a locked and masked thread until the program is
// gone, and returns the names of the calls.
func serve(l *Listener, answer func(a *Arch, n *Notif) error) (names []string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = MaskSignals(); err != nil {
			return
		}
		a, _ := Native()
		for {
			var n Notif
			if err = l.Recv(&n); err != nil {
				if err == io.EOF {
					err = nil
				}
				return
			}
			names = append(names, a.Call(n.Nr))
			if e := answer(a, &n); e != nil && !errors.Is(e, ErrGone) {
				err = e
				return
			}
		}
	}()
	<-done
	return names, err
}

// other answers what is not under test: the policy's refusals, and lets the
// runtime's own calls continue.
func other(l *Listener) func(a *Arch, n *Notif) error {
	return func(a *Arch, n *Notif) error {
		if v := a.Decide(n.Nr, n.Args); v.Class == Refuse {
			return l.Fail(n.ID, v.Errno)
		}
		return l.Continue(n.ID)
	}
}

func TestAddFD(t *testing.T) {
	cmd, l, out, goOn := start(t, "open")
	file := t.TempDir() + "/f"
	if err := os.WriteFile(file, []byte("handed over"), 0o600); err != nil {
		t.Fatal(err)
	}
	goOn()
	names, err := serve(l, func(a *Arch, n *Notif) error {
		if a.Call(n.Nr) != "openat" || !l.Valid(n.ID) {
			return other(l)(a, n)
		}
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return l.AddFD(n.ID, fd, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "handed over" {
		t.Errorf("program: %v, read %q, want %q; notified: %v", err, out.String(), "handed over", names)
	}
}

func TestFailReachesTheProgram(t *testing.T) {
	cmd, l, _, goOn := start(t, "open")
	goOn()
	if _, err := serve(l, func(a *Arch, n *Notif) error {
		if a.Call(n.Nr) == "openat" {
			return l.Fail(n.ID, unix.ENOTDIR)
		}
		return other(l)(a, n)
	}); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != int(unix.ENOTDIR) {
		t.Errorf("program saw errno %d, want %d", got, unix.ENOTDIR)
	}
}

// An O_PATH descriptor cannot be handed over, and the call still waits for
// another answer afterwards.
func TestAddFDRefusesOPath(t *testing.T) {
	cmd, l, _, goOn := start(t, "open")
	goOn()
	var first error
	if _, err := serve(l, func(a *Arch, n *Notif) error {
		if a.Call(n.Nr) != "openat" {
			return other(l)(a, n)
		}
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		first = l.AddFD(n.ID, fd, true)
		return l.Fail(n.ID, unix.EACCES)
	}); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if !errors.Is(first, unix.EBADF) || cmd.ProcessState.ExitCode() != int(unix.EACCES) {
		t.Errorf("AddFD: %v, want EBADF; program saw %d, want EACCES", first, cmd.ProcessState.ExitCode())
	}
}

func TestRT43_IOUringRefusedAndSeen(t *testing.T) {
	cmd, l, out, goOn := start(t, "refused")
	goOn()
	names, err := serve(l, other(l))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(unix.ENOSYS, "|", unix.EPERM, "|", unix.EAFNOSUPPORT, "|", unix.ENOSYS)
	if out.String() != want {
		t.Errorf("program saw %q, want %q", out.String(), want)
	}
	got := strings.Join(names, " ")
	for _, n := range []string{"io_uring_setup", "ptrace", "socket"} {
		if !strings.Contains(got, n) {
			t.Errorf("the supervisor did not see %s; it saw %s", n, got)
		}
	}
	if strings.Contains(got, "clone3") {
		t.Error("the supervisor saw clone3, which the filter answers itself")
	}
}

func TestX32KillsTheProcess(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x32 exists on amd64 only")
	}
	cmd, l, _, goOn := start(t, "x32")
	goOn()
	if _, err := serve(l, other(l)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != unix.SIGSYS {
		t.Errorf("program ended with %v, want death by SIGSYS", cmd.ProcessState)
	}
}

// A caller that is killed while it waits makes the answer void, and its end ends
// Recv.
func TestVoidAndHangup(t *testing.T) {
	cmd, l, _, goOn := start(t, "sleep")
	goOn()
	var late error
	valid := true
	if _, err := serve(l, func(a *Arch, n *Notif) error {
		if a.Call(n.Nr) != "openat" {
			return other(l)(a, n)
		}
		cmd.Process.Kill()
		for end := time.Now().Add(time.Minute); valid && time.Now().Before(end); time.Sleep(time.Millisecond) {
			valid = l.Valid(n.ID)
		}
		late = l.Fail(n.ID, unix.EPERM)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if valid || !errors.Is(late, ErrGone) {
		t.Errorf("after SIGKILL: valid %v, answer %v, want ErrGone", valid, late)
	}
	if over, err := l.Hangup(60_000); err != nil || !over {
		t.Errorf("Hangup after the last task: %v, %v", over, err)
	}
}

func TestNotifSizeIsTheKernels(t *testing.T) {
	if s := unsafe.Sizeof(Notif{}); s != 80 {
		t.Errorf("Notif has %d bytes, want 80", s)
	}
	if s := unsafe.Sizeof(addFD{}); s != 24 {
		t.Errorf("addFD has %d bytes, want 24", s)
	}
}

// Without masked signals this fails within some thousand opens: Go's preemption
// signal cuts the ioctl in half.
func TestNoWrongDescriptorUnderSignals(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	cmd, l, out, goOn := start(t, "many:"+strconv.Itoa(n))
	stop := make(chan struct{})
	defer close(stop)
	go func() { // signals to every thread of this process, as Go sends them
		for {
			select {
			case <-stop:
				return
			default:
				unix.Kill(os.Getpid(), unix.SIGURG)
				runtime.GC()
			}
		}
	}()
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	goOn()
	if _, err := serve(l, func(a *Arch, n *Notif) error {
		if a.Call(n.Nr) == "openat" {
			return l.AddFD(n.ID, fd, true)
		}
		return other(l)(a, n)
	}); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if want := fmt.Sprint(n, " opens, 0 wrong"); out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
