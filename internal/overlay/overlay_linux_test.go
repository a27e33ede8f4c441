package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// layers is one overlay mount in a temporary folder.
type layers struct {
	t                    *testing.T
	lower, upper, merged string
}

func newLayers(t *testing.T, lower func(dir string)) *layers {
	t.Helper()
	tmp := t.TempDir()
	l := &layers{t, tmp + "/lower", tmp + "/upper", tmp + "/merged"}
	for _, d := range []string{l.lower, l.upper, l.merged, tmp + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lower(l.lower)
	opt := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", l.lower, l.upper, tmp+"/work")
	if err := unix.Mount("overlay", l.merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, opt); err != nil {
		t.Skipf("no overlay mount here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(l.merged, unix.MNT_DETACH) })
	return l
}

func (l *layers) unmount() {
	l.t.Helper()
	if err := unix.Unmount(l.merged, 0); err != nil {
		l.t.Fatal(err)
	}
}

func open(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (l *layers) changes() []Change {
	l.t.Helper()
	c, err := Changes(open(l.t, l.upper), open(l.t, l.lower))
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// state of one file, as far as this package compares it.
type state struct {
	mode  fs.FileMode
	body  string // content, or target
	mtime int64  // of regular files
	xattr string
}

// snapshot walks a tree through the ordinary file system: the naive oracle.
func snapshot(t *testing.T, dir string) map[string]state {
	t.Helper()
	out := map[string]state{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		s := state{mode: fi.Mode()}
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			s.body, s.mtime = string(b), fi.ModTime().UnixNano()
		case fi.Mode().Type() == fs.ModeSymlink:
			if s.body, err = os.Readlink(p); err != nil {
				return err
			}
		}
		if fi.Mode().IsRegular() || fi.IsDir() {
			v := make([]byte, 100)
			if n, err := unix.Lgetxattr(p, "user.test", v); err == nil {
				s.xattr = string(v[:n])
			}
		}
		out[rel] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// diff of two snapshots, as lines "kind path".
func diff(before, after map[string]state) []string {
	var out []string
	for p, a := range after {
		b, ok := before[p]
		switch {
		case !ok:
			out = append(out, "added "+p)
		case a.mode.Type() != b.mode.Type() || a.body != b.body:
			out = append(out, "modified "+p)
		case a != b:
			out = append(out, "metadata "+p)
		}
	}
	for p := range before {
		if _, ok := after[p]; ok {
			continue
		}
		parent := filepath.Dir(p)
		if _, ok := before[parent]; ok && parent != "." && !after[parent].mode.IsDir() {
			continue // went with its directory
		}
		out = append(out, "deleted "+p)
	}
	sort.Strings(out)
	return out
}

// lines puts Changes into the form of diff. What a Replaced directory changed in
// itself is not told apart, so it stands for a change of metadata.
func lines(changes []Change, want []string) (out []string) {
	for _, c := range changes {
		l := c.Kind.String() + " " + c.Path
		if c.Kind == Replaced {
			meta := "metadata " + c.Path
			if i := sort.SearchStrings(want, meta); i == len(want) || want[i] != meta {
				continue
			}
			l = meta
		}
		out = append(out, l)
	}
	sort.Strings(out)
	return out
}

func (l *layers) check(before, after map[string]state) []Change {
	l.t.Helper()
	changes, want := l.changes(), diff(before, after)
	if got := lines(changes, want); strings.Join(got, "\n") != strings.Join(want, "\n") {
		l.t.Errorf("changes\n got %q\nwant %q", got, want)
	}
	for _, c := range changes {
		a := after[c.Path]
		if c.Kind != Deleted && c.Mode != a.mode {
			l.t.Errorf("%s: mode %v, want %v", c.Path, c.Mode, a.mode)
		}
		if (c.Kind == Added || c.Kind == Modified) && a.mode.IsRegular() &&
			c.Size != int64(len(a.body)) {
			l.t.Errorf("%s: %d bytes, want %d", c.Path, c.Size, len(a.body))
		}
		if a.mode.Type() == fs.ModeSymlink && c.Kind != Deleted && c.Target != a.body {
			l.t.Errorf("%s: target %q, want %q", c.Path, c.Target, a.body)
		}
	}
	// Apply on a copy of the lower layer gives the merged tree.
	dst := l.t.TempDir()
	if out, err := exec.Command("cp", "-a", "--", l.lower+"/.", dst).CombinedOutput(); err != nil {
		l.t.Fatalf("cp: %v %s", err, out)
	}
	_, skipped, err := Apply(open(l.t, l.upper), open(l.t, dst))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range skipped {
		if c.Mode.Type()&(fs.ModeSocket|fs.ModeDevice) == 0 {
			l.t.Errorf("Apply left out %s (%v)", c.Path, c.Mode)
		}
		delete(after, c.Path)
	}
	if d := diff(after, snapshot(l.t, dst)); len(d) > 0 {
		l.t.Errorf("after Apply: %q", d)
	}
	return changes
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, p, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644))
}

func TestEveryKindOfChange(t *testing.T) {
	if !inside(t) {
		return
	}
	l := newLayers(t, func(d string) {
		for _, f := range []string{"same", "touched", "content", "mode", "linked", "gone", "recreated", "mapped", "xattr", "tofile/x", "todir", "dir/keep", "dir/gone", "moved/a", "replaced/old", "replaced/both", "deep/a/b/c/d", "container/x"} {
			put(t, filepath.Join(d, f), "content of "+f+"\n")
		}
		must(t, os.Symlink("same", d+"/link"), os.Symlink("same", d+"/link2"), os.Mkdir(d+"/chmodded", 0o755))
	})
	before := snapshot(t, l.merged)
	m := l.merged + "/"
	f, err := os.OpenFile(m+"same", os.O_RDWR, 0) // copied up, nothing written
	must(t, err, f.Close())
	must(t, os.Chtimes(m+"touched", time.Unix(1, 0), time.Unix(2, 0)))
	put(t, m+"content", "other")
	must(t, os.Chmod(m+"mode", 0o600), os.Chmod(m+"chmodded", 0o700))
	must(t, os.Link(m+"linked", m+"linked2")) // copies up the source, which is no change of it
	must(t, os.Remove(m+"gone"), os.Remove(m+"recreated"))
	put(t, m+"recreated", "anew")
	f, err = os.OpenFile(m+"mapped", os.O_RDWR, 0)
	must(t, err)
	b, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	b[0] = 'X'
	must(t, unix.Munmap(b), f.Close())
	must(t, unix.Setxattr(m+"xattr", "user.test", []byte("v"), 0))
	must(t, os.RemoveAll(m+"tofile"), os.WriteFile(m+"tofile", []byte("file"), 0o600))
	must(t, os.Remove(m+"todir"), os.Mkdir(m+"todir", 0o755))
	put(t, m+"todir/new", "n")
	must(t, os.Remove(m+"dir/gone"), os.Remove(m+"link"), os.Remove(m+"link2"), os.Symlink("elsewhere", m+"link2"))
	must(t, os.RemoveAll(m+"replaced"), os.Mkdir(m+"replaced", 0o755))
	put(t, m+"replaced/new", "n")
	put(t, m+"replaced/both", "content of replaced/both\n")
	must(t, os.RemoveAll(m+"deep/a"))
	put(t, m+"container/y", "y")
	must(t, unix.Mkfifo(m+"fifo", 0o640))
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err, os.Chdir(l.merged), unix.Bind(s, &unix.SockaddrUnix{Name: "sock"}), unix.Close(s), os.Chdir("/"))
	must(t, os.Mkdir(m+"readonly", 0o755))
	put(t, m+"readonly/f", "f")
	must(t, os.Chmod(m+"readonly", 0o555))
	put(t, m+"temp", "t")
	must(t, os.Remove(m+"temp"))
	after := snapshot(t, l.merged)
	l.unmount()
	changes := l.check(before, after)
	kinds := map[Kind]int{}
	for _, c := range changes {
		kinds[c.Kind]++
		if c.Path == "same" || c.Path == "linked" || c.Path == "container" || c.Path == "temp" {
			t.Errorf("%s is reported as %v, but nothing changed", c.Path, c.Kind)
		}
	}
	for _, k := range []Kind{Added, Modified, Deleted, Replaced, Metadata} {
		if kinds[k] == 0 {
			t.Errorf("no change of kind %v", k)
		}
	}
}

// Random operations, against the oracle.
func TestRandomOperations(t *testing.T) {
	if !inside(t) {
		return
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		r := rand.New(rand.NewSource(int64(seed)))
		names := []string{"a", "b", "c", "d"}
		path := func(root string) string {
			p := root
			for range 1 + r.Intn(3) {
				p = filepath.Join(p, names[r.Intn(len(names))])
			}
			return p
		}
		step := func(root string) { // many fail; that is the point
			p := path(root)
			switch r.Intn(10) {
			case 0, 1:
				os.MkdirAll(p, 0o755)
			case 2, 3:
				os.WriteFile(p, []byte{byte('0' + r.Intn(3))}, 0o644)
			case 4:
				os.RemoveAll(p)
			case 5:
				os.Rename(p, path(root))
			case 6:
				os.Symlink(names[r.Intn(len(names))], p)
			case 7:
				if fi, err := os.Lstat(p); err == nil && fi.Mode().Type() != fs.ModeSymlink {
					os.Chmod(p, fs.FileMode(0o700|r.Intn(2)*0o055))
				}
			case 8:
				if f, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
					f.Close()
				}
			case 9:
				os.Link(p, path(root))
			}
		}
		l := newLayers(t, func(d string) {
			for range 40 {
				step(d)
			}
		})
		before := snapshot(t, l.merged)
		for range 1 + r.Intn(60) {
			step(l.merged)
		}
		after := snapshot(t, l.merged)
		l.unmount()
		l.check(before, after)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A symbolic link in place of a directory must not lead Apply out of the tree.
func TestApplyFollowsNoSymbolicLink(t *testing.T) {
	tmp := t.TempDir()
	upper, dst, outside := tmp+"/upper", tmp+"/dst", tmp+"/outside"
	put(t, upper+"/d/f", "planted")
	must(t, os.Mkdir(dst, 0o755), os.Mkdir(outside, 0o755), os.Symlink(outside, dst+"/d"))
	if _, _, err := Apply(open(t, upper), open(t, dst)); err != nil {
		t.Fatal(err)
	}
	if l, _ := os.ReadDir(outside); len(l) != 0 {
		t.Errorf("Apply wrote outside: %v", l)
	}
	// The run's tree has a directory d there, so the link goes and d comes.
	if b, err := os.ReadFile(dst + "/d/f"); err != nil || string(b) != "planted" {
		t.Errorf("d/f: %q, %v", b, err)
	}
	// removeAll unlinks a link and leaves its target alone.
	put(t, outside+"/precious", "p")
	must(t, os.Symlink(outside, dst+"/d/l"))
	must(t, removeAll(open(t, dst), "d", 0))
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}

func TestForeignLayersAreRefused(t *testing.T) {
	for _, attr := range []string{"user.overlay.redirect", "user.overlay.metacopy"} {
		tmp := t.TempDir()
		must(t, os.MkdirAll(tmp+"/upper/d", 0o755), os.MkdirAll(tmp+"/lower/d", 0o755))
		if err := unix.Setxattr(tmp+"/upper/d", attr, []byte("/x"), 0); err != nil {
			t.Skipf("no user attributes on %s: %v", tmp, err)
		}
		if _, err := Changes(open(t, tmp+"/upper"), open(t, tmp+"/lower")); err == nil || !strings.Contains(err.Error(), attr) {
			t.Errorf("%s: %v, want an error that names it", attr, err)
		}
	}
}
