//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
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
