package surface

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxDepth of folders in folders: each is an open handle on the way down.
const maxDepth = 200

// A Folder is a local folder as a source. Everything is opened below the handle of its
// root, and what was opened is then asked where it lies; so a folder or file that is
// swapped meanwhile leads nowhere else. Pipes and devices are not opened. Its entries
// have a time of last change on Linux and macOS.
type Folder struct {
	Path string
	// listing reads a folder's names, in a seam for tests.
	listing func(f *os.File, n int) ([]os.DirEntry, error)
	// opening is told of a path that is about to be opened, in a seam for tests.
	opening func(path string)
	// lies tells where an open file lies, in a seam for tests.
	lies func(f *os.File) (string, error)
}

// Describe names the source.
func (d *Folder) Describe() Description {
	return Description{Kind: "folder", Applies: []Key{KeyWindow}}
}

// List lists the folder.
func (d *Folder) List(ctx context.Context, at Location, c *Collector) {
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		_ = c.Break(Unavailable)
		return
	}
	defer root.Close()
	w := walk{d: *d, c: c, root: root, at: at}
	if w.d.listing == nil {
		w.d.listing = (*os.File).ReadDir
	}
	if w.d.opening == nil {
		w.d.opening = func(string) {}
	}
	if w.d.lies == nil {
		w.d.lies = handlePath
	}
	if !at.Glob {
		if !filepath.IsLocal(filepath.FromSlash(at.Path)) || strings.Contains(at.Path, `\`) && filepath.Separator == '\\' {
			c.Gap(UnsafeName, at.Path)
			return
		}
		if c.Listed() == nil {
			w.exact()
		}
		return
	}
	base, segments := at.split()
	sub, ok := w.base(base)
	if !ok {
		return
	}
	defer sub.Close()
	if base == "." {
		base = ""
	}
	_ = w.folder(sub, base, segments, 0)
}

type walk struct {
	d    Folder
	c    *Collector
	root *os.Root
	at   Location
}

// absent tells whether an error says that nothing has the name.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// follow is what became of a link that could not be followed.
func follow(err error) Reason {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		return LinkDangling
	case errors.As(err, &errno):
		return ReadFailed
	}
	return LinkOutside // os.Root has no error of its own for it
}

// missing looks for the reason why a path could not be reached: nothing is there, or a
// link on the way leads nowhere, or out. "" is that nothing is there.
func (w *walk) missing(p string, err error) Reason {
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		st, e := w.root.Lstat(p[:i])
		if e == nil && st.Mode()&fs.ModeSymlink != 0 {
			if _, e := w.root.Stat(p[:i]); e != nil {
				return follow(e)
			}
			continue
		}
		if e != nil {
			if absent(e) {
				return ""
			}
			return ReadFailed
		}
	}
	if absent(err) {
		return "" // it was there a moment ago
	}
	return ReadFailed
}

// exact looks at one path. Links in it are followed inside the root.
func (w *walk) exact() {
	p := w.at.Path
	st, err := w.root.Stat(p)
	if err != nil {
		if r := w.missing(p, err); r != "" {
			w.c.Gap(r, p)
		}
		return
	}
	if !st.Mode().IsRegular() {
		w.c.Gap(NotAFile, p)
		return
	}
	_ = w.c.File(p, func() (*Item, Reason) { return w.open(w.root, p, p, st) })
}

// base opens the folder above everything that a glob can name.
func (w *walk) base(p string) (*os.Root, bool) {
	if p == "." {
		sub, err := w.root.OpenRoot(".")
		if err != nil {
			w.c.Gap(ListingFailed, "")
		}
		return sub, err == nil
	}
	st, err := w.root.Lstat(p)
	if err != nil {
		if r := w.missing(p, err); r != "" {
			w.c.Gap(r, p)
		}
		return nil, false
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		if to, err := w.root.Stat(p); err != nil {
			w.c.Gap(follow(err), p)
		} else if to.IsDir() {
			w.c.Gap(LinkNotFollowed, p)
		}
		return nil, false
	}
	if !st.IsDir() {
		return nil, false // no file lies below it
	}
	return w.enter(w.root, p, p, st)
}

// enter opens a folder that was looked at, and makes sure that it is the same.
func (w *walk) enter(in *os.Root, name, full string, seen fs.FileInfo) (*os.Root, bool) {
	w.d.opening(full)
	sub, err := in.OpenRoot(name)
	if err != nil {
		reason := ListingFailed
		if now, e := in.Lstat(name); e != nil || !now.IsDir() {
			reason = Replaced
		}
		w.c.Gap(reason, full)
		return nil, false
	}
	if st, err := sub.Stat("."); err != nil || !os.SameFile(st, seen) {
		sub.Close()
		w.c.Gap(Replaced, full)
		return nil, false
	}
	return sub, true
}

// names lists a folder by its handle, sorted. A listing that breaks off is discarded:
// what came first depends on the file system.
func (w *walk) names(in *os.Root, full string) ([]string, error) {
	f, err := in.Open(".")
	if err != nil {
		w.c.Gap(ListingFailed, full)
		return nil, nil
	}
	defer f.Close()
	var names []string
	for {
		list, err := w.d.listing(f, 1024)
		for _, e := range list {
			if err := w.c.Listed(); err != nil {
				return nil, err
			}
			names = append(names, e.Name())
		}
		if err == io.EOF {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			w.c.Gap(ListingFailed, full)
			return nil, nil
		}
	}
}

// folder lists one folder and what lies in it. segments are those of the pattern, from
// this folder's own files on.
func (w *walk) folder(in *os.Root, full string, segments []string, depth int) error {
	if depth > maxDepth {
		w.c.Gap(DepthLimit, full)
		return nil
	}
	names, err := w.names(in, full)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(full, name)
		if full == "" {
			p = name
		}
		below, deeper := next(segments, name)
		file := w.at.Matches(p)
		if !file && !deeper {
			continue
		}
		st, err := in.Lstat(name)
		if err != nil {
			if !absent(err) {
				w.c.Gap(ReadFailed, p)
			}
			continue
		}
		switch {
		case st.IsDir():
			if !deeper {
				continue
			}
			if sub, ok := w.enter(in, name, p, st); ok {
				err = w.folder(sub, p, below, depth+1)
				sub.Close()
			}
		case len(p) > MaxLocation:
			w.c.Gap(UnsafeName, "")
		case st.Mode()&fs.ModeSymlink != 0:
			err = w.link(p, st, file, deeper)
		case !file:
		case !st.Mode().IsRegular():
			w.c.Gap(NotAFile, p)
		default:
			err = w.c.File(p, func() (*Item, Reason) { return w.open(in, name, p, st) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// link looks at a link: one to a file inside the root is that file, under its own name.
func (w *walk) link(full string, seen fs.FileInfo, file, deeper bool) error {
	// From the root, since the target may lie above the folder; and it must be the link
	// that was met.
	if now, err := w.root.Lstat(full); err != nil || !os.SameFile(now, seen) {
		w.c.Gap(Replaced, full)
		return nil
	}
	st, err := w.root.Stat(full)
	switch {
	case err != nil:
		// What a link out of the root would hold below it is not known either.
		if r := follow(err); file || deeper && r == LinkOutside {
			w.c.Gap(r, full)
		}
	case st.IsDir():
		if deeper { // else the pattern ends above it
			w.c.Gap(LinkNotFollowed, full)
		}
	case !file:
	case !st.Mode().IsRegular():
		w.c.Gap(NotAFile, full)
	default:
		return w.c.File(full, func() (*Item, Reason) { return w.open(w.root, full, full, st) })
	}
	return nil
}

// open opens a regular file that was looked at. The handle is asked whether it is the
// same file, and where it lies.
func (w *walk) open(in *os.Root, name, full string, seen fs.FileInfo) (*Item, Reason) {
	if w.top() == "" {
		return nil, Unconfined
	}
	w.d.opening(full)
	f, err := in.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		if now, e := in.Stat(name); e != nil || !os.SameFile(now, seen) {
			return nil, Replaced
		}
		return nil, ReadFailed
	}
	st, err := f.Stat()
	reason := Reason("")
	switch {
	case err != nil:
		reason = ReadFailed
	case !st.Mode().IsRegular():
		reason = NotAFile
	case !os.SameFile(st, seen):
		reason = Replaced
	case !w.inside(f):
		reason = Unconfined
	}
	if reason != "" {
		f.Close()
		return nil, reason
	}
	it := &Item{Size: st.Size(), Modified: Stamp(st.ModTime()), Content: f}
	it.Changed, it.Links = kept(st)
	it.After = func() Reason {
		now, err := f.Stat()
		if err != nil {
			return ReadFailed
		}
		if !w.inside(f) {
			return Unconfined
		}
		changed, _ := kept(now)
		same := changed == it.Changed || changed != nil && it.Changed != nil && *changed == *it.Changed
		if now.Size() != st.Size() || !now.ModTime().Equal(st.ModTime()) || !same {
			return Changed
		}
		return ""
	}
	return it, ""
}

// top asks the system where the root lies now; "" is that it does not say.
func (w *walk) top() string {
	f, err := w.root.Open(".")
	if err != nil {
		return ""
	}
	defer f.Close()
	p, err := w.d.lies(f)
	if err != nil {
		return ""
	}
	return p
}

// inside asks the system where an open file lies now.
func (w *walk) inside(f *os.File) bool {
	p, err := w.d.lies(f)
	return err == nil && strictlyBelow(p, w.top())
}

// strictlyBelow tells whether a path lies in a folder, both as the system spells them.
func strictlyBelow(p, folder string) bool {
	sep := string(filepath.Separator)
	if folder == "" || p == "" {
		return false
	}
	if !strings.HasSuffix(folder, sep) {
		folder += sep
	}
	return strings.HasPrefix(p, folder) && len(p) > len(folder)
}
