package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// Processes that die while the broker works for them make void rows; the
// accounts close all the same.
func TestSandboxKillStorm(t *testing.T) {
	needs(t, "python3")
	ws := simple(t)
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `import os, random, signal, subprocess, time
for r in range(25):
    l = [subprocess.Popen(["sh", "-c", "while :; do cat f >/dev/null; (true) & done"], stdout=subprocess.DEVNULL, start_new_session=True) for _ in range(3)]
    time.sleep(random.random() * 0.08)
    for p in l: os.killpg(p.pid, signal.SIGKILL); p.wait()
print("killed")`}})
	if r.stdout != "killed\n" || r.Outcome != journal.Completed {
		t.Errorf("outcome %v stdout %q stderr %q", r.Outcome, r.stdout, r.stderr)
	}
	r.closed(t)
	if r.Final.Void == 0 {
		t.Log("no process died while a call of it was under way")
	}
}

// In grading each end is seen twice, once before it: a process that is killed in the
// middle of a fork or an exec stops with what looks like another fork's or exec's message.
// A child that it could not report goes to a subreaper of the run's own here.
func TestGradingKillStorm(t *testing.T) {
	needs(t, "python3")
	const script = `python3 -c '
import ctypes, os, random, signal, threading, time
ctypes.CDLL(None).prctl(36, 1)
for r in range(150):
    p = os.fork()
    if p == 0:
        os.setpgid(0, 0)
        for i in range(r % 2 * 4): # one of them takes over the number of all
            threading.Thread(target=os.execv, args=("/bin/true", ["true"])).start()
        for i in range(20):
            c = os.fork()
            if c == 0:
                os.execv("/bin/true", ["true"])
        os._exit(0)
    try: os.setpgid(p, p)
    except OSError: pass
    time.sleep(random.random() * 0.01)
    try:
        if r % 3 == 0: os.killpg(p, signal.SIGSTOP)
        os.killpg(p, signal.SIGKILL)
    except OSError: pass
    os.waitpid(p, 0)
try:
    while True: os.wait()
except ChildProcessError: pass
'; echo killed; echo 0`
	for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
		t.Run(backend, func(t *testing.T) {
			c := phased(t, "", "true", script)
			c.Backend = backend
			r := run(t, c)
			if r.stdout != "killed\n0\n" || r.Outcome != journal.Completed {
				t.Errorf("outcome %v stdout %q stderr %q", r.Outcome, r.stdout, r.stderr)
			}
			if l := r.find(func(e entry) bool { return e.Op == journal.OpKilled }); len(l) > 0 {
				t.Errorf("killed by the recorder: %v", l)
			}
			r.closed(t)
		})
	}
}

// A child that asks not to be traced would execute unseen.
func TestSandboxUntracedCloneIsRefused(t *testing.T) {
	ws := simple(t)
	tool := self(t, filepath.Join(ws, "tool"))
	r := run(t, sandbox.Config{Command: []string{tool}, Workspace: ws, Env: append(environment(t.TempDir()), roleVar+"=untraced")})
	if r.stdout != "plain 0 untraced 1\n" {
		t.Errorf("stdout %q stderr %q: want a plain clone to work and an untraced one to fail with EPERM", r.stdout, r.stderr)
	}
	r.has(t, "denied clone", func(e entry) bool { return e.Op == journal.OpDenied && e.D.Syscall == "clone" })
	r.closed(t)
}

// A terminal outside is one inside, with its size, and Ctrl-C reaches the program
// and nobody else.
func TestSandboxTerminal(t *testing.T) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	master := os.NewFile(uintptr(fd), "master")
	defer master.Close()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	slave := os.NewFile(s, "slave")
	defer slave.Close()
	if err := unix.IoctlSetWinsize(int(s), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(s), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var screen bytes.Buffer
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			mu.Lock()
			screen.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	done := make(chan struct{})
	shows := func(what string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			ok := strings.Contains(screen.String(), what)
			mu.Unlock()
			if ok {
				return
			}
			select {
			case <-done:
				if un := (*sandbox.Unavailable)(nil); errors.As(err, &un) {
					t.Skip(err)
				}
			default:
			}
		}
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("the terminal shows %q, want %q", screen.String(), what)
	}
	dir, ws := runDir(t), simple(t)
	var res *sandbox.Result
	go func() {
		defer close(done)
		res, err = sandbox.Run(context.Background(), sandbox.Config{Workspace: ws, RunDir: dir, Env: environment(t.TempDir()),
			Stdin: slave, Stdout: slave, Stderr: slave, Command: []string{"/bin/sh", "-c",
				`test -t 0 && test -t 1 && test -t 2 && tty && stty size </dev/tty; read x; echo "got $x"; trap 'echo caught; exit 5' INT; echo ready; sleep 1000 & wait`}})
	}()
	shows("/dev/pts/0\r\n33 77\r\n")
	master.WriteString("typed\r")
	shows("got typed\r\n")
	shows("ready")
	master.WriteString("\x03")
	shows("caught")
	<-done
	if err != nil || res.Code != 5 || res.Outcome != journal.Failed {
		t.Errorf("Run: %+v, %v, want exit code 5", res, err)
	}
	after, err := unix.IoctlGetTermios(int(s), unix.TCGETS)
	if err != nil || *after != *before {
		t.Error("the outer terminal's mode was not restored")
	}
	r := &recorded{rows: readRows(t, dir)}
	typed := ""
	for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpStdin }) {
		b, err := os.ReadFile(filepath.Join(dir, "objects", filepath.FromSlash(objects.Name(objects.Sum(e.D.SHA256)))))
		if err != nil {
			t.Fatal(err)
		}
		typed += string(b)
	}
	if typed != "typed\r\x03" {
		t.Errorf("recorded input %q", typed)
	}
}

// With relative calls a program gets deeper than any path can say. No row could
// name what is there, so it is refused; the run goes on.
func TestSandboxDeeperThanPathMax(t *testing.T) {
	needs(t, "python3")
	ws := simple(t)
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `import errno, os
name, at = "d" * 200, os.open(".", os.O_RDONLY)
for i in range(40):
    try: os.mkdir(name, dir_fd=at)
    except OSError as e: print(e.errno == errno.ENAMETOOLONG, 15 < i < 21); break
    new = os.open(name, os.O_RDONLY, dir_fd=at); os.close(at); at = new
for f in (lambda: os.open("l" * 250, os.O_CREAT | os.O_WRONLY, dir_fd=at), lambda: os.symlink("x", "l" * 250, dir_fd=at),
          lambda: os.rename("../" + name, "m" * 250, src_dir_fd=at, dst_dir_fd=at), lambda: os.link("/etc/passwd", "l" * 250, dst_dir_fd=at)):
    try: f(); print("done")
    except OSError as e: print(errno.errorcode[e.errno])
os.close(os.open("ok", os.O_CREAT | os.O_WRONLY, dir_fd=at)); print(os.listdir(at))
os.rename(os.readlink("/proc/self/fd/%d" % at), "short"); print(os.listdir("short"))`}})
	if want := "True True\nENAMETOOLONG\nENAMETOOLONG\nENAMETOOLONG\nENAMETOOLONG\n['ok']\n['ok']\n"; r.stdout != want {
		t.Errorf("stdout %q, want %q; stderr %q", r.stdout, want, r.stderr)
	}
	r.closed(t)
}

// A call that waits for a peer, an open of a FIFO, is interrupted by signals as
// outside: a deadly one ends the process, a handler makes it return EINTR or
// start again as the handler asks.
func TestSandboxSignalsInterruptWaitingOpen(t *testing.T) {
	needs(t, "python3", "timeout")
	ws := simple(t)
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"/bin/sh", "-c", `mkfifo p; timeout 0.1 cat p; echo $?
python3 -u - <<'P'
import ctypes, os, signal, subprocess, threading, time
libc = ctypes.CDLL(None, use_errno=True)
calls = []
def open_fifo():
    return libc.open(b"p", os.O_RDONLY), ctypes.get_errno()
signal.signal(signal.SIGALRM, lambda *a: calls.append("handler"))
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1) # again and again: one could come before the open
print(open_fifo()[1] == 4)
signal.setitimer(signal.ITIMER_REAL, 0)
calls.clear()
signal.siginterrupt(signal.SIGALRM, False) # SA_RESTART
signal.setitimer(signal.ITIMER_REAL, 0.1)
subprocess.Popen(["sh", "-c", "sleep 0.5; echo peer > p"])
fd, _ = open_fifo()
print(fd > 2, os.read(fd, 9), calls)
os.close(fd) # or the last writer would find this reader and not wait for cat
p = subprocess.Popen(["cat", "p"]); time.sleep(0.1); p.send_signal(signal.SIGSTOP); time.sleep(0.2); p.send_signal(signal.SIGCONT)
subprocess.run(["sh", "-c", "echo again > p"]); print(p.wait())
P`}})
	if want := "124\nTrue\nTrue b'peer\\n' ['handler']\nagain\n0\n"; r.stdout != want {
		t.Errorf("stdout %q, want %q; stderr %q", r.stdout, want, r.stderr)
	}
	r.closed(t)
}
