package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDir opens a folder by its absolute path and follows no symbolic link in any
// component: the kernel says so (openat2, RESOLVE_NO_SYMLINKS).
func openDir(abs string) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, abs, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err == unix.ENOSYS || err == unix.EPERM || err == unix.ELOOP || err == unix.ENOTDIR {
		return walk(abs) // an old kernel; or it says which component it is
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: abs, Err: err}
	}
	f := os.NewFile(uintptr(fd), abs)
	defer f.Close()
	want, err := f.Stat()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	got, err := root.Stat(".")
	if err == nil && !os.SameFile(want, got) { // a component was swapped meanwhile
		err = linked(abs)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}
