package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// processes are the ids of those whose command line contains mark.
func processes(mark string) (out []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(mark)) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			out = append(out, pid)
		}
	}
	return out
}

// child is the first child of a process.
func child(pid int) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		if b, err := os.ReadFile(f); err == nil {
			if kids := strings.Fields(string(b)); len(kids) > 0 {
				n, _ := strconv.Atoi(kids[0])
				return n
			}
		}
	}
	return 0
}

// A kill of any of our own processes takes the whole run with it and leaves a
// journal that nobody can take for a finished run.
func TestRT08_KillLeavesNoSurvivor(t *testing.T) {
	for _, victim := range []string{"launcher", "broker", "pid 1"} {
		if victim == "pid 1" && os.Getenv(backVar) == sandbox.PlainBackend {
			continue // there is none
		}
		t.Run(victim, func(t *testing.T) {
			tmp := t.TempDir()
			ws, dir := filepath.Join(tmp, "ws"), filepath.Join(tmp, "run")
			mark := fmt.Sprintf("98%d.%d", os.Getpid(), len(victim)) // seconds to sleep, and a needle
			if err := errors.Join(os.Mkdir(ws, 0o755), os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(tmp, "home"), 0o755)); err != nil {
				t.Fatal(err)
			}
			script := fmt.Sprintf(`trap '' TERM HUP INT; setsid sleep %[1]s & (trap '' HUP; sleep %[1]s) & echo started; sleep %[1]s; echo survived`, mark)
			l := exec.Command("/proc/self/exe", ws, dir, script)
			l.Env = append(os.Environ(), roleVar+"=launch")
			out, err := l.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			l.Stderr = &errs
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			defer l.Process.Kill()
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "started\n" {
				l.Wait()
				if strings.Contains(errs.String(), "not available") {
					t.Skipf("no sandbox here: %s", errs.String())
				}
				t.Fatalf("%q %v %s", line, err, errs.String())
			}
			for end := time.Now().Add(time.Minute); len(processes(mark)) < 4 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond) // launcher, shell, sleeps
			}
			broker := child(l.Process.Pid)
			one := child(broker)
			pid := map[string]int{"launcher": l.Process.Pid, "broker": broker, "pid 1": one}[victim]
			if broker == 0 || one == 0 || len(processes(mark)) < 4 {
				t.Fatalf("broker %d, pid 1 %d, %d processes", broker, one, len(processes(mark)))
			}
			began := time.Now()
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			alive := func() []int {
				a := processes(mark)
				for _, p := range []int{broker, one} {
					if unix.Kill(p, 0) == nil && !zombie(p) {
						a = append(a, p)
					}
				}
				return a
			}
			var left []int
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				if left = alive(); len(left) == 0 || victim != "launcher" && len(left) == 1 && left[0] == l.Process.Pid {
					left = nil
					break
				}
			}
			if len(left) > 0 {
				t.Fatalf("alive after SIGKILL of %s: %v", victim, left)
			}
			t.Logf("all gone after %v", time.Since(began))
			rest, _ := lines.ReadString(0)
			l.Wait()
			if strings.Contains(rest, "survived") || strings.Contains(rest, journal.Completed.String()) {
				t.Errorf("after the kill: %q", rest)
			}
			if victim != "launcher" && l.ProcessState.ExitCode() == 0 {
				t.Error("the launcher reports success")
			}
			notCompleted(t, dir)
		})
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(b, []byte(") Z "))
}

// notCompleted checks that a journal is open or abandoned, and that what there is
// of it holds.
func notCompleted(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := journal.NewChecker()
	n := 0
	for line, err := range journal.Rows(f) {
		if err != nil {
			t.Logf("journal ends with: %v", err) // a torn tail
			break
		}
		if _, err := c.Add(line.Raw); err != nil {
			t.Errorf("row %d: %v", n, err)
		}
		n++
	}
	s := c.Summary()
	if n == 0 {
		t.Error("the journal is empty")
	}
	if s.Closed() && s.Final.Outcome != journal.Abandoned && s.Final.Outcome != journal.Cancelled {
		t.Errorf("the journal says %v", s.Final.Outcome)
	}
}

func simple(t *testing.T) string {
	t.Helper()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, filepath.Join(ws, "f"), "content\n")
	return ws
}

func TestSandboxCannotKillItsInit(t *testing.T) {
	ws := simple(t)
	script := `for s in QUIT TERM INT HUP USR1 USR2 PIPE ALRM SEGV ABRT BUS ILL TRAP FPE STOP TSTP KILL; do kill -$s 1 2>/dev/null; done; sleep 0.1; cat f; exit 3`
	r := run(t, sandbox.Config{Command: []string{"/bin/sh", "-c", script}, Workspace: ws})
	if r.stdout != "content\n" || r.Code != 3 || r.Outcome != journal.Failed {
		t.Errorf("code %d outcome %v stdout %q stderr %q", r.Code, r.Outcome, r.stdout, r.stderr)
	}
	r.closed(t)
}

// A daemon that the command leaves behind is killed, and that is all: the run is
// complete and its accounts are closed.
func TestSandboxBackgroundProcess(t *testing.T) {
	ws := simple(t)
	r := run(t, sandbox.Config{Command: []string{"/bin/sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo done"}, Workspace: ws})
	if r.stdout != "done\n" || r.Outcome != journal.Completed {
		t.Errorf("outcome %v stdout %q", r.Outcome, r.stdout)
	}
	r.closed(t)
}

func TestSandboxCancel(t *testing.T) {
	ws := simple(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := runDir(t)
	began := time.Now()
	res, err := sandbox.Run(ctx, sandbox.Config{Command: []string{"/bin/sh", "-c", "trap '' TERM INT; echo started; sleep 1000"}, Workspace: ws, RunDir: dir, Env: environment(t.TempDir()),
		Stdout: writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })})
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skip(err)
	}
	if err != nil || res.Outcome != journal.Cancelled {
		t.Errorf("Run: %+v, %v, want outcome cancelled", res, err)
	}
	if d := time.Since(began); d > 2*time.Minute {
		t.Errorf("took %v", d)
	}
	notCompleted(t, dir)
}

// The recorder opens what it records: a path that changes in memory while it is
// read cannot make them differ.
func TestSandboxPathFlipping(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, filepath.Join(ws, "a"), "A")
	write(t, filepath.Join(ws, "b"), "B")
	tool := self(t, filepath.Join(ws, "tool"))
	const n = 3000
	r := run(t, sandbox.Config{Command: []string{tool, ws, strconv.Itoa(n)}, Workspace: ws, Env: append(environment(t.TempDir()), roleVar+"=flip")})
	var a, b int
	if _, err := fmt.Sscanf(r.stdout, "a=%d b=%d", &a, &b); err != nil || a+b != n {
		t.Fatalf("%v: %q %q", err, r.stdout, r.stderr)
	}
	if a < 50 || b < 50 {
		t.Logf("the race was hardly won: a %d b %d", a, b)
	}
	if a == 0 || b == 0 {
		t.Errorf("the attack failed by itself: a %d b %d", a, b)
	}
	if ra, rb := len(r.opens(filepath.Join(ws, "a"))), len(r.opens(filepath.Join(ws, "b"))); ra != a || rb != b {
		t.Errorf("the program read a %d and b %d times, the journal says %d and %d", a, b, ra, rb)
	}
	r.closed(t)
}

func TestSandboxManyOpensUnderSignals(t *testing.T) {
	n := 20_000
	if long && os.Getenv(userVar) == "" {
		n = 200_000
	}
	ws := filepath.Join(t.TempDir(), "ws")
	for i := range 10 {
		write(t, filepath.Join(ws, strconv.Itoa(i)), strconv.Itoa(i))
	}
	tool := self(t, filepath.Join(ws, "tool"))
	r := run(t, sandbox.Config{Command: []string{tool, ws, strconv.Itoa(n)}, Workspace: ws, Env: append(environment(t.TempDir()), roleVar+"=many")})
	if want := fmt.Sprintf("%d opens, 0 wrong\n", n); r.stdout != want {
		t.Errorf("got %q, want %q; stderr %q", r.stdout, want, r.stderr)
	}
	rows := 0
	for i := range 10 {
		rows += len(r.opens(filepath.Join(ws, strconv.Itoa(i))))
	}
	if rows != n {
		t.Errorf("%d rows for %d opens", rows, n)
	}
	r.closed(t)
}

// What an exec row names is what ran, or the process was killed before its first
// instruction.
func TestSandboxSwappedExec(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	// Two programs that differ in what they print: two interpreted by two different
	// copies of echo, so that the inode that runs is another too.
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Skip("no echo program")
	}
	bin, err := os.ReadFile(echo)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"A", "B"} {
		write(t, filepath.Join(ws, "bin"+n), string(bin))
		write(t, filepath.Join(ws, n), fmt.Sprintf("#!%s %s\n", filepath.Join(ws, "bin"+n), n))
		for _, f := range []string{n, "bin" + n} {
			if err := os.Chmod(filepath.Join(ws, f), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(filepath.Join(ws, "A"), filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	tool := self(t, filepath.Join(ws, "tool"))
	seen, allA, allB := 0, 0, 0
	for range 30 {
		r := run(t, sandbox.Config{Command: []string{tool, ws, "300"}, Workspace: ws, Env: append(environment(t.TempDir()), roleVar+"=swapexec")})
		var ranA, ranB, killed int
		if _, err := fmt.Sscanf(r.stdout, "A=%d B=%d killed=%d", &ranA, &ranB, &killed); err != nil {
			t.Fatalf("%v: %q %q", err, r.stdout, r.stderr)
		}
		kills := map[uint32]bool{}
		for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpKilled }) {
			kills[e.Proc] = true
		}
		told := map[string]int{}
		for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpExec && e.Result == 0 && !kills[e.Proc] }) {
			told[e.D.Path]++
		}
		a, b := told[filepath.Join(ws, "A")], told[filepath.Join(ws, "B")]
		if ranA != a || ranB != b {
			t.Errorf("ran A %d B %d, the journal says A %d B %d, %d killed", ranA, ranB, a, b, len(kills))
		}
		allA, allB = allA+ranA, allB+ranB
		if seen += len(kills); seen > 0 && allA > 0 && allB > 0 {
			return
		}
	}
	t.Errorf("in 9000 execs of a link that changes all the time: ran A %d, B %d, swapped in between %d; want some of each: the check was not exercised", allA, allB, seen)
}

// Nothing that configures the kernel can be opened for writing, as root neither.
func TestSandboxProcSysIsReadOnly(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	tool := self(t, filepath.Join(ws, "tool"))
	r := run(t, sandbox.Config{Command: []string{tool}, Workspace: ws, Env: append(environment(t.TempDir()), roleVar+"=procsys")})
	if want := "tried true writable [] read \"Linux\" <nil>\n"; r.stdout != want {
		t.Errorf("got %q, want %q; stderr %q", r.stdout, want, r.stderr)
	}
}

// A full disk in RUNDIR ends the run; it is never complete.
func TestRT08_FullDiskPoisonsTheRun(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a small file system must be mounted, which needs root")
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, filepath.Join(ws, "big"), strings.Repeat("0123456789abcdef", 4<<20/16))
	// Each copy is another content, so the store fills; what follows must not count.
	script := `i=0; while [ $i -lt 40 ]; do (echo $i; cat big) > /tmp/copy; cat /tmp/copy >/dev/null || exit 7; i=$((i+1)); done; echo finished`
	for _, small := range []bool{false, true} {
		var out bytes.Buffer
		command := script
		if !small {
			command = "cat big | wc -c; echo finished" // positive control: fits
		}
		res, err := sandbox.Run(t.Context(), sandbox.Config{Command: []string{"/bin/sh", "-c", command}, Workspace: ws, RunDir: dir,
			Env: environment(t.TempDir()), Stdout: &out, Stderr: &out})
		var un *sandbox.Unavailable
		if errors.As(err, &un) {
			t.Skip(err)
		}
		if !small {
			if err != nil || res.Outcome != journal.Completed {
				t.Fatalf("positive control: %+v %v %q", res, err, out.String())
			}
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=700"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err == nil && (res.Outcome == journal.Completed || res.Outcome == journal.Failed) {
			t.Errorf("full disk: %+v, want an error or abandoned", res)
		}
		if strings.Contains(out.String(), "finished") {
			t.Error("the program went on to its end")
		}
		t.Logf("full disk: %v", err)
		notCompleted(t, dir)
	}
}
