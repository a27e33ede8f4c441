package seal

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// sortDigests sorts, also where many digests begin alike and in used memory.
func TestSortDigests(t *testing.T) {
	key := auditKey(t).Task("b", "", "t", [32]byte{}, [32]byte{})
	var out [][32]byte
	var start []uint32
	for _, n := range []int{0, 1, 2, 700, 16, 3000, 5} {
		var list [][32]byte
		for i := range n {
			d := key.Dummy("sort", uint32(i))
			if i%3 == 0 {
				copy(d[:8], "the same")
			}
			if i%9 == 0 {
				copy(d[:30], "the same in all but two bytes.")
			}
			list = append(list, d)
		}
		out, start = sortDigests(list, out, start)
		slices.SortFunc(list, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
		if !slices.Equal(out, list) {
			t.Errorf("%d digests: not sorted", n)
		}
	}
}

// items do what a map of class and digest does, when they are used again too.
func TestItems(t *testing.T) {
	type id struct {
		class contraband.Class
		s     [32]byte
	}
	f := canon.New(auditKey(t).Task("b", "", "t", [32]byte{}, [32]byte{}), nil)
	var list items
	for _, n := range []int{5000, 3, 0, manyItems + 1, 100} {
		list.reset()
		want := map[id]int32{}
		for i := range n {
			class := contraband.Class(1 + i%7)
			s := f.Digest(class, []byte{byte(i / 2), byte(i >> 9), byte(i >> 17)})
			if i%5 == 0 {
				copy(s[:16], "all begin alike!") // one place, and the whole decides
			}
			if n > 5000 && i%5 == 0 {
				continue // quadratic
			}
			key := id{class, s}
			if _, ok := list.find(class, &s); ok != (want[key] > 0) {
				t.Fatalf("item %d of %d: got found %v", i, n, ok)
			}
			if want[key] == 0 {
				want[key] = int32(len(want)) + 1
			}
			if got := list.add(class, s, nil, 0); got != want[key]-1 {
				t.Fatalf("item %d of %d: got number %d, want %d", i, n, got, want[key]-1)
			}
		}
		if len(list.list) != len(want) {
			t.Errorf("got %d items, want %d", len(list.list), len(want))
		}
	}
}
