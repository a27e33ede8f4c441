package attest

import (
	"crypto/sha256"
	"math/bits"
)

// DigestSize is the length of a run digest d (contraband.RunDigest).
const DigestSize = 16

// DigestRoot is the Merkle root over the 16-byte digests that are concatenated
// in digests, hashed as RFC 9162, section 2.1.1 does: a leaf is
// SHA-256(0x00 || d), a node SHA-256(0x01 || left || right), and the root of no
// digest is SHA-256 of the empty string. The order is the caller's; an Entry's
// digests are sorted and unique. It panics if the length is no multiple of 16.
func DigestRoot(digests []byte) [32]byte {
	if len(digests)%DigestSize != 0 {
		panic("attest: DigestRoot: length is no multiple of 16")
	}
	var t tree
	var leaf [1 + DigestSize]byte
	for i := 0; i < len(digests); i += DigestSize {
		copy(leaf[1:], digests[i:i+DigestSize])
		t.push(sha256.Sum256(leaf[:]))
	}
	return t.root()
}

// A tree computes an RFC 9162 root from leaf hashes in order. It holds one hash
// for each complete subtree, so a million leaves take 20 hashes of memory.
type tree struct {
	size  uint64
	stack [64][32]byte // complete subtrees, left to right, sizes falling
	depth int
}

func (t *tree) push(leaf [32]byte) {
	t.stack[t.depth] = leaf
	t.depth++
	t.size++
	// Each trailing zero bit of the size is one subtree that is now complete.
	for range bits.TrailingZeros64(t.size) {
		t.fold()
	}
}

func (t *tree) fold() {
	var node [65]byte
	node[0] = 1
	t.depth--
	copy(node[1:], t.stack[t.depth-1][:])
	copy(node[33:], t.stack[t.depth][:])
	t.stack[t.depth-1] = sha256.Sum256(node[:])
}

// root may be called once.
func (t *tree) root() [32]byte {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	for t.depth > 1 {
		t.fold()
	}
	return t.stack[0]
}
