package canon

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// tables are what all clones of a fingerprinter share. They are read only.
type tables struct {
	key        contraband.TaskKey
	orders     [2]order                      // of gram48 and gram24
	filter     []uint32                      // sorted
	starts     *[1<<startBits + 1]uint32     // where in filter the values with these leading bits begin
	coarse     *[1 << coarseBits / 64]uint64 // a bit for each value of a filter entry without its low bits
	values     *contraband.Filter
	canaryOut  [256]uint64 // values.Table rotated out of the window
	everywhere *[2]ranks   // shingles to be found at every position, else nil
	plain      *[contraband.ClassAtom + 1]maphash.Seed
}

const (
	coarseBits  = 17 // 16 KiB, which stay in the cache
	coarseShift = contraband.FilterBits - coarseBits
	startBits   = 12
	startShift  = contraband.FilterBits - startBits
)

func newTables(key contraband.TaskKey, filter []uint32) *tables {
	table, mul := contraband.Table(key.Select())
	t := &tables{key: key, values: key.Filter()}
	t.orders = [2]order{*newOrder(&table, mul, gram48.k), *newOrder(&table, mul, gram24.k)}
	t.setFilter(filter)
	for i, x := range t.values.Table {
		t.canaryOut[i] = bits.RotateLeft64(x, contraband.CanarySize)
	}
	return t
}

// setFilter replaces the filter, in its memory.
func (t *tables) setFilter(filter []uint32) {
	t.filter = append(t.filter[:0], filter...)
	slices.Sort(t.filter)
	if len(filter) == 0 {
		return // nobody asks then
	}
	if t.coarse == nil {
		t.coarse, t.starts = new([1 << coarseBits / 64]uint64), new([1<<startBits + 1]uint32)
	}
	clear(t.coarse[:])
	clear(t.starts[:])
	for _, v := range t.filter {
		t.coarse[v>>coarseShift/64] |= 1 << (v >> coarseShift % 64)
	}
	for _, v := range t.filter {
		t.starts[v>>startShift+1]++
	}
	for i := range 1 << startBits {
		t.starts[i+1] += t.starts[i]
	}
}

func (t *tables) pass(class contraband.Class, item []byte) bool {
	return t.passes(t.values.Value(class, item))
}

func (t *tables) passes(v uint32) bool {
	if t.coarse[v>>coarseShift/64]&(1<<(v>>coarseShift%64)) == 0 {
		return false
	}
	i := v >> startShift
	_, found := slices.BinarySearch(t.filter[t.starts[i]:t.starts[i+1]], v)
	return found
}

// canaries visits each window of c whose value is in the filter. As roll does,
// it works on both halves at once.
func (t *tables) canaries(c []byte, visit func(window []byte)) {
	const k = contraband.CanarySize
	n := len(c) - k + 1
	if n < 2 {
		if n == 1 && t.pass(contraband.ClassCanary, c) {
			visit(c)
		}
		return
	}
	in, out, mul, coarse := &t.values.Table, &t.canaryOut, t.values.Mul, t.coarse
	check := func(at int, hash uint64) {
		if t.passes(uint32(hash * mul >> (64 - contraband.FilterBits))) {
			visit(c[at : at+k])
		}
	}
	h := n / 2
	var r, s uint64
	for i := range k {
		r = bits.RotateLeft64(r, 1) ^ in[c[i]]
		s = bits.RotateLeft64(s, 1) ^ in[c[h+i]]
	}
	check(0, r)
	check(h, s)
	m := h - 1
	leaveR, enterR, leaveS, enterS := c[:m], c[k:][:m], c[h:][:m], c[h+k:][:m]
	for i := range m {
		r = bits.RotateLeft64(r, 1) ^ out[leaveR[i]] ^ in[enterR[i]]
		s = bits.RotateLeft64(s, 1) ^ out[leaveS[i]] ^ in[enterS[i]]
		vr, vs := r*mul>>(64-coarseBits), s*mul>>(64-coarseBits)
		if coarse[vr/64]>>(vr%64)&1 != 0 {
			check(1+i, r)
		}
		if coarse[vs/64]>>(vs%64)&1 != 0 {
			check(h+1+i, s)
		}
	}
	if n%2 == 1 {
		s = bits.RotateLeft64(s, 1) ^ out[c[n-2]] ^ in[c[n+k-2]]
		check(n-1, s)
	}
}
