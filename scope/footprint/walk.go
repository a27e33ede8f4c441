package footprint

import (
	"context"
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

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Limits of one walk. A walk that meets one has a gap.
type Limits struct {
	Entries int   // names
	Bytes   int64 // read of files
	Depth   int   // folders below each other
}

// DefaultLimits of a walk: ten million names, 1 TiB.
var DefaultLimits = Limits{Entries: 10_000_000, Bytes: 1 << 40, Depth: 1024}

// Gap reasons.
const (
	GapUnreadable = "unreadable"
	GapSwapped    = "replaced while it was looked at"
	GapLimit      = "a limit was reached"
	GapVanished   = "gone while it was looked at"
)

// Take lists the open folder. With read it reads contents and extended attributes too.
// It follows no symbolic link, opens regular files and folders alone, and enters a folder
// only if it is the one that it looked at before. What cannot be seen is a gap; the
// error is only ever ctx's.
func Take(ctx context.Context, root *os.Root, read bool, limits Limits) (*Manifest, error) {
	w := &walk{ctx: ctx, read: read, whole: read, limits: limits, buf: make([]byte, 128<<10)}
	st, err := root.Lstat(".")
	if err != nil {
		w.gap(".", err)
	} else {
		w.take(root, ".", ".", st)
		w.folder(root, ".", 0)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(w.m.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(w.m.Gaps, func(a, b Gap) int { return strings.Compare(a.Path, b.Path) })
	return &w.m, nil
}

type walk struct {
	ctx    context.Context
	read   bool // attributes
	whole  bool // and contents
	limits Limits
	m      Manifest
	buf    []byte
	full   bool
}

func (w *walk) gap(p string, err error) {
	reason := GapUnreadable
	switch {
	case errors.Is(err, errLimit):
		if w.full {
			return
		}
		w.full, reason = true, GapLimit
	case errors.Is(err, errBytes):
		reason = GapLimit
	case errors.Is(err, regular.ErrReplaced):
		reason = GapSwapped
	case errors.Is(err, fs.ErrNotExist):
		reason = GapVanished
	}
	if n := len(w.m.Gaps); n == 0 || w.m.Gaps[n-1].Path != p { // a folder is opened twice
		w.m.Gaps = append(w.m.Gaps, Gap{p, reason})
	}
}

var (
	errLimit = errors.New("limit of names or folders") // the walk ends
	errBytes = errors.New("limit of bytes")            // this file is left out
)

func (w *walk) done() bool { return w.full || w.ctx.Err() != nil }

// folder lists what is below the open folder in, whose path is at.
func (w *walk) folder(in *os.Root, at string, depth int) {
	if depth > w.limits.Depth {
		w.gap(at, errLimit)
		return
	}
	names, err := w.names(in)
	if err != nil {
		w.gap(at, err)
		return
	}
	for _, name := range names {
		if w.done() {
			return
		}
		p := path.Join(at, filepath.ToSlash(name))
		if len(w.m.Entries) >= w.limits.Entries {
			w.gap(p, errLimit)
			return
		}
		st, err := in.Lstat(name)
		if err != nil {
			w.gap(p, err)
			continue
		}
		if w.take(in, name, p, st); st.IsDir() {
			w.enter(in, name, p, st, depth)
		}
	}
}

func (w *walk) names(in *os.Root) ([]string, error) {
	d, err := in.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var names []string
	for {
		some, err := d.Readdirnames(4096)
		names = append(names, some...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if w.ctx.Err() != nil || len(names) > w.limits.Entries {
			break // the caller sees it at the next name
		}
	}
	slices.Sort(names)
	return names, nil
}

func (w *walk) enter(in *os.Root, name, p string, seen fs.FileInfo, depth int) {
	below, err := in.OpenRoot(name)
	if err != nil {
		w.gap(p, err)
		return
	}
	defer below.Close()
	now, err := below.Lstat(".")
	if err == nil && !os.SameFile(seen, now) {
		err = fmt.Errorf("%s: %w", p, regular.ErrReplaced)
	}
	if err != nil {
		w.gap(p, err)
		return
	}
	w.folder(below, p, depth+1)
}

// take adds the entry of one name.
func (w *walk) take(in *os.Root, name, p string, st fs.FileInfo) {
	e := entryOf(p, st)
	err := w.content(in, name, &e)
	if err != nil {
		w.gap(p, err)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	w.m.Entries = append(w.m.Entries, e)
}

func entryOf(p string, st fs.FileInfo) Entry {
	e := Entry{Path: p, Mode: st.Mode()}
	if st.Mode().IsRegular() {
		e.Size = st.Size()
	}
	kept(&e, st)
	if e.Mode.IsDir() {
		e.Links = 0
	}
	return e
}

func (w *walk) content(in *os.Root, name string, e *Entry) (err error) {
	switch {
	case e.Mode.Type() == fs.ModeSymlink:
		e.Target, err = in.Readlink(name)
		e.Read = err == nil && w.read
		return err
	case !w.read:
		return nil
	case e.Mode.IsDir():
		d, err := in.Open(name)
		if err != nil {
			return err
		}
		defer d.Close()
		if e.Attrs, err = attributes(d); err != nil {
			return err
		}
		e.Read = true
		return nil
	case !e.Mode.IsRegular():
		e.Read = true // a pipe, a socket or a device has no content of its own
		return nil
	}
	f, err := regular.In(in, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if e.Attrs, err = attributes(f); err != nil {
		return err
	}
	if !w.whole {
		e.Read = true
		return nil
	}
	if e.Size > w.limits.Bytes { // also of a sparse file, which takes no room
		return errBytes
	}
	h := sha256.New()
	var n int64
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		k, err := f.Read(w.buf)
		h.Write(w.buf[:k])
		if n += int64(k); n > w.limits.Bytes {
			return errBytes
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	w.limits.Bytes -= n
	if n != e.Size { // it grew or was cut meanwhile
		return fmt.Errorf("%s: %w", e.Path, regular.ErrReplaced)
	}
	e.SHA256, e.Read = [32]byte(h.Sum(nil)), true
	return nil
}

// Look reads the entry of one path in an open folder, nil if there is none: everything but
// the content.
func Look(ctx context.Context, root *os.Root, p string) (*Entry, error) {
	name := filepath.FromSlash(p)
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &walk{ctx: ctx, read: true}
	e := entryOf(p, st)
	if err := w.content(root, name, &e); err != nil {
		return nil, err
	}
	return &e, nil
}
