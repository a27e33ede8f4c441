package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Detach returns a read-only copy of the outer tree at source that is mounted
// nowhere, so nothing of it can be reached until Attach. Call it before Finish.
func Detach(source string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, outerRoot+source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("clone %s: %w", source, err)
	}
	a := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &a); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make %s read-only: %w", source, err)
	}
	return fd, nil
}

// Attach mounts what Detach returned on the folder at, inside, and closes it. The
// folder lies on the read-only root: no program can have put a link there.
func Attach(fd int, at string) error {
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show %s: %w", at, err)
	}
	return nil
}

// bind shows src at dst, read-only. A symbolic link (/bin) is made again.
func bind(src, dst string) error {
	st, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	case st.IsDir():
		if err := os.MkdirAll(dst, 0o755); err != nil {
			return err
		}
	default:
		if err := touch(dst); err != nil {
			return err
		}
	}
	return readOnlyBind(src, dst)
}

// private shows a copy of a file, kept on the base, in its place.
func private(src, dst, kept string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil {
		return err
	}
	out, err := os.OpenFile(kept, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(st.Mode&0o777))
	if err != nil {
		return err
	}
	if _, err := out.ReadFrom(in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := unix.Chown(kept, int(st.Uid), int(st.Gid)); err != nil && err != unix.EPERM && err != unix.EINVAL {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	if err := touch(dst); err != nil {
		return err
	}
	if err := unix.Mount(kept, dst, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", dst, err)
	}
	return nil
}

// planted shows a file, kept on the base, in its place. The outer file, if there is
// one, is covered.
func planted(content []byte, at, kept string) error {
	if err := os.WriteFile(kept, content, 0o444); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := touch(at); err != nil {
		return err
	}
	return readOnlyBind(kept, at)
}

func touch(p string) error {
	if _, err := os.Lstat(p); err == nil {
		return nil
	}
	f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func readOnlyBind(src, dst string) error {
	if err := unix.Mount(src, dst, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", dst, err)
	}
	a := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, dst, unix.AT_RECURSIVE, &a); err != nil {
		return fmt.Errorf("make %s read-only: %w", dst, err)
	}
	return nil
}
