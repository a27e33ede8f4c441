package footprint

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe is listed and not waited for; owner, mode, attributes and names count.
func TestWhatLinuxKeeps(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"attr", "mode", "linked", "a\nb", "a\xffb"} {
		put(t, dir+"/"+f, "text")
	}
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	before := take(t, dir, true, DefaultLimits)
	if len(before.Gaps) != 0 || before.Find("a\nb") == nil || before.Find("a\xffb") == nil || before.Find("pipe") == nil {
		t.Fatalf("got %+v", before)
	}
	err := errors.Join(os.Chmod(dir+"/mode", 0o755), os.Link(dir+"/linked", dir+"/linked2"), os.Remove(dir+"/pipe"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/pipe", "")
	want := []string{"modified linked", "added linked2", "modified mode", "modified pipe"}
	if err := unix.Setxattr(dir+"/attr", "user.test", []byte("v"), 0); err == nil {
		want = append([]string{"modified attr"}, want...)
	} else {
		t.Logf("no attributes on this file system, that part is left out: %v", err)
	}
	changes, _ := Diff(before, take(t, dir, true, DefaultLimits))
	same(t, "changes", described(changes), want...)
	for _, c := range changes {
		if w := map[string]string{"attr": "attributes", "linked": "links", "mode": "mode"}[c.Path]; w != "" && c.What != w {
			t.Errorf("%s: got %q, want %q", c.Path, c.What, w)
		}
	}
}

// What nobody may read is named, and the rest is listed. Root reads everything, so the
// thread takes another user's rights to files.
func TestRT58d_UnreadableIsNamed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/file", "text")
	put(t, dir+"/folder/x", "text")
	put(t, dir+"/fine", "text")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(os.Chmod(dir+"/file", 0), os.Chmod(dir+"/folder", 0), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir+"/folder", 0o755)
	var took [2]*Manifest
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		if err := unix.Setfsuid(12345); err != nil {
			t.Fatal(err)
		}
	}
	for i := range took {
		took[i], _, _, err = look(context.Background(), root, nil, true, DefaultLimits, 1) // in this thread
	}
	if os.Getuid() == 0 {
		if err := unix.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
	}
	if err != nil {
		t.Fatal(err)
	}
	changes, gaps := Diff(took[0], took[1])
	if len(changes) != 0 || len(gaps) != 2 || gaps[0] != (Gap{"file", "before and after: unreadable"}) || gaps[1].Path != "folder" || took[0].Find("fine") == nil {
		t.Errorf("got %v and %v, want file and folder as gaps", changes, gaps)
	}
}

// What takes a file's place between the look and the opening is not read: a link out of the
// folder or to another file in it, another file, a pipe, a folder. The control is not swapped.
func TestRT53_SwappedFileIsAGap(t *testing.T) {
	dir := t.TempDir()
	p := dir + "/in/f"
	put(t, dir+"/secret", "secret")
	put(t, dir+"/in/other", "other")
	root, err := os.OpenRoot(dir + "/in")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h, err := openRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer h.release()
	for name, swap := range map[string]func() error{
		"a link out":      func() error { return os.Symlink("../secret", p) },
		"a link in":       func() error { return os.Symlink("other", p) },
		"a dangling link": func() error { return os.Symlink("none", p) },
		"a file":          func() error { return os.WriteFile(p, []byte("text"), 0o644) },
		"a hard link":     func() error { return os.Link(dir+"/secret", p) },
		"a pipe":          func() error { return unix.Mkfifo(p, 0o600) },
		"a folder":        func() error { return os.Mkdir(p, 0o755) },
		"":                nil,
	} {
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
		put(t, p, "text")
		st, err := h.lstat("f")
		if err != nil {
			t.Fatal(err)
		}
		w := (&walk{ctx: context.Background(), read: true, limits: DefaultLimits}).worker()
		w.bytes.Store(DefaultLimits.Bytes)
		if swap != nil {
			// The old file stays, so that the new one cannot have its number.
			if err := errors.Join(os.Rename(p, dir+"/old"), swap()); err != nil {
				t.Fatal(err)
			}
		}
		e := st.entry()
		err = w.content(h, "f", &st, &e)
		if swap == nil {
			if err != nil || !e.Read || e.Digest != sha256.Sum256([]byte("text")) {
				t.Errorf("the control: got %+v, %v; want it read", e, err)
			}
			continue
		}
		if err == nil || reasonOf(err) != GapSwapped || e.Read || e.Digest != [32]byte{} {
			t.Errorf("%s: got %+v, %v; want nothing read, %q", name, e, err, GapSwapped)
		}
	}
}

// A file that grows or shrinks while it is read was not the file that was looked at.
func TestChangedWhileReadIsAGap(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int64{4, piece, piece + 1, 3 * piece} {
		put(t, dir+"/f", string(make([]byte, size)))
		f, err := os.Open(dir + "/f")
		if err != nil {
			t.Fatal(err)
		}
		w := (&walk{ctx: context.Background(), read: true, limits: DefaultLimits}).worker()
		for _, c := range []struct {
			said int64
			want bool
		}{{size, true}, {size - 1, false}, {size + 1, false}} {
			if _, err := w.digest(&file{int(f.Fd())}, c.said); (err == nil) != c.want || err != nil && reasonOf(err) != GapSwapped {
				t.Errorf("%d bytes, looked at as %d: got %v", size, c.said, err)
			}
		}
		f.Close()
	}
}

// An older file that is moved in, with a time of writing before the run, is new all the same.
func TestPlantedOlderFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/ws/f", "text")
	put(t, dir+"/older", "planted")
	long := time.Unix(1_000_000, 0)
	if err := os.Chtimes(dir+"/older", long, long); err != nil {
		t.Fatal(err)
	}
	for _, read := range []bool{true, false} {
		before := take(t, dir+"/ws", read, DefaultLimits)
		if err := os.Link(dir+"/older", dir+"/ws/new"); err != nil {
			t.Fatal(err)
		}
		changes, _ := Diff(before, take(t, dir+"/ws", read, DefaultLimits))
		same(t, "a new name", described(changes), "added new")
		// In the place of another file, of the same size, with its times.
		if err := errors.Join(os.WriteFile(dir+"/swap", []byte("TEXT"), 0o644), os.Chtimes(dir+"/swap", long, long),
			os.Chtimes(dir+"/ws/f", long, long)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // the system's clock of files has coarse ticks
		before = take(t, dir+"/ws", read, DefaultLimits)
		if err := os.Rename(dir+"/swap", dir+"/ws/f"); err != nil {
			t.Fatal(err)
		}
		changes, _ = Diff(before, take(t, dir+"/ws", read, DefaultLimits))
		same(t, "an old name", described(changes), "modified f")
		if err := errors.Join(os.Remove(dir+"/ws/new"), os.WriteFile(dir+"/ws/f", []byte("text"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
