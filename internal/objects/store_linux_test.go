package objects

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "objects")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return openStore(t, dir), dir
}

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	s, err := New(fd)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// age makes a file old enough for the memo.
func age() { time.Sleep((tick + 20_000_000) * time.Nanosecond) }

func write(t *testing.T, name string, b []byte) *os.File {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// files are the names of all regular files in the store, and their bytes must be
// what their names say.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if fi.IsDir() {
			if fi.Mode().Perm() != 0o700 {
				t.Errorf("%s: mode %v, want 0700", p, fi.Mode())
			}
			return nil
		}
		if fi.Mode() != 0o600 {
			t.Errorf("%s: mode %v, want 0600", p, fi.Mode())
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if want := Name(sha256.Sum256(b)); filepath.ToSlash(rel) != want {
			t.Errorf("file %s holds bytes of %s", rel, want)
		}
		out = append(out, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(b)
	return b
}

func TestPutAndReadBack(t *testing.T) {
	for _, n := range []int{0, 1, 4096, chunk - 1, chunk, chunk + 1, 3*chunk + 17} {
		s, dir := newStore(t)
		content := random(n)
		f := write(t, filepath.Join(t.TempDir(), "f"), content)
		if _, err := f.Seek(1, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got, err := s.Put(int(f.Fd()), false)
		if err != nil {
			t.Fatal(n, err)
		}
		if got.SHA256 != sha256.Sum256(content) || got.Size != uint64(n) || got.Unstable {
			t.Errorf("%d bytes: got %+v", n, got)
		}
		if pos, _ := f.Seek(0, io.SeekCurrent); pos != 1 {
			t.Errorf("%d bytes: position moved to %d", n, pos)
		}
		if l := files(t, dir); len(l) != 1 {
			t.Errorf("%d bytes: store holds %v", n, l)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := read(root, got.SHA256, int64(n))
		if err != nil || !bytes.Equal(b, content) {
			t.Errorf("%d bytes: read back %d bytes, %v", n, len(b), err)
		}
		if n > 0 {
			if _, err := read(root, got.SHA256, int64(n)-1); err == nil {
				t.Errorf("%d bytes: ReadAll ignores its bound", n)
			}
		}
		root.Close()
	}
}

func TestHolesStayHoles(t *testing.T) {
	s, dir := newStore(t)
	name := filepath.Join(t.TempDir(), "sparse")
	f := write(t, name, []byte("start"))
	const size = 64 << 20
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	got, err := s.Put(int(f.Fd()), false)
	if err != nil || got.Size != size {
		t.Fatal(got, err)
	}
	files(t, dir)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, Name(got.SHA256)), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 > size/8 {
		t.Errorf("object has %d bytes in %d blocks, want a sparse file", st.Size, st.Blocks)
	}
}

func TestSameContentOnce(t *testing.T) {
	s, dir := newStore(t)
	tmp := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		f := write(t, filepath.Join(tmp, strconv.Itoa(i)), random(2*chunk))
		wg.Go(func() {
			if _, err := s.Put(int(f.Fd()), false); err != nil {
				t.Error(err)
			}
			if _, err := s.PutBytes([]byte("small")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if l := files(t, dir); len(l) != 2 {
		t.Errorf("store holds %v, want 2 objects and no temporary file", l)
	}
}

func TestRefusals(t *testing.T) {
	s, dir := newStore(t)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := s.Put(int(d.Fd()), false); err == nil {
		t.Error("a directory was stored")
	}
	name := filepath.Join(t.TempDir(), "huge")
	f := write(t, name, nil)
	if err := os.Truncate(name, MaxSize+1); err != nil {
		t.Logf("no file of %d bytes here: %v", int64(MaxSize+1), err)
	} else if _, err := s.Put(int(f.Fd()), false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("file above MaxSize: %v, want ErrTooLarge", err)
	}
	// Zeros that take no space are refused much earlier. The content is at the end,
	// so that the answer is not that of the first hole alone.
	sparse, err := os.OpenFile(name, os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if _, err := sparse.WriteAt([]byte("end"), MaxSparse); err != nil {
		t.Logf("no file of %d bytes here: %v", int64(MaxSparse+3), err)
	} else {
		if _, err := sparse.Seek(7, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(int(sparse.Fd()), false); !errors.Is(err, ErrTooLarge) {
			t.Errorf("sparse file above MaxSparse: %v, want ErrTooLarge", err)
		}
		if at, err := sparse.Seek(0, 1); at != 7 || err != nil {
			t.Errorf("position %d after Put (%v), want 7", at, err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(int(d.Fd())); err == nil {
		t.Error("a store that others can read was accepted")
	}
}

// The umask of a broker's thread is the program's; objects stay readable to their
// owner and to nobody else.
func TestUmaskHasNoEffect(t *testing.T) {
	_, dir := newStore(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with its own umask
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		unix.Umask(0o777)
		s := openStore(t, dir)
		_, err := s.PutBytes([]byte("x"))
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l := files(t, dir); len(l) != 1 { // checks the modes
		t.Errorf("store holds %v", l)
	}
}

func TestNoSymbolicLinkIsFollowed(t *testing.T) {
	s, dir := newStore(t)
	outside := t.TempDir()
	sum := sha256.Sum256([]byte("secret"))
	if err := os.Mkdir(filepath.Join(dir, Name(sum)[:2]), 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(outside, "target")
	if err := os.Symlink(target, filepath.Join(dir, Name(sum))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBytes([]byte("secret")); err == nil {
		t.Error("a link in place of an object was taken for it")
	}
	if err := os.WriteFile(target, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := read(root, sum, 100); err == nil {
		t.Error("a link was read as an object")
	}
}

func TestCorruptObject(t *testing.T) {
	s, dir := newStore(t)
	sum, err := s.PutBytes([]byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Name(sum)), []byte("Content"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var corrupt *ErrCorrupt
	if _, err := read(root, sum, 100); !errors.As(err, &corrupt) || corrupt.Want != sum || corrupt.Got != sha256.Sum256([]byte("Content")) {
		t.Errorf("changed object: %v, want *ErrCorrupt", err)
	}
}

// A full disk is an error, and nothing half-written becomes visible. The disk is
// a small tmpfs in a mount namespace of this test binary, run again.
func TestDiskFull(t *testing.T) {
	const v = "CLEANRUN_OBJECTS_FULL"
	if dir := os.Getenv(v); dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
			t.Skipf("no tmpfs in a user namespace: %v", err)
		}
		s := openStore(t, dir)
		if _, err := s.PutBytes(random(64 << 10)); err != nil {
			t.Fatal("positive control:", err)
		}
		big := write(t, filepath.Join(t.TempDir(), "big"), random(4<<20))
		small := write(t, filepath.Join(t.TempDir(), "small"), random(1<<20))
		for _, f := range []*os.File{big, small} {
			if got, err := s.Put(int(f.Fd()), false); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("full disk: got %+v, %v, want ENOSPC", got, err)
			}
		}
		if l := files(t, dir); len(l) != 1 {
			t.Errorf("after a full disk the store holds %v", l)
		}
		if got, err := s.PutBytes(random(1000)); err != nil {
			t.Errorf("after the space was given back: %v, %v", got, err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestDiskFull$", "-test.v")
	cmd.Env = append(os.Environ(), v+"="+t.TempDir())
	cmd.SysProcAttr = inNamespaces()
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("no user namespaces: %v", err)
	}
	if err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func inNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{21}, // CAP_SYS_ADMIN in the new namespace, to mount
	}
}

// Sync looks at each object when there are few; an object that went missing is
// an error then.
func TestSync(t *testing.T) {
	for _, n := range []int{0, 3, maxFresh + 5} {
		s, dir := newStore(t)
		for i := range n {
			if _, err := s.PutBytes([]byte(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sync(); err != nil {
			t.Errorf("%d objects: %v", n, err)
		}
		if l := files(t, dir); len(l) != n {
			t.Errorf("got %d objects, want %d", len(l), n)
		}
	}
	s, dir := newStore(t)
	sum, err := s.PutBytes([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, Name(sum))); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the missing object", err)
	}
}

func read(root *os.Root, sum Sum, max int64) ([]byte, error) {
	return Source{Root: root}.ReadAll(sum, max)
}
