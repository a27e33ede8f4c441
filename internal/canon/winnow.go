package canon

import (
	"math/bits"
	"slices"

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

// hash is the rolling hash of the k bytes of c.
func (o *order) hash(c []byte) (r uint64) {
	for _, b := range c[:o.k] {
		r = bits.RotateLeft64(r, 1) ^ o.in[b]
	}
	return r
}

// roll returns the rank of every k-gram of c, in v's memory. It rolls over both
// halves at once: each step waits for the one before, so two run in the time of
// one.
func (o *order) roll(v []uint32, c []byte) []uint32 {
	k := o.k
	if len(c) < k {
		return v[:0]
	}
	n := len(c) - k + 1
	v = slices.Grow(v[:0], n)[:n]
	mul := o.mul
	if n == 1 {
		v[0] = uint32((o.hash(c) * mul) >> 32)
		return v
	}
	h := n / 2
	r, s := o.hash(c), o.hash(c[h:])
	v[0], v[h] = uint32((r*mul)>>32), uint32((s*mul)>>32)
	m := h - 1
	leaveR, enterR, leaveS, enterS := c[:m], c[k:][:m], c[h:][:m], c[h+k:][:m]
	vr, vs := v[1:][:m], v[h+1:][:m]
	for i := range m {
		r = bits.RotateLeft64(r, 1) ^ o.out[leaveR[i]] ^ o.in[enterR[i]]
		s = bits.RotateLeft64(s, 1) ^ o.out[leaveS[i]] ^ o.in[enterS[i]]
		vr[i], vs[i] = uint32((r*mul)>>32), uint32((s*mul)>>32)
	}
	if n%2 == 1 {
		s = bits.RotateLeft64(s, 1) ^ o.out[c[n-2]] ^ o.in[c[n+k-2]]
		v[n-1] = uint32((s * mul) >> 32)
	}
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

// rightmost is the position of the last of the smallest of v[lo:hi], which is
// not empty. A value and its position from the end make one number, whose
// minimum takes no branch; two minima go side by side.
func rightmost(v []uint32, lo, hi int) int {
	v = v[lo:hi]
	n := len(v)
	a, b := uint64(v[0])<<32|uint64(n), ^uint64(0)
	i := n & 1
	for ; i+1 < n; i += 2 {
		a = min(a, uint64(v[i])<<32|uint64(n-i))
		b = min(b, uint64(v[i+1])<<32|uint64(n-i-1))
	}
	return hi - int(uint32(min(a, b)))
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
