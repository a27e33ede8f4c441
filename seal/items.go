package seal

import (
	"encoding/binary"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// An item is one thing to be sealed. Its number is its place in the list.
type item struct {
	class contraband.Class
	s     [32]byte
	plain []byte // kept where a filter value or a rank is made of it
	pile  int    // the last one that took it
}

// items are the distinct items of one task: one that two sources have is one
// item. They are found by half of their keyed digest; the whole decides.
type items struct {
	ids  map[[16]byte]int32
	list []item
}

// expect makes room for n items.
func (t *items) expect(n int) {
	t.ids = make(map[[16]byte]int32, n)
	t.list = make([]item, 0, n)
}

func half(s *[32]byte) [16]byte { return [16]byte(s[:]) }

// add returns the number of an item, of a new one if it is not there.
func (t *items) add(class contraband.Class, s [32]byte, plain []byte) (id int32, fresh bool) {
	if id, ok := t.find(class, &s); ok {
		return id, false
	}
	if t.ids == nil {
		t.ids = map[[16]byte]int32{}
	}
	id = int32(len(t.list))
	t.ids[half(&s)] = id
	t.list = append(t.list, item{class: class, s: s, plain: plain, pile: -1})
	return id, true
}

func (t *items) find(class contraband.Class, s *[32]byte) (id int32, ok bool) {
	id, ok = t.ids[half(s)]
	return id, ok && t.list[id].s == *s && t.list[id].class == class
}

// sortDigests sorts keyed digests, which are spread evenly: each is put near its
// place by its leading bits, and a pass of insertion does the rest.
func sortDigests(list [][32]byte) [][32]byte {
	n := uint64(len(list))
	if n < 2 {
		return list
	}
	place := func(d *[32]byte) uint64 { return binary.BigEndian.Uint64(d[:]) >> 32 * n >> 32 }
	start := make([]uint32, n+1)
	for i := range list {
		start[place(&list[i])+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	out := make([][32]byte, n)
	for i := range list {
		at := &start[place(&list[i])]
		out[*at] = list[i]
		*at++
	}
	for i := 1; i < len(out); i++ {
		d := out[i]
		j := i
		for ; j > 0 && less(&d, &out[j-1]); j-- {
			out[j] = out[j-1]
		}
		out[j] = d
	}
	return out
}

func less(a, b *[32]byte) bool {
	for i := 0; i < 32; i += 8 {
		x, y := binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:])
		if x != y {
			return x < y
		}
	}
	return false
}
