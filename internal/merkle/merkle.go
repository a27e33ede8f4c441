// Package merkle computes the Merkle root of RFC 9162, section 2.1.1, with
// SHA-256, of leaves that come in order. It holds one hash for each complete
// subtree and allocates nothing: trees over millions of digests are hashed here.
// For proofs see the transparency-dev/merkle module, which the tests compare
// with.
package merkle

import (
	"crypto/sha256"
	"math/bits"
)

// A Tree takes leaves one by one. The zero value is the empty tree.
type Tree struct {
	size  uint64
	stack [64][32]byte // complete subtrees, left to right, sizes falling
	depth int
}

// Push takes the hash of the next leaf, SHA-256(0x00 || data). In place of
// leaves it takes the roots of complete trees of one power-of-two size.
func (t *Tree) Push(leaf [32]byte) {
	t.stack[t.depth] = leaf
	t.depth++
	t.size++
	// Each trailing zero bit of the size is one subtree that is now complete.
	for range bits.TrailingZeros64(t.size) {
		t.fold()
	}
}

// fold replaces the last two subtrees by the node above them.
func (t *Tree) fold() {
	var node [65]byte
	node[0] = 1
	t.depth--
	copy(node[1:], t.stack[t.depth-1][:])
	copy(node[33:], t.stack[t.depth][:])
	t.stack[t.depth-1] = sha256.Sum256(node[:])
}

// Root returns the root, of no leaf SHA-256 of the empty string, and empties
// the tree.
func (t *Tree) Root() [32]byte {
	defer func() { t.size, t.depth = 0, 0 }()
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	for t.depth > 1 {
		t.fold()
	}
	return t.stack[0]
}
