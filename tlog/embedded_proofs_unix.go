//go:build unix

package tlog

import (
	"context"
	"errors"
	"io/fs"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/tessera/api/layout"
)

// tile reads a tile as it was in a tree of any size that is published or smaller:
// one that was never published has no file, but the newest tree's tile begins
// with it.
func (l *Embedded) tile(ctx context.Context, level, index uint64, partial uint8) ([]byte, error) {
	b, err := l.files.ReadTile(ctx, level, index, partial)
	if v := l.newest.Load(); partial > 0 && v != nil && errors.Is(err, fs.ErrNotExist) {
		b, err = l.files.ReadTile(ctx, level, index, layout.PartialTileSize(level, index, v.Checkpoint().Size))
	}
	if want := int(partial) * 32; err == nil && partial > 0 && len(b) > want {
		b = b[:want]
	}
	return b, err
}

// Inclusion implements Log.
func (l *Embedded) Inclusion(ctx context.Context, index, size uint64) ([][32]byte, error) {
	if err := l.published(ctx, size); err != nil {
		return nil, err
	}
	if err := checkIndex(index, size); err != nil {
		return nil, err
	}
	of, err := proof.Inclusion(index, size)
	if err != nil {
		return nil, err
	}
	return l.nodes.path(ctx, l.tile, size, of)
}

// Consistency implements Log.
func (l *Embedded) Consistency(ctx context.Context, older, newer uint64) ([][32]byte, error) {
	if err := checkRange(older, newer); err != nil {
		return nil, err
	}
	if err := l.published(ctx, newer); err != nil {
		return nil, err
	}
	if older == 0 || older == newer {
		return nil, nil
	}
	of, err := proof.Consistency(older, newer)
	if err != nil {
		return nil, err
	}
	return l.nodes.path(ctx, l.tile, newer, of)
}
