package manifest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// A RefusedError names a path that cannot be part of a baseline.
type RefusedError struct {
	Path   string // inside the workspace
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("workspace: %q: %s", e.Path, e.Reason)
}

// Build lists the folder root and the prompt. Links are listed and never
// followed; one that leads out of the folder, and not into a read-only system
// folder (scope.SystemRoots), is refused with a *RefusedError, since what it shows would
// be no part of the list. So are devices, sockets,
// pipes and names that are not UTF-8.
func Build(root string, prompt []byte) (*Manifest, error) {
	// An os.Root does not leave the folder even if a link is planted while we read.
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	defer dir.Close()
	entries := []Entry{{Type: Prompt, Size: uint64(len(prompt)), SHA256: sha256.Sum256(prompt)}}
	links := map[string]string{}
	buf := make([]byte, 32<<10)
	err = fs.WalkDir(dir.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return &RefusedError{p, "it cannot be read by you; change its mode or owner, or remove it"}
		}
		if err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		if p == "." {
			return nil
		}
		if !validPath(p) {
			return &RefusedError{p, "the name is not valid UTF-8; rename it"}
		}
		e := Entry{Path: p}
		switch d.Type() {
		case fs.ModeDir:
			e.Type = Dir
		case fs.ModeSymlink:
			e.Type = Link
			if e.Target, err = dir.Readlink(filepath.FromSlash(p)); err != nil {
				return fmt.Errorf("workspace: %w", err)
			}
			e.Target = filepath.ToSlash(e.Target)
			links[p] = e.Target
		case 0:
			if err := readFile(dir, &e, buf); errors.Is(err, fs.ErrPermission) {
				return &RefusedError{p, "it cannot be read by you; change its mode or owner, or remove it"}
			} else if err != nil {
				return fmt.Errorf("workspace: %w", err)
			}
		default:
			return &RefusedError{p, fmt.Sprintf("it is a device, socket or pipe (%s); remove it", d.Type())}
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	for _, e := range entries {
		if e.Type == Link && escapes(e.Path, links) {
			return nil, &RefusedError{e.Path, fmt.Sprintf("the link leads out of the workspace (to %q); replace it by what it shows, or remove it", e.Target)}
		}
	}
	return newManifest(entries)
}

func readFile(dir *os.Root, e *Entry, buf []byte) error {
	f, err := dir.Open(filepath.FromSlash(e.Path))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: it changed from a file to something else while it was read", e.Path)
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, buf) // a file would take a buffer of its own
	if err != nil {
		return err
	}
	e.Type, e.Exec, e.Size, e.SHA256 = File, info.Mode()&0o100 != 0, uint64(n), [32]byte(h.Sum(nil))
	return nil
}

// system tells whether an absolute target stands in a read-only system folder.
// Virtual environments have such links. What they show is no part of the
// baseline: a run that reads it is judged by it, like any system file.
func system(target string) bool {
	target = path.Clean(target)
	for _, r := range scope.SystemRoots() {
		if r.Path != "/" && strings.HasPrefix(target, r.Path+"/") {
			return true
		}
	}
	return false
}

// maxHops is what Linux follows before ELOOP: a longer chain shows nothing.
const maxHops = 40

// escapes tells whether following the link leaves the root, by walking the
// names as the kernel does: ".." after a link goes up from where the link led.
func escapes(link string, links map[string]string) bool {
	rest := strings.Split(link, "/")
	at := "."
	for hops := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return true
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		target, ok := links[next]
		if !ok {
			at = next
			continue
		}
		if path.IsAbs(target) || filepath.IsAbs(target) {
			return !system(target)
		}
		if hops++; hops > maxHops {
			return false
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false
}
