//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// mapped returns the bytes of a file that nobody changes, without reading them
// into memory: the kernel can let go of a page that is not in use. release ends
// their life.
func mapped(f *os.File) (b []byte, release func(), err error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return nil, func() {}, err
	}
	b, err = unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return b, func() { _ = unix.Munmap(b) }, nil // it was mapped
}

// readBundle reads a bundle. One of more than small bytes is copied into a file
// without a name, which nobody else can change, and mapped until the process ends:
// memory does not grow with the evidence. Without room for such a file it is read
// into memory.
func readBundle(path string, small int64) ([]byte, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() <= small || st.Size() > maxBundle {
		return readFile(path, maxBundle)
	}
	copied, err := nameless()
	if err != nil {
		return readFile(path, maxBundle)
	}
	defer copied.Close()
	n, err := io.Copy(copied, io.LimitReader(f, maxBundle+1))
	if err == nil && n > maxBundle {
		return nil, fmt.Errorf("%s: want at most %d bytes", path, maxBundle)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return readFile(path, maxBundle)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: copying it for verification: %w", path, err)
	}
	b, _, err := mapped(copied)
	if err != nil {
		return readFile(path, maxBundle)
	}
	return b, nil
}

// nameless makes an empty file that only this process has, in TMPDIR, else in
// /var/tmp: /tmp is memory on many systems.
func nameless() (*os.File, error) {
	dir := os.Getenv("TMPDIR")
	if dir == "" {
		dir = "/var/tmp"
	}
	f, err := os.CreateTemp(dir, ".cleanrun-verify-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
