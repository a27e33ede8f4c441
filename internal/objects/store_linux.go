package objects

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Store writes objects. Its methods may be called from several threads; they
// use no path but those below the store's descriptor, so they work after a
// change of root, and they do not depend on the thread's umask.
type Store struct {
	dir   int
	temp  atomic.Uint64
	pool  sync.Pool // *[chunk]byte
	made  [256]atomic.Bool
	given map[Sum]uint64 // kept by others, with their sizes
	sizes map[int64]bool // of given
	mu    sync.Mutex
	known map[Sum]struct{}
	memo  map[identity]Sum
	fresh []Sum // not synced; maxFresh and more are not listed
}

// identity of a file version. Only the kernel sets ctime, so a program cannot
// give changed content the identity of the old.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

const (
	chunk = 1 << 20
	// hashChunk of a large file stays in the processor's cache between reading,
	// hashing and writing.
	hashChunk = 128 << 10
	// maxMemo bounds the memory of both tables; beyond it they start anew.
	maxMemo = 1 << 18
	// maxFresh bounds the objects that are synced one by one.
	maxFresh = 32
	// tick covers the granularity of file times (a jiffy, at most 10 ms) with room:
	// two changes within one tick leave the same times.
	tick = 50_000_000
)

// New writes into the directory dir, an open descriptor that stays the caller's.
func New(dir int) (*Store, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("object store: mode %#o, want a directory of mode 0700", st.Mode)
	}
	s := &Store{dir: dir, known: map[Sum]struct{}{}, memo: map[identity]Sum{}}
	s.pool.New = func() any { return new([chunk]byte) }
	return s, nil
}

// Given tells the Store of contents, with their sizes, that are kept elsewhere: Put
// hashes them and stores nothing. PutBytes stores them all the same. Call it
// before anything is put; the map is the Store's from then on.
func (s *Store) Given(sizes map[Sum]uint64) {
	s.given, s.sizes = sizes, make(map[int64]bool, len(sizes))
	for _, n := range sizes {
		s.sizes[int64(n)] = true
	}
}

// A Stored is what Put saw. Size bytes were read, and kept unless they are given.
type Stored struct {
	SHA256   Sum
	Size     uint64
	Unstable bool // the file changed while it was read: the object is one mixture of its versions

	Mtim, Ctim unix.Timespec // of the version
	Settled    bool          // a later change of the file will show in these times
}

// ErrTooLarge is the error for a file above MaxSize, or above MaxSparse and mostly
// holes.
var ErrTooLarge = errors.New("file is larger than the object store takes")

// Put stores the content of a regular file, read with pread from offset 0, and
// leaves fd's position alone. live says that somebody may have the file open for
// writing or mapped: such a version is read every time, since a mapped write
// changes no time stamp when it happens.
//
// The stored or given bytes always have the digest that is returned. An error means that
// nothing new is visible in the store.
func (s *Store) Put(fd int, live bool) (Stored, error) {
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return Stored{}, fmt.Errorf("put object: %w", err)
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return Stored{}, fmt.Errorf("put object: file type %#o, want a regular file", before.Mode&unix.S_IFMT)
	}
	if before.Size > MaxSize {
		return Stored{}, fmt.Errorf("put object: %d bytes: %w", before.Size, ErrTooLarge)
	}
	if before.Size > MaxSparse && mostlyHoles(fd, &before) {
		return Stored{}, fmt.Errorf("put object: %d bytes, mostly holes: %w", before.Size, ErrTooLarge)
	}
	id := identityOf(&before)
	if !live {
		s.mu.Lock()
		sum, ok := s.memo[id]
		s.mu.Unlock()
		if ok {
			return Stored{SHA256: sum, Size: uint64(before.Size), Mtim: before.Mtim, Ctim: before.Ctim, Settled: true}, nil
		}
	}
	sum, size, err := s.copyIn(fd, before.Size)
	if err != nil {
		return Stored{}, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return Stored{}, fmt.Errorf("put object: %w", err)
	}
	out := Stored{SHA256: sum, Size: uint64(size), Mtim: before.Mtim, Ctim: before.Ctim}
	out.Unstable = size != before.Size || identityOf(&after) != id
	if !live && !out.Unstable && settled(&before) {
		out.Settled = true
		s.remember(id, sum)
	}
	return out, nil
}

// Digest hashes a regular file from offset 0 to the size it has now, and stores
// nothing.
func (s *Store) Digest(fd int) (Sum, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Sum{}, fmt.Errorf("hash file: %w", err)
	}
	if st.Size > MaxSize {
		return Sum{}, fmt.Errorf("hash file: %d bytes: %w", st.Size, ErrTooLarge)
	}
	buf := s.pool.Get().(*[chunk]byte)
	defer s.pool.Put(buf)
	sum, _, err := digest(fd, st.Size, buf[:hashChunk])
	return sum, err
}

// mostlyHoles tells whether more than half of a file is holes. Few blocks alone do
// not say so: the file system may compress. It leaves fd's position alone.
func mostlyHoles(fd int, st *unix.Stat_t) bool {
	if st.Blocks*512 >= st.Size/2 {
		return false
	}
	at, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return false
	}
	defer unix.Seek(fd, at, unix.SEEK_SET)
	var holes int64
	for off := int64(0); off < st.Size; {
		next, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			next = st.Size
		} else if err != nil || next < off {
			return false
		}
		if holes += next - off; holes > st.Size/2 || next >= st.Size {
			break
		}
		if off, err = unix.Seek(fd, next, unix.SEEK_HOLE); err != nil || off <= next {
			return false
		}
	}
	return holes > st.Size/2
}

// settled says that a later change of the file will show in its times.
func settled(st *unix.Stat_t) bool {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return false
	}
	return now.Nano()-st.Mtim.Nano() > tick && now.Nano()-st.Ctim.Nano() > tick
}

func (s *Store) remember(id identity, sum Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.memo) >= maxMemo {
		clear(s.memo)
	}
	s.memo[id] = sum
}

// copyIn reads size bytes, or fewer if the file ends before. It does not follow a
// file that grows: it would never end.
func (s *Store) copyIn(fd int, size int64) (Sum, int64, error) {
	buf := s.pool.Get().(*[chunk]byte)
	defer s.pool.Put(buf)
	if size <= chunk { // hash first: most small files are known
		n, err := readAt(fd, buf[:size], 0)
		if err != nil {
			return Sum{}, 0, err
		}
		sum := sha256.Sum256(buf[:n])
		if _, ok := s.given[sum]; ok {
			return sum, int64(n), nil
		}
		return sum, int64(n), s.put(sum, buf[:n])
	}
	if s.sizes[size] { // likely given: look before copying
		sum, n, err := digest(fd, size, buf[:hashChunk])
		if err != nil {
			return Sum{}, 0, err
		}
		if _, ok := s.given[sum]; ok {
			return sum, n, nil
		}
	}
	tmp, name, err := s.create()
	if err != nil {
		return Sum{}, 0, err
	}
	sum, n, err := s.fill(tmp, fd, size, buf[:hashChunk])
	return sum, n, s.settle(tmp, name, sum, err)
}

// digest hashes size bytes, or fewer if the file ends before.
func digest(fd int, size int64, buf []byte) (Sum, int64, error) {
	h := sha256.New()
	var off int64
	for off < size {
		n, err := readAt(fd, buf[:min(int64(len(buf)), size-off)], off)
		if err != nil {
			return Sum{}, 0, err
		}
		if n == 0 {
			break
		}
		h.Write(buf[:n])
		off += int64(n)
	}
	return Sum(h.Sum(nil)), off, nil
}

// fill makes tmp the content of fd and hashes what tmp holds. A reflink takes no
// space and freezes the version; where there is none, each chunk is hashed
// between reading and writing, so one pass over the file is enough.
func (s *Store) fill(tmp, fd int, size int64, buf []byte) (Sum, int64, error) {
	src, clone := fd, unix.IoctlFileClone(tmp, fd) == nil
	if clone {
		src = tmp
	}
	h := sha256.New()
	var off int64
	for off < size {
		n, err := readAt(src, buf[:min(int64(len(buf)), size-off)], off)
		if err != nil {
			return Sum{}, 0, err
		}
		if n == 0 {
			break // the file became shorter
		}
		h.Write(buf[:n])
		if !clone && !allZero(buf[:n]) { // zeros stay a hole
			if err := writeAt(tmp, buf[:n], off); err != nil {
				return Sum{}, 0, err
			}
		}
		off += int64(n)
	}
	if err := unix.Ftruncate(tmp, off); err != nil {
		return Sum{}, 0, fmt.Errorf("write object: %w", err)
	}
	return Sum(h.Sum(nil)), off, nil
}

// PutBytes stores b.
func (s *Store) PutBytes(b []byte) (Sum, error) {
	sum := sha256.Sum256(b)
	return sum, s.put(sum, b)
}

func (s *Store) put(sum Sum, b []byte) error {
	if known, err := s.has(sum); err != nil || known {
		return err
	}
	tmp, name, err := s.create()
	if err != nil {
		return err
	}
	return s.settle(tmp, name, sum, writeAt(tmp, b, 0))
}

// has says whether the object is there: known to this Store, or on disk.
func (s *Store) has(sum Sum) (bool, error) {
	s.mu.Lock()
	_, ok := s.known[sum]
	s.mu.Unlock()
	if ok {
		return true, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(s.dir, Name(sum), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up object: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, fmt.Errorf("object %s is no regular file (mode %#o)", Name(sum), st.Mode)
	}
	s.addKnown(sum)
	return true, nil
}

func (s *Store) addKnown(sum Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxMemo {
		clear(s.known)
	}
	s.known[sum] = struct{}{}
	if len(s.fresh) < maxFresh {
		s.fresh = append(s.fresh, sum)
	}
}

// create makes a temporary file in the store.
func (s *Store) create() (int, string, error) {
	for {
		name := "tmp-" + strconv.FormatUint(s.temp.Add(1), 10)
		fd, err := unix.Openat(s.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == unix.EEXIST { // left by a store that was killed
			continue
		}
		if err != nil {
			return -1, "", fmt.Errorf("create object: %w", err)
		}
		if err := unix.Fchmod(fd, 0o600); err != nil { // the umask of this thread is the program's
			unix.Close(fd)
			return -1, "", fmt.Errorf("create object: %w", err)
		}
		return fd, name, nil
	}
}

// settle closes tmp and gives it its name, or removes it if there was an error or
// the object is known.
func (s *Store) settle(tmp int, name string, sum Sum, err error) error {
	if e := unix.Close(tmp); err == nil && e != nil {
		err = fmt.Errorf("write object: %w", e)
	}
	known := false
	if err == nil {
		known, err = s.has(sum)
	}
	if err == nil && !known {
		err = s.publish(name, sum)
	}
	if err != nil || known {
		if e := unix.Unlinkat(s.dir, name, 0); err == nil && e != nil {
			err = fmt.Errorf("remove temporary object: %w", e)
		}
	}
	return err
}

func (s *Store) publish(name string, sum Sum) error {
	final := Name(sum)
	if !s.made[sum[0]].Load() {
		err := unix.Mkdirat(s.dir, final[:2], 0o700)
		if err == nil {
			err = unix.Fchmodat(s.dir, final[:2], 0o700, 0)
		}
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("make object folder: %w", err)
		}
		s.made[sum[0]].Store(true)
	}
	// Two threads may race with the same content: either name is right.
	if err := unix.Renameat(s.dir, name, s.dir, final); err != nil {
		return fmt.Errorf("name object: %w", err)
	}
	s.addKnown(sum)
	return nil
}

// Sync makes all objects durable. Nothing may be put meanwhile.
func (s *Store) Sync() error {
	err := s.sync()
	if err != nil {
		return fmt.Errorf("sync object store: %w", err)
	}
	s.fresh = nil
	return nil
}

// sync syncs a few objects by themselves: the file system may hold gigabytes of
// other programs that nobody has asked to write.
func (s *Store) sync() error {
	if len(s.fresh) >= maxFresh {
		return unix.Syncfs(s.dir)
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	open := func(name string) error {
		fd, err := unix.Openat(s.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
		}
		return err
	}
	for _, sum := range s.fresh {
		if err := open(Name(sum)); err != nil {
			return err
		}
		// Started here, all are written together. Where that does not work fsync does
		// it all.
		_ = unix.SyncFileRange(fds[len(fds)-1], 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	dirs := map[byte]bool{}
	for _, sum := range s.fresh {
		if !dirs[sum[0]] {
			dirs[sum[0]] = true
			if err := open(Name(sum)[:2]); err != nil {
				return err
			}
		}
	}
	for _, fd := range append(fds, s.dir) {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	return nil
}

// readAt reads until b is full or the file ends.
func readAt(fd int, b []byte, off int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Pread(fd, b[done:], off+int64(done))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read for object: %w", err)
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func writeAt(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("write object: wrote 0 of %d bytes", len(b))
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
