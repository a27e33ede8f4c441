// Package durable writes small files so that a reader finds the whole content or
// nothing, also after a power loss, and so that a failure leaves nothing behind.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file name, or makes it, with the given content and
// permission. A symbolic link of that name is replaced, not followed.
func WriteFile(name string, data []byte, perm fs.FileMode) error {
	temp, err := writeTemp(name, whole(data), perm)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, name); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(name))
}

// CreateNew makes the file name with the given content and permission. If
// anything has that name, a dangling symbolic link too, it changes nothing and
// the error is fs.ErrExist. Where the file system has no hard links, a crash can
// leave a part of the file.
func CreateNew(name string, data []byte, perm fs.FileMode) error {
	return CreateFrom(name, perm, whole(data))
}

// CreateFrom is CreateNew for content that write produces. It may be called
// twice, and must write the same both times.
func CreateFrom(name string, perm fs.FileMode, write func(io.Writer) error) error {
	temp, err := writeTemp(name, write, perm)
	if err != nil {
		return err
	}
	err = os.Link(temp, name) // fails if the name is taken; never follows it
	if errors.Is(err, fs.ErrExist) {
		err = &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	if removed := os.Remove(temp); removed != nil && err == nil {
		return errors.Join(removed, os.Remove(name))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = createExclusive(name, write, perm)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// whole writes data.
func whole(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

func writeTemp(name string, write func(io.Writer) error, perm fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return "", err
	}
	if err := fill(f, write, perm); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func createExclusive(name string, write func(io.Writer) error, perm fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if err := fill(f, write, perm); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// fill writes, syncs and closes f.
func fill(f *os.File, write func(io.Writer) error, perm fs.FileMode) error {
	err := write(f)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return nil
}
