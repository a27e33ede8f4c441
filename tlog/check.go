package tlog

import (
	"bytes"
	"context"
	"fmt"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"
	"github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/note"
)

// Check reads the whole log in dir: the checkpoint must be signed by the key
// (a vkey of c2sp.org/signed-note), every entry is hashed again, and every tile
// and the root must be what follows from the entries. It returns the size, or
// the first fault with the file that has it. The log may be open and growing.
func Check(ctx context.Context, dir, vkey string) (size uint64, err error) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return 0, err
	}
	c := &checker{files: client.FileFetcher{Root: dir}, ranges: compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}}
	signed, err := c.files.ReadCheckpoint(ctx)
	if err != nil {
		return 0, err
	}
	cp, _, _, err := log.ParseCheckpoint(signed, v.Name(), v)
	if err != nil {
		return 0, fmt.Errorf("checkpoint: got none that %s signed: %w", v.Name(), err)
	}
	root, err := c.read(ctx, cp.Size)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(root, cp.Hash) {
		return 0, fmt.Errorf("checkpoint: got root %x at size %d, want %x: the entries are not those that were signed", cp.Hash, cp.Size, root)
	}
	return cp.Size, nil
}

// checker makes the tiles of a log a second time. It holds one tile a level.
type checker struct {
	files  client.FileFetcher
	ranges compact.RangeFactory
	levels []level
}

type level struct {
	done   uint64   // full tiles before the open one
	hashes [][]byte // of the open tile, fewer than 256
}

// read goes through the entries and tiles of a tree and returns its root.
func (c *checker) read(ctx context.Context, size uint64) ([]byte, error) {
	tree := c.ranges.NewEmptyRange(0)
	for n := uint64(0); n*perBundle < size; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		count := min(size-n*perBundle, perBundle)
		b, err := c.files.ReadEntryBundle(ctx, n, uint8(count%perBundle))
		if err != nil {
			return nil, err
		}
		entries, err := splitBundle(b, int(count))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", layout.EntriesPath(n, uint8(count%perBundle)), err)
		}
		for _, e := range entries {
			h := rfc6962.DefaultHasher.HashLeaf(e)
			if err := tree.Append(h, nil); err != nil {
				return nil, err
			}
			if err := c.push(ctx, 0, h); err != nil {
				return nil, err
			}
		}
	}
	for l := range c.levels {
		if len(c.levels[l].hashes) > 0 {
			if err := c.compare(ctx, l); err != nil {
				return nil, err
			}
		}
	}
	if size == 0 {
		return rfc6962.DefaultHasher.EmptyRoot(), nil
	}
	return tree.GetRootHash(nil)
}

// push adds a hash to a level. A full tile is compared, and its root goes up.
func (c *checker) push(ctx context.Context, l int, hash []byte) error {
	if l == len(c.levels) {
		c.levels = append(c.levels, level{})
	}
	c.levels[l].hashes = append(c.levels[l].hashes, hash)
	if len(c.levels[l].hashes) < perBundle {
		return nil
	}
	if err := c.compare(ctx, l); err != nil {
		return err
	}
	tile := c.ranges.NewEmptyRange(0)
	for _, h := range c.levels[l].hashes {
		if err := tile.Append(h, nil); err != nil {
			return err
		}
	}
	up, err := tile.GetRootHash(nil)
	if err != nil {
		return err
	}
	c.levels[l] = level{done: c.levels[l].done + 1}
	return c.push(ctx, l+1, up)
}

// compare reads the tile that is open at a level. A log that grew meanwhile may
// have more of it.
func (c *checker) compare(ctx context.Context, l int) error {
	at := c.levels[l]
	width := uint8(len(at.hashes) % perBundle)
	name := layout.TilePath(uint64(l), at.done, width)
	got, err := c.files.ReadTile(ctx, uint64(l), at.done, width)
	if err != nil {
		return err
	}
	want := bytes.Join(at.hashes, nil)
	for i, h := range at.hashes {
		if end := (i + 1) * len(h); len(got) < end {
			return fmt.Errorf("%s: got %d bytes, want at least %d", name, len(got), len(want))
		} else if !bytes.Equal(got[end-len(h):end], h) {
			return fmt.Errorf("%s: hash %d: got %x, want %x from the entries", name, i, got[end-len(h):end], h)
		}
	}
	return nil
}
