package surface

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// windowed asks a folder for what lies between two moments.
func windowed(t *testing.T, root string, l Location, w Window) *Observation {
	t.Helper()
	o, err := Observe(context.Background(), &Folder{Path: root}, l, Scope{Window: &w}, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// changedAt is a file's time of last change, which nobody can set.
func changedAt(t *testing.T, p string) int64 {
	t.Helper()
	st, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := kept(st)
	return *c
}

// later writes a file whose time of last change is after a moment.
func later(t *testing.T, p, content string, after int64) int64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err := errors.Join(os.RemoveAll(p), os.WriteFile(p, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if c := changedAt(t, p); c > after {
			return c
		}
	}
	t.Fatal("the file system's clock stands still")
	return 0
}

func TestPlantedOlderFile(t *testing.T) {
	root := tree(t, map[string]string{"planted": "the flag", "forged": "the flag"})
	before := max(changedAt(t, filepath.Join(root, "planted")), changedAt(t, filepath.Join(root, "forged")))
	start := later(t, filepath.Join(root, "own"), "the flag", before)
	w := Window{start, start + int64(time.Hour)}
	want(t, judge(t, condition(t, exact("planted"), Contains, "flag"), windowed(t, root, exact("planted"), w)), False)
	o := windowed(t, root, glob("*"), w)
	if r := judge(t, condition(t, glob("*"), Contains, "flag"), o); r.Outcome != True || r.Entry.Location != "own" || r.Basis != ByTime {
		t.Errorf("got %v of %+v, want own, by time", r.Outcome, r.Entry)
	}
	if !slices.Equal(o.Outside, []Outside{{KeyWindow, 2}}) {
		t.Errorf("got %v outside the scope, want the two older files", o.Outside)
	}
	// Without a window, what is there is there.
	want(t, judge(t, condition(t, exact("planted"), Contains, "flag"), observe(t, &Folder{Path: root}, exact("planted"), DefaultLimits)), True)
}

func TestForgedModificationTime(t *testing.T) {
	root := tree(t, map[string]string{"old": "the flag"})
	old := filepath.Join(root, "old")
	start := later(t, filepath.Join(root, "new"), "the flag", changedAt(t, old))
	w := Window{start, start + int64(time.Hour)}
	// Set back by the run, so that it looks older: not hidden by that, and not established.
	if err := os.Chtimes(filepath.Join(root, "new"), time.Unix(0, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	o := windowed(t, root, exact("new"), w)
	want(t, judge(t, condition(t, exact("new"), Contains, "flag"), o), Undetermined, "time-unproven new 1")
	want(t, judge(t, condition(t, exact("new"), Contains, "other"), o), False)
}

func TestSparseFileOfFiveGigabytes(t *testing.T) {
	root := tree(t, map[string]string{"sparse": ""})
	const size = 5 << 30
	if err := os.Truncate(filepath.Join(root, "sparse"), size); err != nil {
		t.Fatal(err)
	}
	o := observe(t, &Folder{Path: root}, exact("sparse"), DefaultLimits)
	e := o.Entries[0]
	if e.Size != size || e.SHA256 != nil || e.Gap != ReadLimit || len(e.Text) != int(DefaultLimits.Text) {
		t.Errorf("got size %d, digest %v, gap %q, %d bytes of text", e.Size, e.SHA256, e.Gap, len(e.Text))
	}
	want(t, judge(t, condition(t, exact("sparse"), None, ""), o), True)
	want(t, judge(t, condition(t, exact("sparse"), Contains, "x"), o), Undetermined, "read-limit sparse 1")
}

// Names are bytes: a newline forges no second name, and what is no UTF-8 is found.
func TestStrangeNames(t *testing.T) {
	names := []string{"a\nb.txt", "\xff\xfe.txt", "sp ace.txt", "-n.txt", "*.txt", "ü.txt", "u\u0308.txt", "\u202egnp.txt", `back\slash.txt`}
	files := map[string]string{}
	for _, n := range names {
		files[n] = "x"
	}
	root := tree(t, files)
	o := observe(t, &Folder{Path: root}, glob("*.txt"), DefaultLimits)
	var got []string
	for _, e := range o.Entries {
		got = append(got, e.Location)
	}
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
	if b, err := Format(o); err != nil {
		t.Error(err)
	} else if p, err := Parse(b); err != nil || p.Entries[0].Location != names[0] {
		t.Errorf("stored: %v", err)
	}
	for _, n := range names {
		want(t, judge(t, condition(t, exact(n), Equals, "x"), observe(t, &Folder{Path: root}, exact(n), DefaultLimits)), True)
	}
	want(t, judge(t, condition(t, exact("b.txt"), None, ""), observe(t, &Folder{Path: root}, exact("b.txt"), DefaultLimits)), False)
}

// A hard link to a file from outside is a genuine entry here; that it has another name is
// said. Only a journal can tell who wrote it.
func TestHardLinkIsCounted(t *testing.T) {
	root := tree(t, map[string]string{"own": "x"})
	outside := filepath.Join(filepath.Dir(root), "outside")
	if err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o600), os.Link(outside, filepath.Join(root, "linked"))); err != nil {
		t.Fatal(err)
	}
	for name, links := range map[string]uint32{"own": 1, "linked": 2} {
		if o := observe(t, &Folder{Path: root}, exact(name), DefaultLimits); o.Entries[0].Links != links {
			t.Errorf("%s: got %d names, want %d", name, o.Entries[0].Links, links)
		}
	}
}

// A file that changes while it is read proves what was read of it, and no more.
func TestChangedWhileRead(t *testing.T) {
	root := tree(t, map[string]string{"f": strings.Repeat("x", 100)})
	p := filepath.Join(root, "f")
	reads := 0
	s := &Folder{Path: root}
	s.lies = func(f *os.File) (string, error) {
		if reads++; reads == 3 { // asked before it is opened, and twice after
			if err := errors.Join(os.WriteFile(p, []byte("new"), 0o600), os.Chtimes(p, time.Unix(0, 0), time.Unix(1, 0))); err != nil {
				t.Fatal(err)
			}
		}
		return handlePath(f)
	}
	o := observe(t, s, exact("f"), DefaultLimits)
	if e := o.Entries[0]; e.Gap != Changed || e.SHA256 != nil {
		t.Fatalf("got gap %q, digest %v, want it marked as changed", e.Gap, e.SHA256)
	}
	want(t, judge(t, condition(t, exact("f"), Contains, "y"), o), Undetermined, "changed f 1")
}

func TestDepthLimit(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, strings.Repeat("d/", maxDepth+2))
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(root, "f"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 2*maxDepth+50 {
		t.Fatalf("got a limit of %d open files, %v", limit.Cur, err)
	}
	r := judge(t, condition(t, glob("**"), Contains, "y"), observe(t, &Folder{Path: root}, glob("**"), DefaultLimits))
	if r.Outcome != Undetermined || len(r.Reasons) != 1 || r.Reasons[0].Reason != DepthLimit {
		t.Errorf("got %v %v, want the depth limit", r.Outcome, r.Reasons)
	}
}

// Root reads everything, so the question is asked by a thread that is nobody for the file
// system; the thread ends with its goroutine.
func TestUnreadable(t *testing.T) {
	root := tree(t, map[string]string{"closed/f": "x", "f": "x", "open": "x"})
	at := func(p string) string { return filepath.Join(root, p) }
	temp := filepath.Dir(root)
	if err := errors.Join(os.Chmod(filepath.Dir(temp), 0o755), os.Chmod(temp, 0o755), os.Chmod(root, 0o755), os.Chmod(at("closed"), 0), os.Chmod(at("f"), 0), os.Chmod(at("open"), 0o644)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(at("closed"), 0o700)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Getuid() == 0 {
			runtime.LockOSThread()
			if _, err := unix.SetfsuidRetUid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		s := &Folder{Path: root}
		if _, err := os.Lstat(at("open")); err != nil {
			t.Logf("the folder for tests is closed to others: %v: nothing is tested here", err)
			return
		}
		for l, reason := range map[Location]string{exact("open"): "", exact("closed/f"): "read-failed closed/f 1", exact("f"): "read-failed f 1", glob("**/f"): "listing-failed closed 1|read-failed f 1"} {
			o, err := Observe(context.Background(), s, l, Scope{}, DefaultLimits)
			if err != nil {
				t.Error(err)
				return
			}
			r, err := Judge(Condition{Location: l}, o)
			if err != nil {
				t.Error(err)
				return
			}
			if reason == "" {
				want(t, r, True)
			} else {
				want(t, r, Undetermined, strings.Split(reason, "|")...)
			}
		}
	}()
	<-done
}
