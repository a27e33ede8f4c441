package views

import (
	"math"
	"slices"
)

const (
	opaqueSize = 1 << 10
	opaqueBits = 7.5
)

// histogram counts bytes.
type histogram struct {
	count [256]uint64
	n     uint64
}

func (h *histogram) add(b []byte) {
	// Two tables, so that equal neighbours do not wait for each other.
	var even, odd [256]uint32
	for len(b) > 0 {
		part := b[:min(len(b), 1<<20)]
		b = b[len(part):]
		h.n += uint64(len(part))
		for i := 0; i+1 < len(part); i += 2 {
			even[part[i]]++
			odd[part[i+1]]++
		}
		if len(part)%2 == 1 {
			even[part[len(part)-1]]++
		}
		for i := range h.count {
			h.count[i] += uint64(even[i]) + uint64(odd[i])
		}
		clear(even[:])
		clear(odd[:])
	}
}

// opaque tells whether the content looks compressed or encrypted: at least 1 KiB,
// with more than 7.5 bits of order-0 entropy a byte. It does not know whether
// some view reads it.
func (h *histogram) opaque() bool {
	if h.n < opaqueSize {
		return false
	}
	bits := 0.0
	for _, c := range h.count {
		if c > 0 {
			p := float64(c) / float64(h.n)
			// The conversion keeps the product from being fused, which would
			// round differently on other processors.
			bits -= float64(p * math.Log2(p))
		}
	}
	return bits > opaqueBits
}

// spans are parts of a content, sorted and disjoint.
type spans []span

type span struct{ from, to int64 }

func (s spans) normal() spans {
	slices.SortFunc(s, func(a, b span) int {
		switch {
		case a.from != b.from:
			return int(max(min(a.from-b.from, 1), -1))
		default:
			return int(max(min(a.to-b.to, 1), -1))
		}
	})
	out := s[:0]
	for _, x := range s {
		if k := len(out); k > 0 && x.from <= out[k-1].to {
			out[k-1].to = max(out[k-1].to, x.to)
		} else if x.from < x.to {
			out = append(out, x)
		}
	}
	return out
}

// gaps are the parts of a content of this size that s leaves.
func (s spans) gaps(size int64) spans {
	var out spans
	at := int64(0)
	for _, x := range s {
		if x.from > at {
			out = append(out, span{at, x.from})
		}
		at = x.to
	}
	if at < size {
		out = append(out, span{at, size})
	}
	return out
}
