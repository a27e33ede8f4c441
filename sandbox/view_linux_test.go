package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// folder makes a directory with parents.
func folder(t *testing.T, p string) string {
	t.Helper()
	if err := os.MkdirAll(p, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// withoutLandlock cuts the second wall, which not every kernel has, from a
// backend's name.
func withoutLandlock(backend string) string {
	backend, _, _ = strings.Cut(backend, "+landlock-")
	return backend
}

func shell(ws, script string) sandbox.Config {
	return sandbox.Config{Workspace: ws, Command: []string{"sh", "-c", script}}
}

func TestSandboxWorkspaceUnderPrivatePlaces(t *testing.T) {
	home := folder(t, filepath.Join(base(t), "home"))
	for name, ws := range map[string]string{
		"in tmp":  folder(t, filepath.Join(t.TempDir(), "a", "ws")),
		"in home": folder(t, filepath.Join(home, "src", "ws")),
		"is home": home,
	} {
		t.Run(name, func(t *testing.T) {
			write(t, filepath.Join(ws, "in"), "data\n")
			write(t, filepath.Join(filepath.Dir(ws), "beside"), "hidden\n")
			c := shell(ws, "cat in; echo new > out; cat out; cat ../beside; pwd")
			c.Env = environment(home)
			r := run(t, c)
			if want := "data\nnew\n" + ws + "\n"; r.stdout != want {
				t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
			}
			if _, err := os.Lstat(filepath.Join(ws, "out")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the workspace outside has the new file (%v)", err)
			}
			r.closed(t)
			if r.Final.Delta.Changed != 1 {
				t.Errorf("got %d changed paths, want 1", r.Final.Delta.Changed)
			}
		})
	}
}

func TestSandboxReadOnlyWorkspace(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	file := write(t, filepath.Join(ws, "in"), "data\n")
	c := shell(ws, "cat in; echo x >> in; echo x > new")
	c.ReadOnly = true
	r := run(t, c)
	if r.stdout != "data\n" || r.Code == 0 {
		t.Errorf("got %q, code %d", r.stdout, r.Code)
	}
	e := r.has(t, "failed write", func(e entry) bool {
		return e.Op == journal.OpOpen && e.D.Path == file && e.Flags&journal.FlagWrite != 0
	})
	if e.Result != int32(unix.EROFS) || e.Flags&journal.FlagOutOfScope != 0 {
		t.Errorf("got %v, want EROFS, which changed nothing", e)
	}
	r.closed(t)
}

// A tool directory in the home folder is visible, the home folder is not.
func TestSandboxToolsInHome(t *testing.T) {
	home := folder(t, filepath.Join(base(t), "home"))
	ws := folder(t, filepath.Join(base(t), "ws"))
	write(t, filepath.Join(home, "secret"), "no\n")
	tool := write(t, filepath.Join(home, ".tool", "bin", "greet"), "#!/bin/sh\n. \"${0%/bin/greet}/lib/words\"; echo $word\n")
	write(t, filepath.Join(home, ".tool", "lib", "words"), "word=hello\n")
	if err := os.Chmod(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	c := shell(ws, "greet; cat ~/secret; echo y > ~/mine && cat ~/mine; echo z > ~/.tool/bin/new")
	c.Env = append(environment(home), "PATH="+filepath.Dir(tool)+":/usr/bin:/bin")
	c.HiddenHints = []string{home}
	r := run(t, c)
	if r.stdout != "hello\ny\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	for _, e := range r.find(func(e entry) bool { return e.D.Path == tool }) {
		if e.Flags&journal.FlagOutOfScope != 0 {
			t.Errorf("out of scope: %v", e)
		}
	}
	r.has(t, "interpreter of the script", func(e entry) bool { return e.Op == journal.OpInterp && strings.HasSuffix(e.D.Path, "sh") })
	// The private home answers for the hidden file: absent, and only counted.
	if e := r.has(t, "probe of the secret", func(e entry) bool { return e.D.Path == filepath.Join(home, "secret") }); e.Flags&journal.FlagOutOfScope != 0 {
		t.Errorf("got %v, want in scope: our private home replaces it", e)
	}
}

// What is absent inside but present outside is out of scope if it lies below a
// hint, and only counted elsewhere.
func TestSandboxHiddenHints(t *testing.T) {
	top := base(t)
	ws := folder(t, filepath.Join(top, "ws"))
	hidden := write(t, filepath.Join(top, "tests", "hidden"), "x\n")
	link := filepath.Join(ws, "link")
	if err := os.Symlink(hidden, link); err != nil {
		t.Fatal(err)
	}
	c := shell(ws, "cat "+hidden+"; cat link; cat "+top+"/nothing; ls ..")
	for _, hints := range [][]string{{top}, nil} {
		c.RunDir, c.HiddenHints = "", hints
		r := run(t, c)
		if r.stdout != "ws\n" {
			t.Errorf("got %q (%s), want only the workspace beside it", r.stdout, r.stderr)
		}
		flagged := r.find(func(e entry) bool { return e.Flags&journal.FlagHidden != 0 })
		if hints == nil {
			if len(flagged) != 0 {
				t.Errorf("without hints: got %v", flagged)
			}
			continue
		}
		if len(flagged) != 2 {
			t.Fatalf("got %d hidden rows, want 2: %v", len(flagged), flagged)
		}
		for _, e := range flagged {
			if e.D.Path != hidden || e.Flags&journal.FlagOutOfScope == 0 || e.Result != int32(unix.ENOENT) {
				t.Errorf("got %v, want the hidden file by its real name, out of scope", e)
			}
		}
	}
}

func TestSandboxGrants(t *testing.T) {
	top := base(t)
	ws := folder(t, filepath.Join(top, "ws"))
	file := write(t, filepath.Join(top, "data", "granted"), "g\n")
	write(t, filepath.Join(top, "data", "other"), "o\n")
	tree := folder(t, filepath.Join(top, "out"))
	one := write(t, filepath.Join(top, "one"), "1\n")
	c := shell(ws, "cat "+file+"; cat "+top+"/data/other; echo r > "+tree+"/r && cat "+tree+"/r; echo 2 >> "+one+"; cat "+one)
	c.Grants = []scope.Root{{Path: one, Mode: scope.WriteOne, Class: scope.Grant}, {Path: file, Mode: scope.ReadOne, Class: scope.Grant}, {Path: tree, Mode: scope.WriteTree, Class: scope.Grant}}
	r := run(t, c)
	if r.stdout != "g\nr\n1\n2\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	if l := r.find(func(e entry) bool { return e.Flags&journal.FlagOutOfScope != 0 }); len(l) != 0 {
		t.Errorf("out of scope: %v", l)
	}
	if b, err := os.ReadFile(one); err != nil || string(b) != "1\n" {
		t.Errorf("the granted file outside changed: %q, %v", b, err)
	}
	if entries, err := os.ReadDir(tree); err != nil || len(entries) != 0 {
		t.Errorf("the granted folder outside changed: %v, %v", entries, err)
	}
}

func TestSandboxControlFile(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	c := shell(ws, "cat "+sandbox.ControlPath+"; echo x > "+sandbox.ControlPath)
	c.ControlText = "control text\n"
	r := run(t, c)
	if r.stdout != c.ControlText || r.Code == 0 {
		t.Errorf("got %q, code %d, want the text and a failed write", r.stdout, r.Code)
	}
	opens := r.opens(sandbox.ControlPath)
	if len(opens) != 2 {
		t.Fatalf("got %v, want two opens", opens)
	}
	first, second := opens[0], opens[1]
	if first.Flags != journal.FlagRead|journal.FlagControl || first.Phase != journal.PhaseSetup || first.Proc != 1 || first.Size != uint64(len(c.ControlText)) {
		t.Errorf("got %v in phase %d, want a control row in setup", first, first.Phase)
	}
	if second.Flags != journal.FlagRead || second.Phase != journal.PhaseAgent {
		t.Errorf("got %v in phase %d, want a plain row of the agent", second, second.Phase)
	}
	exec := r.has(t, "exec", func(e entry) bool { return e.Op == journal.OpExec })
	if exec.Seq < first.Seq || exec.Phase != journal.PhaseAgent {
		t.Errorf("got exec row %v before the control row %v", exec, first)
	}
}

func TestSandboxRefusesWorkspace(t *testing.T) {
	top := base(t)
	ws := folder(t, filepath.Join(top, "ws"))
	for name, c := range map[string]sandbox.Config{
		"no command":        {Workspace: ws, RunDir: runDir(t)},
		"missing workspace": {Workspace: filepath.Join(top, "none"), RunDir: runDir(t), Command: []string{"true"}},
		"root":              {Workspace: "/", RunDir: runDir(t), Command: []string{"true"}},
		"run folder inside": {Workspace: ws, RunDir: folder(t, filepath.Join(ws, "run")), Command: []string{"true"}},
		"mount inside":      {Workspace: "/proc", RunDir: runDir(t), Command: []string{"true"}},
	} {
		_, err := sandbox.Run(t.Context(), c)
		var refused *sandbox.Refused
		if !errors.As(err, &refused) || refused.Hint == "" {
			t.Errorf("%s: got %v, want it refused with a hint", name, err)
		}
	}
}

func TestSandboxMountInsideWorkspace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	ws := folder(t, filepath.Join(base(t), "ws"))
	at := folder(t, filepath.Join(ws, "a b"))
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	_, err := sandbox.Run(t.Context(), sandbox.Config{Workspace: ws, RunDir: runDir(t), Command: []string{"true"}})
	var refused *sandbox.Refused
	if !errors.As(err, &refused) || !strings.Contains(refused.Got, at) {
		t.Errorf("got %v, want it refused because of %s", err, at)
	}
}

// An ordinary user has only its own user and group inside: a workspace with
// others is copied, and the start row says so.
func TestSandboxForeignOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing owners needs root")
	}
	needs(t, "setpriv")
	top := base(t)
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	ws := folder(t, filepath.Join(top, "ws"))
	write(t, filepath.Join(ws, "sub", "in"), "data\n")
	tmp := folder(t, filepath.Join(top, "tmp"))
	for p, id := range map[string][2]int{ws: {12345, 12345}, filepath.Join(ws, "sub"): {12345, 54321}, filepath.Join(ws, "sub", "in"): {54321, 54321}, tmp: {12345, 12345}} {
		if err := os.Chown(p, id[0], id[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(ws, "sub"), 0o2775); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
		self(t, filepath.Join(top, "sandbox.test")), "-test.run=^TestForeignOwnersInside$", "-test.v")
	cmd.Dir = tmp
	cmd.Env = []string{environment("")[0], "HOME=" + tmp, "TMPDIR=" + tmp, userVar + "=1", "CLEANRUN_WORKSPACE=" + ws}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestForeignOwnersInside") && !strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestForeignOwnersInside(t *testing.T) {
	ws := os.Getenv("CLEANRUN_WORKSPACE")
	if ws == "" {
		t.Skip("run by TestSandboxForeignOwners")
	}
	r := run(t, shell(ws, "cat sub/in; echo more >> sub/in; cat sub/in; echo new > sub/new; mv sub/in moved; cat moved"))
	if r.stdout != "data\ndata\nmore\ndata\nmore\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	if got := withoutLandlock(r.rows[0].Start.Backend); got != sandbox.Backend+"+workspace-copy" {
		t.Errorf("got backend %q, want the copy named", got)
	}
	r.closed(t)
}

// Under observe the host's own sockets are visible; they must not be reached.
func TestSandboxObserveHostSocket(t *testing.T) {
	needs(t, "python3")
	top := base(t)
	ws := folder(t, filepath.Join(top, "ws"))
	l, err := net.Listen("unix", filepath.Join(top, "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := sandbox.Config{Workspace: ws, Observe: true, Command: []string{"python3", "-c", `
import socket, os, threading
s = socket.socket(socket.AF_UNIX)
try: s.connect("../host.sock")
except OSError as e: print(e.errno)
l = socket.socket(socket.AF_UNIX); l.bind("own.sock"); l.listen()
c = socket.socket(socket.AF_UNIX); c.connect("own.sock"); a, _ = l.accept(); c.send(b"hi"); print(a.recv(2))
`}}
	r := run(t, c)
	if want := fmt.Sprintf("%d\nb'hi'\n", unix.EACCES); r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	e := r.has(t, "connect to the host", func(e entry) bool { return e.Op == journal.OpConnect && e.D.Path == filepath.Join(top, "host.sock") })
	if e.Result != int32(unix.EACCES) || e.Flags&journal.FlagOutOfScope == 0 {
		t.Errorf("got %v, want it refused and out of scope", e)
	}
	r.closed(t)
}

// A FIFO without a peer blocks its opener alone. If the run ends it was never opened: the
// call is void, or interrupted if the kernel took the answer before the caller was gone.
func TestSandboxFIFO(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	// Five wait when they are asleep in ten looks: each look asks the recorder too.
	r := run(t, shell(ws, `mkfifo p q; (echo through > p) & cat p; wait; for i in 1 2 3 4 5; do cat q & done
n=0; while [ $n -lt 10 ]; do
  s=0; for p in /proc/[0-9]*; do { read pid name state x < $p/stat; } 2>/dev/null && [ "$name $state" = "(cat) S" ] && s=$((s+1)); done
  n=$((n+1)); [ $s = 5 ] || n=0; sleep 0.02
done
cat /etc/hostname > /dev/null; echo done`))
	if r.stdout != "through\ndone\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	r.closed(t)
	interrupted := map[uint64]bool{}
	for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpOpen && e.D.Path == filepath.Join(ws, "q") }) {
		interrupted[e.Seq] = e.Result == int32(unix.EINTR)
		if e.Result != int32(unix.EINTR) {
			t.Errorf("got %v, want it interrupted", e)
		}
	}
	if len(interrupted) != 5 {
		t.Errorf("got %d opens without a peer, want 5", len(interrupted))
	}
	void := r.find(func(e entry) bool { return e.Op == journal.OpVoid })
	for _, e := range void {
		if !interrupted[uint64(e.Object)] {
			t.Errorf("got %v, want only the opens without a peer void", e)
		}
	}
	if r.Final.Void != uint64(len(void)) {
		t.Errorf("got %d void calls in the final row and %d rows", r.Final.Void, len(void))
	}
}

// A container's root is an overlay, which cannot hold an upper layer.
func TestSandboxOnOverlay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	top := base(t)
	for _, d := range []string{"l/ws", "u", "w", "m"} {
		folder(t, filepath.Join(top, d))
	}
	write(t, filepath.Join(top, "l/ws/in"), "data\n")
	at := filepath.Join(top, "m")
	if err := unix.Mount("overlay", at, "overlay", 0, "lowerdir="+top+"/l,upperdir="+top+"/u,workdir="+top+"/w"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	c := shell(filepath.Join(at, "ws"), "cat in; echo x >> in; rm in; echo y > out; cat out")
	c.RunDir = filepath.Join(at, "run")
	if err := os.Mkdir(c.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	if r.stdout != "data\ny\n" || r.Final.Delta.Changed != 2 {
		t.Errorf("got %q (%s), delta %v", r.stdout, r.stderr, r.Final.Delta)
	}
	if got, want := withoutLandlock(r.rows[0].Start.Backend), sandbox.Backend+"+upper-in-memory"; got != want {
		t.Errorf("got backend %q, want %q", got, want)
	}
	r.closed(t)
}

// Owner and mode of the workspace itself are those outside.
func TestSandboxWorkspaceMode(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	if err := os.Chmod(ws, 0o750); err != nil {
		t.Fatal(err)
	}
	want := "750 " + fmt.Sprint(os.Getuid()) + "\n"
	if os.Getuid() == 0 {
		if err := os.Chown(ws, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		want = "750 12345\n"
	}
	r := run(t, shell(ws, "stat -c '%a %u' ."))
	if r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
	r.closed(t)
	if r.Final.Delta.Changed != 0 {
		t.Errorf("got delta %v, want none", r.Final.Delta)
	}
}
