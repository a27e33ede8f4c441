package merkle

import (
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

func leavesOf(n int) [][32]byte {
	list := make([][32]byte, n)
	for i := range list {
		list[i] = sha256.Sum256([]byte{0, byte(i), byte(i >> 8)})
	}
	return list
}

// rootOf is the definition.
func rootOf(leaves [][32]byte) [32]byte {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	left, right := rootOf(leaves[:k]), rootOf(leaves[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

func prove(leaves [][32]byte, indexes []uint64) [][32]byte {
	p := NewProver(uint64(len(leaves)), indexes)
	for _, l := range leaves {
		p.Push(l)
	}
	return p.Path()
}

func pick(leaves [][32]byte, indexes []uint64) (out [][32]byte) {
	for _, i := range indexes {
		out = append(out, leaves[i])
	}
	return out
}

// Every set of leaves of every small tree has a proof, of which each hash counts.
func TestMultiproofOfEverySet(t *testing.T) {
	for n := 1; n <= 9; n++ {
		leaves := leavesOf(n)
		want := rootOf(leaves)
		for set := 1; set < 1<<n; set++ {
			var indexes []uint64
			for i := range n {
				if set>>i&1 == 1 {
					indexes = append(indexes, uint64(i))
				}
			}
			chosen, path := pick(leaves, indexes), prove(leaves, indexes)
			if got, err := MultiRoot(uint64(n), indexes, chosen, path); err != nil || got != want {
				t.Fatalf("%d leaves, %v: got %x, %v", n, indexes, got, err)
			}
			for _, leaf := range indexes {
				single, err := Extract(uint64(n), indexes, chosen, path, leaf)
				if err != nil || !slices.Equal(single, prove(leaves, []uint64{leaf})) {
					t.Fatalf("%d leaves, %v: the proof of leaf %d alone: got %x, %v", n, indexes, leaf, single, err)
				}
			}
			for i := range path {
				path[i][31] ^= 1
				if got, err := MultiRoot(uint64(n), indexes, chosen, path); err == nil && got == want {
					t.Fatalf("%d leaves, %v: hash %d of the path does not count", n, indexes, i)
				}
				path[i][31] ^= 1
			}
		}
	}
}

// The proof of one leaf holds the hashes of the reference, in another order.
func TestMultiproofOfOneIsThatOfTheReference(t *testing.T) {
	leaves := leavesOf(100)
	root := rootOf(leaves)
	for i := range leaves {
		path := prove(leaves, []uint64{uint64(i)})
		// RFC 9162 lists them from the leaf up: those right of the leaf first to
		// last, those left of it last to first.
		var up [][]byte
		lo, hi, at := uint64(0), uint64(100), uint64(i)
		var steps []bool // to the right
		for hi-lo > 1 {
			mid := lo + half(hi-lo)
			steps = append(steps, at >= mid)
			if at >= mid {
				lo = mid
			} else {
				hi = mid
			}
		}
		lefts := 0
		for _, s := range steps {
			if s {
				lefts++
			}
		}
		l, r := lefts-1, lefts
		for k := len(steps) - 1; k >= 0; k-- {
			if steps[k] {
				up = append(up, path[l][:])
				l--
			} else {
				up = append(up, path[r][:])
				r++
			}
		}
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(i), 100, leaves[i][:], up, root[:]); err != nil {
			t.Fatalf("leaf %d: %v", i, err)
		}
	}
}

// Each has one thing wrong.
func TestRT11_MultiproofRefused(t *testing.T) {
	leaves := leavesOf(13)
	want := rootOf(leaves)
	indexes := []uint64{2, 3, 11}
	chosen, path := pick(leaves, indexes), prove(leaves, indexes)
	good := func(size uint64, indexes []uint64, leaves, path [][32]byte) bool {
		got, err := MultiRoot(size, indexes, leaves, path)
		return err == nil && got == want
	}
	if !good(13, indexes, chosen, path) {
		t.Fatal("positive control")
	}
	for name, ok := range map[string]bool{
		"no leaf":         good(13, nil, nil, path),
		"a leaf short":    good(13, indexes, chosen[:2], path),
		"one hash short":  good(13, indexes, chosen, path[:len(path)-1]),
		"one hash longer": good(13, indexes, chosen, append(slices.Clone(path), path[0])),
		"no path":         good(13, indexes, chosen, nil),
		"outside":         good(13, []uint64{2, 3, 13}, chosen, path),
		"unsorted":        good(13, []uint64{3, 2, 11}, chosen, path),
		"repeated":        good(13, []uint64{2, 2, 11}, chosen, path),
		"another place":   good(13, []uint64{2, 3, 10}, chosen, path),
		"size 0":          good(0, indexes, chosen, path),
		"another size":    good(17, indexes, chosen, path),
	} {
		if ok {
			t.Errorf("%s: got no error and the true root", name)
		}
	}
}

func TestMultiproofOfManyLeaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		leaves := leavesOf(1 + rng.IntN(3000))
		var indexes []uint64
		for i := range leaves {
			if rng.IntN(50) == 0 {
				indexes = append(indexes, uint64(i))
			}
		}
		if len(indexes) == 0 {
			indexes = []uint64{0}
		}
		if got, err := MultiRoot(uint64(len(leaves)), indexes, pick(leaves, indexes), prove(leaves, indexes)); err != nil || got != rootOf(leaves) {
			t.Fatalf("%d leaves, %d proved: got %x, %v", len(leaves), len(indexes), got, err)
		}
	}
}
