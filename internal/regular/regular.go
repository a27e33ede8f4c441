// Package regular opens files that others may have put in place: a pipe or a device
// there would wait for ever, or do something, and a link would lead elsewhere. Only a
// regular file of that very name is opened.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrReplaced is wrapped when a name had another file after the opening than before:
// of a file that is renamed over, the next try may do.
var ErrReplaced = errors.New("it was replaced while it was opened")

// A KindError says that something else than a regular file has the name.
type KindError struct {
	Name string
	Mode fs.FileMode
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s: got a %s, want a regular file", e.Name, Kind(e.Mode))
}

// Kind names what a mode is of.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "regular file"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// In opens a file in root for reading. What was looked at is what was opened, so
// nobody can put a link or a pipe in between. The error is a *KindError, or one of the
// file system.
func In(root *os.Root, name string) (*os.File, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, &KindError{name, before.Mode()}
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	return same(f, before, name)
}

// At opens a file by its path, as In does. flag is of os.OpenFile: it creates nothing.
// Links in the folders above are followed.
func At(path string, flag int) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, &KindError{path, before.Mode()}
	}
	f, err := os.OpenFile(path, flag&^(os.O_CREATE|os.O_TRUNC)|nonblock, 0)
	if err != nil {
		return nil, err
	}
	return same(f, before, path)
}

func same(f *os.File, before fs.FileInfo, name string) (*os.File, error) {
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s: %w", name, ErrReplaced)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Given opens what a user named, which may be a pipe (of a shell's process
// substitution): one that nobody writes to is empty, and not waited for.
func Given(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|nonblock, 0) }

// ReadGiven reads what Given opens, at most limit bytes.
func ReadGiven(path string, limit int64) ([]byte, error) {
	f, err := Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return all(f, path, limit)
}

// Read reads a file of at most limit bytes that At opens.
func Read(path string, limit int64) ([]byte, error) {
	f, err := At(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return all(f, filepath.Base(path), limit)
}

// ReadIn reads a file of at most limit bytes that In opens.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := In(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return all(f, name, limit)
}

func all(f *os.File, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: got more than %d bytes, want at most that", name, limit)
	}
	return b, err
}
