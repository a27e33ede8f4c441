// Package bucket builds the prefix-bucket tree over all run digests of a
// journal.
//
// The tree has 2^depth leaves; leaf i holds the entries whose digest begins with
// the depth bits of i, so that a digest's place is forced by the digest itself
// and one bucket shows that it is, or is not, in the tree. A leaf's hash binds
// depth, index and all entries; above the leaves it is the tree of RFC 9162. That
// every digest of the rows is in the tree is not shown by the tree: rebuild it.
//
// Memory is logarithmic in the number of entries; they must come sorted.
package bucket

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
)

// DigestSize is the length of a run digest in bytes.
const DigestSize = 16

// MaxDepth bounds the tree: 2^40 leaves, more than any journal fills.
const MaxDepth = 40

// leafLabel follows the leaf prefix 0x00 of RFC 9162.
const leafLabel = "\x00cleanrun/bucket/v1\x00"

// An Entry is one digest, the first row that holds it, and that row's direction
// (journal.Direction).
type Entry struct {
	Digest    [DigestSize]byte
	First     uint64
	Direction uint8
}

// Depth returns the depth for n entries: the least for which buckets hold two on
// average.
func Depth(n uint64) uint8 {
	if n <= 2 {
		return 0
	}
	return uint8(min(bits.Len64((n-1)/2), MaxDepth))
}

// A Builder takes n entries, sorted by digest.
type Builder struct {
	tree  merkle.Tree
	depth uint8
	n     uint64 // promised
	got   uint64
	last  [DigestSize]byte
	index uint64 // of the open bucket
	end   uint64 // the first bucket that does not belong here
	leaf  []byte // bytes of the open bucket so far
	count uint32
	see   func(index uint64, leaf []byte, hash [32]byte) // of each bucket that is closed; may be nil
}

// New returns a Builder for exactly n entries.
func New(n uint64) *Builder {
	depth := Depth(n)
	return &Builder{depth: depth, n: n, end: 1 << depth}
}

// NewPart returns a Builder for the node over part i of 2^width equal parts of
// the tree for n entries: the entries whose digest begins with the width bits
// of i. Width is at most Depth(n). Join makes the root of all nodes; that all
// parts together have n entries is for the caller to check.
func NewPart(n uint64, width uint8, i uint64) *Builder {
	depth := Depth(n)
	below := depth - width
	return &Builder{depth: depth, n: n, index: i << below, end: (i + 1) << below}
}

// Join returns the root over the nodes of all parts, in order.
func Join(nodes [][32]byte) [32]byte {
	var t merkle.Tree
	for _, n := range nodes {
		t.Push(n)
	}
	return t.Root()
}

// headerSize is the length of a leaf before its entries: label, depth, index,
// count.
const headerSize = len(leafLabel) + 1 + 8 + 4

// Add takes the next entry. Digests must strictly rise.
func (b *Builder) Add(e Entry) error {
	if b.got == b.n {
		return fmt.Errorf("got more than the %d entries that the tree was made for", b.n)
	}
	if b.got > 0 && bytes.Compare(b.last[:], e.Digest[:]) >= 0 {
		return fmt.Errorf("got digest %x after %x, want sorted and unique digests", e.Digest, b.last)
	}
	index := prefix(e.Digest, b.depth)
	if index < b.index || index >= b.end {
		return fmt.Errorf("got digest %x, which belongs into another part of the tree", e.Digest)
	}
	for b.index < index {
		b.closeBucket()
	}
	b.open()
	b.leaf = e.append(b.leaf)
	b.count++
	b.got++
	b.last = e.Digest
	return nil
}

func prefix(d [DigestSize]byte, depth uint8) uint64 {
	return binary.BigEndian.Uint64(d[:8]) >> (64 - depth) // 0 for depth 0
}

// EntrySize is the length of an entry in a leaf.
const EntrySize = DigestSize + 8 + 1

func (e *Entry) append(leaf []byte) []byte {
	leaf = append(leaf, e.Digest[:]...)
	return append(binary.BigEndian.AppendUint64(leaf, e.First), e.Direction)
}

func (b *Builder) open() {
	if len(b.leaf) == 0 {
		b.leaf = appendHeader(b.leaf, b.depth, b.index)
	}
}

// appendHeader begins a leaf, with a count of 0.
func appendHeader(leaf []byte, depth uint8, index uint64) []byte {
	leaf = append(append(leaf, leafLabel...), depth)
	return append(binary.BigEndian.AppendUint64(leaf, index), 0, 0, 0, 0)
}

func (b *Builder) closeBucket() {
	b.open()
	binary.BigEndian.PutUint32(b.leaf[headerSize-4:], b.count)
	hash := sha256.Sum256(b.leaf)
	b.tree.Push(hash)
	if b.see != nil {
		b.see(b.index, b.leaf, hash)
	}
	b.leaf, b.count = b.leaf[:0], 0
	b.index++
}

// Root closes the tree and returns its root and depth. It fails if fewer entries
// came than were promised. The Builder cannot be used afterwards.
func (b *Builder) Root() (root [32]byte, depth uint8, err error) {
	if b.got != b.n {
		return root, 0, fmt.Errorf("got %d entries, want the %d that the tree was made for", b.got, b.n)
	}
	return b.Node(), b.depth, nil
}

// Node closes a part and returns its node. The Builder cannot be used
// afterwards.
func (b *Builder) Node() [32]byte {
	for b.index < b.end {
		b.closeBucket()
	}
	return b.tree.Root()
}

// Root returns root and depth of the tree over entries, which must be sorted by
// digest and unique.
func Root(entries []Entry) (root [32]byte, depth uint8, err error) {
	b := New(uint64(len(entries)))
	for _, e := range entries {
		if err := b.Add(e); err != nil {
			return root, 0, err
		}
	}
	return b.Root()
}
