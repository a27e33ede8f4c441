package tlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/transparency-dev/tessera/api/layout"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Bounds of the files of a log.
const (
	maxCheckpoint = 64 << 10
	maxTile       = perBundle * 32
	maxBundle     = perBundle * (2 + MaxEntry)
)

// files reads a folder of c2sp.org/tlog-tiles. Its files may be somebody else's:
// a link leads nowhere, and a pipe is not waited for.
type files struct{ root *os.Root }

func openFiles(dir string) (files, error) {
	root, err := os.OpenRoot(dir)
	return files{root}, err
}

// read reads a file that may be renamed over at any time.
func (f files) read(name string, limit int64) (b []byte, err error) {
	for range 20 {
		if b, err = regular.ReadIn(f.root, name, limit); !errors.Is(err, regular.ErrReplaced) {
			break
		}
	}
	return b, err
}

// either reads the partial file of a width, or the full one that took its place, and
// tells the width of what it read.
func (f files) either(partial uint8, limit int64, name func(uint8) string) (b []byte, width int, err error) {
	b, err = f.read(name(partial), limit)
	if partial > 0 && errors.Is(err, fs.ErrNotExist) {
		if full, errFull := f.read(name(0), limit); !errors.Is(errFull, fs.ErrNotExist) {
			return full, perBundle, errFull
		}
	}
	if partial == 0 {
		return b, perBundle, err
	}
	return b, int(partial), err
}

// ReadCheckpoint returns the published checkpoint.
func (f files) ReadCheckpoint(context.Context) ([]byte, error) {
	return f.read(layout.CheckpointPath, maxCheckpoint)
}

// ReadTile returns the hashes of a tile, at least as many as partial says (256 if 0).
func (f files) ReadTile(_ context.Context, level, index uint64, partial uint8) ([]byte, error) {
	b, width, err := f.either(partial, maxTile, func(p uint8) string { return layout.TilePath(level, index, p) })
	if err == nil && len(b) != width*32 {
		err = fmt.Errorf("%s: got %d bytes, want %d", layout.TilePath(level, index, partial), len(b), width*32)
	}
	return b, err
}

// bundle returns the entries of bundle n in a tree of a size.
func (f files) bundle(n, size uint64) ([][]byte, error) {
	count := min(size-n*perBundle, perBundle)
	b, width, err := f.either(uint8(count%perBundle), maxBundle, func(p uint8) string { return layout.EntriesPath(n, p) })
	if err != nil {
		return nil, err
	}
	entries, err := splitBundle(b, width)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", layout.EntriesPath(n, uint8(count%perBundle)), err)
	}
	return entries[:count], nil
}

// splitBundle takes an entry bundle of tlog-tiles apart, which has as many entries
// as its name says. Who adds to a log puts the next entry behind the last one there.
func splitBundle(b []byte, want int) ([][]byte, error) {
	entries := make([][]byte, 0, perBundle)
	for len(b) > 0 {
		if len(entries) == perBundle {
			return nil, fmt.Errorf("got more than %d entries in a bundle", perBundle)
		}
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return nil, fmt.Errorf("entry %d of a bundle is cut off", len(entries))
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		entries = append(entries, b[2:n:n])
		b = b[n:]
	}
	if len(entries) != want {
		return nil, fmt.Errorf("got %d entries in a bundle, want %d", len(entries), want)
	}
	return entries, nil
}

// Close gives the folder up.
func (f files) Close() error { return f.root.Close() }
