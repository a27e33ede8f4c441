package canon

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// This file is for sealing: what is cut out of the ground truth, and the search
// for it in the baseline.

// Digest is the layer-1 digest of one item.
func (f *Fingerprinter) Digest(class contraband.Class, item []byte) [32]byte {
	return f.digest(class, item)
}

func (f *Fingerprinter) digest(class contraband.Class, item []byte) (s [32]byte) {
	if f.t.plain != nil {
		binary.BigEndian.PutUint64(s[:], maphash.Bytes(f.t.plain[class], item))
		return s
	}
	return f.d.Digest(class, item)
}

// Plain returns a fingerprinter that cuts as f does and whose digests are hashes
// of 64 bits, in the first 8 bytes, for use within this process: they cost a
// tenth.
func (f *Fingerprinter) Plain() *Fingerprinter {
	t := *f.t
	t.plain = new([contraband.ClassAtom + 1]maphash.Seed)
	for i := range t.plain {
		t.plain[i] = maphash.MakeSeed()
	}
	return &Fingerprinter{&t, f.t.key.Digester(), new(memory)}
}

// Shingles visits the picks of the full windows of canonical bytes, in order,
// with their ranks; two may be equal. The class is ClassShingle or
// ClassShingle24. Unlike Object it visits nothing in fewer bytes than one window:
// such a pick would be found only in a content that is nothing else. visit may
// call Digest.
func (f *Fingerprinter) Shingles(class contraband.Class, canonical []byte, visit func(shingle []byte, rank uint32)) {
	which, g := grams(class)
	f.ranks = f.t.orders[which].roll(f.ranks, canonical)
	f.picks = winnow(f.picks, f.ranks, g.w)
	for _, i := range f.picks {
		if s := canonical[i : i+g.k]; !poor(s) {
			visit(s, f.ranks[i])
		}
	}
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
// digested, and the digest decides. Few pass coarse, which fits a nearer cache.
type ranks struct {
	set, coarse    []uint64
	shift, coarser uint32
}

// fill makes r the set of the ranks in list. It has at least 128 places for each
// rank, so that few others pass, and 8 in coarse.
func (r *ranks) fill(list []uint32) {
	size := 20 // bits; small enough for the cache
	for size < 31 && len(list) > 1<<(size-7) {
		size++
	}
	r.set, r.shift = cleared(r.set, size), uint32(32-size)
	mark(r.set, r.shift, list)
	if r.coarse, r.coarser = r.set, r.shift; size > 22 {
		r.coarse, r.coarser = cleared(nil, size-4), r.shift+4
		mark(r.coarse, r.coarser, list)
	}
}

// cleared is a set of 1 << size places, in the memory of old if it is there.
func cleared(old []uint64, size int) []uint64 {
	if n := 1 << size / 64; n <= cap(old) {
		clear(old[:n])
		return old[:n]
	}
	return make([]uint64, 1<<size/64)
}

func mark(set []uint64, shift uint32, list []uint32) {
	for _, rank := range list {
		set[rank>>shift/64] |= 1 << (rank >> shift % 64)
	}
}

func (r *ranks) has(rank uint32) bool {
	return r.coarse[rank>>r.coarser/64]&(1<<(rank>>r.coarser%64)) != 0 && r.set[rank>>r.shift/64]&(1<<(rank>>r.shift%64)) != 0
}

// FilterValue is the keyed value of a line, atom or canary: what a filter holds.
func (f *Fingerprinter) FilterValue(class contraband.Class, item []byte) uint32 {
	return f.t.values.Value(class, item)
}

// Everywhere returns a fingerprinter of the same key and another filter. It
// emits shingles not where winnowing picks them but at every position where one
// of the given ranks stands; another shingle may have the same rank. What the
// baseline holds anywhere must not be sealed: an edit nearby changes what is
// picked. The result takes the memory of old, a former result that is used no
// more; nil is none.
func (f *Fingerprinter) Everywhere(old *Fingerprinter, filter []uint32, ranks48, ranks24 []uint32) *Fingerprinter {
	if old == nil {
		old = &Fingerprinter{t: new(tables), memory: new(memory)}
	}
	t, everywhere := old.t, old.t.everywhere
	coarse, starts, values := t.coarse, t.starts, t.filter
	*t = *f.t
	t.coarse, t.starts, t.filter = coarse, starts, values
	t.setFilter(filter)
	if everywhere == nil {
		everywhere = new([2]ranks)
	}
	everywhere[0].fill(ranks48)
	everywhere[1].fill(ranks24)
	t.everywhere = everywhere
	old.d = f.t.key.Digester()
	return old
}

// everywhere emits the shingles of c that end at or after old and whose rank is
// wanted.
func (f *Fingerprinter) everywhere(which int, g gram, c []byte, old int, emit Emit) {
	want := &f.t.everywhere[which]
	for i := max(0, old-g.k+1); i < len(f.ranks); i++ {
		if want.has(f.ranks[i]) {
			emit(g.class, f.digest(g.class, c[i:i+g.k]))
		}
	}
}
