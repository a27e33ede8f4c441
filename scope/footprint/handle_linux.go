package footprint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// status is what the system says of a name.
type status struct {
	mode     fs.FileMode
	uid, gid uint32
	links    uint64
	size     int64
	stamp    int64
	dev, ino uint64
}

// statusOf reads what package os was told.
func statusOf(fi fs.FileInfo) status {
	s := status{mode: fi.Mode(), size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.uid, s.gid, s.links, s.stamp, s.dev, s.ino = st.Uid, st.Gid, uint64(st.Nlink), st.Ctim.Nano(), uint64(st.Dev), st.Ino
	}
	return s
}

func statusFrom(st *unix.Stat_t) status {
	return status{regular.Mode(st.Mode), st.Uid, st.Gid, uint64(st.Nlink), st.Size, st.Ctim.Nano(), uint64(st.Dev), st.Ino}
}

func (s *status) same(o *status) bool {
	return s.dev == o.dev && s.ino == o.ino && s.mode.Type() == o.mode.Type()
}

// A handle is an open folder. It is closed when nobody holds it any more.
type handle struct {
	fd   int
	held atomic.Int32
}

func newHandle(fd int) *handle {
	h := &handle{fd: fd}
	h.hold()
	return h
}

func (h *handle) hold() { h.held.Add(1) }

func (h *handle) release() {
	if h.held.Add(-1) == 0 {
		unix.Close(h.fd)
	}
}

func openRoot(root *os.Root) (*handle, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := again(func() (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	return newHandle(fd), nil
}

// again repeats what a signal interrupts.
func again[T any](do func() (T, error)) (T, error) {
	for {
		if v, err := do(); err != unix.EINTR {
			return v, err
		}
	}
}

// A lister holds room for listing folders.
type lister struct {
	buf   []byte
	names []string
}

// list gives the names in a folder, at most a few more than limit. They are l's until the next call.
func (h *handle) list(l *lister, limit int) ([]string, error) {
	if l.buf == nil {
		l.buf = make([]byte, 64<<10)
	}
	l.names = l.names[:0]
	for len(l.names) <= limit {
		n, err := again(func() (int, error) { return unix.ReadDirent(h.fd, l.buf) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		_, _, l.names = unix.ParseDirent(l.buf[:n], -1, l.names)
	}
	return l.names, nil
}

func (h *handle) lstat(name string) (status, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return statusFrom(&st), nil
		}
		if err != unix.EINTR {
			return status{}, err
		}
	}
}

func (h *handle) readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		b := make([]byte, size)
		n, err := again(func() (int, error) { return unix.Readlinkat(h.fd, name, b) })
		if err != nil {
			return "", err
		}
		if n < size {
			return string(b[:n]), nil
		}
	}
}

// at opens a name if it still is what was seen.
func (h *handle) at(name string, flags int, seen *status) (int, error) {
	fd, err := again(func() (int, error) {
		return unix.Openat(h.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	})
	if err == unix.ELOOP || err == unix.ENOTDIR { // a link, or no folder any more
		err = fmt.Errorf("%w: %w", err, regular.ErrReplaced)
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		if now := statusFrom(&st); !now.same(seen) {
			err = regular.ErrReplaced
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// enter opens a folder in this one.
func (h *handle) enter(name string, seen *status) (*handle, error) {
	fd, err := h.at(name, unix.O_DIRECTORY, seen)
	if err != nil {
		return nil, err
	}
	return newHandle(fd), nil
}

func (h *handle) attributes() ([32]byte, error) { return attributes(h.fd) }

// A file is an open regular file.
type file struct{ fd int }

// open opens a regular file in the folder.
func (h *handle) open(name string, seen *status) (*file, error) {
	fd, err := h.at(name, 0, seen)
	if err != nil {
		return nil, err
	}
	return &file{fd}, nil
}

func (f *file) close() { unix.Close(f.fd) }

func (f *file) attributes() ([32]byte, error) { return attributes(f.fd) }

func (f *file) read(buf []byte, off int64) (int, error) {
	n, err := again(func() (int, error) { return unix.Pread(f.fd, buf, off) })
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// data is where content begins, not before off; size if there is none any more.
func (f *file) data(off, size int64) int64 {
	at, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return size
	case err != nil || at < off:
		return off
	}
	return at
}

func (f *file) size() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(f.fd, &st)
	return st.Size, err
}
