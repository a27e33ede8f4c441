package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// many makes an upper and a lower layer with n files that differ, in order of their
// names, and more kinds of changes among them.
func many(t testing.TB, n int) (upper, lower string, after map[string]string) {
	t.Helper()
	tmp := t.TempDir()
	upper, lower = tmp+"/upper", tmp+"/lower"
	after = map[string]string{}
	write := func(p, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		p := fmt.Sprintf("d%d/f%04d", i/50, i)
		if i%3 > 0 {
			write(lower+"/"+p, "old "+p)
		}
		after[p] = "new content of " + p
		write(upper+"/"+p, after[p])
		if i%50 == 7 { // among them a folder, a link and what takes another's place
			for name, target := range map[string]string{"/link": "f", "/x": "y"} {
				if err := os.Symlink(target, upper+"/"+p+name[1:]); err != nil {
					t.Fatal(err)
				}
			}
			write(lower+"/"+p+"-file", "a file")
			write(upper+"/"+p+"-file/new", "n")
			write(lower+"/"+p+"-folder/old", "o")
			write(upper+"/"+p+"-folder", "file")
			write(upper+"/"+p+"-new/deep/g", "g")
		}
	}
	return upper, lower, after
}

// whole fails unless each file is old or new, and returns how many are new and how
// many reserved names there are.
func whole(t *testing.T, dir string, after map[string]string) (made, left int) {
	t.Helper()
	for p, want := range after {
		b, err := os.ReadFile(dir + "/" + p)
		switch got := string(b); {
		case err == nil && got == want:
			made++
		case errors.Is(err, fs.ErrNotExist), err == nil && got == "old "+p:
		default:
			t.Errorf("%s: got %q, %v, want it old or new", p, got, err)
		}
	}
	return made, reserved(t, dir)
}

func reserved(t *testing.T, dir string) (n int) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(p), tempName) {
			n++
		}
		return err
	}))
	return n
}

// finish applies what is missing and compares with the upper layer.
func finish(t *testing.T, upper, lower string) {
	t.Helper()
	if _, _, err := Apply(open(t, upper), open(t, lower)); err != nil {
		t.Fatal(err)
	}
	if d := diff(snapshot(t, upper), snapshot(t, lower)); len(d) > 0 {
		t.Errorf("after Apply: %q", d)
	}
}

// Each file is synced once before it is renamed, and many at a time.
func TestSyncsAreTogether(t *testing.T) {
	upper, lower, after := many(t, 2*maxBatch+10)
	const together = 8
	var syncs atomic.Int64
	var synced sync.Map // by name; the names of many are different
	all := make(chan struct{})
	renames := 0
	s := &steps{
		sync: func(f *os.File) error {
			if syncs.Add(1) == together {
				close(all)
			}
			select {
			case <-all:
				synced.Store(f.Name(), true)
				return f.Sync()
			case <-time.After(time.Minute):
				return fmt.Errorf("got %d syncs at a time, want %d", syncs.Load(), together)
			}
		},
		rename: func(fromDir int, from string, toDir int, to string) error {
			if len(to) == len("f0000") && to[0] == 'f' {
				if _, done := synced.Load(to); !done {
					t.Errorf("%s was renamed to its place before it was synced", to)
				}
				renames++
			}
			return unix.Renameat(fromDir, from, toDir, to)
		},
	}
	_, _, err := apply(open(t, upper), open(t, lower), s)
	must(t, err)
	files := int64(0)
	for _, one := range snapshot(t, upper) {
		if one.mode.IsRegular() {
			files++
		}
	}
	if got := syncs.Load(); got != files {
		t.Errorf("got %d syncs, want one for each of %d files", got, files)
	}
	if renames != len(after) {
		t.Errorf("got %d renames, want %d", renames, len(after))
	}
	finish(t, upper, lower)
}

// What cannot be written ahead is written alone; what cannot be written at all is an
// error that names it. What comes before is made then, and what comes after is not.
func TestApplyNamesTheFileThatFails(t *testing.T) {
	upper, lower, after := many(t, maxBatch+20)
	victim := "d1/f0060"
	var failures, tries atomic.Int64
	s := &steps{rename: unix.Renameat, sync: func(f *os.File) error {
		if f.Name() == filepath.Base(victim) && tries.Add(1) <= failures.Load() {
			return unix.EIO
		}
		return f.Sync()
	}}
	failures.Store(2)
	applied, _, err := apply(open(t, upper), open(t, lower), s)
	if want := "apply " + victim + " (added): input/output error"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if made, left := whole(t, lower, after); made != 60 || left != 0 {
		t.Errorf("got %d new files and %d reserved names, want the 60 before the one that fails and none", made, left)
	}
	for _, c := range applied {
		if c.Path >= victim && !c.Mode.IsDir() {
			t.Errorf("%s (%s) is said to be applied, after the one that fails", c.Path, c.Kind)
		}
	}
	// Once more: the first try of the same file fails, and it is written alone.
	tries.Store(0)
	failures.Store(1)
	_, _, err = apply(open(t, upper), open(t, lower), s)
	must(t, err)
	if tries.Load() != 2 {
		t.Errorf("got %d syncs of %s, want 2", tries.Load(), victim)
	}
	finish(t, upper, lower)
}

// A process that is killed leaves each file old or new and at most one reserved name,
// which the next call removes.
func TestApplyKilledAtAnyMoment(t *testing.T) {
	const dirs, at = "CLEANRUN_OVERLAY_KILL_DIRS", "CLEANRUN_OVERLAY_KILL_AT"
	if d := os.Getenv(dirs); d != "" {
		step, n, _ := strings.Cut(os.Getenv(at), " ")
		left, err := strconv.Atoi(n)
		must(t, err)
		var count atomic.Int64
		killAt := func(s string) {
			if s == step && count.Add(1) == int64(left) {
				must(t, unix.Kill(os.Getpid(), unix.SIGKILL))
				time.Sleep(time.Minute) // the others go on until it comes
			}
		}
		_, _, err = apply(open(t, d+"/upper"), open(t, d+"/lower"), &steps{
			sync: func(f *os.File) error { killAt("sync"); return f.Sync() },
			rename: func(fromDir int, from string, toDir int, to string) error {
				killAt("rename")
				return unix.Renameat(fromDir, from, toDir, to)
			},
		})
		t.Fatalf("not killed: %v", err)
	}
	for _, c := range []struct {
		at   string
		left int
	}{{"sync 200", 0}, {"rename 1", 1}, {"rename 170", 1}, {"rename 300", 1}} {
		upper, lower, after := many(t, 2*maxBatch+10)
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), dirs+"="+filepath.Dir(upper), at+"="+c.at)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.String() != "signal: killed" {
			t.Fatalf("%s: got %v, want a killed process\n%s", c.at, err, out)
		}
		made, left := whole(t, lower, after)
		if left != c.left {
			t.Errorf("%s: got %d reserved names, want %d", c.at, left, c.left)
		}
		if made == len(after) {
			t.Errorf("%s: all files are new: the process was killed too late to show anything", c.at)
		}
		finish(t, upper, lower)
	}
}

// A full disk is an error that names the file, and costs no old one. Room that a
// removed file gives is used, though what was written ahead had none.
func TestApplyOnAFullDisk(t *testing.T) {
	if !inside(t) {
		return
	}
	tmp := t.TempDir()
	upper, lower := tmp+"/upper", tmp+"/lower"
	must(t, os.Mkdir(upper, 0o755), os.Mkdir(lower, 0o755))
	if err := unix.Mount("tmpfs", lower, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer unix.Unmount(lower, unix.MNT_DETACH)
	after := map[string]string{}
	for i := range 12 { // 1.2 MB of new ones beside 0.3 MB of old ones
		p := fmt.Sprintf("f%02d", i)
		after[p] = strings.Repeat(p, 100_000/len(p))
		put(t, upper+"/"+p, after[p])
		if i < 3 || i == 11 {
			put(t, lower+"/"+p, "old "+p)
		}
	}
	put(t, lower+"/a-gone", strings.Repeat("x", 300_000))
	whiteout := unix.Mknod(upper+"/a-gone", unix.S_IFCHR|0o600, 0)
	_, _, err := Apply(open(t, upper), open(t, lower))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "apply f") {
		t.Errorf("got %v, want ENOSPC of a named file", err)
	}
	made, left := whole(t, lower, after)
	if room := 10; whiteout == nil && made != room || left != 0 {
		t.Errorf("got %d new files and %d reserved names, want the %d that there is room for and none", made, left, room)
	}
	if b, _ := os.ReadFile(lower + "/f11"); string(b) != "old f11" {
		t.Errorf("f11: got %.20q, want it old", b)
	}
	must(t, unix.Mount("tmpfs", lower, "tmpfs", unix.MS_REMOUNT, "size=2m"))
	if _, _, err := Apply(open(t, upper), open(t, lower)); err != nil {
		t.Fatal(err)
	}
	if made, left := whole(t, lower, after); made != len(after) || left != 0 {
		t.Errorf("with room: got %d new files and %d reserved names, want %d and none", made, left, len(after))
	}
}

// What was written ahead does not take the room of what comes before it.
func TestApplyWithLittleRoom(t *testing.T) {
	if !inside(t) {
		return
	}
	tmp := t.TempDir()
	upper, lower := tmp+"/upper", tmp+"/lower"
	must(t, os.Mkdir(upper, 0o755), os.Mkdir(lower, 0o755))
	if err := unix.Mount("tmpfs", lower, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer unix.Unmount(lower, unix.MNT_DETACH)
	put(t, lower+"/a", strings.Repeat("o", 200_000))
	put(t, upper+"/a", strings.Repeat("a", 300_000))
	put(t, upper+"/b", strings.Repeat("b", 200_000))
	var taken atomic.Bool // of the room; a is tried twice then
	ahead := make(chan struct{})
	_, _, err := apply(open(t, upper), open(t, lower), &steps{rename: unix.Renameat, sync: func(f *os.File) error {
		switch {
		case f.Name() == "b" && !taken.Load():
			close(ahead)
		case f.Name() == "a" && !taken.Load():
			select {
			case <-ahead:
			case <-time.After(time.Minute):
				t.Error("b was not written ahead")
			}
			taken.Store(true)
			// Somebody else takes what there is: 148,000 bytes are left, and those of b.
			return errors.Join(f.Truncate(0), os.WriteFile(lower+"/ballast", make([]byte, 500_000), 0o600), unix.ENOSPC)
		}
		return f.Sync()
	}})
	if err != nil {
		t.Fatalf("got %v, want a to be written where b was", err)
	}
	must(t, os.Remove(lower+"/ballast"))
	finish(t, upper, lower)
}

// A new folder does not overtake what is deleted before it.
func TestDeletedBeforeNewFolder(t *testing.T) {
	tmp := t.TempDir()
	upper, lower := tmp+"/upper", tmp+"/lower"
	put(t, lower+"/A", "gone")
	put(t, upper+"/a/f", "new")
	if err := unix.Mknod(upper+"/A", unix.S_IFCHR|0o600, 0); err != nil {
		t.Skipf("no whiteouts here: %v", err)
	}
	_, _, err := apply(open(t, upper), open(t, lower), &steps{sync: (*os.File).Sync, rename: func(fromDir int, from string, toDir int, to string) error {
		if _, err := os.Lstat(lower + "/A"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s comes before A is deleted: %v", to, err)
		}
		return unix.Renameat(fromDir, from, toDir, to)
	}})
	must(t, err)
}

// A run that uses the reserved names itself gets its files applied.
func TestApplyReservedNamesOfTheRun(t *testing.T) {
	tmp := t.TempDir()
	upper, lower := tmp+"/upper", tmp+"/lower"
	for _, p := range []string{tempName, tempName + "~", "a", "b"} {
		put(t, upper+"/"+p, "of the run: "+p)
	}
	put(t, lower+"/a", "old")
	finish(t, upper, lower)
	put(t, upper+"/a", "changed since")
	finish(t, upper, lower)
}

// 3,000 files of one line, as from a code generator.
func BenchmarkApply(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		upper, lower, _ := many(b, 3000)
		up, err := os.Open(upper)
		if err != nil {
			b.Fatal(err)
		}
		low, err := os.Open(lower)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, _, err := Apply(int(up.Fd()), int(low.Fd())); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := errors.Join(up.Close(), low.Close()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
