package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// roles are the programs of the attack tests: what a run, or a launcher, does.
var roles map[string]func(args []string) int

func init() {
	roles = map[string]func([]string) int{
		"read": readRole, "fdread": fdReadRole, "scm": scmRole, "flip": flipRole, "many": manyRole,
		"procsys": procSysRole, "launch": launchRole, "denied": deniedRole, "swapexec": swapExecRole,
		"flipfile": flipFileRole, "untraced": untracedRole, "secretlaunch": secretLaunchRole, "launchphases": launchPhasesRole, "deathsignal": deathSignalRole, "eat": eatRole,
	}
}

func fail(v ...any) int {
	fmt.Fprintln(os.Stderr, v...)
	return 1
}

// readRole prints a file that it reads in an unusual way: method, path, scratch.
func readRole(args []string) int {
	method, path, scratch := args[0], args[1], args[2]
	fd, err := unix.Open(path, unix.O_RDONLY, 0) // not close-on-exec: children inherit it
	if err != nil {
		return fail(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	size := int(st.Size)
	show := func(from int) int {
		b := make([]byte, size)
		n, err := unix.Read(from, b)
		if err != nil {
			return fail(err)
		}
		os.Stdout.Write(b[:n])
		return 0
	}
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return fail(err)
	}
	switch method {
	case "pread40":
		b := make([]byte, 40)
		for off := int64(0); ; {
			n, err := unix.Pread(fd, b, off)
			if err != nil || n == 0 {
				return 0
			}
			os.Stdout.Write(b[:n])
			off += int64(n)
		}
	case "mmap":
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			return fail(err)
		}
		os.Stdout.Write(m)
		return 0
	case "splice":
		if _, err := unix.Splice(fd, nil, p[1], nil, size, 0); err != nil {
			return fail(err)
		}
		return show(p[0])
	case "sendfile":
		if _, err := unix.Sendfile(p[1], fd, nil, size); err != nil {
			return fail(err)
		}
		return show(p[0])
	case "copy_file_range":
		out, err := unix.Open(scratch, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC, 0o600)
		if err != nil {
			return fail(err)
		}
		if _, err := unix.CopyFileRange(fd, nil, out, nil, size, 0); err == unix.EXDEV {
			if _, err := unix.Sendfile(out, fd, nil, size); err != nil { // other file system: what cp does then
				return fail(err)
			}
		} else if err != nil {
			return fail(err)
		}
		unix.Seek(out, 0, 0)
		return show(out)
	case "inherited":
		cmd := exec.Command("/proc/self/exe", strconv.Itoa(size))
		cmd.Env = append(os.Environ(), roleVar+"=fdread")
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), path)}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fail(err)
		}
		return 0
	case "scm_rights":
		sp, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		cmd := exec.Command("/proc/self/exe", strconv.Itoa(size))
		cmd.Env = append(os.Environ(), roleVar+"=scm")
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(sp[1]), "pair")}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		unix.CloseOnExec(fd)
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		if err := unix.Sendmsg(sp[0], []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
			return fail(err)
		}
		if err := cmd.Wait(); err != nil {
			return fail(err)
		}
		return 0
	}
	return fail("no such method:", method)
}

func fdReadRole(args []string) int {
	n, _ := strconv.Atoi(args[0])
	b := make([]byte, n)
	if _, err := unix.Pread(3, b, 0); err != nil {
		return fail(err)
	}
	os.Stdout.Write(b)
	return 0
}

func scmRole(args []string) int {
	var b, oob [64]byte
	_, on, _, _, err := unix.Recvmsg(3, b[:], oob[:], 0)
	if err != nil {
		return fail(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(msgs) != 1 {
		return fail(err, len(msgs))
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return fail(err)
	}
	if err := unix.Dup2(fds[0], 3); err != nil {
		return fail(err)
	}
	return fdReadRole(args)
}

// flipRole opens a path n times while another thread changes it in memory
// between DIR/a and DIR/b, and says how often it read which.
func flipRole(args []string) int {
	n, _ := strconv.Atoi(args[1])
	path := append([]byte(args[0]+"/a"), 0)
	at := len(path) - 2
	var stop atomic.Bool
	go func() {
		runtime.LockOSThread()
		for i := 0; !stop.Load(); i++ {
			path[at] = byte('a' + i&1)
		}
	}()
	var got [2]int
	for range n {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY, 0, 0, 0)
		if e != 0 {
			return fail(e)
		}
		var b [1]byte
		if k, err := unix.Read(int(fd), b[:]); k != 1 || err != nil {
			return fail(k, err)
		}
		got[b[0]-'A']++
		unix.Close(int(fd))
	}
	stop.Store(true)
	fmt.Printf("a=%d b=%d\n", got[0], got[1])
	return 0
}

// manyRole opens DIR/0 to DIR/9 in turn, n times, and checks that each
// descriptor is the file that was asked for.
func manyRole(args []string) int {
	n, _ := strconv.Atoi(args[1])
	var stop atomic.Bool
	go func() { // collections send SIGURG to all threads
		for !stop.Load() {
			runtime.GC()
		}
	}()
	wrong := 0
	var b [1]byte
	for i := range n {
		fd, err := unix.Open(args[0]+"/"+strconv.Itoa(i%10), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		if k, err := unix.Read(fd, b[:]); k != 1 || err != nil || int(b[0]-'0') != i%10 || fd < 3 {
			wrong++
		}
		unix.Close(fd)
	}
	stop.Store(true)
	fmt.Printf("%d opens, %d wrong\n", n, wrong)
	return 0
}

// procSysRole tries to open everything under /proc/sys for writing.
func procSysRole([]string) int {
	tried := 0
	var writable []string
	for _, root := range []string{"/proc/sys", "/proc/irq", "/proc/sysrq-trigger", "/proc/acpi", "/sys/kernel", "/sys/fs/cgroup"} {
		filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !d.Type().IsRegular() {
				return nil
			}
			tried++
			if fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				writable = append(writable, p)
			}
			return nil
		})
	}
	b, err := os.ReadFile("/proc/sys/kernel/ostype")
	fmt.Printf("tried %v writable %v read %q %v\n", tried > 100, writable, strings.TrimSpace(string(b)), err)
	return 0
}

// deniedRole makes calls that the sandbox refuses and prints their errors.
func deniedRole(args []string) int {
	var buf [256]byte
	p := uintptr(unsafe.Pointer(&buf[0]))
	call := func(name string, nr uintptr, a ...uintptr) {
		var b [6]uintptr
		copy(b[:], a)
		_, _, e := unix.Syscall6(nr, b[0], b[1], b[2], b[3], b[4], b[5])
		fmt.Printf("%s=%d ", name, int(e))
	}
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 4, p)
	call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 3, p, 0)
	call("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getppid()))
	call("process_vm_readv", unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), p, 1, p, 1)
	call("pidfd_getfd", unix.SYS_PIDFD_GETFD, 0, 0)
	call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("setns", unix.SYS_SETNS, 0, 0)
	call("chroot", unix.SYS_CHROOT, p)
	src, dst := append([]byte(args[0]), 0), append([]byte(args[1]), 0)
	call("mount", unix.SYS_MOUNT, uintptr(unsafe.Pointer(&src[0])), uintptr(unsafe.Pointer(&dst[0])), 0, unix.MS_BIND, 0)
	fmt.Println()
	return 0
}

// untracedRole clones a child, plainly and with CLONE_UNTRACED.
func untracedRole([]string) int {
	clone := func(flags uintptr) int {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if pid == 0 && e == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		if e == 0 {
			unix.Wait4(int(pid), nil, 0, nil)
		}
		return int(e)
	}
	fmt.Printf("plain %d untraced %d\n", clone(0), clone(unix.CLONE_UNTRACED))
	return 0
}

// flipFileRole makes DIR/link point to DIR/A and DIR/B in turn, until killed.
func flipFileRole(args []string) int {
	dir := args[0]
	for i := 0; ; i++ {
		t := dir + "/A"
		if i%2 == 1 {
			t = dir + "/B"
		}
		os.Remove(dir + "/next")
		os.Symlink(t, dir+"/next")
		if err := os.Rename(dir+"/next", dir+"/link"); err != nil {
			return 0
		}
	}
}

// swapExecRole executes DIR/link n times while another process of the run
// changes where it points.
func swapExecRole(args []string) int {
	dir := args[0]
	n, _ := strconv.Atoi(args[1])
	flipper := exec.Command("/proc/self/exe", dir)
	flipper.Env = append(os.Environ(), roleVar+"=flipfile")
	if err := flipper.Start(); err != nil {
		return fail(err)
	}
	ran := map[string]int{}
	for range n {
		out, err := exec.Command(dir + "/link").Output()
		name, _, _ := strings.Cut(string(out), " ") // echo also prints the script's path
		if err != nil {
			name = "killed"
		}
		ran[name]++
	}
	flipper.Process.Kill()
	flipper.Wait()
	fmt.Printf("A=%d B=%d killed=%d\n", ran["A"], ran["B"], ran["killed"])
	return 0
}

// launchRole is a launcher outside, to be killed: workspace, RUNDIR, script.
func launchRole(args []string) int {
	home := filepath.Join(filepath.Dir(args[1]), "home")
	res, err := sandbox.Run(context.Background(), sandbox.Config{Backend: os.Getenv(backVar),
		Command: []string{"/bin/sh", "-c", args[2]}, Workspace: args[0], RunDir: args[1], Env: environment(home),
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		return sandbox.OwnFailure
	}
	fmt.Println("outcome", res.Outcome)
	return res.Code
}

// launchPhasesRole runs one script in a phase and nothing in the others: workspace,
// run folder, phase, script.
func launchPhasesRole(args []string) int {
	scripts := map[string]string{"setup": "true", "agent": "true", "grade": "true"}
	scripts[args[2]] = args[3]
	res, err := sandbox.Run(context.Background(), sandbox.Config{
		Workspace: args[0], RunDir: args[1], Env: environment(filepath.Join(filepath.Dir(args[0]), "home")), Stdout: os.Stdout, Stderr: os.Stderr,
		Backend: os.Getenv(backVar),
		Setup:   []string{"sh", "-c", scripts["setup"]}, Command: []string{"sh", "-c", scripts["agent"]}, Grade: []string{"sh", "-c", scripts["grade"]},
	})
	if err != nil {
		return fail(err)
	}
	fmt.Println(res.Outcome)
	return 0
}
