package canon

import (
	"math/bits"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// tables are what all clones of a fingerprinter share. They are read only.
type tables struct {
	key        contraband.TaskKey
	orders     [2]order // of gram48 and gram24
	filter     []uint32 // sorted
	coarse     []uint64 // a bit for each value of a filter entry without its low bits
	values     *contraband.Filter
	canaryOut  [256]uint64 // values.Table rotated out of the window
	everywhere *[2]ranks   // shingles to be found at every position, else nil
}

const coarseShift = contraband.FilterBits - 17

func newTables(key contraband.TaskKey, filter []uint32) *tables {
	table, mul := contraband.Table(key.Select())
	t := &tables{key: key, filter: slices.Clone(filter), values: key.Filter()}
	t.orders = [2]order{*newOrder(&table, mul, gram48.k), *newOrder(&table, mul, gram24.k)}
	slices.Sort(t.filter)
	t.coarse = make([]uint64, (1<<contraband.FilterBits>>coarseShift)/64)
	for _, v := range t.filter {
		t.coarse[v>>coarseShift/64] |= 1 << (v >> coarseShift % 64)
	}
	for i, x := range t.values.Table {
		t.canaryOut[i] = bits.RotateLeft64(x, contraband.CanarySize)
	}
	return t
}

func (t *tables) pass(class contraband.Class, item []byte) bool {
	return t.passes(t.values.Value(class, item))
}

func (t *tables) passes(v uint32) bool {
	if t.coarse[v>>coarseShift/64]&(1<<(v>>coarseShift%64)) == 0 {
		return false
	}
	_, found := slices.BinarySearch(t.filter, v)
	return found
}

// canaries visits each window of c whose value is in the filter.
func (t *tables) canaries(c []byte, visit func(window []byte)) {
	const k = contraband.CanarySize
	if len(c) < k {
		return
	}
	var r uint64
	in, out, mul, coarse := &t.values.Table, &t.canaryOut, t.values.Mul, t.coarse
	for _, b := range c[:k-1] {
		r = bits.RotateLeft64(r, 1) ^ in[b]
	}
	lead, trail := c[k-1:], c
	trail = trail[:len(lead)]
	var gone uint64 // what the byte that leaves contributes, 0 at first
	for i, b := range lead {
		r = bits.RotateLeft64(r, 1) ^ gone ^ in[b]
		gone = out[trail[i]]
		v := (r * mul) >> (64 - contraband.FilterBits)
		if coarse[v>>coarseShift/64]&(1<<(v>>coarseShift%64)) != 0 && t.passes(uint32(v)) {
			visit(c[i : i+k])
		}
	}
}
