package merkle

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
)

// MaxPath is how many hashes an inclusion proof can have: one for each level of
// a tree of 2^64 leaves. A consistency proof has at most one more.
const MaxPath = 64

// InclusionRoot returns the root that an inclusion proof gives (RFC 9162, section
// 2.1.3.2): leaf is the hash of leaf number index in a tree of that size. The
// caller compares it with the root that it knows. It fails if index is not below
// size, or the path has not the one length that it can have.
func InclusionRoot(index, size uint64, leaf [32]byte, path [][32]byte) ([32]byte, error) {
	if index >= size {
		return leaf, fmt.Errorf("got leaf %d of a tree of %d, want it below", index, size)
	}
	// Up to the fork with the path of the last leaf each level has a sibling,
	// above it only the levels with one to the left.
	inner := bits.Len64(index ^ (size - 1))
	if want := inner + bits.OnesCount64(index>>inner); len(path) != want {
		return leaf, fmt.Errorf("got a path of %d hashes, want %d for leaf %d of a tree of %d", len(path), want, index, size)
	}
	fn, sn, r := index, size-1, leaf
	for i := range path {
		if fn&1 == 1 || fn == sn {
			r = node(&path[i], &r)
			zeros := bits.TrailingZeros64(fn) // levels at which the last node has no sibling
			fn, sn = fn>>zeros, sn>>zeros
		} else {
			r = node(&r, &path[i])
		}
		fn, sn = fn>>1, sn>>1
	}
	return r, nil
}

// ConsistencyRoots returns the two roots that a consistency proof gives (RFC
// 9162, section 2.1.4.2). The caller compares both with the roots that it knows.
// The root of the older tree is asked for because a proof leaves it out where the
// older tree is complete. It fails if not 0 < older <= newer (every tree
// is consistent with the empty one, and nothing proves it), or the path has
// another length than it can have.
func ConsistencyRoots(older, newer uint64, path [][32]byte, olderRoot [32]byte) (fromOlder, fromNewer [32]byte, err error) {
	if older == 0 || older > newer {
		return olderRoot, olderRoot, fmt.Errorf("got sizes %d and %d, want the older one from 1 to the newer one", older, newer)
	}
	return subtreeRoots(0, older, newer, path, olderRoot)
}

// SubtreeConsistencyRoots is ConsistencyRoots for the subtree of the leaves from
// start to below end (c2sp.org/tlog-cosignature, draft-ietf-plants-merkle-tree-certs,
// section 4.4): it returns the subtree's root and that of the tree of size leaves.
// The empty subtree must have the root of the empty tree and an empty path, and
// says nothing about the tree: fromTree is then the zero hash.
func SubtreeConsistencyRoots(start, end, size uint64, path [][32]byte, subtreeRoot [32]byte) (fromSubtree, fromTree [32]byte, err error) {
	if end > size {
		return subtreeRoot, fromTree, fmt.Errorf("got a subtree up to %d of a tree of %d", end, size)
	}
	if err := checkSubtree(start, end); err != nil {
		return subtreeRoot, fromTree, err
	}
	if start == end {
		if len(path) != 0 {
			return subtreeRoot, fromTree, fmt.Errorf("got a path of %d hashes, want 0 for an empty subtree", len(path))
		}
		return sha256.Sum256(nil), fromTree, nil
	}
	return subtreeRoots(start, end, size, path, subtreeRoot)
}

// SubtreeInclusionRoot is InclusionRoot for a leaf, numbered in the whole tree, of
// the subtree of the leaves from start to below end.
func SubtreeInclusionRoot(index, start, end uint64, leaf [32]byte, path [][32]byte) ([32]byte, error) {
	if err := checkSubtree(start, end); err != nil {
		return leaf, err
	}
	if index < start || index >= end {
		return leaf, fmt.Errorf("got leaf %d of the subtree from %d to below %d", index, start, end)
	}
	return InclusionRoot(index-start, end-start, leaf, path)
}

// checkSubtree asks that start is a multiple of the least power of two that is not
// below the subtree's size: only such ranges are subtrees of every larger tree.
func checkSubtree(start, end uint64) error {
	if start > end {
		return fmt.Errorf("got a subtree from %d to below %d", start, end)
	}
	if start == 0 || start == end {
		return nil
	}
	// A shift by 64, of a subtree with more than 2^63 leaves, gives 0-1: all bits.
	if below := uint64(1)<<bits.Len64(end-start-1) - 1; start&below != 0 {
		return fmt.Errorf("got a subtree from %d to below %d, want it to start at a multiple of its size, rounded up to a power of two", start, end)
	}
	return nil
}

func subtreeRoots(start, end, size uint64, path [][32]byte, root [32]byte) (fromSubtree, fromTree [32]byte, err error) {
	// The first node of the subtree, its last, and the last of the tree.
	fn, sn, tn := start, end-1, size-1
	up := func(levels int) { fn, sn, tn = fn>>levels, sn>>levels, tn>>levels }
	// The proof starts at the largest node that ends where the subtree does.
	if sn == tn {
		up(bits.Len64(fn ^ sn))
	} else {
		up(min(bits.Len64(fn^sn), bits.TrailingZeros64(^sn)))
	}
	rest := path
	if fn == sn {
		fromSubtree, fromTree = root, root
	} else if len(rest) > 0 {
		fromSubtree, fromTree, rest = rest[0], rest[0], rest[1:]
	}
	for i := range rest {
		if tn == 0 {
			return root, root, fmt.Errorf("got a path of %d hashes, want %d", len(path), len(path)-len(rest)+i)
		}
		if sn&1 == 1 || sn == tn {
			if fn < sn {
				fromSubtree = node(&rest[i], &fromSubtree)
			}
			fromTree = node(&rest[i], &fromTree)
			up(bits.TrailingZeros64(sn))
		} else {
			fromTree = node(&fromTree, &rest[i])
		}
		up(1)
	}
	if tn != 0 {
		return root, root, fmt.Errorf("got a path of %d hashes, want more", len(path))
	}
	return fromSubtree, fromTree, nil
}
