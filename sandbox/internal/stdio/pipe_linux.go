package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeAll writes to a descriptor that may be shared and non-blocking.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// pipe makes a pipe whose end number ours (0 read, 1 write) serves the runtime's
// poller. The other end is the program's: it must block, and it is another open
// file description, so the flag does not show there.
func pipe(ours int) (read, write *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fd[ours], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd[0]), "stream"), os.NewFile(uintptr(fd[1]), "stream"), nil
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}
