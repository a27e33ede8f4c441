package surface

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// handlePath asks the system where an open file lies now (GetFinalPathNameByHandle).
func handlePath(f *os.File) (string, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	buf := make([]uint16, windows.MAX_LONG_PATH)
	var n uint32
	var e error
	err = c.Control(func(h uintptr) {
		n, e = windows.GetFinalPathNameByHandle(windows.Handle(h), &buf[0], uint32(len(buf)), 0)
	})
	if err == nil {
		err = e
	}
	if err == nil && int(n) >= len(buf) {
		err = os.ErrInvalid
	}
	if err != nil {
		return "", err
	}
	return windows.UTF16ToString(buf[:n]), nil
}

// nonblock is not needed here: no file of a folder waits when it is opened.
const nonblock = 0

// kept is unknown here.
func kept(fs.FileInfo) (*int64, uint32) { return nil, 0 }
