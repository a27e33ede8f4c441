package merkle

import (
	"crypto/sha256"
	"testing"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

func TestRootIsThatOfTheReference(t *testing.T) {
	f := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	r := f.NewEmptyRange(0)
	var tree Tree
	if tree.Root() != sha256.Sum256(nil) {
		t.Error("the root of no leaf is not SHA-256 of nothing")
	}
	for n := 1; n <= 300; n++ {
		leaf := sha256.Sum256([]byte{0, byte(n), byte(n >> 8)})
		if err := r.Append(leaf[:], nil); err != nil {
			t.Fatal(err)
		}
		want, err := r.GetRootHash(nil)
		if err != nil {
			t.Fatal(err)
		}
		tree.Push(leaf)
		if got := tree.Root(); got != [32]byte(want) {
			t.Fatalf("%d leaves: got %x, want %x", n, got, want)
		}
	}
}

// Roots of complete trees of one size stand for their leaves.
func TestPushRoots(t *testing.T) {
	for _, c := range []struct{ size, n int }{{1, 5}, {2, 3}, {8, 1}, {8, 7}, {16, 4}} {
		var whole, part, top Tree
		for i := range c.size * c.n {
			leaf := sha256.Sum256([]byte{0, byte(i)})
			whole.Push(leaf)
			part.Push(leaf)
			if (i+1)%c.size == 0 {
				top.Push(part.Root())
				part = Tree{}
			}
		}
		if whole.Root() != top.Root() {
			t.Errorf("%d trees of %d: another root", c.n, c.size)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	var tree Tree
	n := testing.AllocsPerRun(10, func() {
		for range 1000 {
			tree.Push([32]byte{})
		}
		tree.Root()
	})
	if n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
