package overlay

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Apply makes the tree dst what the merged tree was: it compares upper with dst
// as it is now and copies the differences. Both are directory descriptors. It
// returns what it changed, and what it left out because it has no meaning outside
// the run: sockets and devices.
//
// It never follows a symbolic link and never leaves dst. A file that is replaced by
// another has its old or its new content whenever the process or the system ends: the
// new one is synced before it is renamed to its place. Several names of one file become
// several files. It is not atomic as a whole: after an error some changes are made;
// calling it again makes the rest. The name .cleanrun-apply beside a changed file is
// reserved: an interrupted call leaves one such file at most, and the next call that
// changes something in that folder removes it.
func Apply(upper, dst int) (applied, skipped []Change, err error) {
	return apply(upper, dst, &steps{(*os.File).Sync, unix.Renameat})
}

// steps are those that can fail late or be the last. The tests replace them.
type steps struct {
	sync   func(*os.File) error
	rename func(fromDir int, from string, toDir int, to string) error
}

func apply(upper, dst int, steps *steps) (applied, skipped []Change, err error) {
	c := &comparison{keep: true}
	changes, err := c.changes(upper, dst)
	modes := map[string]uint32{}
	for _, one := range c.closed {
		modes[one.path] = one.mode
	}
	defer func() { err = errors.Join(err, c.restore(upper)) }()
	if err != nil {
		return nil, nil, err
	}
	a := &applier{upper: upper, dst: dst, modes: modes, steps: steps}
	var todo []Change
	for _, c := range changes {
		if c.Kind != Deleted && c.Mode.Type()&(fs.ModeSocket|fs.ModeDevice) != 0 {
			skipped = append(skipped, c)
		} else {
			todo = append(todo, c)
		}
	}
	made, err := a.contents(todo)
	if err != nil {
		for i, c := range todo {
			if made[i] {
				applied = append(applied, c)
			}
		}
		return applied, skipped, err
	}
	// Modes, owners and times come last and from the leaves up: a read-only
	// directory could not be filled.
	for i := len(todo) - 1; i >= 0; i-- {
		c := todo[i]
		if c.Kind == Deleted {
			continue
		}
		if err := a.metadata(c.Path); err != nil {
			return todo, skipped, fmt.Errorf("apply metadata of %s: %w", c.Path, err)
		}
	}
	return todo, skipped, nil
}

type applier struct {
	upper, dst int
	modes      map[string]uint32 // of what is open for the time
	steps      *steps
}

const tempName = ".cleanrun-apply"

// content makes one name, its type and its content right. The content is that of
// staged, or copied here if that is nil.
func (a *applier) content(c Change, staged *os.File) error {
	dir, err := openParent(a.dst, c.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(c.Path)
	if c.Kind == Deleted {
		return removeAll(dir, name, 0)
	}
	temp, err := a.temp(c.Path)
	if err != nil {
		return err
	}
	if err := removeAll(dir, temp, 0); err != nil { // left by an interrupted call
		return err
	}
	if staged != nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", staged.Fd()), dir, temp, unix.AT_SYMLINK_FOLLOW)
	} else if c.Mode.IsDir() {
		err = unix.Mkdirat(dir, temp, 0o700)
	} else if c.Mode.IsRegular() {
		err = a.copyFile(dir, temp, c.Path)
	} else if c.Mode.Type() == fs.ModeSymlink {
		err = unix.Symlinkat(c.Target, dir, temp)
	} else {
		err = unix.Mknodat(dir, temp, unix.S_IFIFO|0o600, 0)
	}
	if err != nil {
		return err
	}
	if err := a.place(dir, temp, name, c.Mode.IsDir()); err != nil {
		return errors.Join(err, removeAll(dir, temp, 0))
	}
	return nil
}

// place renames temp to name.
func (a *applier) place(dir int, temp, name string, isDir bool) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && (st.Mode&unix.S_IFMT == unix.S_IFDIR) != isDir {
		if err := removeAll(dir, name, 0); err != nil { // rename replaces only its own sort
			return err
		}
	}
	return a.steps.rename(dir, temp, dir, name)
}

// temp is a name beside p that the run did not use. A later call finds the same one.
func (a *applier) temp(p string) (string, error) {
	up, err := openParent(a.upper, p)
	if err != nil {
		return "", err
	}
	defer unix.Close(up)
	for name := tempName; ; name += "~" {
		var st unix.Stat_t
		if err := unix.Fstatat(up, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			return name, nil
		} else if err != nil { // too long a name in the end
			return "", err
		}
	}
}

func (a *applier) copyFile(dir int, temp, p string) error {
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), path.Base(p))
	err = errors.Join(a.fill(out, p), out.Close())
	if err != nil {
		err = errors.Join(err, removeAll(dir, temp, 0))
	}
	return err
}

// fill copies the file p of the run to out and syncs it.
func (a *applier) fill(out *os.File, p string) error {
	src, err := openBelow(a.upper, p, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(src), p)
	defer in.Close()
	if err := copySparse(out, in); err != nil {
		return err
	}
	return a.steps.sync(out)
}

// copySparse copies what is in no hole, up to the size that in has now.
func copySparse(out, in *os.File) error {
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	size := fi.Size()
	for off := data(in, 0, size); off < size; off = data(in, off, size) {
		end, err := unix.Seek(int(in.Fd()), off, unix.SEEK_HOLE)
		if err != nil || end <= off {
			end = size
		}
		if _, err := out.Seek(off, io.SeekStart); err != nil {
			return err
		}
		if _, err := in.Seek(off, io.SeekStart); err != nil {
			return err
		}
		if n, err := io.CopyN(out, in, end-off); err != nil {
			return fmt.Errorf("copied %d of %d bytes at offset %d: %w", n, end-off, off, err)
		}
		off = end
	}
	return out.Truncate(size)
}

// metadata copies owner, mode, attributes and times from upper to dst.
func (a *applier) metadata(p string) error {
	src, err := openBelow(a.upper, p, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	var want, have unix.Stat_t
	if err := unix.Fstat(src, &want); err != nil {
		return err
	}
	if mode, ok := a.modes[p]; ok {
		want.Mode = want.Mode&unix.S_IFMT | mode
	}
	dir, err := openParent(a.dst, p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	if err := unix.Fstatat(dir, name, &have, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if want.Uid != have.Uid || want.Gid != have.Gid {
		if err := unix.Fchownat(dir, name, int(want.Uid), int(want.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("owner %d:%d: %w", want.Uid, want.Gid, err)
		}
	}
	switch want.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		if err := a.attributes(p); err != nil {
			return err
		}
		fallthrough
	case unix.S_IFIFO:
		if err := chmod(dir, name, want.Mode&0o7777); err != nil {
			return err
		}
	}
	ts := []unix.Timespec{want.Atim, want.Mtim}
	return unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

// attributes makes the user.* attributes equal.
func (a *applier) attributes(p string) error {
	var maps [2]map[string][]byte
	var fds [2]int
	for i, root := range []int{a.upper, a.dst} {
		fd, err := openBelow(root, p, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fds[i] = fd
		if maps[i], err = userAttributes(fd); err != nil {
			return err
		}
	}
	for n := range maps[1] {
		if _, keep := maps[0][n]; !keep {
			if err := unix.Fremovexattr(fds[1], n); err != nil {
				return fmt.Errorf("remove attribute %s: %w", n, err)
			}
		}
	}
	for n, v := range maps[0] {
		if old, ok := maps[1][n]; !ok || string(old) != string(v) {
			if err := unix.Fsetxattr(fds[1], n, v, 0); err != nil {
				return fmt.Errorf("set attribute %s: %w", n, err)
			}
		}
	}
	return nil
}

// chmod changes the mode of what is no symbolic link.
func chmod(dir int, name string, mode uint32) error {
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("mode %#o: %w", mode, err)
	}
	return nil
}

// openBelow opens p below root. It crosses no symbolic link; with O_PATH the last
// component may be one, and is opened itself.
func openBelow(root int, p string, flags int) (int, error) {
	dir, err := openParent(root, p)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, path.Base(p), flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func openParent(root int, p string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	for {
		fd, err := unix.Openat2(root, path.Dir(p), &how)
		if err != unix.EINTR && err != unix.EAGAIN { // EAGAIN: a rename raced with the look-up
			return fd, err
		}
	}
}

// removeAll removes name and all below it; it is no error if there is none.
func removeAll(dir int, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d directories deep", name, maxDepth)
	}
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	d, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(d), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeAll(d, n, depth+1); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}
