package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func newStore(t *testing.T) (*Store, string) {
	t.Helper()
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(tmp, "store")
	s, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

// refused fails unless err is an *Error that tells got, and what to do.
func refused(t *testing.T, err error, got string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Got, got) || e.Next == "" {
		t.Errorf("got %v, want a refusal because of %q that says what to do", err, got)
	}
}

func TestAddAndGet(t *testing.T) {
	s, dir := newStore(t)
	for _, content := range [][]byte{[]byte("a receipt"), {}, bytes.Repeat([]byte("large"), 1<<20)} {
		d, fresh, err := s.Add(content)
		if err != nil || !fresh || d != sha256.Sum256(content) {
			t.Fatalf("got %v, %v, %v", d, fresh, err)
		}
		if _, fresh, err := s.Add(content); err != nil || fresh {
			t.Errorf("second time: got fresh %v, %v, want to be told that it is there", fresh, err)
		}
		if b, err := s.Get(d); err != nil || !bytes.Equal(b, content) {
			t.Errorf("read back: %v", err)
		}
		st, err := os.Lstat(s.Path(d))
		if err != nil || runtime.GOOS != "windows" && st.Mode() != 0o600 {
			t.Errorf("got %v, %v, want mode 0600", st.Mode(), err)
		}
	}
	if st, err := os.Lstat(dir); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want mode 0700", st.Mode(), err)
	}
	n := 0
	for _, err := range s.All() {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if entries, err := os.ReadDir(dir); n != 3 || err != nil || len(entries) != 3 {
		t.Errorf("listed %d files, and the folder holds %v", n, entries)
	}
	_, err := s.Get(Digest{1})
	refused(t, err, "no sha256:")
	again, err := Create(dir) // it is there already
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestConcurrentAdds(t *testing.T) {
	s, dir := newStore(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 16 {
		wg.Go(func() {
			_, fresh, err := s.Add([]byte("the same"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if fresh {
				made++
			}
		})
	}
	wg.Wait()
	if entries, err := os.ReadDir(dir); made != 1 || err != nil || len(entries) != 1 {
		t.Errorf("made %d times, the folder holds %v, want once", made, entries)
	}
}

func TestParseDigest(t *testing.T) {
	d := Digest(sha256.Sum256([]byte("x")))
	if got, err := ParseDigest(d.String()); err != nil || got != d {
		t.Errorf("got %v, %v", got, err)
	}
	for _, s := range []string{"", "sha256:", d.String()[7:], strings.ToUpper(d.String()), d.String() + "0", "sha256:" + d.String(), d.String() + "\n", "../" + d.String(), "SHA256:" + d.String()[7:]} {
		if _, err := ParseDigest(s); err == nil {
			t.Errorf("%q: got no error", s)
		}
	}
}

// What stands under a name must be the file that was written once.
func TestPlanted(t *testing.T) {
	content := []byte("a receipt")
	d := Digest(sha256.Sum256(content))
	for name, c := range map[string]struct {
		plant func(t *testing.T, path string)
		got   string
	}{
		"other bytes": {func(t *testing.T, p string) { must(t, os.WriteFile(p, []byte("A receipt"), 0o600)) }, "bytes with sha256:"},
		"empty":       {func(t *testing.T, p string) { must(t, os.WriteFile(p, nil, 0o600)) }, "bytes with sha256:"},
		"folder":      {func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o700)) }, "folder"},
		"link to the right bytes": {func(t *testing.T, p string) {
			real := filepath.Join(filepath.Dir(filepath.Dir(p)), "real")
			must(t, os.WriteFile(real, content, 0o600))
			must(t, os.Symlink(real, p))
		}, "symbolic link"},
		"link inside the store": {func(t *testing.T, p string) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(p), "x"), content, 0o600))
			must(t, os.Symlink("x", p))
		}, "symbolic link"},
		"dangling link": {func(t *testing.T, p string) { must(t, os.Symlink("nowhere", p)) }, "symbolic link"},
		"readable by others": {func(t *testing.T, p string) {
			must(t, os.WriteFile(p, content, 0o600))
			must(t, os.Chmod(p, 0o644))
		}, "mode 0644"},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && name != "other bytes" {
				t.Skip("no modes and no links here")
			}
			s, dir := newStore(t)
			c.plant(t, filepath.Join(dir, d.String()[len(Prefix):]))
			_, err := s.Get(d)
			refused(t, err, c.got)
			_, fresh, err := s.Add(content)
			refused(t, err, c.got)
			if fresh {
				t.Error("told to be fresh")
			}
			other, err := os.ReadDir(dir)
			if err != nil || len(other) > 2 {
				t.Errorf("left %v behind", other)
			}
		})
	}
	t.Run("positive control", func(t *testing.T) {
		s, dir := newStore(t)
		must(t, os.WriteFile(filepath.Join(dir, d.String()[len(Prefix):]), content, 0o600))
		if _, fresh, err := s.Add(content); err != nil || fresh {
			t.Errorf("the right file: got %v, %v", fresh, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoLinkOnTheWay(t *testing.T) {
	_, dir := newStore(t)
	up := filepath.Dir(dir)
	must(t, os.Mkdir(filepath.Join(up, "a"), 0o700))
	link := filepath.Join(up, "link")
	if err := os.Symlink(up, link); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	for _, p := range []string{filepath.Join(link, "store"), filepath.Join(up, "a") + "/../link/store"} {
		_, err := Open(p)
		refused(t, err, "symbolic link")
		_, err = walk(filepath.Clean(p)) // as on other systems
		refused(t, err, "symbolic link")
		_, err = Create(filepath.Join(filepath.Dir(p), "new"))
		refused(t, err, "symbolic link")
	}
	must(t, os.Symlink(dir, filepath.Join(up, "leaf")))
	_, err := Open(filepath.Join(up, "leaf"))
	refused(t, err, "symbolic link")
	if _, err := os.Lstat(filepath.Join(up, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a refused store was made")
	}
	r, err := walk(dir) // positive control
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	must(t, os.WriteFile(filepath.Join(up, "file"), nil, 0o600))
	_, err = Open(filepath.Join(up, "file"))
	refused(t, err, "a file")
}

func TestModeOfFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes here")
	}
	_, dir := newStore(t)
	for _, m := range []fs.FileMode{0o755, 0o701, 0o770} {
		must(t, os.Chmod(dir, m))
		_, err := Open(dir)
		refused(t, err, "mode")
	}
}

func TestStrangersAreListed(t *testing.T) {
	s, dir := newStore(t)
	d, _, err := s.Add([]byte("x"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, ".new-CUTOFF"), nil, 0o600))
	good, bad := 0, 0
	for got, err := range s.All() {
		if err != nil {
			refused(t, err, "no digest")
			bad++
		} else if got == d {
			good++
		}
	}
	if good != 1 || bad != 1 {
		t.Errorf("got %d files and %d strangers, want 1 and 1", good, bad)
	}
}
