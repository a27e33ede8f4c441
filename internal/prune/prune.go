// Package prune removes the contents of a run folder and leaves what its receipt
// is proved by: journal, details, secret, checkpoint, sealed set, baseline, what is
// known of the run's log and the keys of an encrypted folder. Single events can still be disclosed; the run can
// not be attested again.
//
// Limits: it removes names, it does not overwrite blocks on the disk. It follows
// no symbolic link: what a run planted leads nowhere.
package prune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A Report says what was removed, or would be.
type Report struct {
	Removed []string // names in the folder, sorted
	Bytes   uint64   // that the files in them take on the disk, but for those that other folders keep under a link
	Files   uint64   //
	Left    []string // names that are no recorder's: they stay
}

// kept are the files that stay.
var kept = []string{
	journal.RowsFile, journal.DetailsFile, journal.HeadFile, journal.SecretFile, "task.sealed", "baseline", "registration.cbor",
	vault.KeyFile, vault.SecretFile, vault.RecipientsFile,
}

// contents tells whether an entry of a run folder holds contents: the folders that
// the recorder makes, and what a derivation that was killed left behind.
func contents(e fs.DirEntry) bool {
	n := e.Name()
	if e.IsDir() {
		grant, ok := strings.CutPrefix(n, "grant-")
		return slices.Contains([]string{"objects", "overlay", "lower", "staged", "tests", "reward", "workspace", "home", "tmp", "private", "control"}, n) || ok && digits(grant)
	}
	if !e.Type().IsRegular() {
		return false
	}
	scan, ok := strings.CutPrefix(n, "scan-")
	return strings.HasPrefix(n, ".evidence-") || ok && strings.HasSuffix(scan, ".tmp")
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Run prunes a run folder; with dry it only says what it would do. Doing it twice
// does nothing the second time. The error is journal.ErrLocked if the run still
// goes on.
func Run(dir string, dry bool) (rep Report, err error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return rep, err
	}
	if !st.IsDir() {
		return rep, fmt.Errorf("%s: got a %v, want a run folder", dir, st.Mode().Type())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return rep, err
	}
	defer root.Close()
	if now, err := root.Stat("."); err != nil || !os.SameFile(st, now) {
		return rep, errors.Join(fmt.Errorf("%s: it was exchanged while it was opened", dir), err)
	}
	unlock, err := lock(root)
	if err != nil {
		return rep, err
	}
	defer unlock()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return rep, err
	}
	for _, e := range entries {
		switch {
		case slices.Contains(kept, e.Name()):
		case !contents(e):
			rep.Left = append(rep.Left, e.Name())
		default:
			if err := rep.remove(root, e.Name(), dry); err != nil {
				return rep, fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
			}
		}
	}
	return rep, nil
}

// Empty removes what is in one folder of dir, and leaves the folder. Without the
// folder it does nothing. Nobody may work in it.
func Empty(dir, name string, dry bool) (rep Report, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return rep, err
	}
	defer root.Close()
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return rep, nil
	}
	if err != nil {
		return rep, err
	}
	if !st.IsDir() {
		return rep, fmt.Errorf("%s: got a %v, want a folder", filepath.Join(dir, name), st.Mode().Type())
	}
	entries, err := fs.ReadDir(root.FS(), name)
	if err != nil {
		return rep, err
	}
	for _, e := range entries {
		if err := rep.remove(root, path.Join(name, e.Name()), dry); err != nil {
			return rep, fmt.Errorf("%s: %w", filepath.Join(dir, name, e.Name()), err)
		}
	}
	return rep, nil
}

// remove removes one entry of the folder and all below it.
func (rep *Report) remove(root *os.Root, name string, dry bool) error {
	if err := rep.measure(root, name, dry, 0); err != nil {
		return err
	}
	rep.Removed = append(rep.Removed, name)
	if dry {
		return nil
	}
	return root.RemoveAll(name)
}

// maxDepth bounds the recursion; a program can build a deeper tree than a path can
// name.
const maxDepth = 1000

// measure counts what is below a name. Folders whose mode forbids their removal get
// another, unless dry.
func (rep *Report) measure(root *os.Root, name string, dry bool, depth int) error {
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrPermission) && dry {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		if st.Mode().IsRegular() {
			rep.Files++
			rep.Bytes += allocated(st)
		}
		return nil
	}
	if st.Mode().Perm()&0o700 != 0o700 && !dry {
		if err := root.Chmod(name, 0o700); err != nil { // it is a folder, and nobody else is here
			return err
		}
	}
	if depth > maxDepth {
		return nil // removed all the same
	}
	d, err := root.Open(name)
	if errors.Is(err, fs.ErrPermission) && dry {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if err := rep.measure(root, path.Join(name, n), dry, depth+1); err != nil {
			return err
		}
	}
	return nil
}
