package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// Incident 14: what the grader runs makes the grader's own write of the reward fail, so
// that the number which the answer left counts.
func TestIncident14_RewardWriteFails(t *testing.T) {
	const (
		fake   = `sh -c 'echo 1 > /cleanrun/reward/reward.txt; `
		honest = `'; echo 0 > /cleanrun/reward/reward.txt`
	)
	root := os.Getuid() == 0
	for name, c := range map[string]struct {
		grade, reward string
		user          bool // root may write all the same
	}{
		"positive control": {fake + honest, "0 by 3", false},
		"temporary name":   {"cd /cleanrun/reward; set -C; echo x > t; (echo y > t) 2>/dev/null; set +C; echo 0 > t; mv t reward.txt; rm -f gone; mkdir -p /cleanrun/reward", "0 by 3", false},
		"mode":             {fake + "chmod 444 /cleanrun/reward/reward.txt" + honest, "", true},
		"folder mode":      {"sh -c 'echo {\\\"reward\\\": 1} > /cleanrun/reward/reward.json; chmod 555 /cleanrun/reward" + honest + "; chmod 755 /cleanrun/reward", "", true},
		"folder":           {"mkdir /cleanrun/reward/reward.txt; (echo 0 > /cleanrun/reward/reward.txt); rmdir /cleanrun/reward/reward.txt; echo 1 > /cleanrun/reward/reward.txt", "", false},
		"link":             {"ln -s /usr/x /cleanrun/reward/reward.txt; (cd /cleanrun/reward; echo 0 > reward.txt); rm /cleanrun/reward/reward.txt; echo 1 > /cleanrun/reward/reward.txt", "", false},
		"led away":         {"ln -s /dev/null /cleanrun/reward/reward.txt; echo 0 > /cleanrun/reward/reward.txt; rm /cleanrun/reward/reward.txt; echo 1 > /cleanrun/reward/reward.txt", "", false},
		"rename":           {fake + "mkdir /cleanrun/reward/r" + "'; mv -T /cleanrun/reward/r /cleanrun/reward/reward.txt; true", "", false},
		"empty":            {": > /cleanrun/reward/reward.txt; echo '{\"reward\": 1}' > /cleanrun/reward/reward.json", "", false},
	} {
		for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				cfg := filed(t, "true", c.grade)
				cfg.Backend = backend
				r := run(t, cfg)
				want := c.reward
				if c.user && root {
					want = map[string]string{"mode": "0 by 3", "folder mode": "0 by 3, 1 by 4"}[name] // what the grader wrote stands
				}
				if got := r.rewarded(); got != want || r.guards() != "" {
					t.Errorf("reward %q, want %q; guards %q; stderr %q", got, want, r.guards(), r.stderr)
				}
				r.closed(t)
			})
		}
	}
}

// Incident 15: a program that the grader starts reaches the grader: what it has open,
// its signals, its share of the processor.
func TestIncident15_GraderHeldFromBelow(t *testing.T) {
	needs(t, "python3")
	script := `p=$$; exec 7>>w
python3 -c '
import os, signal, sys, fcntl, ctypes
p = int(sys.argv[1])
def t(name, f):
    try: f(); print(name, "done")
    except OSError as e: print(name, e.errno)
def w(path, how=os.O_WRONLY): os.close(os.open(path, how))
os.symlink("/proc/%d" % p, "l")
t("fd", lambda: w("/proc/%d/fd/7" % p)); t("task fd", lambda: w("/proc/%d/task/%d/fd/7" % (p, p))); t("link", lambda: w("l/fd/7"))
t("opath", lambda: w("/proc/%d/fd/7" % p, os.O_PATH)); t("fdinfo", lambda: w("/proc/%d/fdinfo/7" % p, os.O_RDONLY)); t("root", lambda: w("l/cwd/w", os.O_RDONLY))
def below(): os.chdir("l/fd"); w("7")
here = os.getcwd(); t("below", below); os.chdir(here)
t("score", lambda: w("/proc/%d/oom_score_adj" % p))
for s in (signal.SIGSTOP, signal.SIGTERM): t("kill", lambda: os.kill(p, s))
t("zero", lambda: os.kill(p, 0))
t("queue", lambda: ctypes.CDLL(None, use_errno=True).sigqueue(p, 19, 0) and (_ for _ in ()).throw(OSError(ctypes.get_errno(), "")))
f = os.pidfd_open(p); t("pidfd", lambda: signal.pidfd_send_signal(f, signal.SIGSTOP))
f = os.open("/proc/%d" % p, os.O_RDONLY); t("folder", lambda: signal.pidfd_send_signal(f, signal.SIGSTOP))
t("owner", lambda: fcntl.fcntl(1, fcntl.F_SETOWN, p))
t("affinity", lambda: os.sched_setaffinity(p, [0])); t("idle", lambda: os.sched_setscheduler(p, os.SCHED_IDLE, os.sched_param(0))); t("nice", lambda: os.setpriority(os.PRIO_PROCESS, p, 5))
t("user", lambda: os.setpriority(os.PRIO_USER, 0, 5)); t("group", lambda: os.setpriority(os.PRIO_PGRP, 0, 5))
signal.signal(signal.SIGTERM, lambda *a: None); os.kill(0, signal.SIGTERM); print("own group"); sys.stdout.flush()
if os.fork() == 0:
    if os.fork() == 0: t("orphan", lambda: os.kill(p, signal.SIGSTOP)); sys.stdout.flush()
    else: os.wait()
    os._exit(0)
sys.stdout.flush(); os.wait()
' $p; echo grader; rm -f l; echo 0`
	const want = "fd 13\ntask fd 13\nlink 13\nopath 13\nfdinfo 13\nroot 13\nbelow 13\nscore 13\nkill 1\nkill 1\nzero done\nqueue 1\npidfd 1\nfolder 1\nowner 1\naffinity 1\nidle 1\nnice 1\nuser 1\ngroup 1\nown group\norphan 1\ngrader\n0\n"
	for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
		t.Run(backend, func(t *testing.T) {
			c := phased(t, "", "true", script)
			c.Backend = backend
			r := run(t, c)
			if r.stdout != want || r.rewarded() != "0 by 2" {
				t.Errorf("got %q, want %q; reward %q, stderr %q", r.stdout, want, r.rewarded(), r.stderr)
			}
			r.has(t, "the refused signal", func(e entry) bool {
				return e.Op == journal.OpDenied && e.D.Syscall == "kill" && e.Result != 0
			})
			r.closed(t)
		})
	}
}

// Positive control: what honest graders do with what they started.
func TestIncident15_GraderReachesItsOwn(t *testing.T) {
	needs(t, "python3", "timeout", "make", "bash", "nice")
	const script = `echo via > /dev/stdout; echo x 3>&1 >/dev/fd/3; cat <<E | cat /dev/stdin
piped
E
bash -c 'cat <(echo substituted); set -m; sleep 60 & kill %1; wait %1; echo job $?; (sleep 60; true) & kill -STOP %1; kill -CONT %1; kill -KILL %1; wait %1; echo group $?'
timeout 0.2 sleep 60; echo timeout $?
timeout -s KILL 0.2 sh -c 'sleep 60; true'; echo hard $?
sleep 60 & ps=$!; : < /proc/$ps/fdinfo/1 && : >> /proc/$ps/fd/1 && echo child; sh -c "kill $ps"; wait $ps; echo sibling $?
printf 'all:\n\t@echo made; kill -TERM $$$$; echo no\n' > mk; make -f mk 2>/dev/null; echo make $?
nice -n 3 sh -c 'echo nice'
python3 -c '
import subprocess, os, signal
p = subprocess.Popen(["sleep", "60"], start_new_session=True)
os.sched_setaffinity(p.pid, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, p.pid, min(19, os.getpriority(os.PRIO_PROCESS, p.pid) + 3))
os.killpg(p.pid, signal.SIGSTOP); os.killpg(p.pid, signal.SIGCONT); p.terminate(); print("python", p.wait())
try: subprocess.run(["sleep", "60"], timeout=0.2)
except subprocess.TimeoutExpired: print("expired")
p = subprocess.Popen(["sleep", "60"]); f = os.pidfd_open(p.pid); signal.pidfd_send_signal(f, signal.SIGKILL); print("pidfd", p.wait())
'
echo 0`
	const want = "via\nx\npiped\nsubstituted\njob 143\ngroup 137\ntimeout 124\nhard 137\nchild\nsibling 143\nmade\nmake 2\nnice\npython -15\nexpired\npidfd -9\n0\n"
	for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
		t.Run(backend, func(t *testing.T) {
			c := phased(t, "", "true", script)
			c.Backend = backend
			r := run(t, c)
			if r.stdout != want {
				t.Errorf("got %q, want %q; stderr %q", r.stdout, want, r.stderr)
			}
			if l := r.find(func(e entry) bool { return e.Op == journal.OpDenied && strings.Contains(e.D.Note, "grade phase") }); len(l) > 0 {
				t.Errorf("denied: %v, want nothing of an honest grader's", l)
			}
			r.closed(t)
		})
	}
}

// Go programs send signals to their own threads, and go test kills by descriptor.
func TestIncident15_GoTestInGrading(t *testing.T) {
	needs(t, "go")
	c := phased(t, "", "true", `export GOFLAGS=-mod=mod GOCACHE=$PWD/.gocache GOTOOLCHAIN=local GOPROXY=off; go test -vet=off -count=1 . ; echo $?`)
	home := folder(t, filepath.Join(t.TempDir(), "home"))
	warmGo(t, c.Workspace, environment(home))
	write(t, filepath.Join(c.Workspace, "go.mod"), "module x\n\ngo 1.20\n")
	write(t, filepath.Join(c.Workspace, "x_test.go"), `package x

import (
	"os/exec"
	"testing"
	"time"
)

func Test(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
}
`)
	r := run(t, c)
	if r.rewarded() != "0 by 2" || !strings.Contains(r.stdout, "ok") {
		t.Errorf("reward %q; stdout %q; stderr %q", r.rewarded(), r.stdout, r.stderr)
	}
	r.closed(t)
}

// Incident 15: one test's process kills another's. That is allowed, and a limit: the
// grader sees the death, and so does the journal, in the exit row of the one killed.
func TestIncident15_SiblingKilled(t *testing.T) {
	const grade = `sh -c 'read x; exit 0' < pipe & other=$!; exec 3> pipe; %s; exec 3>&-; wait $other; c=$?; echo other $c; test $c = 0 && echo 1 || echo 0`
	for name, c := range map[string]struct {
		does, reward string
		killed       int
	}{
		"positive control": {`sh -c "kill -0 $other"`, "1 by 2", 0},
		"killed":           {`sh -c "kill -KILL $other"`, "0 by 2", 1},
	} {
		for _, backend := range []string{sandbox.Backend, sandbox.PlainBackend} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				cfg := phased(t, "", "mkfifo pipe", strings.Replace(grade, "%s", c.does, 1))
				cfg.Backend = backend
				r := run(t, cfg)
				if r.rewarded() != c.reward {
					t.Errorf("reward %q, want %q; stdout %q, stderr %q", r.rewarded(), c.reward, r.stdout, r.stderr)
				}
				killed := r.find(func(e entry) bool {
					return e.Op == journal.OpExit && e.Phase == journal.PhaseGrade && e.D.Exit == -int32(unix.SIGKILL)
				})
				if len(killed) != c.killed {
					t.Errorf("got %v, want %d exit rows of a killed process", killed, c.killed)
				}
				r.closed(t)
			})
		}
	}
}
