package tlog

import (
	"context"
	"fmt"
	"sync"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"
)

const (
	tileHeight = 8  // levels of the tree in a tile
	keptTiles  = 64 // some 1 MB
)

// nodes keeps tiles that proofs were made from, with the nodes above their hashes: many
// who wait for one checkpoint ask for proofs in one tree. A tile of a width never
// changes.
type nodes struct {
	mu    sync.Mutex
	tiles map[tileID]*subtrees
}

type tileID struct {
	level, index uint64
	partial      uint8
}

// subtrees are the hashes of a tile and, at k, the roots of its complete subtrees of
// height k.
type subtrees [tileHeight][][]byte

type readTile func(ctx context.Context, level, index uint64, partial uint8) ([]byte, error)

// path is the proof that consists of these nodes, in the tree of a size.
func (n *nodes) path(ctx context.Context, read readTile, size uint64, of proof.Nodes) ([][32]byte, error) {
	list := make([][]byte, len(of.IDs))
	for i, id := range of.IDs {
		h, err := n.get(ctx, read, size, id)
		if err != nil {
			return nil, err
		}
		list[i] = h
	}
	path, err := of.Rehash(list, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		return nil, err
	}
	return hashes(path)
}

// get is the root of a complete subtree.
func (n *nodes) get(ctx context.Context, read readTile, size uint64, id compact.NodeID) ([]byte, error) {
	height := id.Level % tileHeight
	at := tileID{level: uint64(id.Level / tileHeight), index: id.Index >> (tileHeight - height)}
	at.partial = layout.PartialTileSize(at.level, at.index, size)
	n.mu.Lock()
	t := n.tiles[at]
	n.mu.Unlock()
	if t == nil {
		b, err := read(ctx, at.level, at.index, at.partial)
		if err != nil {
			return nil, err
		}
		if t, err = newSubtrees(b); err != nil {
			return nil, fmt.Errorf("%s: %w", layout.TilePath(at.level, at.index, at.partial), err)
		}
		n.mu.Lock()
		if n.tiles == nil || len(n.tiles) >= keptTiles {
			n.tiles = make(map[tileID]*subtrees)
		}
		n.tiles[at] = t
		n.mu.Unlock()
	}
	i := id.Index & (1<<(tileHeight-height) - 1)
	if i >= uint64(len(t[height])) {
		return nil, fmt.Errorf("%s: got %d hashes, want more", layout.TilePath(at.level, at.index, at.partial), len(t[0]))
	}
	return t[height][i], nil
}

func newSubtrees(b []byte) (*subtrees, error) {
	if len(b)%32 != 0 || len(b) > maxTile {
		return nil, fmt.Errorf("got %d bytes, want hashes of 32", len(b))
	}
	t := new(subtrees)
	for ; len(b) > 0; b = b[32:] {
		t[0] = append(t[0], b[:32:32])
	}
	for k := 1; k < tileHeight; k++ {
		for i := 0; i+1 < len(t[k-1]); i += 2 {
			t[k] = append(t[k], rfc6962.DefaultHasher.HashChildren(t[k-1][i], t[k-1][i+1]))
		}
	}
	return t, nil
}
