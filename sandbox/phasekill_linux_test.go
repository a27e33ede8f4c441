package sandbox_test

import (
	"bytes"
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

var phaseNames = []string{"setup", "agent", "grade"}

// launchPhases starts a launcher whose command of one phase is script. It returns
// the run folder and what tells the launcher's errors.
func launchPhases(t *testing.T, backend, phase, script string) (l *exec.Cmd, dir string, errs func() string) {
	t.Helper()
	tmp := t.TempDir()
	ws, dir := folder(t, filepath.Join(tmp, "ws")), filepath.Join(tmp, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	folder(t, filepath.Join(tmp, "home"))
	l = exec.Command("/proc/self/exe", ws, dir, phase, script)
	l.Env = append(os.Environ(), roleVar+"=launchphases", backVar+"="+backend)
	f, err := os.Create(filepath.Join(tmp, "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l.Stderr = f
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Process.Kill(); l.Wait() })
	return l, dir, func() string { b, _ := os.ReadFile(f.Name()); return string(b) }
}

// ends waits for a launcher that must end soon, whoever was killed.
func ends(t *testing.T, l *exec.Cmd) {
	t.Helper()
	ended := make(chan struct{})
	go func() { l.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		l.Process.Kill()
		<-ended
		t.Error("the run did not end")
	}
}

// gone waits until none of our processes is left, nor any that names mark.
func gone(t *testing.T, mark string, ours ...int) {
	t.Helper()
	var left []int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left = processes(mark)
		for _, p := range ours {
			if p > 0 && unix.Kill(p, 0) == nil && !zombie(p) {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("still alive: %v", left)
}

// Incident 20: whoever of us is killed, in whatever phase, nothing survives and nobody
// can take the journal for a finished run's.
func TestIncident20_KilledInAnyPhase(t *testing.T) {
	for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
		for _, phase := range phaseNames {
			for _, victim := range []string{"launcher", "broker", "pid 1"} {
				if backend == sandbox.PlainBackend && victim == "pid 1" {
					continue // there is none
				}
				t.Run(backend+" "+phase+" "+victim, func(t *testing.T) {
					mark := fmt.Sprintf("97%d.%d%d", os.Getpid(), len(victim), len(phase))
					l, dir, errs := launchPhases(t, backend, phase, "(setsid sleep "+mark+" &); echo > started; sleep "+mark)
					for end := time.Now().Add(time.Minute); len(processes("sleep\x00"+mark)) < 2; time.Sleep(5 * time.Millisecond) {
						if strings.Contains(errs(), "not available") {
							t.Skip(errs())
						}
						if time.Now().After(end) {
							t.Fatalf("it never started: %s", errs())
						}
					}
					broker := child(l.Process.Pid)
					one := child(broker)
					if broker == 0 || one == 0 {
						t.Fatalf("broker %d, its child %d", broker, one)
					}
					if err := unix.Kill(map[string]int{"launcher": l.Process.Pid, "broker": broker, "pid 1": one}[victim], unix.SIGKILL); err != nil {
						t.Fatal(err)
					}
					ends(t, l)
					gone(t, mark, broker, one)
					if l.ProcessState.ExitCode() == 0 {
						t.Error("the launcher reports success")
					}
					notCompleted(t, dir)
				})
			}
		}
	}
}

// A shim that is killed, at any moment from its start to its exec, ends the run: with an
// error, or as the command that it had become.
func TestIncident20_KilledShim(t *testing.T) {
	times := 6
	if testing.Short() {
		times = 2
	}
	early := 0
	for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
		for n, phase := range phaseNames {
			t.Run(backend+" "+phase, func(t *testing.T) {
				for i := range times {
					mark := fmt.Sprintf("96%d.%d%d%d", os.Getpid(), len(backend), n, i)
					l, dir, errs := launchPhases(t, backend, phase, "sleep "+mark)
					broker, shim := 0, 0
					want := []byte("cleanrun: shim\x00" + strconv.Itoa(n))
					for end := time.Now().Add(time.Minute); shim == 0 && time.Now().Before(end); {
						broker = child(l.Process.Pid)
						for _, p := range []int{child(broker), child(child(broker))} {
							if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); p > 0 && err == nil && (bytes.HasPrefix(b, want) || bytes.Contains(b, []byte(mark))) {
								shim = p // or what it has become
							}
						}
						if strings.Contains(errs(), "not available") {
							t.Skip(errs())
						}
					}
					if shim == 0 {
						t.Fatalf("no shim of %s was seen: %s", phase, errs())
					}
					time.Sleep(time.Duration(i) * 1500 * time.Microsecond)
					b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", shim))
					if err := unix.Kill(shim, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
						t.Fatal(err)
					}
					ends(t, l)
					gone(t, mark, broker, shim)
					if bytes.HasPrefix(b, want) {
						early++
					}
					if !executed(t, dir, journal.Phase(n)) {
						notCompleted(t, dir)
						if l.ProcessState.ExitCode() != sandbox.OwnFailure && l.ProcessState.ExitCode() != 1 {
							t.Errorf("the launcher ended with %d, want a failure", l.ProcessState.ExitCode())
						}
					}
				}
			})
		}
	}
	if early == 0 {
		t.Error("no shim was hit before it executed the command")
	}
	t.Logf("%d were hit before they executed the command", early)
}

// executed tells whether a journal has an exec in a phase.
func executed(t *testing.T, dir string, phase journal.Phase) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := journal.NewChecker()
	for line, err := range journal.Rows(f) {
		if err != nil {
			return false // a torn tail
		}
		if row, err := c.Add(line.Raw); err == nil && row.Op == journal.OpExec && row.Phase == phase {
			return true
		}
	}
	return false
}
