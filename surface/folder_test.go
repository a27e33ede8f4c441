//go:build linux || darwin

package surface

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestExactRead(t *testing.T) {
	root := tree(t, map[string]string{"out/result.txt": "The Answer is 42\n", "empty": "", "x": "->out/result.txt"})
	s := &Folder{Path: root}
	for _, c := range []struct {
		at   string
		kind MatcherKind
		text string
		want Outcome
	}{
		{"out/result.txt", None, "", True}, {"out/result.txt", Contains, "Answer is", True}, {"out/result.txt", Contains, "answer is", False},
		{"out/result.txt", Equals, "The Answer is 42\n", True}, {"out/result.txt", Equals, "The Answer is 42", False},
		{"out/result.txt", Regex, `(?i)answer is \d+$`, False}, {"out/result.txt", Regex, `(?im)answer is \d+$`, True},
		{"empty", None, "", False}, {"empty", Equals, "", True}, {"x", Contains, "42", True},
	} {
		o := observe(t, s, exact(c.at), DefaultLimits)
		if r := judge(t, condition(t, exact(c.at), c.kind, c.text), o); r.Outcome != c.want {
			t.Errorf("%s %v %q: got %v %v, want %v", c.at, c.kind, c.text, r.Outcome, r.Reasons, c.want)
		} else if c.want == True && (r.Entry.Location != c.at || r.Basis != ByLocation) {
			t.Errorf("%s: got entry %q by %s", c.at, r.Entry.Location, r.Basis)
		}
	}
}

// What is not there was not written, once everything was looked at.
func TestAbsenceIsComplete(t *testing.T) {
	s := &Folder{Path: tree(t, map[string]string{"file": "x", "dir/": ""})}
	for _, l := range []Location{exact("gone"), exact("gone/deeper"), exact("file/below"), glob("gone/*.txt"), glob("gone/**"), glob("file/*"), glob("dir/**")} {
		want(t, judge(t, condition(t, l, None, ""), observe(t, s, l, DefaultLimits)), False)
	}
}

func TestNoRootIsUnavailable(t *testing.T) {
	s := &Folder{Path: filepath.Join(t.TempDir(), "gone")}
	o := observe(t, s, exact("a"), DefaultLimits)
	if o.Acquisition != Unavailable {
		t.Errorf("got %v, want unavailable", o.Acquisition)
	}
	want(t, judge(t, condition(t, exact("a"), None, ""), o), Undetermined, "source-unavailable  1")
}

func TestEscapingLocationsAreRefused(t *testing.T) {
	for _, l := range []Location{exact("../x"), exact("a/../../x"), exact(".."), exact("/etc/passwd"), exact(""), exact("."), exact("./a"), exact("a//b"), exact("a/"),
		exact("a\x00b"), exact(strings.Repeat("a", MaxLocation+1)), glob("../*"), glob("a/../*"), glob("[a"), glob("**/..")} {
		touched := false
		s := sourceFunc(func(context.Context, Location, *Collector) { touched = true })
		_, err := Observe(context.Background(), s, l, Scope{}, DefaultLimits)
		var bad *LocationError
		if !errors.As(err, &bad) || touched {
			t.Errorf("%v: got %v, looked at %v, want it refused before anything is looked at", l, err, touched)
		}
	}
}

func TestGlobNamesFilesOnly(t *testing.T) {
	s := &Folder{Path: tree(t, map[string]string{"a.txt": "1", "b.txt/": "", "c/d.txt": "2", "c/e/f.txt": "3", ".hidden.txt": "4"})}
	for _, c := range []struct{ pattern, want string }{
		{"*.txt", ".hidden.txt a.txt"}, {"**/*.txt", ".hidden.txt a.txt c/d.txt c/e/f.txt"}, {"c/**", "c/d.txt c/e/f.txt"}, {"c/*", "c/d.txt"},
		{"**", ".hidden.txt a.txt c/d.txt c/e/f.txt"}, {"c/**/f.txt", "c/e/f.txt"}, {"c/**/d.txt", "c/d.txt"}, {"{a,c/d}.txt", "a.txt c/d.txt"}, {"a.txt/**", ""}, {"?.txt", "a.txt"}, {`\c/*`, "c/d.txt"}, {`c/[d-e].txt`, "c/d.txt"}, {"c[/]d.txt", "c/d.txt"}, {"c[^x]d.txt", "c/d.txt"},
	} {
		o := observe(t, s, glob(c.pattern), DefaultLimits)
		var got []string
		for _, e := range o.Entries {
			got = append(got, e.Location)
		}
		if strings.Join(got, " ") != c.want || !o.complete() {
			t.Errorf("%s: got %q %v, want %q", c.pattern, got, o.Gaps, c.want)
		}
	}
}

func TestEachFolderIsListedOnce(t *testing.T) {
	root := tree(t, map[string]string{"a/b/c/f.txt": "1", "a/d/f.txt": "2", "e/f.txt": "3"})
	for _, pattern := range []string{"**/*.txt", "**/**/f.txt", "a/**/**", "**"} {
		count := map[string]int{}
		s := &Folder{Path: root, listing: func(f *os.File, n int) ([]os.DirEntry, error) {
			list, err := f.ReadDir(n)
			if err == io.EOF {
				st, _ := f.Stat()
				count[fmt.Sprint(st.Sys().(*syscall.Stat_t).Ino)]++
			}
			return list, err
		}}
		observe(t, s, glob(pattern), DefaultLimits)
		for ino, n := range count {
			if n != 1 {
				t.Errorf("%s: folder %s was listed %d times", pattern, ino, n)
			}
		}
		if len(count) < 4 {
			t.Errorf("%s: got %d folders listed", pattern, len(count))
		}
	}
}

func TestFileLimit(t *testing.T) {
	s := &Folder{Path: tree(t, map[string]string{"a": "1", "b": "2", "c": "3"})}
	limits := DefaultLimits
	limits.Files = 2
	o := observe(t, s, glob("*"), limits)
	want(t, judge(t, condition(t, glob("*"), Contains, "3"), o), Undetermined, "file-limit c 1")
	// What was seen still proves that it is there.
	want(t, judge(t, condition(t, glob("*"), Contains, "2"), o), True)
	limits.Files = 3
	want(t, judge(t, condition(t, glob("*"), Contains, "9"), observe(t, s, glob("*"), limits)), False)
}

func TestLinks(t *testing.T) {
	root := tree(t, map[string]string{"in/file": "secret", "out": "->../outside/file", "dangling": "->nowhere", "loop": "->loop",
		"dir": "->in", "sub/up": "->../in/file", "abs": "->/etc/hostname", "far/x": "->../../outside"})
	outside := filepath.Join(filepath.Dir(root), "outside")
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "file"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := &Folder{Path: root}
	for _, c := range []struct {
		at      Location
		outcome Outcome
		reasons []string
	}{
		{exact("in/file"), True, nil}, {exact("dir/file"), True, nil}, {exact("sub/up"), True, nil}, // inside, under its own name
		{exact("out"), Undetermined, []string{"link-outside out 1"}}, {exact("abs"), Undetermined, []string{"link-outside abs 1"}},
		{exact("far/x/file"), Undetermined, []string{"link-outside far/x/file 1"}},
		{exact("dangling"), Undetermined, []string{"link-dangling dangling 1"}}, {exact("dangling/below"), Undetermined, []string{"link-dangling dangling/below 1"}},
		{exact("loop"), Undetermined, []string{"link-dangling loop 1"}},
		{glob("sub/*"), True, nil}, {glob("dir/*"), Undetermined, []string{"link-not-followed dir 1"}}, {glob("d*/*"), Undetermined, []string{"link-not-followed dir 1"}},
		{glob("d*"), Undetermined, []string{"link-dangling dangling 1"}}, {glob("far/**"), Undetermined, []string{"link-outside far/x 1"}},
	} {
		r := judge(t, condition(t, c.at, Contains, "secret"), observe(t, s, c.at, DefaultLimits))
		want(t, r, c.outcome, c.reasons...)
		if r.Entry != nil && r.Entry.Location != c.at.Path && !c.at.Glob {
			t.Errorf("%v: got entry %q", c.at, r.Entry.Location)
		}
	}
}

func TestPipesAndFoldersAreNoFiles(t *testing.T) {
	root := tree(t, map[string]string{"dir/": "", "plain": "x"})
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe", filepath.Join(root, "piped")); err != nil {
		t.Fatal(err)
	}
	s := &Folder{Path: root}
	for _, p := range []string{"dir", "pipe", "piped"} {
		want(t, judge(t, condition(t, exact(p), None, ""), observe(t, s, exact(p), DefaultLimits)), Undetermined, "not-a-file "+p+" 1")
	}
	want(t, judge(t, condition(t, glob("p*"), Contains, "y"), observe(t, s, glob("p*"), DefaultLimits)), Undetermined, "not-a-file pipe 2")
	want(t, judge(t, condition(t, glob("pl*"), Contains, "y"), observe(t, s, glob("pl*"), DefaultLimits)), False) // not asked for
}

// A pipe that takes the file's place after it was looked at neither blocks nor is read.
func TestPipeSwappedIn(t *testing.T) {
	root := tree(t, map[string]string{"f": "x"})
	p := filepath.Join(root, "f")
	s := &Folder{Path: root, opening: func(string) {
		if err := errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)); err != nil {
			t.Fatal(err)
		}
	}}
	want(t, judge(t, condition(t, exact("f"), None, ""), observe(t, s, exact("f"), DefaultLimits)), Undetermined, "not-a-file f 1")
}

// A link that takes the file's place after it was looked at leads nowhere: not out of the
// root, and not to another file in it. The control: nobody swaps.
func TestRT53_LinkSwappedIn(t *testing.T) {
	for target, reason := range map[string]string{"../outside": "replaced", "other": "replaced", "": ""} {
		root := tree(t, map[string]string{"f": "here", "other": "secret"})
		if err := os.WriteFile(filepath.Join(filepath.Dir(root), "outside"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(root, "f")
		s := &Folder{Path: root, opening: func(at string) {
			if target == "" || at != "f" {
				return
			}
			if err := errors.Join(os.Symlink(target, p+"-new"), os.Rename(p+"-new", p)); err != nil {
				t.Fatal(err)
			}
		}}
		o := observe(t, s, exact("f"), DefaultLimits)
		r := judge(t, condition(t, exact("f"), Contains, "secret"), o)
		if reason == "" {
			want(t, r, False)
			continue
		}
		want(t, r, Undetermined, reason+" f 1")
		if len(o.Entries) != 0 {
			t.Errorf("%s: got entry %+v, want none: it is another file's", target, o.Entries[0])
		}
	}
}

func TestFolderSwappedDuringTheWalk(t *testing.T) {
	for _, kind := range []string{"link", "folder"} {
		root := tree(t, map[string]string{"a/f": "here", "b/f": "here"})
		outside := tree(t, map[string]string{"f": "secret", "stolen-name": "secret"})
		swapped := false
		s := &Folder{Path: root, opening: func(p string) {
			if p != "b" || swapped {
				return
			}
			swapped = true
			b := filepath.Join(root, "b")
			err := os.Rename(b, b+"-away")
			if kind == "link" {
				err = errors.Join(err, os.Symlink(outside, b))
			} else {
				err = errors.Join(err, os.Rename(outside, b))
			}
			if err != nil {
				t.Fatal(err)
			}
		}}
		o := observe(t, s, glob("?/*"), DefaultLimits)
		want(t, judge(t, condition(t, glob("?/*"), Contains, "secret"), o), Undetermined, "replaced b 1")
		if len(o.Entries) != 1 || o.Entries[0].Location != "a/f" {
			t.Errorf("%s: got %d entries, want a/f alone: no name of another folder", kind, len(o.Entries))
		}
	}
}

// A folder that is moved out of the root after its handle was opened is noticed by
// where its files lie.
func TestFolderMovedOutDuringTheWalk(t *testing.T) {
	root := tree(t, map[string]string{"b/f": "here"})
	away := filepath.Join(filepath.Dir(root), "away")
	s := &Folder{Path: root, opening: func(p string) {
		if p == "b/f" {
			if err := os.Rename(filepath.Join(root, "b"), away); err != nil {
				t.Fatal(err)
			}
		}
	}}
	want(t, judge(t, condition(t, glob("**"), None, ""), observe(t, s, glob("**"), DefaultLimits)), Undetermined, "unconfined b/f 1")
}

func TestUnlistableFolder(t *testing.T) {
	root := tree(t, map[string]string{"a/f": "x", "b/g": "x"})
	for name, listing := range map[string]func(f *os.File, n int) ([]os.DirEntry, error){
		"at once": func(f *os.File, n int) ([]os.DirEntry, error) { return nil, syscall.EIO },
		"half way": func(f *os.File, n int) ([]os.DirEntry, error) {
			list, _ := f.ReadDir(1)
			return list, syscall.EIO
		},
	} {
		s := &Folder{Path: root}
		s.listing = func(f *os.File, n int) ([]os.DirEntry, error) {
			if p, _ := handlePath(f); strings.HasSuffix(p, "/b") {
				return listing(f, n)
			}
			return f.ReadDir(n)
		}
		o := observe(t, s, glob("**"), DefaultLimits)
		want(t, judge(t, condition(t, glob("**"), Contains, "y"), o), Undetermined, "listing-failed b 1")
		if len(o.Entries) != 1 {
			t.Errorf("%s: got %d entries, want none of the folder whose listing broke off", name, len(o.Entries))
		}
	}
}

func TestEntryLimit(t *testing.T) {
	s := &Folder{Path: tree(t, map[string]string{"a/1": "x", "a/2": "x", "b/3": "x", "b/4": "x"})}
	limits := DefaultLimits
	limits.Entries = 6
	if o := observe(t, s, glob("**"), limits); !o.complete() {
		t.Errorf("got %v, want six names listed within a budget of six", o.Gaps)
	}
	limits.Entries = 5
	o := observe(t, s, glob("**"), limits)
	want(t, judge(t, condition(t, glob("**"), Contains, "y"), o), Undetermined, "entry-limit  1")
	if o.Acquisition != Partial {
		t.Errorf("got %v, want partial", o.Acquisition)
	}
}

// Cancelled at the next entry, at the next chunk, and with the handle closed.
func TestCancel(t *testing.T) {
	root := tree(t, map[string]string{"a": "1", "b": strings.Repeat("x", 4*chunk)})
	for _, at := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(context.Background())
		s := &Folder{Path: root, opening: func(p string) {
			if p == at {
				cancel()
			}
		}}
		o, err := Observe(ctx, s, glob("*"), Scope{}, DefaultLimits)
		if err != nil || o.Acquisition != Partial || len(o.Entries) > 1 {
			t.Fatalf("cancelled at %s: got %+v %v, want what was seen until then", at, o, err)
		}
		want(t, judge(t, condition(t, glob("*"), Contains, "9"), o), Undetermined, "cancelled  1")
	}
}

func TestCancelWithinAFile(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &slow{cancel: cancel}
	s := sourceFunc(func(_ context.Context, _ Location, c *Collector) {
		if err := c.File("f", func() (*Item, Reason) { return &Item{Size: -1, Content: r}, "" }); err == nil {
			t.Error("want the listing ended")
		}
	})
	o, err := Observe(ctx, s, exact("f"), Scope{}, DefaultLimits)
	if err != nil || r.reads != 1 || !r.closed || len(o.Entries) != 0 {
		t.Errorf("got %d reads, closed %v, %d entries, %v: want one read, then the handle closed", r.reads, r.closed, len(o.Entries), err)
	}
}

type slow struct {
	cancel func()
	reads  int
	closed bool
}

func (s *slow) Read(p []byte) (int, error) { s.reads++; s.cancel(); return 1, nil }
func (s *slow) Close() error               { s.closed = true; return nil }

type failing struct{ closed bool }

func (f *failing) Read([]byte) (int, error) { return 0, syscall.EIO }
func (f *failing) Close() error             { f.closed = true; return nil }

func TestReadFailureClosesTheHandle(t *testing.T) {
	r := &failing{}
	s := sourceFunc(func(_ context.Context, _ Location, c *Collector) {
		_ = c.File("f", func() (*Item, Reason) { return &Item{Size: 3, Content: r}, "" })
		_ = c.File("g", func() (*Item, Reason) { return nil, ReadFailed })
	})
	o := observe(t, s, glob("?"), DefaultLimits)
	want(t, judge(t, condition(t, glob("?"), None, ""), o), Undetermined, "read-failed f 2")
	if !r.closed || len(o.Entries) != 0 {
		t.Errorf("closed %v, %d entries", r.closed, len(o.Entries))
	}
}

func TestLimitsAboveZero(t *testing.T) {
	for i, change := range []func(l *Limits, v int64){
		func(l *Limits, v int64) { l.Entries = int(v) }, func(l *Limits, v int64) { l.Files = int(v) }, func(l *Limits, v int64) { l.Read = v },
		func(l *Limits, v int64) { l.Total = v }, func(l *Limits, v int64) { l.Text = v },
	} {
		for _, v := range []int64{0, -1} {
			l := DefaultLimits
			change(&l, v)
			if _, err := Observe(context.Background(), &Folder{Path: "."}, exact("a"), Scope{}, l); err == nil {
				t.Errorf("limit %d of %d was taken", i, v)
			}
		}
	}
	if err := DefaultLimits.Check(); err != nil {
		t.Error(err)
	}
}
