package overlay

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A closed file of the upper layer is one that the run made unreadable to its own user.
// Root reads it all the same; its owner opens it for the time of the comparison.
type closed struct {
	path string
	mode uint32
}

// open opens a file or, with O_DIRECTORY, a folder of the upper layer. done gives it the
// mode back that it had.
func (c *comparison) open(dir *os.File, name, p string, flags int) (f *os.File, done func() error, err error) {
	done = func() error { return nil }
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC // should it have become a FIFO
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
	if err == unix.EACCES {
		var mode uint32
		if mode, err = disclose(int(dir.Fd()), name); err == nil {
			if fd, err = unix.Openat(int(dir.Fd()), name, flags, 0); err != nil {
				return nil, nil, errors.Join(err, setMode(int(dir.Fd()), name, mode))
			}
			if c.keep {
				c.closed = append(c.closed, closed{p, mode})
			} else {
				done = func() error { return unix.Fchmod(fd, mode) }
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), name), done, nil
}

// disclose lets the owner read a file, or read and enter a folder, and gives the mode that
// it had. What somebody else owns stays closed.
func disclose(dir int, name string) (mode uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	more := uint32(0o400)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		more = 0o500
	case unix.S_IFREG:
	default:
		return 0, unix.EACCES
	}
	if int(st.Uid) != os.Geteuid() {
		return 0, unix.EACCES
	}
	mode = st.Mode & 0o7777
	return mode, setMode(dir, name, mode|more)
}

// setMode sets the mode of what is no link.
func setMode(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFDIR {
		return unix.EACCES
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// restore gives all files that stayed open their modes, from the leaves up.
func (c *comparison) restore(upper int) (err error) {
	for i := len(c.closed) - 1; i >= 0; i-- {
		one := c.closed[i]
		fd, oerr := openBelow(upper, one.path, unix.O_PATH)
		if oerr == nil {
			oerr = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), one.mode)
			unix.Close(fd)
		}
		err = errors.Join(err, oerr)
	}
	c.closed = nil
	return err
}
