package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/redact"
)

// Scrub takes secrets out of what the run changed, which lies in RunDir beside the
// recording: files, names, link targets and extended attributes. Of an encrypted
// RunDir it removes these files: their contents are in the store. Run does it at
// its end unless Config.ApplyFirst says that the caller does, after Apply.
func Scrub(c Config) error {
	s := &stage{RunDir: c.RunDir}
	if err := s.keep(&c); err != nil {
		return err
	}
	return s.scrub(len(c.Recipients) > 0)
}

func (s *stage) scrub(encrypted bool) error {
	r, err := redact.New(s.Keep.Remove)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if r.Empty() && !encrypted {
		return nil
	}
	entries, err := os.ReadDir(s.RunDir)
	if err != nil {
		return fmt.Errorf("sandbox: scrub: %w", err)
	}
	sc := &scrubber{all: r.Unbounded(), names: r.Unbounded().WithoutShapes()}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == objectsDir {
			continue
		}
		dir := filepath.Join(s.RunDir, e.Name())
		if encrypted {
			err = removeTree(dir)
		} else {
			err = sc.top(dir)
		}
		if err != nil {
			return fmt.Errorf("sandbox: what the run changed may hold secrets in clear: remove %s: %w", dir, err)
		}
	}
	return nil
}

// removeTree removes a folder whose own folders may forbid it.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700) // RemoveAll says what is left
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// A scrubber goes through files that a program made: it follows no link, opens
// nothing but regular files and folders, and reads no holes.
type scrubber struct {
	all   *redact.Redactor
	names *redact.Redactor // without shapes of keys
	buf   [128 << 10]byte
}

func (sc *scrubber) top(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return sc.dir(os.NewFile(uintptr(fd), dir), 0)
}

// maxDepth bounds the recursion; no run makes deeper trees by accident.
const maxDepth = 4096

// dir scrubs what is in f and closes it.
func (sc *scrubber) dir(f *os.File, depth int) error {
	defer f.Close()
	if depth > maxDepth {
		return fmt.Errorf("%s: folders more than %d deep", f.Name(), maxDepth)
	}
	if err := sc.attributes(int(f.Fd())); err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := sc.entry(int(f.Fd()), name, depth); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return nil
}

func (sc *scrubber) entry(dir int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		if err := sc.link(dir, name); err != nil {
			return err
		}
	case unix.S_IFDIR:
		fd, restore, err := openMine(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, &st, 0o700)
		if err != nil {
			return err
		}
		err = sc.dir(os.NewFile(uintptr(fd), "folder"), depth+1)
		if err := errors.Join(err, restore()); err != nil {
			return err
		}
	case unix.S_IFREG:
		fd, restore, err := openMine(dir, name, unix.O_RDWR, &st, 0o600)
		if err != nil {
			return err
		}
		err = errors.Join(sc.file(fd), sc.attributes(fd), unix.Close(fd), restore())
		if err != nil {
			return err
		}
	}
	return sc.rename(dir, name)
}

// openMine opens an entry whose mode may forbid it to its owner.
func openMine(dir int, name string, flags int, st *unix.Stat_t, need uint32) (fd int, restore func() error, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	restore = func() error { return nil }
	fd, err = unix.Openat(dir, name, flags, 0)
	if err != unix.EACCES {
		return fd, restore, err
	}
	mode := st.Mode & 0o7777
	if err := unix.Fchmodat(dir, name, mode|need, 0); err != nil { // checked: no link
		return -1, restore, err
	}
	restore = func() error { return unix.Fchmodat(dir, name, mode, 0) }
	fd, err = unix.Openat(dir, name, flags, 0)
	return fd, restore, err
}

// file removes secrets from a file, in place.
func (sc *scrubber) file(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	for off := int64(0); off < st.Size; {
		from, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil
		}
		end := st.Size
		if err == nil {
			end, err = unix.Seek(fd, from, unix.SEEK_HOLE)
		}
		if err != nil { // a file system that knows no holes
			from, end = off, st.Size
		}
		if err := sc.part(fd, from, end); err != nil {
			return err
		}
		off = max(end, off+1)
	}
	return nil
}

// part scrubs the bytes of a file between two holes.
func (sc *scrubber) part(fd int, from, end int64) error {
	pass := sc.all.Pass()
	out := from // of what pass gives back
	put := func(b []byte, last bool) error {
		before := pass.Result().Bytes
		b = pass.Next(b, last)
		at := out
		out += int64(len(b))
		if pass.Result().Bytes == before {
			return nil
		}
		for len(b) > 0 {
			n, err := unix.Pwrite(fd, b, at)
			if err != nil && err != unix.EINTR {
				return err
			}
			b, at = b[max(n, 0):], at+int64(max(n, 0))
		}
		return nil
	}
	for off := from; off < end; {
		n, err := unix.Pread(fd, sc.buf[:min(int64(len(sc.buf)), end-off)], off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := put(sc.buf[:n], false); err != nil {
			return err
		}
		off += int64(n)
	}
	return put(nil, true)
}

func (sc *scrubber) link(dir int, name string) error {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return err
	}
	target, res := sc.names.String(string(b[:n]), true)
	if res.Bytes == 0 {
		return nil
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return err
	}
	return unix.Symlinkat(target, dir, name)
}

// rename takes a secret out of a name. Two names may become one: then the second
// gets a number.
func (sc *scrubber) rename(dir int, name string) error {
	clean, res := sc.names.String(name, false)
	if res.Bytes == 0 {
		return nil
	}
	to := clean
	for i := 2; ; i++ {
		err := unix.Renameat2(dir, name, dir, to, unix.RENAME_NOREPLACE)
		if err == unix.EINVAL || err == unix.ENOSYS { // the file system cannot; nobody else is here
			err = unix.Renameat(dir, name, dir, to)
		}
		if err != unix.EEXIST || i > 1000 {
			return err
		}
		to = fmt.Sprintf("%.200s-%d", clean, i)
	}
}

// attributes takes secrets out of extended attributes.
func (sc *scrubber) attributes(fd int) error {
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, list)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	if err != nil {
		return err
	}
	for start, i := 0, 0; i < n; i++ {
		if list[i] != 0 {
			continue
		}
		name := string(list[start:i])
		start = i + 1
		value := make([]byte, 64<<10)
		size, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			continue // the kernel's own
		}
		value = value[:size]
		if sc.names.Finds([]byte(name)) {
			err = unix.Fremovexattr(fd, name)
		} else if sc.all.Bytes(value).Bytes > 0 {
			err = unix.Fsetxattr(fd, name, value, unix.XATTR_REPLACE)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
