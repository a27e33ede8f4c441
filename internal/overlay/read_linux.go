package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// maxDepth bounds the recursion; PATH_MAX allows no deeper tree to be named, but a
// program can build one with relative calls.
const maxDepth = 4096

// Changes compares an upper layer with the lower one it was mounted over, both
// directories by descriptor (O_PATH will do). The result is sorted by path. It
// follows no symbolic link. An entry that cannot be read is an error: a delta
// with holes is none. Contents are read only to compare files of equal size, and
// where both have holes not even then: a program can make a file of any size. A file
// that the run closed to its own user is opened for that time, and closed again.
func Changes(upper, lower int) ([]Change, error) { return (&comparison{}).changes(upper, lower) }

func (c *comparison) changes(upper, lower int) ([]Change, error) {
	up, err := openDir(upper, ".")
	if err != nil {
		return nil, fmt.Errorf("upper layer: %w", err)
	}
	defer up.Close()
	low, err := openDir(lower, ".")
	if err != nil {
		return nil, fmt.Errorf("lower layer: %w", err)
	}
	defer low.Close()
	opaque, err := c.dir(up, low, nil, ".")
	if err != nil {
		return nil, err
	}
	if opaque {
		return nil, errors.New("upper layer: its root is opaque: this is no layer of our mounts")
	}
	if err := c.children(up, low, ".", false, 0); err != nil {
		return nil, err
	}
	sort.Slice(c.out, func(i, j int) bool { return c.out[i].Path < c.out[j].Path })
	return c.out, nil
}

type comparison struct {
	out    []Change
	keep   bool // leave closed files open until restore
	closed []closed
	buf    [2][64 << 10]byte
}

func (c *comparison) add(p string, k Kind, st *unix.Stat_t) {
	c.out = append(c.out, Change{Path: p, Kind: k, Mode: regular.Mode(st.Mode)})
}

// children compares all names of the directories up and low; low is nil if there
// is nothing below.
func (c *comparison) children(up, low *os.File, at string, opaque bool, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d directories deep", at, maxDepth)
	}
	names, err := up.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("upper layer, %s: %w", at, err)
	}
	sort.Strings(names)
	for _, n := range names {
		if err := c.entry(up, low, n, path.Join(at, n), depth); err != nil {
			return err
		}
	}
	if !opaque || low == nil {
		return nil
	}
	// Nothing of an opaque directory's lower side shows through.
	have := make(map[string]bool, len(names))
	for _, n := range names {
		have[n] = true
	}
	lows, err := low.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("lower layer, %s: %w", at, err)
	}
	for _, n := range lows {
		if have[n] {
			continue
		}
		var st unix.Stat_t
		if err := lstat(low, n, &st); err != nil {
			return fmt.Errorf("lower layer, %s: %w", path.Join(at, n), err)
		}
		c.add(path.Join(at, n), Deleted, &st)
	}
	return nil
}

func (c *comparison) entry(up, low *os.File, name, p string, depth int) (err error) {
	var us, ls unix.Stat_t
	if err := lstat(up, name, &us); err != nil {
		return fmt.Errorf("upper layer, %s: %w", p, err)
	}
	below := false
	if low != nil {
		switch err := lstat(low, name, &ls); err {
		case nil:
			below = true
		case unix.ENOENT:
		default:
			return fmt.Errorf("lower layer, %s: %w", p, err)
		}
	}
	if isWhiteout(&us) {
		if below { // else: made and removed again
			c.add(p, Deleted, &ls)
		}
		return nil
	}
	if us.Mode&unix.S_IFMT != unix.S_IFDIR {
		return c.file(up, low, name, p, &us, &ls, below)
	}
	upd, done, err := c.open(up, name, p, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("upper layer, %s: %w", p, err)
	}
	defer func() { err = errors.Join(err, done(), upd.Close()) }()
	var lowd *os.File
	if below && ls.Mode&unix.S_IFMT == unix.S_IFDIR {
		if lowd, err = openDir(int(low.Fd()), name); err != nil {
			return fmt.Errorf("lower layer, %s: %w", p, err)
		}
		defer lowd.Close()
	}
	var opaque bool
	switch {
	case lowd != nil:
		opaque, err = c.dir(upd, lowd, &us, p)
	case below: // a file became a directory
		c.add(p, Modified, &us)
		_, err = attributes(upd)
	default:
		c.add(p, Added, &us)
		_, err = attributes(upd)
	}
	if err != nil {
		return err
	}
	return c.children(upd, lowd, p, opaque, depth+1)
}

// dir compares two directories themselves and says whether the upper, of status us, is
// opaque.
func (c *comparison) dir(up, low *os.File, us *unix.Stat_t, p string) (bool, error) {
	ua, err := attributes(up)
	if err != nil {
		return false, fmt.Errorf("upper layer, %s: %w", p, err)
	}
	la, err := attributes(low)
	if err != nil {
		return false, fmt.Errorf("lower layer, %s: %w", p, err)
	}
	if p == "." {
		// The recorder made the upper root; the kernel copies nothing onto it.
		return ua.opaque, nil
	}
	var ls unix.Stat_t
	if err := unix.Fstat(int(low.Fd()), &ls); err != nil {
		return false, fmt.Errorf("%s: %w", p, err)
	}
	switch {
	case ua.opaque:
		c.add(p, Replaced, us)
	case us.Mode != ls.Mode || us.Uid != ls.Uid || us.Gid != ls.Gid || ua.user != la.user:
		c.add(p, Metadata, us)
	}
	return ua.opaque, nil
}

// file compares what is no directory.
func (c *comparison) file(up, low *os.File, name, p string, us, ls *unix.Stat_t, below bool) (failed error) {
	ch := Change{Path: p, Mode: regular.Mode(us.Mode)}
	same := below && us.Mode&unix.S_IFMT == ls.Mode&unix.S_IFMT
	meta := us.Mode != ls.Mode || us.Uid != ls.Uid || us.Gid != ls.Gid
	switch us.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		uf, done, err := c.open(up, name, p, 0)
		if err != nil {
			return fmt.Errorf("upper layer, %s: %w", p, err)
		}
		defer func() { failed = errors.Join(failed, done(), uf.Close()) }()
		ua, err := attributes(uf)
		if err != nil {
			return fmt.Errorf("upper layer, %s: %w", p, err)
		}
		if same {
			lf, err := openFile(low, name)
			if err != nil {
				return fmt.Errorf("lower layer, %s: %w", p, err)
			}
			defer lf.Close()
			la, err := attributes(lf)
			if err != nil {
				return fmt.Errorf("lower layer, %s: %w", p, err)
			}
			meta = meta || us.Mtim != ls.Mtim || ua.user != la.user
			if same = us.Size == ls.Size; same {
				if same, err = c.equal(uf, lf, us.Size); err != nil {
					return fmt.Errorf("compare %s: %w", p, err)
				}
			}
		}
		if !same {
			ch.Size = us.Size
		}
	case unix.S_IFLNK:
		t, err := readlink(up, name)
		if err != nil {
			return fmt.Errorf("upper layer, %s: %w", p, err)
		}
		if same {
			lt, err := readlink(low, name)
			if err != nil {
				return fmt.Errorf("lower layer, %s: %w", p, err)
			}
			same = t == lt
		}
		if !same {
			ch.Target = t
		}
	default:
		same = same && us.Rdev == ls.Rdev
	}
	switch {
	case !below:
		ch.Kind = Added
	case !same:
		ch.Kind = Modified
	case meta:
		ch.Kind = Metadata
	default:
		return nil // copied up and left alone
	}
	c.out = append(c.out, ch)
	return nil
}

// equal compares the contents of two files of the same size.
func (c *comparison) equal(a, b *os.File, size int64) (bool, error) {
	for off := int64(0); ; {
		// Where neither has data both are zero.
		off = min(data(a, off, size), data(b, off, size))
		n, errA := a.ReadAt(c.buf[0][:], off)
		m, errB := b.ReadAt(c.buf[1][:], off)
		if n != m || !bytes.Equal(c.buf[0][:n], c.buf[1][:m]) {
			return false, nil
		}
		if errA == io.EOF && errB == io.EOF {
			return true, nil
		}
		if errA != nil && errA != io.EOF {
			return false, errA
		}
		if errB != nil && errB != io.EOF {
			return false, errB
		}
		off += int64(n)
	}
}

// data is the offset of the first byte at off or after it that is in no hole, or
// size. A file system that does not tell has no holes.
func data(f *os.File, off, size int64) int64 {
	next, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return max(off, size)
	case err != nil || next < off:
		return off
	}
	return next
}

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func lstat(dir *os.File, name string, st *unix.Stat_t) error {
	return unix.Fstatat(int(dir.Fd()), name, st, unix.AT_SYMLINK_NOFOLLOW)
}

func openDir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openFile opens a regular file. O_NONBLOCK: should it have become a FIFO.
func openFile(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readlink(dir *os.File, name string) (string, error) {
	var b [unix.PathMax]byte
	n, err := unix.Readlinkat(int(dir.Fd()), name, b[:])
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
