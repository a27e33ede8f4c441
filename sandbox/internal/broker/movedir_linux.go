package broker

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxMoveDepth = 200

// moveDir does what rename(2) of a directory would do. On an overlay the kernel
// answers EXDEV for a directory of the lower layer. It is not atomic: the
// children move one by one. Anything else that crosses file systems stays EXDEV.
func moveDir(from int, a string, to int, b string, replace bool, depth int) syscall.Errno {
	var st unix.Stat_t
	if err := unix.Fstatat(from, a, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return errnoOf(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth > maxMoveDepth {
		return unix.EXDEV
	}
	src, err := unix.Openat(from, a, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(src)
	if !sameFileSystem(src, to) {
		return unix.EXDEV
	}
	if depth == 0 {
		if e := checkMove(src, to); e != 0 {
			return e
		}
	}
	err = unix.Mkdirat(to, b, 0o700)
	if err == unix.EEXIST && replace && depth == 0 {
		if err = unix.Unlinkat(to, b, unix.AT_REMOVEDIR); err == nil {
			err = unix.Mkdirat(to, b, 0o700)
		}
	}
	if err != nil {
		return errnoOf(err)
	}
	dst, err := unix.Openat(to, b, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(dst)
	names, err := list(src)
	if err != nil {
		return errnoOf(err)
	}
	for _, n := range names {
		e := errnoOf(unix.Renameat(src, n, dst, n))
		if e == unix.EXDEV {
			e = moveDir(src, n, dst, n, false, depth+1)
		}
		if e != 0 {
			return e
		}
	}
	if err := unix.Fchown(dst, int(st.Uid), int(st.Gid)); err != nil && err != unix.EPERM {
		return errnoOf(err)
	}
	if err := unix.Fchmod(dst, st.Mode&0o7777); err != nil {
		return errnoOf(err)
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(to, b, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return errnoOf(err)
	}
	return errnoOf(unix.Unlinkat(from, a, unix.AT_REMOVEDIR))
}

// checkMove refuses to move a directory into itself, as rename(2) does.
func checkMove(src, to int) syscall.Errno {
	var want, at unix.Stat_t
	if err := unix.Fstat(src, &want); err != nil {
		return errnoOf(err)
	}
	cur, err := unix.Openat(to, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer func() { unix.Close(cur) }()
	for {
		if err := unix.Fstat(cur, &at); err != nil {
			return errnoOf(err)
		}
		if at.Dev == want.Dev && at.Ino == want.Ino {
			return unix.EINVAL
		}
		up, err := unix.Openat(cur, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return errnoOf(err)
		}
		last := at
		unix.Close(cur)
		cur = up
		if err := unix.Fstat(cur, &at); err != nil {
			return errnoOf(err)
		}
		if at.Dev == last.Dev && at.Ino == last.Ino {
			return 0
		}
	}
}

func sameFileSystem(a, b int) bool {
	var x, y unix.Statfs_t
	return unix.Fstatfs(a, &x) == nil && unix.Fstatfs(b, &y) == nil && x.Fsid == y.Fsid && x.Type == y.Type
}

func list(dir int) ([]string, error) {
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	return f.Readdirnames(-1)
}
