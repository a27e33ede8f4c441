package canon

import (
	"math/bits"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// A gram is one shingle class: k canonical bytes, the rightmost minimum of each
// window of w of them. Two contents that share k+w-1 bytes share a window, and
// the choice depends on the window alone, so they share a shingle: whatever
// stands around it, and whatever an adversary knows.
type gram struct {
	class contraband.Class
	k, w  int
}

var (
	gram48 = gram{contraband.ClassShingle, 48, 49}
	gram24 = gram{contraband.ClassShingle24, 24, 25}
)

// reach is how many earlier bytes a new byte's windows need.
func (g gram) reach() int { return g.k + g.w - 2 }

// minDistinct bytes make a shingle; fewer are padding, rules or zeros.
const minDistinct = 8

// An order is the keyed rolling hash that ranks k-grams. Only the rank is used,
// never published: the digest is always the HMAC of the bytes.
type order struct {
	in, out [256]uint64
	mul     uint64
	k       int
}

func newOrder(table *[256]uint64, mul uint64, k int) *order {
	o := &order{in: *table, mul: mul, k: k}
	for i, t := range table {
		o.out[i] = bits.RotateLeft64(t, k)
	}
	return o
}

// roll returns the rank of every k-gram of c, in v's memory.
func (o *order) roll(v []uint32, c []byte) []uint32 {
	k := o.k
	if len(c) < k {
		return v[:0]
	}
	var r uint64
	for _, b := range c[:k] {
		r = bits.RotateLeft64(r, 1) ^ o.in[b]
	}
	n := len(c) - k
	if cap(v) <= n {
		v = make([]uint32, n+1, n+n/4+1)
	}
	v = v[:n+1]
	mul := o.mul
	a, b := c[:n], c[k:]
	b = b[:n]
	for i := range n {
		v[i] = uint32((r * mul) >> 32)
		r = bits.RotateLeft64(r, 1) ^ o.out[a[i]] ^ o.in[b[i]]
	}
	v[n] = uint32((r * mul) >> 32)
	return v
}

// winnow returns the positions of the rightmost minimum of each full window of
// w values, each once, ascending, in picks' memory.
func winnow(picks []int, v []uint32, w int) []int {
	picks = picks[:0]
	if len(v) < w {
		return picks
	}
	m := rightmost(v, 0, w)
	picks = append(picks, m)
	for i := w; i < len(v); {
		// Look for a value that is no greater, until m leaves the window.
		leave := m + w
		low, end := v[m], min(leave, len(v))
		for i < end && v[i] > low {
			i++
		}
		switch {
		case i < end:
			m = i
			i++
		case i == len(v):
			return picks
		default:
			m = rightmost(v, m+1, leave+1)
			i = leave + 1
		}
		picks = append(picks, m)
	}
	return picks
}

func rightmost(v []uint32, lo, hi int) int {
	m := lo
	for i := lo + 1; i < hi; i++ {
		if v[i] <= v[m] {
			m = i
		}
	}
	return m
}

// poor tells whether b has fewer than minDistinct distinct bytes.
func poor(b []byte) bool {
	var seen [4]uint64
	n := 0
	for _, c := range b {
		bit := uint64(1) << (c & 63)
		if seen[c>>6]&bit == 0 {
			seen[c>>6] |= bit
			if n++; n == minDistinct {
				return false
			}
		}
	}
	return true
}
