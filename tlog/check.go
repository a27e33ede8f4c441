package tlog

import (
	"bytes"
	"context"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Check reads the whole log in dir: the checkpoint must be signed by the key,
// every entry is hashed again, and every tile and the root must be what follows
// from the entries. It returns the size, or the first fault with the file that has
// it. The log may be open and growing.
func Check(ctx context.Context, dir string, key receipt.PublicKey) (size uint64, err error) {
	f, err := openFiles(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	signed, err := f.ReadCheckpoint(ctx)
	if err != nil {
		return 0, err
	}
	v, err := verifyNote(signed, key)
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	cp := v.Checkpoint()
	c := &checker{files: f, ranges: compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}}
	root, err := c.read(ctx, cp.Size)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(root, cp.Root[:]) {
		return 0, fmt.Errorf("checkpoint: got root %x at size %d, want %x: the entries are not those that were signed", cp.Root, cp.Size, root)
	}
	return cp.Size, nil
}

// verifyNote checks that a note is a checkpoint of the log with this key.
func verifyNote(signed []byte, key receipt.PublicKey) (*proof.Verified, error) {
	u, err := proof.ParseCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	return u.Verify(key)
}

// checker makes the tiles of a log a second time. It holds one tile a level.
type checker struct {
	files  files
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
		entries, err := c.files.bundle(n, size)
		if err != nil {
			return nil, err
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
