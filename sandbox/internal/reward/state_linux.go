package reward

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"os"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what Look reads.
const (
	maxEntries = 20_000
	maxBytes   = 1 << 30
	maxDepth   = 64
)

// ErrTooMuch is the error of Look for what is larger than it reads.
var ErrTooMuch = errors.New("it holds more than is compared")

// A State says what stands at a path. States are equal if type and content are:
// owner, mode and times do not count. The zero State is Absent.
type State struct {
	kind uint8
	sum  [32]byte
}

// Absent is the state of a path where nothing is.
var Absent State

// Kinds of a State.
const (
	absent = iota
	file
	directory
	link
	other   // device, pipe, socket
	through // a symbolic link is on the way
	held    // somebody keeps it from being looked at: a lease, or changes without end
)

// Through tells that a symbolic link stands above the path: what it leads to was
// not looked at.
func (s State) Through() bool { return s.kind == through }

var below = unix.OpenHow{
	Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
}

// open opens name below dir. With O_PATH a symbolic link at its end is opened
// itself.
func open(dir int, name string, how *unix.OpenHow) (int, error) {
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, name, how)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && tries < 50: // a rename raced with it, or somebody has a lease
			time.Sleep(time.Millisecond)
		case err == unix.EAGAIN:
			return -1, errHeld
		default:
			return fd, err
		}
	}
}

// Look tells what stands at name, a clean path below the directory dir. Of a
// directory all that is in it counts, but for what Python's test runs leave.
func Look(dir int, name string) (State, error) {
	l := &looker{sum: sha256.New()}
	return l.at(dir, name, 0)
}

// Read is Look for a small file, with its content; nil if it is no regular file, or
// larger than MaxFile.
func Read(dir int, name string) ([]byte, State, error) {
	fd, err := open(dir, name, &below)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, State{}, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size <= MaxFile {
			f, err := reopen(dir, name, &st)
			if err != nil {
				s, err := heldOr(err)
				return nil, s, err
			}
			defer f.Close()
			content, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
			if err != nil {
				return nil, State{}, err
			}
			s := State{file, sha256.Sum256(content)}
			if len(content) > MaxFile {
				content = nil
			}
			return content, s, nil
		}
	}
	s, err := Look(dir, name)
	return nil, s, err
}

type looker struct {
	sum     hash.Hash
	entries int
	bytes   int64
}

func (l *looker) at(dir int, name string, depth int) (State, error) {
	if l.entries++; l.entries > maxEntries || depth > maxDepth {
		return State{}, ErrTooMuch
	}
	fd, err := open(dir, name, &below)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return Absent, nil
	case unix.ELOOP:
		return State{kind: through}, nil
	case errHeld:
		return State{kind: held}, nil
	default:
		return State{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return State{}, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return l.file(dir, name, &st)
	case unix.S_IFDIR:
		return l.directory(dir, name, &st, depth)
	case unix.S_IFLNK:
		var b [unix.PathMax]byte
		n, err := unix.Readlinkat(fd, "", b[:])
		if err != nil {
			return State{}, err
		}
		return State{link, sha256.Sum256(b[:n])}, nil
	}
	return State{other, sha256.Sum256(binary.LittleEndian.AppendUint64([]byte{byte(st.Mode >> 12)}, uint64(st.Rdev)))}, nil
}

func (l *looker) file(dir int, name string, st *unix.Stat_t) (State, error) {
	f, err := reopen(dir, name, st)
	if err != nil {
		return heldOr(err)
	}
	defer f.Close()
	l.sum.Reset()
	n, err := io.Copy(l.sum, io.LimitReader(f, maxBytes-l.bytes+1))
	if err != nil {
		return State{}, err
	}
	if l.bytes += n; l.bytes > maxBytes {
		return State{}, ErrTooMuch
	}
	return State{file, [32]byte(l.sum.Sum(nil))}, nil
}

func (l *looker) directory(dir int, name string, st *unix.Stat_t, depth int) (State, error) {
	d, err := reopen(dir, name, st)
	if err != nil {
		return heldOr(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && err != io.EOF {
		return State{}, err
	}
	sort.Strings(names)
	var all []byte
	for _, n := range names {
		if n == "__pycache__" || n == ".pytest_cache" {
			continue
		}
		s, err := l.at(int(d.Fd()), n, depth+1)
		if err != nil {
			return State{}, err
		}
		all = binary.LittleEndian.AppendUint32(all, uint32(len(n)))
		all = append(append(append(all, n...), s.kind), s.sum[:]...)
	}
	return State{directory, sha256.Sum256(all)}, nil
}

// reopen opens for reading what was found at name with st. A type that changed
// meanwhile is an error: a FIFO does not block, and gives nothing.
func reopen(dir int, name string, st *unix.Stat_t) (*os.File, error) {
	how := below
	how.Flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := open(dir, name, &how)
	if err != nil {
		return nil, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Mode&unix.S_IFMT != st.Mode&unix.S_IFMT {
		unix.Close(fd)
		return nil, errHeld
	}
	return os.NewFile(uintptr(fd), name), nil
}

// errHeld becomes the state held: what cannot be looked at is not what it was, but
// it is the run's doing, and no failure.
var errHeld = errors.New("it is kept from being looked at")

func heldOr(err error) (State, error) {
	if err == errHeld || err == unix.ENOENT || err == unix.ELOOP || err == unix.ENOTDIR { // it was there just now
		return State{kind: held}, nil
	}
	return State{}, err
}
