package surface

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// handlePath asks the kernel where an open file lies now. A name that is gone has the
// kernel's mark behind it, which a folder's path must not keep.
func handlePath(f *os.File) (string, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var p string
	var e error
	err = c.Control(func(fd uintptr) { p, e = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd))) })
	if err == nil {
		err = e
	}
	if err == nil && !strings.HasPrefix(p, "/") {
		err = os.ErrInvalid // a file without a path
	}
	return p, err
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
	return Stamp(time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec))), uint32(s.Nlink)
}
