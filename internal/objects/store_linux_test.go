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
	"slices"
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

func TestMemo(t *testing.T) {
	s, _ := newStore(t)
	name := filepath.Join(t.TempDir(), "f")
	f := write(t, name, []byte("version 1"))
	put := func(live bool) Sum {
		t.Helper()
		got, err := s.Put(int(f.Fd()), live)
		if err != nil {
			t.Fatal(err)
		}
		return got.SHA256
	}
	put(false)
	if len(s.memo) != 0 {
		t.Error("a file changed a moment ago went into the memo: its next change may leave the same times")
	}
	age()
	first := put(false)
	if len(s.memo) != 1 {
		t.Fatal("an old file did not go into the memo")
	}
	// Same size, and the time of modification forged back: ctime gives it away.
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("version 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if put(false) == first {
		t.Error("changed content with a forged mtime was taken from the memo")
	}
	// A live file is read each time, also when the memo has its identity.
	age()
	second := put(false)
	for id := range s.memo {
		s.memo[id] = seen{sum: Sum{1}}
	}
	if put(false) != (Sum{1}) {
		t.Error("positive control: the memo is not used at all")
	}
	if put(true) != second {
		t.Error("a live file was taken from the memo")
	}
}

// A mapped write changes no time stamp when it happens, which is why callers
// say live. This shows that it is needed.
func TestMappedWriteNeedsLive(t *testing.T) {
	s, _ := newStore(t)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, 4096))
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	m[0] = 1 // the page is writable from here on
	age()
	if _, err := s.Put(int(f.Fd()), false); err != nil {
		t.Fatal(err)
	}
	m[0] = 2
	want := sha256.Sum256(append([]byte{2}, make([]byte, 4095)...))
	got, err := s.Put(int(f.Fd()), true)
	if err != nil || got.SHA256 != want {
		t.Errorf("live: got %x, %v, want the mapped content", got.SHA256, err)
	}
}

func TestUnstable(t *testing.T) {
	s, dir := newStore(t)
	name := filepath.Join(t.TempDir(), "f")
	f := write(t, name, random(32*chunk))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.WriteAt([]byte{byte(i)}, int64(i*4099%(32*chunk)))
			}
		}
	})
	seen := false
	for range 20 {
		got, err := s.Put(int(f.Fd()), false)
		if err != nil {
			t.Fatal(err)
		}
		seen = seen || got.Unstable
	}
	close(stop)
	wg.Wait()
	if !seen {
		t.Error("a file that is written all the time was never unstable")
	}
	files(t, dir) // every object, mixtures too, has the digest of its name
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

func benchmarkPut(b *testing.B, size int, live bool) {
	dir := b.TempDir()
	name := filepath.Join(b.TempDir(), "f")
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(name, random(size), 0o600)); err != nil {
		b.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	s, err := New(int(d.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	age()
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := s.Put(int(f.Fd()), live); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutKnown(b *testing.B) { benchmarkPut(b, 4096, false) }
func BenchmarkPutLive(b *testing.B)  { benchmarkPut(b, 4096, true) }
func BenchmarkPutLarge(b *testing.B) { benchmarkPut(b, 64<<20, true) }

func inNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{21}, // CAP_SYS_ADMIN in the new namespace, to mount
	}
}

// Given contents are hashed and not stored by Put, small or large; anything else
// is, also what has the size of a given content, and what comes as bytes.
func TestGivenIsNotStored(t *testing.T) {
	s, dir := newStore(t)
	small, large := random(5000), random(3*chunk+17)
	s.Given(map[Sum]uint64{sha256.Sum256(small): uint64(len(small)), sha256.Sum256(large): uint64(len(large))})
	put := func(b []byte) {
		t.Helper()
		got, err := s.Put(int(write(t, filepath.Join(t.TempDir(), "f"), b).Fd()), false)
		if err != nil || got.SHA256 != sha256.Sum256(b) || got.Size != uint64(len(b)) {
			t.Errorf("%d bytes: got %+v, %v", len(b), got, err)
		}
	}
	put(small)
	put(large)
	if l := files(t, dir); len(l) != 0 {
		t.Errorf("got %v stored, want nothing", l)
	}
	other := bytes.Clone(large)
	other[len(other)-1] ^= 1
	put(other)
	put(small[1:])
	if _, err := s.PutBytes(small); err != nil {
		t.Fatal(err)
	}
	want := []string{Name(sha256.Sum256(other)), Name(sha256.Sum256(small[1:])), Name(sha256.Sum256(small))}
	got := files(t, dir)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v stored, want %v", got, want)
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
