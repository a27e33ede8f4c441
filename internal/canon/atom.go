package canon

import (
	"encoding/binary"
	"math/bits"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// MinAtom and MaxAtom bound an atom, in bytes of content. Its canonical form
// has at least MinAtom bytes too.
const MinAtom, MaxAtom = 8, 256

// Byte sets whose maximal runs are atoms: runs of [A-Za-z0-9_./:@-], and words
// of [A-Za-z0-9_].
const (
	inRun uint8 = 1 << iota
	inWord
)

var sets = func() (sets [256]uint8) {
	for c := range 128 {
		switch b := byte(c); {
		case fold[c] != 0, b == '_':
			sets[c] = inRun | inWord
		case b == '.', b == '/', b == ':', b == '@', b == '-':
			sets[c] = inRun
		}
	}
	return sets
}()

// Atom returns the item of a token: the letters and digits, in lower case. It
// is not ok if the token is not a whole run or word, since then it would never
// be found.
func Atom(token string) (item []byte, ok bool) {
	set := inRun | inWord
	for i := range len(token) {
		set &= sets[token[i]]
	}
	if set == 0 || len(token) < MinAtom || len(token) > MaxAtom {
		return nil, false
	}
	item = make([]byte, len(token))
	item = item[:foldASCII(item, []byte(token))]
	return item, len(item) >= MinAtom
}

// atoms emits the atoms whose end shows in p. It works on raw bytes: the bytes
// before and after an atom are no part of it, whatever their form is.
func (s *Stream) atoms(p []byte, last bool, emit Emit) {
	f := s.f
	old := len(s.raw)
	f.raw = append(append(f.raw[:0], s.raw...), p...)
	f.masks(f.raw)
	visit := func(start, end int) {
		if end < old || end == len(f.raw) && !last || end-start > MaxAtom {
			return // emitted before, or not ended yet, or too long
		}
		a := f.atom[:foldASCII(f.atom[:end-start], f.raw[start:end])]
		if len(a) >= MinAtom && f.t.pass(contraband.ClassAtom, a) {
			s.item(contraband.ClassAtom, a, emit)
		}
	}
	runs(f.words, len(f.raw), visit)
	runs(f.runs, len(f.raw), func(start, end int) {
		if end-start > MaxAtom || !allOnes(f.words, start, end) { // else it is a word, too
			visit(start, end)
		}
	})
	// One byte more than the longest atom: a run that fills the tail is too long.
	s.raw = append(s.raw[:0], f.raw[max(0, len(f.raw)-MaxAtom-1):]...)
}

// masks sets bit i%64 of f.runs[i/64] and f.words[i/64] as p[i] is in the set.
// One word more than needed is there, zero.
func (f *Fingerprinter) masks(p []byte) {
	f.runs, f.words = f.runs[:0], f.words[:0]
	for len(p) >= 64 {
		var r, w uint64
		for i := 0; i < 64; i += 8 {
			x := binary.LittleEndian.Uint64(p[i:])
			rr, ww := classify(x)
			r |= rr << i
			w |= ww << i
		}
		f.runs, f.words = append(f.runs, r), append(f.words, w)
		p = p[64:]
	}
	var r, w uint64
	for i, b := range p {
		r |= uint64(sets[b]&inRun) << i
		w |= uint64(sets[b]&inWord) / uint64(inWord) << i
	}
	f.runs, f.words = append(f.runs, r, 0), append(f.words, w, 0)
}

const ones = 0x0101010101010101

// between sets the high bit of each byte of x, which has no high bit set, that
// lies from lo to hi.
func between(x uint64, lo, hi byte) uint64 {
	return (x + ones*uint64(0x80-lo)) &^ (x + ones*uint64(0x7f-hi))
}

// classify tells of 8 bytes which are in the sets of runs and of words, a bit
// for each.
func classify(x uint64) (run, word uint64) {
	const high = 0x80 * ones
	t := x &^ high
	wide := between(t|0x20*ones, 'a', 'z') | between(t, '_', '_')
	w := (wide | between(t, '0', '9')) &^ x & high
	r := (wide | between(t, '-', ':') | between(t, '@', '@')) &^ x & high
	return gather(r), gather(w)
}

// gather moves the high bits of 8 bytes into 8 bits.
func gather(m uint64) uint64 { return (m >> 7) * 0x0102040810204080 >> 56 }

// allOnes tells whether bits start to end, at most MaxAtom, are all set.
func allOnes(mask []uint64, start, end int) bool {
	for i := start; i < end; {
		n := min(64-i%64, end-i)
		want := ^uint64(0) >> (64 - n)
		if mask[i/64]>>(i%64)&want != want {
			return false
		}
		i += n
	}
	return true
}

// runs visits the maximal runs of at least MinAtom ones in masks, of which n
// bits count. masks has a zero word at the end.
func runs(masks []uint64, n int, visit func(start, end int)) {
	var before uint64 // the last bit of the word before
	for i := 0; i+1 < len(masks); i++ {
		m, next := masks[i], masks[i+1]
		// q has bit j if the 8 bits from j on are ones.
		q := m & (m>>1 | next<<63)
		q1 := next & (next >> 1)
		q &= q>>2 | q1<<62
		q1 &= q1 >> 2
		q &= q>>4 | q1<<60
		q &^= m<<1 | before // where a run begins
		before = m >> 63
		for ; q != 0; q &= q - 1 {
			start := i*64 + bits.TrailingZeros64(q)
			end := i*64 + 64
			if rest := ^m >> (start % 64); rest != 0 && start%64+bits.TrailingZeros64(rest) < 64 {
				end = start + bits.TrailingZeros64(rest)
			} else {
				for j := i + 1; j < len(masks); j++ {
					z := bits.TrailingZeros64(^masks[j])
					end += z
					if z < 64 {
						break
					}
				}
			}
			visit(start, min(end, n))
		}
	}
}
