// Package snapshot copies a workspace for a run that works on the copy, says
// afterwards how the copy differs from what was copied, and sets the differences
// aside as an overlay's upper layer, which is what other recordings leave.
//
// Limits: hard links become files of their own, and holes stay only where the file
// system tells of them. Extended attributes are not copied or compared; sockets,
// pipes and devices are left out, as a baseline leaves them out. What a process
// outside changes while it is copied is copied as it is found.
package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// An Entry is one path of the copy as it was when the copy was done.
type Entry struct {
	Mode         uint32 // type and permissions
	UID, GID     uint32
	Ino          uint64
	Size         int64
	Mtime, Ctime int64    // nanoseconds
	SHA256       [32]byte // of a file
	Target       string   // of a link
}

// An Index tells what was copied, by path relative to the root. The root is "".
type Index map[string]Entry

// Copy copies the tree from into the new folder to.
func Copy(from, to string) (Index, error) {
	ix := Index{}
	var dirs []string
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		rel, e := filepath.Rel(from, p)
		if e != nil {
			return e
		}
		if rel == "." {
			rel = ""
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil // the run could not read it either
		}
		if err != nil {
			return err
		}
		entry, err := copyEntry(p, filepath.Join(to, rel), d)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, errSpecial) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("copy workspace, %s: %w", p, err)
		}
		if d.IsDir() {
			dirs = append(dirs, rel)
		}
		ix[rel] = entry
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Modes and times of directories last: filling one needs and changes them.
	for i := len(dirs) - 1; i >= 0; i-- {
		at := filepath.Join(to, dirs[i])
		want := ix[dirs[i]]
		if err := unix.Chmod(at, want.Mode&0o7777); err != nil {
			return nil, err
		}
		ts := []unix.Timespec{unix.NsecToTimespec(want.Mtime), unix.NsecToTimespec(want.Mtime)}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, at, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
	}
	for rel, e := range ix { // numbers and times of the copy
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(to, rel), &st); err != nil {
			return nil, err
		}
		e.Ino, e.Mtime, e.Ctime, e.Mode, e.UID, e.GID = st.Ino, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode, st.Uid, st.Gid
		ix[rel] = e
	}
	return ix, nil
}

var errSpecial = errors.New("neither file, folder nor link")

func copyEntry(from, to string, d fs.DirEntry) (Entry, error) {
	info, err := d.Info()
	if err != nil {
		return Entry{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	e := Entry{Mode: st.Mode, Size: st.Size, Mtime: st.Mtim.Nano()}
	switch {
	case d.IsDir():
		if f, err := os.Open(from); err != nil {
			return e, err
		} else {
			f.Close()
		}
		err = os.Mkdir(to, 0o700)
	case info.Mode().IsRegular():
		e.SHA256, e.Size, err = copyFile(from, to)
	case info.Mode()&fs.ModeSymlink != 0:
		if e.Target, err = os.Readlink(from); err == nil {
			err = os.Symlink(e.Target, to)
		}
	default:
		return e, errSpecial
	}
	if err != nil {
		return e, err
	}
	if os.Getuid() == 0 {
		if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return e, err
		}
	}
	if d.IsDir() {
		return e, nil
	}
	if info.Mode().IsRegular() {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return e, err
		}
	}
	times := []unix.Timespec{unix.Timespec(st.Atim), unix.Timespec(st.Mtim)}
	return e, unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW)
}

func copyFile(from, to string) (sum [32]byte, size int64, err error) {
	fd, err := unix.Open(from, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return sum, 0, err
	}
	in := os.NewFile(uintptr(fd), from)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sum, 0, err
	}
	h := sha256.New()
	size, err = io.Copy(out, io.TeeReader(in, h))
	if err = errors.Join(err, out.Close()); err != nil {
		return sum, 0, err
	}
	return [32]byte(h.Sum(nil)), size, nil
}

// Changes compares the tree dir with the index. It is sorted by path.
func (ix Index) Changes(dir string) ([]overlay.Change, error) {
	var out []overlay.Change
	seen := make(map[string]bool, len(ix))
	var gone []string // folders that are gone: what was in them is not listed
	err := walk(dir, "", func(rel string, st *unix.Stat_t) error {
		seen[rel] = true
		if rel == "" {
			return nil
		}
		c, err := ix.compare(dir, rel, st)
		if err == nil && c.Kind != 0 {
			out = append(out, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for rel, e := range ix {
		if !seen[rel] {
			gone = append(gone, rel)
			out = append(out, overlay.Change{Path: rel, Kind: overlay.Deleted, Mode: regular.Mode(e.Mode)})
		}
	}
	below := make(map[string]bool, len(gone))
	for _, g := range gone {
		below[g] = true
	}
	kept := out[:0]
	for _, c := range out {
		// A folder became something else, or is gone: its children go with it.
		if up := path.Dir(c.Path); c.Kind == overlay.Deleted && (below[up] || seen[up] && !ix.isDir(dir, up)) {
			continue
		}
		kept = append(kept, c)
	}
	sortChanges(kept)
	return kept, nil
}

func (ix Index) isDir(dir, rel string) bool {
	if rel == "." {
		return true
	}
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(dir, rel), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (ix Index) compare(dir, rel string, st *unix.Stat_t) (overlay.Change, error) {
	c := overlay.Change{Path: rel, Mode: regular.Mode(st.Mode)}
	was, ok := ix[rel]
	kind := st.Mode & unix.S_IFMT
	same := ok && was.Mode&unix.S_IFMT == kind
	meta := st.Mode != was.Mode || st.Uid != was.UID || st.Gid != was.GID
	switch kind {
	case unix.S_IFREG:
		if same && st.Ino == was.Ino && st.Ctim.Nano() == was.Ctime && st.Mtim.Nano() == was.Mtime && st.Size == was.Size {
			return c, nil // nothing that the run can do keeps all of these
		}
		if same {
			meta = meta || st.Mtim.Nano() != was.Mtime
			same = st.Size == was.Size
		}
		if same {
			sum, err := digest(filepath.Join(dir, rel))
			if err != nil {
				return c, err
			}
			same = sum == was.SHA256
		}
		c.Size = st.Size
	case unix.S_IFLNK:
		target, err := os.Readlink(filepath.Join(dir, rel))
		if err != nil {
			return c, err
		}
		same = same && target == was.Target
		c.Target = target
	case unix.S_IFDIR:
	default:
		same = false
	}
	switch {
	case !ok:
		c.Kind = overlay.Added
	case !same:
		c.Kind = overlay.Modified
	case meta:
		c.Kind, c.Size, c.Target = overlay.Metadata, 0, ""
	default:
		c.Size, c.Target = 0, ""
	}
	return c, nil
}

func digest(p string) (sum [32]byte, err error) {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.EACCES { // its own mode keeps the owner out
		if err = unix.Chmod(p, 0o600); err == nil {
			fd, err = unix.Open(p, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return sum, fmt.Errorf("compare %s: %w", p, err)
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, fmt.Errorf("compare %s: %w", p, err)
	}
	return [32]byte(h.Sum(nil)), nil
}
