package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// Processes that are killed while they make others: a child whose maker died
// before it could report it must be adopted, not held for ever.
func TestSandboxKilledWhileForking(t *testing.T) {
	needs(t, "python3")
	ws := folder(t, filepath.Join(base(t), "ws"))
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `
import os, signal, time
for i in range(40):
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        while True:
            if os.fork() == 0: os._exit(0)
    time.sleep(0.004)
    try: os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError: os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print("ok")
`}})
	if r.stdout != "ok\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	r.closed(t)
	if r.Final.Born < 41 {
		t.Errorf("got %d processes, want at least 41", r.Final.Born)
	}
}

// An exec by a thread that is not the first takes over the process id.
func TestSandboxExecFromThread(t *testing.T) {
	needs(t, "gcc")
	ws := folder(t, filepath.Join(base(t), "ws"))
	src := write(t, filepath.Join(ws, "t.c"), `
#include <pthread.h>
#include <unistd.h>
static void *run(void *p) { execl("/bin/echo", "echo", "from thread", (char *)0); return p; }
int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pause(); }
`)
	if out, err := exec.Command("gcc", "-pthread", "-o", filepath.Join(ws, "t"), src).CombinedOutput(); err != nil {
		t.Skipf("gcc: %v %s", err, out)
	}
	r := run(t, shell(ws, "for i in 1 2 3 4 5; do ./t; done"))
	if want := strings.Repeat("from thread\n", 5); r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	r.closed(t)
	if l := r.find(func(e entry) bool { return e.Op == journal.OpKilled }); len(l) != 0 {
		t.Errorf("killed: %v", l)
	}
}

// A program and a file without a name are the run's own, and are told.
func TestSandboxMemfd(t *testing.T) {
	needs(t, "python3")
	ws := folder(t, filepath.Join(base(t), "ws"))
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `
import os
fd = os.memfd_create("x", 0)
os.write(fd, open("/bin/echo", "rb").read())
print(len(open("/proc/self/fd/%d" % fd, "rb").read()) > 1000, flush=True)
os.execve(fd, ["echo", "from memfd"], {})
`}})
	if r.stdout != "True\nfrom memfd\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	r.closed(t)
	wrote := r.has(t, "wrote row", func(e entry) bool { return e.Op == journal.OpWrote && e.D.Path == "" })
	exec := r.has(t, "exec row", func(e entry) bool { return e.Op == journal.OpExec && e.Object == wrote.Object })
	if exec.Origin != journal.OriginRun || exec.Size != wrote.Size || exec.Result != 0 {
		t.Errorf("got %v of %v, want the run's own content", exec, wrote)
	}
}

// The first Ctrl-C is the program's to decide.
func TestSandboxInterrupt(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	for _, c := range []struct {
		script  string
		signals int
		outcome journal.Outcome
		code    int
		out     string
	}{
		{`trap "echo caught; exit 7" INT; : > ready; while :; do sleep 0.05; done`, 1, journal.Failed, 7, "caught\n"},
		{`trap "" INT; : > ready; while :; do sleep 0.05; done`, 2, journal.Cancelled, 128 + int(unix.SIGKILL), ""},
	} {
		cfg := shell(ws, c.script)
		cfg.RunDir = runDir(t)
		done := make(chan bool)
		go func() {
			defer close(done)
			for range c.signals {
				if !made(t, filepath.Join(cfg.RunDir, "overlay", "upper", "ready")) {
					return
				}
				unix.Kill(unix.Getpid(), unix.SIGINT)
				time.Sleep(time.Second) // two at once are one
			}
		}()
		r := run(t, cfg)
		<-done
		if r.Outcome != c.outcome || r.Code != c.code || r.stdout != c.out {
			t.Errorf("%d signals: got outcome %v, code %d, %q (%s)", c.signals, r.Outcome, r.Code, r.stdout, r.stderr)
		}
	}
}

// A command that does not exist is a failure of the run itself.
func TestSandboxCommandNotFound(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	for _, command := range []string{"no-such-program", "./no-such-program", "/etc/passwd"} {
		dir := runDir(t)
		_, err := sandbox.Run(t.Context(), sandbox.Config{Workspace: ws, RunDir: dir, Env: environment(ws), Command: []string{command}})
		if err == nil || !strings.Contains(err.Error(), command) {
			t.Errorf("got %v, want an error that names %s", err, command)
		}
		rows := readRows(t, dir)
		if last := rows[len(rows)-1]; last.Op == journal.OpFinal && last.Final.Outcome != journal.Abandoned {
			t.Errorf("got outcome %v, want the journal open or abandoned", last.Final.Outcome)
		}
	}
}

// Programs of another word size would be killed at their first call.
func TestSandboxForeignELF(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	write(t, filepath.Join(ws, "elf32"), "\x7fELF\x01\x01\x01"+strings.Repeat("\x00", 121))
	r := run(t, shell(ws, "chmod 755 elf32; env ./elf32"))
	e := r.has(t, "exec row", func(e entry) bool { return e.Op == journal.OpExec && e.D.Path == ws+"/elf32" })
	if e.Result != int32(unix.ENOEXEC) {
		t.Errorf("got %v, want ENOEXEC", e)
	}
	r.closed(t)
}

// What may be executed but not read cannot be recorded: it does not run.
func TestSandboxExecuteOnly(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	ws := folder(t, filepath.Join(base(t), "ws"))
	r := run(t, shell(ws, "cp /bin/true own; chmod 111 own; ./own && echo ran; for f in /usr/bin/*; do [ -x $f ] && [ ! -r $f ] && $f; done; echo done"))
	if !strings.HasSuffix(r.stdout, "done\n") || !strings.HasPrefix(r.stdout, "ran\n") {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	r.closed(t)
}

// The step before exec leaves the program's stderr alone. A descriptor closed
// under the Go runtime there once made one run in three print a crash, if the
// recorder's own file lay in the workspace.
func TestSandboxStderrIsThePrograms(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	ws := folder(t, filepath.Join(base(t), "ws"))
	recorder := filepath.Join(ws, "recorder")
	if err := os.WriteFile(recorder, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		dir := runDir(t)
		folder(t, filepath.Join(filepath.Dir(dir), "home"))
		c := exec.Command(recorder, ws, dir, "echo out; echo err >&2")
		c.Env = append(os.Environ(), roleVar+"=launch")
		var out, errs strings.Builder
		c.Stdout, c.Stderr = &out, &errs
		err := c.Run()
		if strings.Contains(errs.String(), "not available") {
			t.Skipf("no sandbox here: %s", errs.String())
		}
		if err != nil || !strings.HasPrefix(out.String(), "out\n") || errs.String() != "err\n" {
			t.Fatalf("run %d: got stdout %q, stderr %q, %v, want only what the program wrote", i, out.String(), errs.String(), err)
		}
	}
}

// The program has the umask of whoever calls run, not the recorder's own.
func TestSandboxUmask(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	r := run(t, shell(folder(t, filepath.Join(base(t), "ws")), "umask; touch file; mkdir dir; stat -c %a file dir"))
	if want := "0027\n640\n750\n"; r.stdout != want {
		t.Errorf("got %q, want %q (%s)", r.stdout, want, r.stderr)
	}
}
