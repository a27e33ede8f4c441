package sandbox_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

const secretText = "the hidden test of this task, which no honest run has any business to read\n"

// field is a workspace with a hidden folder beside it, in view under Observe.
type field struct {
	ws, hidden, visible, tool string
}

func newField(t *testing.T) field {
	t.Helper()
	dir := base(t)
	f := field{ws: filepath.Join(dir, "ws"), hidden: filepath.Join(dir, "hidden", "test.txt"), visible: filepath.Join(dir, "ws", "visible.txt")}
	write(t, f.hidden, secretText)
	write(t, f.visible, secretText)
	f.tool = self(t, filepath.Join(f.ws, "tool"))
	return f
}

// observe runs a role, or a shell script if role is "", with the host in view.
func (f field) observe(t *testing.T, role string, args ...string) *recorded {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	env := environment(home)
	if os.Getenv(backVar) == sandbox.PlainBackend { // its workspace lies elsewhere
		for i := range args {
			args[i] = strings.NewReplacer("./../ws", f.ws, "../hidden", filepath.Dir(f.hidden), "../ws", f.ws).Replace(args[i])
		}
	}
	cmd := append([]string{f.tool}, args...)
	if role == "" {
		cmd = append([]string{"/bin/sh", "-c"}, args...)
	} else {
		env = append(env, roleVar+"="+role)
	}
	return run(t, sandbox.Config{Command: cmd, Workspace: f.ws, Env: env, Observe: true})
}

// exposes checks that the run's journal tells of a whole read of path, and
// whether it calls it out of scope.
func exposes(t *testing.T, r *recorded, path string, outOfScope bool) entry {
	t.Helper()
	sum := sha256.Sum256([]byte(secretText))
	for _, e := range r.opens(path) {
		if e.Flags&journal.FlagRead == 0 {
			continue
		}
		if e.Dir != journal.DirIn || e.Origin != journal.OriginInput || e.Size != uint64(len(secretText)) || string(e.D.SHA256) != string(sum[:]) {
			t.Errorf("%v: dir %v origin %v size %d: want the whole file, in, input", e, e.Dir, e.Origin, e.Size)
		}
		if got := e.Flags&journal.FlagOutOfScope != 0; got != outOfScope {
			t.Errorf("%v: out of scope %v, want %v", e, got, outOfScope)
		}
		return e
	}
	t.Errorf("no row says that %s was opened for reading; stderr %q", path, r.stderr)
	return entry{}
}

func TestRT39_ReadInSmallPieces(t *testing.T) { methods(t, "pread40") }

func TestRT43_UnusualReads(t *testing.T) {
	methods(t, "mmap", "splice", "copy_file_range", "sendfile", "inherited", "scm_rights")
}

// methods reads a hidden and, as positive control, a visible file.
func methods(t *testing.T, names ...string) {
	f := newField(t)
	for _, m := range names {
		t.Run(m, func(t *testing.T) {
			for _, c := range []struct {
				path string
				out  bool
			}{{f.hidden, true}, {f.visible, false}} {
				r := f.observe(t, "read", m, c.path, "scratch")
				if r.stdout != secretText || r.Code != 0 {
					t.Errorf("the attack failed by itself: code %d, stdout %q, stderr %q", r.Code, r.stdout, r.stderr)
				}
				exposes(t, r, c.path, c.out)
				r.closed(t)
			}
		})
	}
}

func TestRT43_Exec(t *testing.T) {
	f := newField(t)
	script := "#!/bin/sh\necho ran\n"
	for _, c := range []struct {
		path string
		out  bool
	}{{filepath.Join(filepath.Dir(f.hidden), "run.sh"), true}, {filepath.Join(f.ws, "run.sh"), false}} {
		write(t, c.path, script)
		if err := os.Chmod(c.path, 0o755); err != nil {
			t.Fatal(err)
		}
		r := f.observe(t, "", c.path)
		if r.stdout != "ran\n" {
			t.Fatalf("stdout %q stderr %q", r.stdout, r.stderr)
		}
		e := r.has(t, "exec of "+c.path, func(e entry) bool { return e.Op == journal.OpExec && e.D.Path == c.path && e.Result == 0 })
		sum := sha256.Sum256([]byte(script))
		if e.Dir != journal.DirIn || e.Size != uint64(len(script)) || string(e.D.SHA256) != string(sum[:]) || (e.Flags&journal.FlagOutOfScope != 0) != c.out {
			t.Errorf("%v: size %d, want the whole script, out of scope %v", e, e.Size, c.out)
		}
		// The interpreter that the kernel opened by itself, and the ELF interpreter.
		interps := r.find(func(e entry) bool { return e.Op == journal.OpInterp })
		if !slices.ContainsFunc(interps, func(e entry) bool { return strings.Contains(e.D.Path, "sh") && e.Size > 0 }) ||
			!slices.ContainsFunc(interps, func(e entry) bool { return strings.Contains(e.D.Path, "ld-linux") && e.Size > 0 }) {
			t.Errorf("interpreters recorded: %v", interps)
		}
	}
}

// Calls that would read or reach around the broker are refused, and the refusal
// is a row.
func TestRT43_RT54_RefusedCalls(t *testing.T) {
	f := newField(t)
	r := f.observe(t, "denied", filepath.Dir(f.hidden), f.ws)
	for name, errno := range map[string]int{"io_uring_setup": 38, "open_by_handle_at": 1, "ptrace": 1, "process_vm_readv": 1,
		"pidfd_getfd": 1, "unshare": 1, "setns": 1, "chroot": 1, "mount": 1} {
		if want := fmt.Sprintf("%s=%d ", name, errno); !strings.Contains(r.stdout, want) {
			t.Errorf("want %q, the program saw %q", want, r.stdout)
		}
		r.has(t, "denied "+name, func(e entry) bool { return e.Op == journal.OpDenied && e.D.Syscall == name && e.Result == int32(errno) })
	}
	r.closed(t)
}

func TestRT45_CopyOpenedBeforeSource(t *testing.T) {
	f := newField(t)
	copied := filepath.Join(f.ws, "copy")
	r := f.observe(t, "", "cat "+f.hidden+" > copy; cat copy")
	if r.stdout != secretText {
		t.Fatalf("the attack failed by itself: %q %q", r.stdout, r.stderr)
	}
	created := r.has(t, "create of copy", func(e entry) bool {
		return e.Op == journal.OpOpen && e.D.Path == copied && e.Flags&journal.FlagWrite != 0
	})
	source := exposes(t, r, f.hidden, true)
	sum := sha256.Sum256([]byte(secretText))
	wrote := r.has(t, "wrote copy", func(e entry) bool {
		return e.Op == journal.OpWrote && e.Object == created.Object && string(e.D.SHA256) == string(sum[:])
	})
	if wrote.Dir != journal.DirOut || wrote.Origin != journal.OriginRun || wrote.Size != uint64(len(secretText)) {
		t.Errorf("wrote row: %v %v %v size %d", wrote, wrote.Dir, wrote.Origin, wrote.Size)
	}
	if !(created.Seq < source.Seq && source.Seq < wrote.Seq) {
		t.Errorf("order: copy opened %d, source read %d, copy dated %d; want rising", created.Seq, source.Seq, wrote.Seq)
	}
	if created.Dir == journal.DirIn || len(created.D.SHA256) != 0 || created.Flags&journal.FlagCreate == 0 {
		t.Errorf("the open for writing shows more than the new name: %v", created)
	}
	again := r.has(t, "read of copy", func(e entry) bool {
		return e.Op == journal.OpOpen && e.D.Path == copied && e.Flags&journal.FlagRead != 0
	})
	if again.Origin != journal.OriginRun || again.Seq < wrote.Seq {
		t.Errorf("reading the own copy: %v origin %v, want run, after it was dated", again, again.Origin)
	}
	// D3: appending to a hidden file exposes it, so that it cannot become the run's.
	own := write(t, filepath.Join(f.ws, "input.txt"), secretText)
	r = f.observe(t, "", "printf x >> input.txt; cat input.txt")
	first := r.has(t, "append to input.txt", func(e entry) bool { return e.Op == journal.OpOpen && e.D.Path == own })
	if first.Dir != journal.DirIn || first.Origin != journal.OriginInput || first.Size != uint64(len(secretText)) {
		t.Errorf("opening an input for appending: %v dir %v origin %v size %d, want it exposed as input", first, first.Dir, first.Origin, first.Size)
	}
}

func TestRT52_SymbolicLink(t *testing.T) {
	f := newField(t)
	if err := os.Symlink(f.hidden, filepath.Join(f.ws, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("visible.txt", filepath.Join(f.ws, "fine")); err != nil {
		t.Fatal(err)
	}
	r := f.observe(t, "", "cat link; ln -s "+filepath.Dir(f.hidden)+" d; cat d/test.txt; cat fine")
	if r.stdout != secretText+secretText+secretText {
		t.Fatalf("the attack failed by itself: %q %q", r.stdout, r.stderr)
	}
	exposes(t, r, f.hidden, true)
	if n := len(r.opens(f.hidden)); n != 2 {
		t.Errorf("%d rows for two reads", n)
	}
	exposes(t, r, f.visible, false)
}

func TestRT53_SwappedSymbolicLink(t *testing.T) {
	f := newField(t)
	// The content tells which file was really read.
	write(t, f.hidden, "B\n")
	write(t, f.visible, "A\n")
	script := fmt.Sprintf(`ln -s %[1]s link; (while :; do ln -sf %[2]s n1; mv -T n1 link; ln -sf %[1]s n2; mv -T n2 link; done) & p=$!
		i=0; a=0; b=0; while [ $i -lt 300 ] || { [ $i -lt 30000 ] && { [ $a -lt 5 ] || [ $b -lt 5 ]; }; }; do
		read x < link; echo $x; case $x in A) a=$((a+1));; B) b=$((b+1));; esac; i=$((i+1)); done; kill $p`, f.visible, f.hidden)
	r := f.observe(t, "", script)
	a, b := strings.Count(r.stdout, "A"), strings.Count(r.stdout, "B")
	if a+b < 300 || a == 0 || b == 0 {
		t.Fatalf("the attack failed by itself: A %d B %d stderr %q", a, b, r.stderr)
	}
	if n := len(r.opens(f.visible)); n != a {
		t.Errorf("%d reads inside, %d rows", a, n)
	}
	hidden := r.opens(f.hidden)
	if len(hidden) != b {
		t.Errorf("%d reads outside, %d rows", b, len(hidden))
	}
	for _, e := range hidden {
		if e.Flags&journal.FlagOutOfScope == 0 {
			t.Fatalf("not flagged: %v", e)
		}
	}
}

func TestRT54_OtherNames(t *testing.T) {
	f := newField(t)
	up := ".." + strings.TrimPrefix(f.hidden, filepath.Dir(f.ws))
	for name, script := range map[string]string{
		"parent":    "cat " + up,
		"self-root": "cat /proc/self/root" + f.hidden,
		"pid-root":  "cat /proc/$$/root" + f.hidden,
		"pid-cwd":   "cd ../hidden; sleep 1000 & cd ../ws; cat /proc/$!/cwd/test.txt; kill $!",
		"dev-fd":    "exec 3<" + f.hidden + "; cat /dev/fd/3",
		"proc-fd":   "exec 3<" + f.hidden + "; cat /proc/self/fd/3",
		"cwd":       "cd ../hidden; cat test.txt",
		"dotdot":    "cat ./../ws/.././hidden/./test.txt",
	} {
		t.Run(name, func(t *testing.T) {
			r := f.observe(t, "", script)
			if r.stdout != secretText {
				t.Fatalf("the attack failed by itself: %q %q", r.stdout, r.stderr)
			}
			exposes(t, r, f.hidden, true)
			if strings.HasSuffix(name, "-fd") {
				if n := len(r.opens(f.hidden)); n != 2 {
					t.Errorf("%d rows, want one for the open and one for opening its descriptor again", n)
				}
			}
		})
		// Positive control: the same ways to a file of the workspace.
		if name == "self-root" || name == "dev-fd" || name == "parent" {
			r := f.observe(t, "", strings.ReplaceAll(strings.ReplaceAll(script, f.hidden, f.visible), up, "../ws/visible.txt"))
			exposes(t, r, f.visible, false)
		}
	}
}

func TestRT54_HardLink(t *testing.T) {
	f := newField(t)
	// Made by the run: another file system for the kernel, so it fails; the attempt
	// on a path outside is out of scope.
	r := f.observe(t, "", "ln "+f.hidden+" stolen; cat stolen; cp visible.txt mine; ln mine fine; cat fine")
	e := r.has(t, "link", func(e entry) bool { return e.Op == journal.OpLink && e.D.Path == f.hidden })
	if e.Result == 0 || e.Flags&journal.FlagOutOfScope == 0 {
		t.Errorf("%v: want a failure out of scope", e)
	}
	if r.stdout != secretText {
		t.Errorf("stdout %q: want the text once, from the link inside", r.stdout)
	}
	e = r.has(t, "link inside", func(e entry) bool { return e.Op == journal.OpLink && e.D.Path == filepath.Join(f.ws, "mine") })
	if e.Result != 0 || e.Flags&journal.FlagOutOfScope != 0 {
		t.Errorf("positive control: %v", e)
	}
	// There before: the content is what gives it away, so it must be recorded.
	if err := os.Link(f.hidden, filepath.Join(f.ws, "planted")); err != nil {
		t.Skipf("no hard links between these folders: %v", err)
	}
	r = f.observe(t, "", "cat planted")
	exposes(t, r, filepath.Join(f.ws, "planted"), false)
}

// The name of one folder is the beginning of another's.
func TestRT55_NameIsNoPrefix(t *testing.T) {
	f := newField(t)
	near := write(t, f.ws+"2/test.txt", secretText)
	r := f.observe(t, "", "cat "+near+" visible.txt")
	if r.stdout != secretText+secretText {
		t.Fatalf("the attack failed by itself: %q %q", r.stdout, r.stderr)
	}
	exposes(t, r, near, true)
	exposes(t, r, f.visible, false)
}

// Without Observe the hidden file is absent inside; asking for it is recorded as
// asking for something that exists.
func TestRT54_HiddenWithoutObserve(t *testing.T) {
	f := newField(t)
	absent := filepath.Join(filepath.Dir(f.hidden), "nothing")
	r := run(t, sandbox.Config{Command: []string{"/bin/sh", "-c", "cat " + f.hidden + " " + absent + " visible.txt"}, Workspace: f.ws,
		HiddenHints: []string{filepath.Dir(f.ws)}})
	if r.stdout != secretText {
		t.Errorf("stdout %q: want only the visible file", r.stdout)
	}
	ask := func(p string) entry {
		return r.has(t, "failed open of "+p, func(e entry) bool { return e.Op == journal.OpOpen && e.D.Path == p && e.Result == 2 })
	}
	if e := ask(f.hidden); e.Flags&(journal.FlagHidden|journal.FlagOutOfScope) != journal.FlagHidden|journal.FlagOutOfScope {
		t.Errorf("%v: want hidden and out of scope", e)
	}
	if e := ask(absent); e.Flags&(journal.FlagHidden|journal.FlagOutOfScope) != 0 {
		t.Errorf("%v: absent outside too, want no flag", e)
	}
}
