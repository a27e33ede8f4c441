package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
)

// maxDepth bounds the recursion: a program can build a tree deeper than PATH_MAX
// names, but not one that the recorder let it build.
const maxDepth = 2048

// walk visits what is below dir, parents first, without following links. A folder
// whose mode keeps its owner out is opened up for it.
func walk(dir, rel string, visit func(rel string, st *unix.Stat_t) error) error {
	at := filepath.Join(dir, rel)
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return fmt.Errorf("compare %s: %w", at, err)
	}
	if err := visit(rel, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if strings.Count(rel, "/") > maxDepth {
		return fmt.Errorf("compare %s: more than %d folders deep", at, maxDepth)
	}
	names, err := readNames(at, st.Mode)
	if err != nil {
		return fmt.Errorf("compare %s: %w", at, err)
	}
	for _, n := range names {
		if err := walk(dir, filepath.Join(rel, n), visit); err != nil {
			return err
		}
	}
	return nil
}

func readNames(dir string, mode uint32) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) || mode&0o500 != 0o500 {
		if f != nil {
			f.Close()
		}
		// Its entries must be reached too. It is a copy that is thrown away.
		if err := os.Chmod(dir, fs.FileMode(mode&0o777)|0o700); err != nil {
			return nil, err
		}
		f, err = os.Open(dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func sortChanges(list []overlay.Change) {
	slices.SortFunc(list, func(a, b overlay.Change) int { return strings.Compare(a.Path, b.Path) })
}

// Export moves what changed in the tree dir into the empty folder upper, so that
// upper over the original is what dir was (package overlay). dir is of no use
// afterwards.
func Export(changes []overlay.Change, dir, upper string) error {
	type mode struct {
		at string
		st unix.Stat_t
	}
	var dirs []mode
	made := map[string]bool{".": true}
	var parents func(rel string) error
	parents = func(rel string) error {
		if made[rel] {
			return nil
		}
		if err := parents(filepath.Dir(rel)); err != nil {
			return err
		}
		made[rel] = true
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, rel), &st); err != nil {
			return err
		}
		at := filepath.Join(upper, rel)
		dirs = append(dirs, mode{at, st})
		return os.Mkdir(at, 0o700)
	}
	for _, c := range changes {
		if err := parents(filepath.Dir(c.Path)); err != nil {
			return fmt.Errorf("set changes aside: %w", err)
		}
		from, to := filepath.Join(dir, c.Path), filepath.Join(upper, c.Path)
		var err error
		switch {
		case c.Kind == overlay.Deleted:
			err = unix.Mknod(to, unix.S_IFCHR, 0) // how an overlay says it
		case c.Mode.IsDir():
			err = parents(c.Path)
		default:
			if err = os.Rename(from, to); errors.Is(err, fs.ErrPermission) {
				if err = os.Chmod(filepath.Dir(from), 0o700); err == nil { // its mode was noted above
					err = os.Rename(from, to)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("set changes aside: %s: %w", c.Path, err)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		d := dirs[i]
		if os.Getuid() == 0 {
			if err := os.Lchown(d.at, int(d.st.Uid), int(d.st.Gid)); err != nil && !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("set changes aside: %w", err)
			}
		}
		if err := unix.Chmod(d.at, d.st.Mode&0o7777); err != nil {
			return fmt.Errorf("set changes aside: %w", err)
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, d.at, []unix.Timespec{d.st.Atim, d.st.Mtim}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set changes aside: %w", err)
		}
	}
	return nil
}

// Remove deletes a tree whatever modes its folders have.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = walk(dir, "", func(string, *unix.Stat_t) error { return nil }) // opens up what is closed
	return os.RemoveAll(dir)
}
