package bucket

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
)

// A Proof shows, for a list of digests, whether each is in a tree: it holds the
// buckets in which they stand or would stand, and one multiproof of these
// buckets. The digests fix which buckets these are. What a Proof holds is
// unauthenticated until Check has returned.
type Proof struct {
	// Buckets in the order of their indexes. Each is its entries as they stand in
	// a leaf: digest, first row as 8 big-endian bytes, direction.
	Buckets [][]byte
	Path    [][32]byte
}

// Places returns the indexes of the buckets of digests, sorted and unique.
func Places(depth uint8, digests [][DigestSize]byte) []uint64 {
	list := make([]uint64, len(digests))
	for i, d := range digests {
		list[i] = prefix(d, depth)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// A Prover makes the Proof of some digests from all entries of a tree.
type Prover struct {
	builder *Builder
	path    *merkle.Prover
	proof   Proof
}

// NewProver returns a Prover for exactly n entries, and for at least one digest.
// Add them, sorted by digest, then call Proof.
func NewProver(n uint64, digests [][DigestSize]byte) *Prover {
	p := &Prover{builder: New(n)}
	places := Places(p.builder.depth, digests)
	p.path = merkle.NewProver(1<<p.builder.depth, places)
	p.builder.see = func(index uint64, leaf []byte, hash [32]byte) {
		p.path.Push(hash)
		if len(places) > 0 && places[0] == index {
			p.proof.Buckets = append(p.proof.Buckets, append([]byte{}, leaf[headerSize:]...))
			places = places[1:]
		}
	}
	return p
}

// Add takes the next entry, as Builder.Add does.
func (p *Prover) Add(e Entry) error { return p.builder.Add(e) }

// Proof returns the proof, and the root under which it holds.
func (p *Prover) Proof() (*Proof, [32]byte, error) {
	root, _, err := p.builder.Root()
	if err != nil {
		return nil, root, err
	}
	p.proof.Path = p.path.Path()
	return &p.proof, root, nil
}

// Check returns the entry of each digest that is in the tree of this root and
// depth; a digest without an entry is proved not to be in it. Both must come from
// who vouches for the tree, not from who made the proof. It fails if a bucket is
// missing or left over, holds a digest of another bucket, is unsorted or
// repeats one, or if the buckets are not those of the tree.
func (p *Proof) Check(root [32]byte, depth uint8, digests [][DigestSize]byte) (map[[DigestSize]byte]Entry, error) {
	places, leaves, err := p.leaves(depth, digests)
	if err != nil {
		return nil, err
	}
	got, err := merkle.MultiRoot(1<<depth, places, leaves, p.Path)
	if err != nil {
		return nil, err
	}
	if got != root {
		return nil, fmt.Errorf("got buckets of the root %x, want %x", got, root)
	}
	found := make(map[[DigestSize]byte]Entry)
	for _, d := range digests {
		at, _ := slices.BinarySearch(places, prefix(d, depth))
		if e, ok := find(p.Buckets[at], d); ok {
			found[d] = e
		}
	}
	return found, nil
}

// Single returns the Proof of one of the digests alone.
func (p *Proof) Single(depth uint8, digests [][DigestSize]byte, digest [DigestSize]byte) (*Proof, error) {
	places, leaves, err := p.leaves(depth, digests)
	if err != nil {
		return nil, err
	}
	place := prefix(digest, depth)
	path, err := merkle.Extract(1<<depth, places, leaves, p.Path, place)
	if err != nil {
		return nil, err
	}
	at, _ := slices.BinarySearch(places, place)
	return &Proof{Buckets: [][]byte{p.Buckets[at]}, Path: path}, nil
}

// leaves checks the buckets by themselves and hashes them.
func (p *Proof) leaves(depth uint8, digests [][DigestSize]byte) (places []uint64, leaves [][32]byte, err error) {
	if depth > MaxDepth {
		return nil, nil, fmt.Errorf("got depth %d, want at most %d", depth, MaxDepth)
	}
	if places = Places(depth, digests); len(places) != len(p.Buckets) {
		return nil, nil, fmt.Errorf("got %d buckets, want the %d of the digests asked for", len(p.Buckets), len(places))
	}
	leaves = make([][32]byte, len(places))
	var leaf []byte
	for i, b := range p.Buckets {
		if len(b)%EntrySize != 0 {
			return nil, nil, fmt.Errorf("bucket %d: got %d bytes, want a multiple of %d", places[i], len(b), EntrySize)
		}
		for at := 0; at < len(b); at += EntrySize {
			d := b[at : at+DigestSize]
			if prefix([DigestSize]byte(d), depth) != places[i] {
				return nil, nil, fmt.Errorf("bucket %d: got digest %x, which belongs into another", places[i], d)
			}
			if at > 0 && bytes.Compare(b[at-EntrySize:at-EntrySize+DigestSize], d) >= 0 {
				return nil, nil, fmt.Errorf("bucket %d: got digest %x after %x, want them sorted and unique", places[i], d, b[at-EntrySize:at-EntrySize+DigestSize])
			}
		}
		leaf = appendHeader(leaf[:0], depth, places[i])
		binary.BigEndian.PutUint32(leaf[headerSize-4:], uint32(len(b)/EntrySize))
		leaves[i] = sha256.Sum256(append(leaf, b...))
	}
	return places, leaves, nil
}

func find(b []byte, d [DigestSize]byte) (Entry, bool) {
	for ; len(b) > 0; b = b[EntrySize:] {
		if bytes.Equal(b[:DigestSize], d[:]) {
			return Entry{d, binary.BigEndian.Uint64(b[DigestSize:]), b[EntrySize-1]}, true
		}
	}
	return Entry{}, false
}
