package eval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/prune"
)

// put stores a content in the run folder of an attempt, as the recorder does.
func put(t *testing.T, d *Dir, c Cell, content []byte) string {
	t.Helper()
	sum := hex.EncodeToString(digest(content))
	name := filepath.Join(d.Dir, c.RunDir(), "objects", sum[:2], sum)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func digest(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func share(t *testing.T, d *Dir, c Cell, want int) {
	t.Helper()
	if got, err := d.Share(c); err != nil || got != int64(want) {
		t.Errorf("%s: got %d bytes, %v, want %d", c, got, err, want)
	}
}

// Equal large contents are kept once; each run folder reads its own, and one that is
// pruned takes nothing from another.
func TestShare(t *testing.T) {
	d := open(t, private(t), plan("a", "b"))
	defer d.Close()
	large, other, small := bytes.Repeat([]byte("x"), 600<<10), bytes.Repeat([]byte("y"), 300<<10), []byte("small")
	one, two, three := Cell{"a", 1, 1}, Cell{"b", 1, 1}, Cell{"a", 2, 1}
	l1, s1 := put(t, d, one, large), put(t, d, one, small)
	share(t, d, one, 0)
	l2, s2, o2 := put(t, d, two, large), put(t, d, two, small), put(t, d, two, other)
	share(t, d, two, len(large))
	share(t, d, Cell{"b", 2, 1}, 0) // stored nothing
	if !sameFile(t, l1, l2) || sameFile(t, s1, s2) || sameFile(t, l2, o2) {
		t.Error("want the large content under one inode, and nothing else")
	}
	if st, err := os.Stat(l2); err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("got %v, %v, want mode 0400", st.Mode(), err)
	}
	share(t, d, two, 0) // again: nothing changes
	if left, err := filepath.Glob(filepath.Join(d.Dir, two.RunDir(), "objects", "*", "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	// What is pruned there is still here, and the next one takes its place.
	if err := os.WriteFile(filepath.Join(d.Dir, one.RunDir(), "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := prune.Empty(filepath.Join(d.Dir, one.RunDir()), "objects", false)
	if err != nil || rep.Bytes >= uint64(len(large)) {
		t.Errorf("pruned %d bytes, %v, want no more than the small file's: the large one is kept elsewhere", rep.Bytes, err)
	}
	if b, err := os.ReadFile(l2); err != nil || !bytes.Equal(b, large) {
		t.Errorf("after pruning the other: %d bytes, %v", len(b), err)
	}
	l3 := put(t, d, three, large)
	share(t, d, three, 0)
	if sameFile(t, l2, l3) {
		t.Error("linked to a run folder that was pruned")
	}
}

// One run's content cannot become what another recorded: a file that was changed is
// shared with nobody, in either order, and is found by its digest. The control is
// the same with the file unchanged, in TestShare.
func TestShareChanged(t *testing.T) {
	content := bytes.Repeat([]byte("recorded"), 8<<10)
	changed := bytes.Clone(content)
	changed[len(changed)-1] ^= 1
	for _, c := range []struct {
		name string
		with []byte
	}{{"a byte", changed}, {"shorter", content[:len(content)-1]}, {"longer", append(bytes.Clone(content), 0)}} {
		for _, first := range []bool{true, false} {
			d := open(t, private(t), plan("a", "b"))
			cells := []Cell{{"a", 1, 1}, {"b", 1, 1}}
			good, bad := cells[0], cells[1]
			if first {
				good, bad = bad, good
			}
			name := put(t, d, good, content)
			if err := os.WriteFile(put(t, d, bad, content), c.with, 0o600); err != nil {
				t.Fatal(err)
			}
			share(t, d, cells[0], 0)
			share(t, d, cells[1], 0)
			if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%s, first %v: the other run's content is now %d bytes, %v", c.name, first, len(b), err)
			}
			for cell, ok := range map[Cell]bool{good: true, bad: false} {
				root, err := os.OpenRoot(filepath.Join(d.Dir, cell.RunDir(), "objects"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = objects.Source{Root: root}.ReadAll(objects.Sum(digest(content)), 1<<20)
				if (err == nil) != ok {
					t.Errorf("%s, first %v: %s: got %v, want read %v", c.name, first, cell, err, ok)
				}
				root.Close()
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A link in a run folder leads nowhere.
func TestShareLink(t *testing.T) {
	d := open(t, private(t), plan("a", "b"))
	defer d.Close()
	content := bytes.Repeat([]byte("outside"), 8<<10)
	outside := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(outside, content, 0o600); err != nil {
		t.Fatal(err)
	}
	one := put(t, d, Cell{"a", 1, 1}, content)
	share(t, d, Cell{"a", 1, 1}, 0)
	two := put(t, d, Cell{"b", 1, 1}, content)
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, two); err != nil {
		t.Skip(err)
	}
	share(t, d, Cell{"b", 1, 1}, 0)
	if to, err := os.Readlink(two); err != nil || to != outside {
		t.Errorf("got %q, %v, want the link as it was", to, err)
	}
	if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("outside: got %v, %v, want it untouched", st.Mode(), err)
	}
	if st, err := os.Lstat(one); err != nil || !st.Mode().IsRegular() {
		t.Errorf("got %v, %v", st.Mode(), err)
	}
}
