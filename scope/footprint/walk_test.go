package footprint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

func take(t *testing.T, dir string, read bool, limits Limits) *Manifest {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, err := Take(context.Background(), root, read, limits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func put(t *testing.T, p, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func paths(m *Manifest) (out []string) {
	for e := range m.All() {
		out = append(out, e.Path)
	}
	return out
}

func described(changes []Change) (out []string) {
	for _, c := range changes {
		out = append(out, c.Kind.String()+" "+c.Path)
	}
	return out
}

func TestWalkAndDiff(t *testing.T) {
	for _, read := range []bool{true, false} {
		dir := t.TempDir()
		for _, f := range []string{"same", "content", "gone", "sub/deep/x", "sub/y"} {
			put(t, filepath.Join(dir, f), "text of "+f)
		}
		before := take(t, dir, read, DefaultLimits)
		if len(before.Gaps) != 0 || before.Find("sub/deep/x") == nil || before.Find("nothing") != nil || before.Find(".") == nil {
			t.Fatalf("got %+v", before)
		}
		if c, g := Diff(before, take(t, dir, read, DefaultLimits)); len(c)+len(g) != 0 {
			t.Errorf("nothing changed: got %v, %v", c, g)
		}
		if !read {
			time.Sleep(20 * time.Millisecond) // the system's clock of files has coarse ticks
		}
		put(t, filepath.Join(dir, "content"), "TEXT of content")
		if err := errors.Join(os.Remove(filepath.Join(dir, "gone")), os.RemoveAll(filepath.Join(dir, "sub/deep"))); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "new/z"), "z")
		changes, gaps := Diff(before, take(t, dir, read, DefaultLimits))
		same(t, "changes", described(changes), "modified content", "deleted gone", "added new", "added new/z", "deleted sub/deep", "deleted sub/deep/x")
		if len(gaps) != 0 {
			t.Errorf("got gaps %v", gaps)
		}
	}
}

func TestModificationTimeProvesNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "one")
	st, err := os.Stat(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	before := take(t, dir, true, DefaultLimits)
	put(t, dir+"/f", "two")
	if err := os.Chtimes(dir+"/f", st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	changes, _ := Diff(before, take(t, dir, true, DefaultLimits))
	same(t, "same size, time set back", described(changes), "modified f")
	before = take(t, dir, true, DefaultLimits)
	if err := os.Chtimes(dir+"/f", time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	changes, _ = Diff(before, take(t, dir, true, DefaultLimits))
	same(t, "only the time", described(changes))
}

func TestLimitsAreGaps(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a", "b", "c", "d/e/f"} {
		put(t, filepath.Join(dir, f), "text")
	}
	for _, c := range []struct {
		limits Limits
		path   string
	}{
		{Limits{Entries: 3, Bytes: 100, Depth: 10}, "c"},
		{Limits{Entries: 100, Bytes: 9, Depth: 10}, "c"},
		{Limits{Entries: 100, Bytes: 100, Depth: 1}, "d/e"},
	} {
		m := take(t, dir, true, c.limits)
		if len(m.Gaps) == 0 || m.Gaps[0] != (Gap{c.path, GapLimit}) {
			t.Errorf("%+v: got gaps %v, want one at %s", c.limits, m.Gaps, c.path)
		}
	}
	before := take(t, dir, true, Limits{Entries: 7, Bytes: 16, Depth: 2})
	if len(before.Gaps) != 0 {
		t.Errorf("exactly at the limits: got gaps %v", before.Gaps)
	}
	// What is beyond a limit is not gone.
	changes, gaps := Diff(before, take(t, dir, true, Limits{Entries: 3, Bytes: 100, Depth: 10}))
	if len(changes) != 0 || !slices.Equal(gaps, []Gap{{"c", GapLimit}}) {
		t.Errorf("got %v and %v, want the gap alone", changes, gaps)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	changes, gaps, err = Compare(t.Context(), before, root, true, Limits{Entries: 3, Bytes: 100, Depth: 10})
	if err != nil || len(changes) != 0 || !slices.Equal(gaps, []Gap{{"c", GapLimit}}) {
		t.Errorf("compared on the way: got %v and %v, %v, want the gap alone", changes, gaps, err)
	}
}

func TestCancelledWalkGivesNoManifest(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "text")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if m, err := Take(ctx, root, true, DefaultLimits); m != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v; want no manifest", m, err)
	}
}

// A folder that is replaced between the look and the opening is not entered.
func TestRT53_SwappedFolderIsAGap(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/d/f", "text")
	put(t, dir+"/other/secret", "text")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h, err := openRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer h.release()
	enter := func(seen status) (gaps []Gap, names []string) {
		w := (&walk{ctx: context.Background(), keep: true, limits: DefaultLimits}).worker()
		slot := &child{}
		w.folder(job{slot: slot, path: "d", open: func() (*handle, error) { return h.enter("d", &seen) }})
		if slot.to != nil {
			slot.to.all("d", func(e Entry) bool { names = append(names, e.Path); return true })
		}
		return w.gaps, names
	}
	seen, err := h.lstat("d")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir+"/d", dir+"/e"), os.Rename(dir+"/other", dir+"/d")); err != nil {
		t.Fatal(err)
	}
	gaps, names := enter(seen)
	if !slices.Equal(gaps, []Gap{{"d", GapSwapped}}) || len(names) != 0 {
		t.Errorf("got %v and %v, want one gap and no name of the other folder", gaps, names)
	}
	if seen, err = h.lstat("d"); err != nil {
		t.Fatal(err)
	}
	gaps, names = enter(seen)
	if same(t, "the control", names, "d/secret"); len(gaps) != 0 {
		t.Errorf("the control: got gaps %v, want none", gaps)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir := t.TempDir()
	put(t, dir+"/in/f", "text")
	put(t, dir+"/out/secret", "text")
	if err := errors.Join(os.Symlink("nowhere", dir+"/in/dangling"), os.Symlink("../out", dir+"/in/l")); err != nil {
		t.Fatal(err)
	}
	m := take(t, dir+"/in", true, DefaultLimits)
	if len(m.Gaps) != 0 || len(paths(m)) != 4 || m.Find("dangling").Target != "nowhere" || m.Find("l").Mode.Type() != fs.ModeSymlink {
		t.Errorf("got %+v", m)
	}
	if err := errors.Join(os.Remove(dir+"/in/l"), os.Symlink("/elsewhere", dir+"/in/l")); err != nil {
		t.Fatal(err)
	}
	changes, _ := Diff(m, take(t, dir+"/in", true, DefaultLimits))
	if same(t, "a new target", described(changes), "modified l"); changes[0].What != "target" && changes[0].What != "size, target" {
		t.Errorf("got %q", changes[0].What)
	}
}
