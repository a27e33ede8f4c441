package canon

import "github.com/cleanrun-dev/cleanrun/contraband"

// This file is for sealing: what is cut out of the ground truth, and the search
// for it in the baseline.

// Digest is the layer-1 digest of one item.
func (f *Fingerprinter) Digest(class contraband.Class, item []byte) [32]byte {
	return f.d.Digest(class, item)
}

// Shingles returns the picks of the full windows of canonical bytes, in order;
// two may be equal. The class is ClassShingle or ClassShingle24. Unlike Object it
// returns nothing for fewer bytes than one window: such a pick would be found
// only in a content that is nothing else.
func (f *Fingerprinter) Shingles(class contraband.Class, canonical []byte) [][]byte {
	which, g := grams(class)
	var out [][]byte
	f.ranks = f.t.orders[which].roll(f.ranks, canonical)
	f.picks = winnow(f.picks, f.ranks, g.w)
	for _, i := range f.picks {
		if s := canonical[i : i+g.k]; !poor(s) {
			out = append(out, s)
		}
	}
	return out
}

// Window is how many canonical bytes make one full window of a shingle class:
// every shared run of that length is found.
func Window(class contraband.Class) int {
	_, g := grams(class)
	return g.reach() + 1
}

// Poor tells whether an item has too few distinct bytes to be worth sealing.
func Poor(item []byte) bool { return poor(item) }

func grams(class contraband.Class) (which int, g gram) {
	switch class {
	case contraband.ClassShingle:
		return 0, gram48
	case contraband.ClassShingle24:
		return 1, gram24
	}
	panic("canon: not a shingle class")
}

// ranks is a set of ranks of shingles, by their leading bits: what passes is
// digested, and the digest decides.
type ranks struct {
	set   []uint64
	shift uint32
}

// newRanks has at least 128 places for each rank, so that few others pass.
func newRanks(list []uint32) ranks {
	size := 20 // bits; small enough for the cache
	for size < 31 && len(list) > 1<<(size-7) {
		size++
	}
	r := ranks{make([]uint64, 1<<size/64), uint32(32 - size)}
	for _, rank := range list {
		r.set[rank>>r.shift/64] |= 1 << (rank >> r.shift % 64)
	}
	return r
}

func (r *ranks) has(rank uint32) bool {
	return r.set[rank>>r.shift/64]&(1<<(rank>>r.shift%64)) != 0
}

// Rank is the rank of one shingle: what Everywhere takes.
func (f *Fingerprinter) Rank(class contraband.Class, shingle []byte) uint32 {
	which, _ := grams(class)
	o := &f.t.orders[which]
	return uint32((o.hash(shingle) * o.mul) >> 32)
}

// FilterValue is the keyed value of a line, atom or canary: what a filter holds.
func (f *Fingerprinter) FilterValue(class contraband.Class, item []byte) uint32 {
	return f.t.values.Value(class, item)
}

// Everywhere returns a fingerprinter of the same key and another filter. It
// emits shingles not where winnowing picks them but at every position where one
// of the given ranks stands; another shingle may have the same rank. What the
// baseline holds anywhere must not be sealed: an edit nearby changes what is
// picked.
func (f *Fingerprinter) Everywhere(filter []uint32, ranks48, ranks24 []uint32) *Fingerprinter {
	t := *f.t
	t.setFilter(filter)
	t.everywhere = &[2]ranks{newRanks(ranks48), newRanks(ranks24)}
	return &Fingerprinter{t: &t, d: t.key.Digester()}
}

// everywhere emits the shingles of c that end at or after old and whose rank is
// wanted.
func (f *Fingerprinter) everywhere(which int, g gram, c []byte, old int, emit Emit) {
	want := &f.t.everywhere[which]
	for i := max(0, old-g.k+1); i < len(f.ranks); i++ {
		if want.has(f.ranks[i]) {
			emit(g.class, f.d.Digest(g.class, c[i:i+g.k]))
		}
	}
}
