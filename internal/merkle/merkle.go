// Package merkle computes the Merkle root of RFC 9162, section 2.1.1, with
// SHA-256, of leaves that come in order. It holds one hash for each complete
// subtree and allocates nothing: trees over millions of digests are hashed here.
// What proofs give is here too: of one leaf, of many at once, of a tree or a
// subtree in a larger tree. The tests compare with the definitions and with the
// transparency-dev/merkle module, which has no subtrees and no proofs of many.
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

// Size is the number of leaves so far.
func (t *Tree) Size() uint64 { return t.size }

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
	t.depth--
	t.stack[t.depth-1] = node(&t.stack[t.depth-1], &t.stack[t.depth])
}

func node(left, right *[32]byte) [32]byte {
	var b [65]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[33:], right[:])
	return sha256.Sum256(b[:])
}

// Root returns the root of the leaves so far, of none SHA-256 of the empty
// string.
func (t *Tree) Root() [32]byte {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	root := t.stack[t.depth-1]
	for i := t.depth - 2; i >= 0; i-- {
		root = node(&t.stack[i], &root)
	}
	return root
}
