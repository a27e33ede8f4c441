package merkle

import (
	"fmt"
	"math/bits"
	"slices"
)

// A multiproof shows that some leaves are in a tree: for each largest subtree
// (RFC 9162, section 2.1.1) that holds none of them its root, from left to right.
// A tree of a size and a list of leaves has exactly one.

// A Prover makes the multiproof of some leaves while all leaves go by. Its memory
// is that of the proof.
type Prover struct {
	gaps []gap // that are still to come
	at   uint64
	size uint64
	tree Tree
	path [][32]byte
}

// A gap is a subtree without a proven leaf: leaves from lo to below hi.
type gap struct{ lo, hi uint64 }

// NewProver starts a proof of the leaves with these indexes, sorted and unique,
// at least one, each below size.
func NewProver(size uint64, indexes []uint64) *Prover {
	p := &Prover{size: size}
	split(0, size, indexes, func(lo, hi uint64) { p.gaps = append(p.gaps, gap{lo, hi}) })
	return p
}

// Push takes the hash of the next leaf. Like Tree.Push it takes in place of
// leaves the roots of complete trees of one size.
func (p *Prover) Push(leaf [32]byte) {
	at := p.at
	p.at++
	if len(p.gaps) == 0 || at < p.gaps[0].lo {
		return
	}
	p.tree.Push(leaf)
	if p.at == p.gaps[0].hi {
		p.path = append(p.path, p.tree.Root())
		p.gaps, p.tree = p.gaps[1:], Tree{}
	}
}

// Path is the proof. It panics if not all leaves came.
func (p *Prover) Path() [][32]byte {
	if p.at != p.size {
		panic(fmt.Sprintf("merkle: got %d leaves, want %d", p.at, p.size))
	}
	return p.path
}

// split finds the gaps of the tree over leaves lo to hi, left to right.
func split(lo, hi uint64, indexes []uint64, found func(lo, hi uint64)) {
	if len(indexes) == 0 {
		found(lo, hi)
		return
	}
	if hi-lo == 1 {
		return
	}
	mid := lo + half(hi-lo)
	left := below(indexes, mid)
	split(lo, mid, indexes[:left], found)
	split(mid, hi, indexes[left:], found)
}

// half is the largest power of two below n, which is at least 2.
func half(n uint64) uint64 { return 1 << (bits.Len64(n-1) - 1) }

// below counts the indexes below mid.
func below(indexes []uint64, mid uint64) int {
	n, _ := slices.BinarySearch(indexes, mid)
	return n
}

// MultiRoot returns the root that a multiproof of leaves gives: leaves[i] is the
// hash of leaf indexes[i] of size. The caller compares it with the root that it
// knows. It fails if the indexes are not sorted, unique and below size, or the
// proof has not the one length that it can have.
func MultiRoot(size uint64, indexes []uint64, leaves, path [][32]byte) ([32]byte, error) {
	return multiRoot(size, indexes, leaves, path, nil)
}

// Extract returns the proof of one of the leaves alone. It fails as MultiRoot
// does, and if the leaf is none of them.
func Extract(size uint64, indexes []uint64, leaves, path [][32]byte, leaf uint64) ([][32]byte, error) {
	at := below(indexes, leaf)
	if at == len(indexes) || indexes[at] != leaf || leaf >= size {
		return nil, fmt.Errorf("leaf %d of %d is not among the %d that are proved", leaf, size, len(indexes))
	}
	wanted := map[gap]int{}
	split(0, size, []uint64{leaf}, func(lo, hi uint64) { wanted[gap{lo, hi}] = len(wanted) })
	out := make([][32]byte, len(wanted))
	_, err := multiRoot(size, indexes, leaves, path, func(g gap, h [32]byte) {
		if i, ok := wanted[g]; ok {
			out[i] = h
		}
	})
	return out, err
}

func multiRoot(size uint64, indexes []uint64, leaves, path [][32]byte, see func(gap, [32]byte)) (root [32]byte, err error) {
	if len(indexes) == 0 || len(indexes) != len(leaves) {
		return root, fmt.Errorf("got %d leaves for %d places, want one for each and at least one", len(leaves), len(indexes))
	}
	for i, n := range indexes {
		if n >= size || i > 0 && indexes[i-1] >= n {
			return root, fmt.Errorf("got leaf %d at place %d of a tree of %d, want them sorted, unique and below", n, i, size)
		}
	}
	m := multi{path: path, see: see}
	root = m.root(0, size, indexes, leaves)
	switch {
	case m.short:
		return root, fmt.Errorf("got a path of %d hashes, want more", len(path))
	case len(m.path) > 0:
		return root, fmt.Errorf("got a path of %d hashes, want %d", len(path), len(path)-len(m.path))
	}
	return root, nil
}

type multi struct {
	path  [][32]byte // what is left of it
	short bool
	see   func(gap, [32]byte)
}

func (m *multi) root(lo, hi uint64, indexes []uint64, leaves [][32]byte) (h [32]byte) {
	switch {
	case len(indexes) == 0:
		if len(m.path) == 0 {
			m.short = true
			return h
		}
		h, m.path = m.path[0], m.path[1:]
	case hi-lo == 1:
		h = leaves[0]
	default:
		mid := lo + half(hi-lo)
		at := below(indexes, mid)
		left := m.root(lo, mid, indexes[:at], leaves[:at])
		right := m.root(mid, hi, indexes[at:], leaves[at:])
		h = node(&left, &right)
	}
	if m.see != nil {
		m.see(gap{lo, hi}, h)
	}
	return h
}
