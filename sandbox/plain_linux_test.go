package sandbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
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

// TestPlainBackend runs the tests of programs and attacks again, without namespaces.
func TestPlainBackend(t *testing.T) {
	if os.Getenv(backVar) != "" {
		t.Skip("this is the second run already")
	}
	if testing.Short() {
		t.Skip("the second run, without namespaces, is left out with -short")
	}
	list := "^Test(RT|Incident|FakeTool|Sandbox(Path|Back|Cancel|Untraced|Deeper|Many|Phases|Tests|Nothing))"
	if long {
		list = "^Test(RT|Incident|FakeTool|Sandbox(KillStorm|Path|Back|Cancel|Untraced|Signals|Deeper|Many|Phases|Tests|Timeouts|Nothing|ProcessLimit|DiskLimit)|Workload)"
	}
	skip := "^TestIncident20_Killed|^TestWorkload$/^(python|python-misc|go)$" // another path, loopback, and time
	if !long {
		skip += "|^TestIncident15_GoTest" // its build is the same
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=10m", "-test.run="+list, "-test.skip="+skip)
	cmd.Env = append(os.Environ(), backVar+"="+sandbox.PlainBackend)
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "--- PASS")
	if err != nil || passed < 40 {
		t.Errorf("%v, %d passed, want at least 40\n%s", err, passed, out)
	}
	t.Logf("%d tests passed without namespaces", passed)
}

// plainRun records a script without namespaces.
func plainRun(t *testing.T, script string) *recorded {
	t.Helper()
	ws := simple(t)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	r := run(t, sandbox.Config{Backend: sandbox.PlainBackend, Command: []string{"/bin/sh", "-c", script}, Workspace: ws, Env: environment(home)})
	r.closed(t)
	return r
}

// A process outside is absent for the run: it gets no signal, and nothing of it is read.
func TestPlainForeignProcess(t *testing.T) {
	needs(t, "python3", "sleep")
	victim := exec.Command("sleep", "1000")
	victim.Env = []string{"MARK=of-the-victim"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	pid := strconv.Itoa(victim.Process.Pid)
	r := plainRun(t, `kill -KILL `+pid+`; echo kill $?; kill -TERM -`+pid+`; echo group $?; cat /proc/`+pid+`/environ; echo environ $?; cat /proc/`+pid+`/root/etc/passwd >/dev/null; echo root $?
ls /proc/$PPID/fd; echo broker $?; kill -0 $$; echo self $?; sleep 5 & kill $!; echo child $?
python3 -c "
import os, signal, resource
def t(name, f):
    try: f(); print(name, 'done')
    except OSError as e: print(name, type(e).__name__)
t('pidfd', lambda: os.pidfd_open(`+pid+`)); t('prlimit', lambda: resource.prlimit(`+pid+`, resource.RLIMIT_NOFILE, (1, 1)))
t('nice', lambda: os.setpriority(os.PRIO_PROCESS, `+pid+`, 5)); t('user', lambda: os.setpriority(os.PRIO_USER, 0, 5)); t('own', lambda: os.setpriority(os.PRIO_PROCESS, 0, 5))
"; trap '' TERM; kill -TERM -1; echo all $?`)
	want := "kill 1\ngroup 1\nenviron 1\nroot 1\nbroker 2\nself 0\nchild 0\npidfd ProcessLookupError\nprlimit ProcessLookupError\nnice PermissionError\nuser PermissionError\nown done\n"
	if !strings.HasPrefix(r.stdout, want) || strings.Contains(r.stdout, "MARK") {
		t.Errorf("got %q, want %q first; stderr %q", r.stdout, want, r.stderr)
	}
	if err := victim.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process outside: %v, want it alive", err)
	}
	r.has(t, "the refused signal", func(e entry) bool {
		return e.Op == journal.OpDenied && e.D.Syscall == "kill" && e.D.Args["pid"] == uint64(victim.Process.Pid)
	})
}

// What other users' programs have in /tmp is not the run's, what it makes there is, and
// is gone afterwards.
func TestPlainSharedFolders(t *testing.T) {
	foreign, err := os.CreateTemp("/tmp", "cleanrun-foreign-")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(foreign.Name())
	foreign.WriteString(secretText)
	foreign.Close()
	own := fmt.Sprintf("/tmp/cleanrun-own-%d", os.Getpid())
	f := foreign.Name()
	r := plainRun(t, "cat "+f+"; echo x >> "+f+"; rm -f "+f+"; mv "+f+" "+f+".x; ln "+f+" hard; ln -s "+f+" soft; cat soft; chmod 600 "+f+
		"; mkdir "+own+" && echo mine > "+own+"/f && cat "+own+"/f && mv "+own+" "+own+".b && cat "+own+".b/f && echo z > $TMPDIR/z && cat $TMPDIR/z")
	if r.stdout != "mine\nmine\nz\n" {
		t.Errorf("stdout %q stderr %q", r.stdout, r.stderr)
	}
	if b, err := os.ReadFile(f); err != nil || string(b) != secretText {
		t.Errorf("the foreign file: %q, %v, want it as it was", b, err)
	}
	for _, p := range []string{own, own + ".b"} {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
	if l := r.find(func(e entry) bool { return e.Flags&journal.FlagOutOfScope != 0 }); len(l) > 0 {
		t.Errorf("out of scope: %v, want none: an honest program may try /tmp", l)
	}
}

// The recording is closed to the run, by every name.
func TestPlainOwnRecordingIsClosed(t *testing.T) {
	r := plainRun(t, `d=$(dirname "$PWD"); cat "$d/secret" "$d/journal"; cat ../secret; cat /proc/self/cwd/../detail; ls "$d/objects"; echo x > "$d/journal"; ln "$d/secret" s; ln -s "$d" up; cat up/secret; cd ..; cat secret; echo end`)
	if r.stdout != "end\n" {
		t.Errorf("stdout %q, want nothing of the recording", r.stdout)
	}
	r.has(t, "asking for the secret is out of scope", func(e entry) bool {
		return e.Op == journal.OpOpen && strings.HasSuffix(e.D.Path, "/secret") && e.Result == int32(unix.ENOENT) && e.Flags&journal.FlagOutOfScope != 0
	})
}

// Nothing outside can be changed, by name, by descriptor or through the kernel's files.
func TestPlainOutsideIsUnchanged(t *testing.T) {
	needs(t, "python3")
	dir := base(t)
	f := write(t, filepath.Join(dir, "outside"), "as it was")
	var before unix.Stat_t
	if err := unix.Stat("/usr/bin/env", &before); err != nil {
		t.Fatal(err)
	}
	r := plainRun(t, `echo x > `+f+`; echo y > `+dir+`/new; mkdir `+dir+`/d; ln -s `+dir+` l; echo z > l/new2; rm `+f+`; chmod 777 `+f+`
python3 -c "
import os
fd = os.open('/usr/bin/env', os.O_RDONLY)
for f in (lambda: os.fchmod(fd, 0o777), lambda: os.fchown(fd, 12, 12), lambda: os.utime(fd, (1, 1)), lambda: os.setxattr(fd, 'user.x', b'x'), lambda: os.truncate('/usr/bin/env', 0),
          lambda: os.link('/usr/bin/env', 'env'), lambda: os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY), lambda: os.open('/sys/power/state', os.O_WRONLY), lambda: os.open('/dev/kmsg', os.O_RDWR)):
    try: f(); print('done')
    except OSError as e: pass
own = os.open('own', os.O_RDWR | os.O_CREAT); os.fchmod(own, 0o640); os.utime(own, (5, 5)); s = os.stat('own'); print(oct(s.st_mode), s.st_mtime)
"`)
	if r.stdout != "0o100640 5.0\n" {
		t.Errorf("stdout %q stderr %q, want only the own file changed", r.stdout, r.stderr)
	}
	if b, err := os.ReadFile(f); err != nil || string(b) != "as it was" {
		t.Errorf("outside: %q %v", b, err)
	}
	if l, _ := os.ReadDir(dir); len(l) != 1 {
		t.Errorf("outside: %v, want one file", l)
	}
	var after unix.Stat_t
	if err := unix.Stat("/usr/bin/env", &after); err != nil || after.Ctim != before.Ctim {
		t.Errorf("/usr/bin/env changed: %+v was %+v", after, before)
	}
}

// There is no network, and sockets lead to nobody outside.
func TestPlainSockets(t *testing.T) {
	needs(t, "python3")
	host := filepath.Join(base(t), "host.sock")
	l, err := net.Listen("unix", host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback here: %v", err)
	}
	defer tcp.Close()
	reached := make(chan string, 9)
	for _, s := range []net.Listener{l, tcp} {
		go func() {
			if c, err := s.Accept(); err == nil {
				reached <- c.LocalAddr().String()
			}
		}()
	}
	port := strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)
	r := plainRun(t, `python3 -c "
import os, socket, threading
def t(name, f):
    try: print(name, f())
    except OSError as e: print(name, e.strerror)
def s(*a): return socket.socket(*a)
t('tcp', lambda: s(socket.AF_INET).connect(('127.0.0.1', `+port+`))); t('bind', lambda: s(socket.AF_INET).bind(('127.0.0.1', 0)))
t('udp', lambda: s(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))); t('tcp6', lambda: s(socket.AF_INET6).connect(('::1', `+port+`)))
t('msg', lambda: s(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', 9)))
t('host', lambda: s(socket.AF_UNIX).connect('`+host+`')); t('abstract', lambda: s(socket.AF_UNIX).connect('\0x')); t('dgram', lambda: s(socket.AF_UNIX, socket.SOCK_DGRAM))
a = s(socket.AF_UNIX); a.bind('own.sock'); a.listen()
def serve():
    c, _ = a.accept(); c.sendall(c.recv(9).upper()); c.close()
threading.Thread(target=serve).start()
b = s(socket.AF_UNIX); b.connect(os.path.abspath('own.sock')); b.sendall(b'own'); print(b.recv(9))
x, y = socket.socketpair(); x.sendall(b'pair'); print(y.recv(9))
"`)
	want := "tcp Network is unreachable\nbind Permission denied\nudp Network is unreachable\ntcp6 Network is unreachable\n"
	if !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "abstract Permission denied\ndgram Protocol not supported\nb'OWN'\nb'pair'\n") || strings.Contains(r.stdout, "msg 1") {
		t.Errorf("stdout %q stderr %q", r.stdout, r.stderr)
	}
	select {
	case who := <-reached:
		t.Errorf("the run reached %s outside", who)
	default:
	}
	r.has(t, "the connect", func(e entry) bool {
		return e.Op == journal.OpConnect && e.D.Address == "inet 127.0.0.1:"+port && e.Result == int32(unix.ENETUNREACH)
	})
}

// A name for the caller's own process is the caller's, never the broker's.
func TestPlainProcSelf(t *testing.T) {
	r := plainRun(t, `ln -s /proc/self me; cat me/comm /proc/self/comm /proc/thread-self/comm; ln -s /proc/self/fd fds; exec 9< f; cat fds/9; cat /dev/fd/9; cat /proc/$$/fd/9; echo in | cat /dev/stdin; readlink /proc/self/exe; head -c 0 /proc/mounts && echo mounts; cat me/cwd/f; ls -d /proc/[0-9]* | wc -l >/dev/null; cat me/status | grep -c NoNewPrivs`)
	want := "cat\ncat\ncat\ncontent\ncontent\ncontent\nin\n"
	if !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "mounts\ncontent\n1\n") {
		t.Errorf("stdout %q, stderr %q, want %q first", r.stdout, r.stderr, want)
	}
}

// Killing any of our own processes leaves nothing alive and no finished journal.
func TestPlainKillLeavesNoSurvivor(t *testing.T) {
	for _, victim := range []string{"launcher", "broker"} {
		t.Run(victim, func(t *testing.T) {
			tmp := t.TempDir()
			ws, dir := filepath.Join(tmp, "ws"), filepath.Join(tmp, "run")
			mark := fmt.Sprintf("97%d.%d", os.Getpid(), len(victim)) // seconds to sleep, and a needle
			if err := errors.Join(os.Mkdir(ws, 0o755), os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(tmp, "home"), 0o755)); err != nil {
				t.Fatal(err)
			}
			script := fmt.Sprintf(`trap '' TERM HUP INT; setsid sleep %[1]s & (trap '' HUP; (sleep %[1]s &)) & echo started; sleep %[1]s; echo survived`, mark)
			l := exec.Command("/proc/self/exe", ws, dir, script)
			l.Env = append(os.Environ(), roleVar+"=launch", backVar+"="+sandbox.PlainBackend)
			out, err := l.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			defer l.Process.Kill()
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "started\n" {
				t.Fatalf("%q %v", line, err)
			}
			for end := time.Now().Add(time.Minute); len(processes(mark)) < 5 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			broker := child(l.Process.Pid)
			if broker == 0 || len(processes(mark)) < 5 {
				t.Fatalf("broker %d, %d processes", broker, len(processes(mark)))
			}
			if err := unix.Kill(map[string]int{"launcher": l.Process.Pid, "broker": broker}[victim], unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			var left []int
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				left = left[:0]
				for _, p := range append(processes(mark), broker) {
					if p != l.Process.Pid && unix.Kill(p, 0) == nil && !zombie(p) {
						left = append(left, p)
					}
				}
				if len(left) == 0 {
					break
				}
			}
			if len(left) > 0 {
				t.Fatalf("alive after SIGKILL of %s: %v", victim, left)
			}
			rest, _ := lines.ReadString(0)
			l.Wait()
			if strings.Contains(rest, "survived") || strings.Contains(rest, journal.Completed.String()) {
				t.Errorf("after the kill: %q", rest)
			}
			notCompleted(t, dir)
		})
	}
}

// Processes that fork faster than one can count are all ended.
func TestPlainForkStorm(t *testing.T) {
	needs(t, "python3")
	// What they make lives for a moment only, or a slow machine would run out of numbers.
	r := plainRun(t, `python3 -c "
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for i in range(6):
    if os.fork() == 0:
        n = 0
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(0.01)
                    os._exit(0)
                n += 1
                if n == 5: open('stormed%d' % i, 'w').close()
            except OSError: time.sleep(0.001)
while True: time.sleep(1)
" 2>/dev/null & while set -- stormed?; [ $# -lt 6 ]; do sleep 0.05; done; sleep 0.2; echo over`)
	if r.stdout != "over\n" || r.Outcome != journal.Completed {
		t.Errorf("outcome %v stdout %q", r.Outcome, r.stdout)
	}
	if r.Final.Born < 20 {
		t.Errorf("%d processes: the storm failed by itself", r.Final.Born)
	}
}

// The backend is chosen, or it is the one that was asked for.
func TestPlainIsNamed(t *testing.T) {
	r := plainRun(t, "cat f")
	if !strings.HasPrefix(r.Backend, sandbox.PlainBackend) {
		t.Errorf("backend %q, want %s", r.Backend, sandbox.PlainBackend)
	}
	start := r.rows[0].Start
	for _, id := range []string{"host-metadata", "host-processes", "shared-tmp"} {
		if !strings.Contains(strings.Join(start.Blind, " "), id) {
			t.Errorf("blind %q, want %s among them", start.Blind, id)
		}
	}
	if _, err := sandbox.Run(t.Context(), sandbox.Config{Backend: "docker", Command: []string{"true"}, Workspace: simple(t), RunDir: runDir(t)}); err == nil {
		t.Error("an unknown backend ran")
	}
}

// A grader that names a place that is not there without namespaces is refused: it would
// fail, and the answer would seem wrong.
func TestPlainFixedPlacesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		grade, file string // the grader's script, and one among the hidden tests
		tests       string
		refused     bool
	}{
		"positive control":      {`sh "$CLEANRUN_TESTS/test.sh"`, `echo 1 > "$CLEANRUN_REWARD_DIR/reward.txt"`, sandbox.TestsPath, false},
		"at another place":      {`sh "$CLEANRUN_TESTS/test.sh"`, `echo 1 > "$CLEANRUN_REWARD_DIR/reward.txt"; : lib/tests`, "/tests", false},
		"place or variable":     {`sh "${CLEANRUN_TESTS:-/tests}/test.sh"`, `echo 1 > "${CLEANRUN_REWARD_DIR:-/logs/verifier}/reward.txt"`, "/tests", false},
		"fixed tests":           {"sh /tests/test.sh", `echo 1 > "$CLEANRUN_REWARD_DIR/reward.txt"`, "/tests", true},
		"fixed tests, default":  {"sh /cleanrun/tests/test.sh", `echo 1 > "$CLEANRUN_REWARD_DIR/reward.txt"`, sandbox.TestsPath, true},
		"fixed reward":          {`sh "$CLEANRUN_TESTS/test.sh"`, "echo 1 > /logs/verifier/reward.txt", sandbox.TestsPath, true},
		"fixed reward, changed": {`sh "$CLEANRUN_TESTS/test.sh"`, "cd '/logs/verifier'; echo 1 > reward.txt", "/tests", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := withTests(t, phased(t, "", "true", c.grade))
			write(t, filepath.Join(cfg.Tests, "test.sh"), c.file)
			cfg.Start.Phases.Tests, cfg.Start.Phases.Reward, cfg.Start.Phases.RewardDir = c.tests, journal.RewardFile, "/logs/verifier"
			cfg.Backend = sandbox.PlainBackend
			if !c.refused {
				run(t, cfg).want(t, planted, "1 by 3", "")
				return
			}
			cfg.RunDir, cfg.Env = runDir(t), environment(filepath.Join(t.TempDir(), "home"))
			_, err := sandbox.Run(t.Context(), cfg)
			var no *sandbox.Refused
			if !errors.As(err, &no) || !strings.Contains(no.Want, "without namespaces") || no.Hint == "" {
				t.Errorf("got %v, want it refused with the reason", err)
			}
		})
	}
}

// What a long run leaves to the collector of the broker does not take its own
// configuration from the next phase.
func TestPlainManyAllocationsBeforeGrading(t *testing.T) {
	c := phased(t, "", "i=0; while [ $i -lt 20000 ]; do : < /etc/passwd; i=$((i+1)); done", "echo 1")
	c.Backend = sandbox.PlainBackend
	r := run(t, c)
	r.want(t, planted, "1 by 2", "")
}
