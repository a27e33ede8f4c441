package tlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"
	"github.com/transparency-dev/tessera/client"
)

// tilesOf makes the tiles of a tree as they follow from its leaves.
func tilesOf(leaves [][]byte) readTile {
	rows := [][][]byte{leaves}
	for row := leaves; len(row) > 1; rows = append(rows, row) {
		var up [][]byte
		for i := 0; i+1 < len(row); i += 2 {
			up = append(up, rfc6962.DefaultHasher.HashChildren(row[i], row[i+1]))
		}
		row = up
	}
	return func(_ context.Context, level, index uint64, partial uint8) ([]byte, error) {
		width := 256
		if partial > 0 {
			width = int(partial)
		}
		first := int(index) * 256
		if h := int(level) * tileHeight; h >= len(rows) || first+width > len(rows[h]) {
			return nil, fmt.Errorf("no %s", layout.TilePath(level, index, partial))
		}
		return bytes.Join(rows[level*tileHeight][first:first+width], nil), nil
	}
}

// Proofs from kept tiles are those of Tessera's own proof builder, in trees of many
// sizes that share the tiles.
func TestNodes(t *testing.T) {
	var leaves [][]byte
	for i := range 70_000 { // three levels of tiles
		h := sha256.Sum256(fmt.Append(nil, i))
		leaves = append(leaves, h[:])
	}
	read, kept := tilesOf(leaves), new(nodes)
	pick := rand.New(rand.NewPCG(3, 4))
	for n := range 300 {
		size := []uint64{1, 2, 255, 256, 257, 511, 65_535, 65_536, 65_537, 70_000, 1 + pick.Uint64N(70_000)}[min(n, 10)]
		index, older := pick.Uint64N(size), 1+pick.Uint64N(size)
		b, err := client.NewProofBuilder(t.Context(), size, client.TileFetcherFunc(read))
		if err != nil {
			t.Fatal(err)
		}
		compareProofs(t, fmt.Sprintf("entry %d of %d", index, size), kept, read, size, must(proof.Inclusion(index, size)), must(b.InclusionProof(t.Context(), index)))
		if older < size {
			compareProofs(t, fmt.Sprintf("%d to %d", older, size), kept, read, size, must(proof.Consistency(older, size)), must(b.ConsistencyProof(t.Context(), older, size)))
		}
		if len(kept.tiles) > keptTiles {
			t.Fatalf("got %d tiles, want at most %d", len(kept.tiles), keptTiles)
		}
	}
	// A tile that cannot be read, and one that is cut off.
	lost := errors.New("lost")
	of := must(proof.Inclusion(3, 300))
	if _, err := new(nodes).path(t.Context(), func(context.Context, uint64, uint64, uint8) ([]byte, error) { return nil, lost }, 300, of); !errors.Is(err, lost) {
		t.Errorf("got %v, want the error of the file", err)
	}
	for _, cut := range []int{1, 31, 32, 64, 8000} {
		if _, err := new(nodes).path(t.Context(), func(ctx context.Context, level, index uint64, partial uint8) ([]byte, error) {
			b, err := read(ctx, level, index, partial)
			return b[:min(cut, len(b))], err
		}, 300, of); err == nil {
			t.Errorf("a tile of %d bytes was enough", cut)
		}
	}
}

func compareProofs(t *testing.T, what string, kept *nodes, read readTile, size uint64, of proof.Nodes, want [][]byte) {
	t.Helper()
	got, err := kept.path(t.Context(), read, size, of)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%s: got %d hashes, %v, want %d", what, len(got), err, len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i][:], want[i]) {
			t.Errorf("%s: hash %d: got %x, want %x", what, i, got[i], want[i])
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
