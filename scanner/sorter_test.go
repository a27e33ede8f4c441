//go:build unix

package scanner

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// TestSorterEqualsMap: with and without the disk, the least tag of each digest,
// in order.
func TestSorterEqualsMap(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer root.Close()
	sc := &scratch{root: root, name: "tmp"}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		s := &sorter{scratch: sc, limit: 1 + r.IntN(300)}
		want := map[[2]uint64]uint64{}
		for range n * 3 {
			x := record{r.Uint64N(20), r.Uint64N(1 + uint64(n)), r.Uint64N(1000)}
			s.add(x)
			k := [2]uint64{x.hi, x.lo}
			if tag, ok := want[k]; !ok || x.tag < tag {
				want[k] = x.tag
			}
		}
		must(t, s.finish())
		for range 2 {
			var got []record
			must(t, s.each(func(x record) error { got = append(got, x); return nil }))
			keys := slices.SortedFunc(maps.Keys(want), func(a, b [2]uint64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
			if len(got) != len(keys) {
				t.Fatalf("%d records: got %d, want %d", n, len(got), len(keys))
			}
			for i, k := range keys {
				if got[i] != (record{k[0], k[1], want[k]}) {
					t.Fatalf("%d records: got %v at %d, want %v, tag %d", n, got[i], i, k, want[k])
				}
			}
		}
	}
	must(t, sc.close())
	if entries, _ := os.ReadDir(root.Name()); len(entries) > 0 {
		t.Errorf("left %v behind", entries)
	}
}
