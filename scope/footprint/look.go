package footprint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Look reads the entry of one path in an open folder, nil if there is none: everything but
// the content. It is not Read if its user may not read the attributes.
func Look(ctx context.Context, root *os.Root, p string) (*Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := filepath.FromSlash(p)
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st := statusOf(fi)
	e := st.entry()
	e.Path = p
	var f *os.File
	switch {
	case e.Mode.Type() == fs.ModeSymlink:
		if e.Target, err = root.Readlink(name); err != nil {
			return nil, err
		}
	case e.Mode.IsDir():
		f, err = root.Open(name)
	case e.Mode.IsRegular():
		f, err = regular.In(root, name)
	}
	if errors.Is(err, fs.ErrPermission) {
		return &e, nil
	}
	if err != nil {
		return nil, err
	}
	if f != nil {
		defer f.Close()
		if e.Attrs, err = fileAttributes(f); err != nil {
			return nil, err
		}
	}
	e.Read = true
	return &e, nil
}
