package objects

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
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
	memo  map[identity]seen
	fresh []Sum // not synced; maxFresh and more are not listed

	Protection
	values *redact.Redactor // Remove, without shapes of keys
	stored atomic.Uint64    // bytes of content
	full   atomic.Bool
}

// A Protection says how contents are kept. The zero value keeps them as they are.
type Protection struct {
	Remove *redact.Redactor // what is replaced before anything is written
	Keys   *vault.Keys      // what objects are encrypted with; nil is not
	Max    uint64           // bytes of content that are kept, 0 is no limit
}

// Protect sets how contents are kept. Call it before anything is put.
func (s *Store) Protect(p Protection) { s.Protection, s.values = p, p.Remove.WithoutShapes() }

// ErrFull is the error when the limit of Protection is reached. Nothing more is
// kept from then on.
var ErrFull = errors.New("the limit of stored content is reached")

// identity of a file version. Only the kernel sets ctime, so a program cannot
// give changed content the identity of the old.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// seen is what a version was found to be.
type seen struct {
	sum, raw Sum
	removed  int
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
	s := &Store{dir: dir, known: map[Sum]struct{}{}, memo: map[identity]seen{}}
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
	SHA256   Sum // of what is kept
	Raw      Sum // of the file: another one if secrets were removed
	Size     uint64
	Removed  int  // bytes that were replaced
	Over     bool // a key was left, see redact.Result
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
func (s *Store) Put(fd int, live bool) (Stored, error) { return s.putFile(fd, live, s.Remove) }

// PutTool is Put for a file of the system or a toolchain: what has the shape of a
// key there is test data.
func (s *Store) PutTool(fd int, live bool) (Stored, error) { return s.putFile(fd, live, s.values) }

func (s *Store) putFile(fd int, live bool, remove *redact.Redactor) (Stored, error) {
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
		old, ok := s.memo[id]
		s.mu.Unlock()
		if ok {
			return Stored{SHA256: old.sum, Raw: old.raw, Removed: old.removed, Size: uint64(before.Size),
				Mtim: before.Mtim, Ctim: before.Ctim, Settled: true}, nil
		}
	}
	out, size, err := s.copyIn(fd, before.Size, remove)
	if err != nil {
		return Stored{}, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return Stored{}, fmt.Errorf("put object: %w", err)
	}
	out.Size, out.Mtim, out.Ctim = uint64(size), before.Mtim, before.Ctim
	out.Unstable = size != before.Size || identityOf(&after) != id
	if !live && !out.Unstable && settled(&before) {
		out.Settled = true
		s.remember(id, seen{out.SHA256, out.Raw, out.Removed})
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

func (s *Store) remember(id identity, v seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.memo) >= maxMemo {
		clear(s.memo)
	}
	s.memo[id] = v
}

// copyIn reads size bytes, or fewer if the file ends before. It does not follow a
// file that grows: it would never end.
func (s *Store) copyIn(fd int, size int64, remove *redact.Redactor) (Stored, int64, error) {
	buf := s.pool.Get().(*[chunk]byte)
	defer s.pool.Put(buf)
	if size <= chunk { // hash first: most small files are known
		n, err := readAt(fd, buf[:size], 0)
		if err != nil {
			return Stored{}, 0, err
		}
		out, err := s.putRead(buf[:n], remove)
		return out, int64(n), err
	}
	if s.sizes[size] { // likely given: look before copying
		sum, n, err := digest(fd, size, buf[:hashChunk])
		if err != nil {
			return Stored{}, 0, err
		}
		if _, ok := s.given[sum]; ok {
			return Stored{SHA256: sum, Raw: sum}, n, nil
		}
	}
	if err := s.claim(size); err != nil {
		return Stored{}, 0, err
	}
	tmp, name, err := s.create()
	if err != nil {
		return Stored{}, 0, err
	}
	out, n, err := s.fill(tmp, fd, size, buf[:hashChunk], remove)
	if known, e := s.has(out.SHA256); err == nil && e == nil && known {
		s.stored.Add(-uint64(size)) // it takes no room
	}
	if err := s.settle(tmp, name, out.SHA256, err); err != nil {
		return Stored{}, 0, err
	}
	if out.Raw = out.SHA256; out.Removed > 0 {
		out.Raw, _, err = digest(fd, size, buf[:hashChunk])
	}
	return out, n, err
}

// putRead stores a content that was read as a whole, and changes b.
func (s *Store) putRead(b []byte, remove *redact.Redactor) (Stored, error) {
	raw := sha256.Sum256(b)
	out := Stored{SHA256: raw, Raw: raw}
	if _, ok := s.given[raw]; ok {
		return out, nil
	}
	if known, err := s.has(raw); err != nil || known {
		return out, err
	}
	if r := remove.Bytes(b); r.Bytes > 0 || r.Over {
		out.Removed, out.Over = r.Bytes, r.Over
		out.SHA256 = sha256.Sum256(b)
	}
	return out, s.put(out.SHA256, b)
}

// claim counts n bytes that are to be stored.
func (s *Store) claim(n int64) error {
	if s.Max == 0 {
		return nil
	}
	if s.full.Load() || s.stored.Add(uint64(n)) > s.Max {
		s.full.Store(true)
		return fmt.Errorf("store %d bytes: %w", n, ErrFull)
	}
	return nil
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

// fill makes tmp the content of fd, without secrets, and hashes what tmp holds. A
// reflink takes no space and freezes the version; where there is none, each chunk
// is hashed between reading and writing, so one pass over the file is enough.
func (s *Store) fill(tmp, fd int, size int64, buf []byte, remove *redact.Redactor) (Stored, int64, error) {
	src, clone := fd, s.Keys == nil && unix.IoctlFileClone(tmp, fd) == nil
	if clone {
		src = tmp
	}
	w, err := s.writer(tmp, clone)
	if err != nil {
		return Stored{}, 0, err
	}
	h, pass := sha256.New(), remove.Pass()
	put := func(b []byte, last bool) error {
		before := pass.Result().Bytes
		b = pass.Next(b, last)
		h.Write(b)
		return w.write(b, pass.Result().Bytes > before)
	}
	var off int64
	for off < size {
		n, err := readAt(src, buf[:min(int64(len(buf)), size-off)], off)
		if err != nil {
			return Stored{}, 0, err
		}
		if n == 0 {
			break // the file became shorter
		}
		off += int64(n)
		if err := put(buf[:n], false); err != nil {
			return Stored{}, 0, err
		}
	}
	if err := put(nil, true); err != nil {
		return Stored{}, 0, err
	}
	if err := w.close(off); err != nil {
		return Stored{}, 0, err
	}
	r := pass.Result()
	return Stored{SHA256: Sum(h.Sum(nil)), Removed: r.Bytes, Over: r.Over}, off, nil
}

// PutBytes stores b as it is: nothing is removed from it.
func (s *Store) PutBytes(b []byte) (Sum, error) {
	sum := sha256.Sum256(b)
	return sum, s.put(sum, b)
}

func (s *Store) put(sum Sum, b []byte) error {
	if known, err := s.has(sum); err != nil || known {
		return err
	}
	if err := s.claim(int64(len(b))); err != nil {
		return err
	}
	tmp, name, err := s.create()
	if err != nil {
		return err
	}
	w, err := s.writer(tmp, false)
	if err == nil {
		err = w.write(b, false)
	}
	if err == nil {
		err = w.close(int64(len(b)))
	}
	return s.settle(tmp, name, sum, err)
}
