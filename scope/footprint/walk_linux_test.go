package footprint

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

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
