package canon

import "github.com/cleanrun-dev/cleanrun/contraband"

// This file is for sealing: what is cut out of the ground truth, and the search
// for it in the baseline.

// Digest is the layer-1 digest of one item.
func (f *Fingerprinter) Digest(class contraband.Class, item []byte) [32]byte {
	return f.d.Digest(class, item)
}

// Shingles returns the picks of the full windows of canonical bytes, each once,
// in order. The class is ClassShingle or ClassShingle24. Unlike Object it
// returns nothing for fewer bytes than one window: such a pick would be found
// only in a content that is nothing else.
func (f *Fingerprinter) Shingles(class contraband.Class, canonical []byte) [][]byte {
	which, g := grams(class)
	var out [][]byte
	seen := map[string]bool{}
	f.ranks = f.t.orders[which].roll(f.ranks, canonical)
	f.picks = winnow(f.picks, f.ranks, g.w)
	for _, i := range f.picks {
		if s := canonical[i : i+g.k]; !poor(s) && !seen[string(s)] {
			seen[string(s)] = true
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
type ranks [1 << rankBits / 64]uint64

const rankBits = 20

func (r *ranks) add(rank uint32) { r[rank>>(32-rankBits)/64] |= 1 << (rank >> (32 - rankBits) % 64) }

func (r *ranks) has(rank uint32) bool {
	return r[rank>>(32-rankBits)/64]&(1<<(rank>>(32-rankBits)%64)) != 0
}

// NewEverywhere returns a fingerprinter that emits shingles not where winnowing
// picks them but at every position where one of the given ones may stand; each
// is k canonical bytes. What the baseline holds anywhere must not be sealed:
// an edit nearby changes what is picked.
func NewEverywhere(key contraband.TaskKey, filter []uint32, shingles48, shingles24 [][]byte) *Fingerprinter {
	f := New(key, filter)
	f.t.everywhere = new([2]ranks)
	for which, list := range [2][][]byte{shingles48, shingles24} {
		for _, s := range list {
			f.t.everywhere[which].add(f.t.orders[which].roll(nil, s)[0])
		}
	}
	return f
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
