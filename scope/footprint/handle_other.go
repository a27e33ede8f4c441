//go:build !linux

package footprint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// status is what the system says of a name.
type status struct {
	info     fs.FileInfo
	mode     fs.FileMode
	uid, gid uint32
	links    uint64
	size     int64
	stamp    int64
}

func statusOf(fi fs.FileInfo) status {
	s := status{info: fi, mode: fi.Mode(), size: fi.Size()}
	s.kept(fi)
	return s
}

// A handle is an open folder. It is closed when nobody holds it any more.
type handle struct {
	root *os.Root
	held atomic.Int32
}

func newHandle(root *os.Root) *handle {
	h := &handle{root: root}
	h.hold()
	return h
}

func (h *handle) hold() { h.held.Add(1) }

func (h *handle) release() {
	if h.held.Add(-1) == 0 {
		h.root.Close()
	}
}

func openRoot(root *os.Root) (*handle, error) {
	again, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	return newHandle(again), nil
}

// A lister holds nothing here.
type lister struct{}

// list gives the names in a folder, at most a few more than limit.
func (h *handle) list(_ *lister, limit int) ([]string, error) {
	d, err := h.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var names []string
	for len(names) <= limit {
		some, err := d.Readdirnames(4096)
		names = append(names, some...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (h *handle) lstat(name string) (status, error) {
	fi, err := h.root.Lstat(name)
	if err != nil {
		return status{}, err
	}
	return statusOf(fi), nil
}

func (h *handle) readlink(name string) (string, error) { return h.root.Readlink(name) }

// enter opens a folder in this one if it still is what was seen.
func (h *handle) enter(name string, seen *status) (*handle, error) {
	below, err := h.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	now, err := below.Lstat(".")
	if err == nil && !os.SameFile(seen.info, now) {
		err = fmt.Errorf("%s: %w", name, regular.ErrReplaced)
	}
	if err != nil {
		below.Close()
		return nil, err
	}
	return newHandle(below), nil
}

func (h *handle) attributes() ([32]byte, error) { return [32]byte{}, nil }

// A file is an open regular file.
type file struct{ f *os.File }

// open opens a regular file in the folder if it still is what was seen.
func (h *handle) open(name string, seen *status) (*file, error) {
	f, err := regular.In(h.root, name)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(seen.info, now) {
		err = fmt.Errorf("%s: %w", name, regular.ErrReplaced)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &file{f}, nil
}

func (f *file) close() { f.f.Close() }

func (f *file) attributes() ([32]byte, error) { return [32]byte{}, nil }

func (f *file) read(buf []byte, off int64) (int, error) { return f.f.ReadAt(buf, off) }

// data finds no holes here: all of a file is read.
func (f *file) data(off, _ int64) int64 { return off }

func (f *file) size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// fileAttributes are not compared on this system.
func fileAttributes(*os.File) ([32]byte, error) { return [32]byte{}, nil }
