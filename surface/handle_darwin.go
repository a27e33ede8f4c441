package surface

import (
	"bytes"
	"io/fs"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handlePath asks the kernel where an open file lies now (fcntl F_GETPATH).
func handlePath(f *os.File) (string, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var buf [1024]byte // MAXPATHLEN
	var errno unix.Errno
	err = c.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_FCNTL, fd, unix.F_GETPATH, uintptr(unsafe.Pointer(&buf[0])))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return "", err
	}
	n := bytes.IndexByte(buf[:], 0)
	if n < 0 {
		return "", os.ErrInvalid
	}
	return string(buf[:n]), nil
}

// nonblock keeps the opening of a pipe, put in the place of a file, from waiting for a
// writer.
const nonblock = syscall.O_NONBLOCK

// kept is what the system keeps of a file and its writers do not choose: the time of
// the last change, and the number of names.
func kept(st fs.FileInfo) (*int64, uint32) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, 0
	}
	return Stamp(time.Unix(int64(s.Ctimespec.Sec), int64(s.Ctimespec.Nsec))), uint32(s.Nlink)
}
