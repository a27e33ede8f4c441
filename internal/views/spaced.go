package views

import "bytes"

const (
	spacedMin = 80      // characters of an encoding with blanks in it, at least
	probe     = 24      // bytes by which it is told from prose
	stride    = 56      // bytes from probe to probe: one lies in every run of spacedMin
	capitals  = 4       // capitals and digits in a probe, at least
	trial     = 6 << 10 // characters that are decoded to see whether they read
)

// airy tells bytes of base64 with blanks in it: 1, and 2 for those that are rare
// in prose.
var airy = func() (t [256]uint8) {
	for i, d := range digit {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			t[i] = 1
		case d != 0xff:
			t[i] = 2
		}
	}
	return t
}()

// spaced finds paragraphs of base64, base32 or hex with blanks between the
// characters, or on short lines, and derives their views. Prose may consist of
// the same characters, so they must read.
func (w *walker) spaced(b []byte, depth int) {
	short := pool{kind: "base64"}
	for at, i := 0, 0; i+probe <= len(b); i += stride {
		if !probed(b[i : i+probe]) {
			continue
		}
		from, to := i, i+probe
		for from > at && airy[b[from-1]] != 0 {
			from--
		}
		for to < len(b) && airy[b[to]] != 0 {
			to++
		}
		w.paragraphs(&short, b[from:to], depth)
		at, i = to, max(to-stride, i)
	}
	w.flush(&short, depth)
}

func probed(b []byte) bool {
	n := 0
	for _, c := range b {
		a := airy[c]
		if a == 0 {
			return false
		}
		n += int(a >> 1)
	}
	return n >= capitals
}

// paragraphs decodes what stands between empty lines, but for what the search for
// runs reads: lines of at least pieceMin characters without blanks.
func (w *walker) paragraphs(short *pool, b []byte, depth int) {
	from, odd, narrow := 0, false, false // narrow: the last line was short
	done := func(to int) {
		if odd && to-from >= spacedMin && 8*rare(b[from:to]) >= to-from {
			chars := make([]byte, 0, to-from)
			for word := range bytes.FieldsSeq(b[from:to]) {
				chars = append(chars, word...)
			}
			if len(chars) >= spacedMin && varied(chars) {
				if out := joined(chars); len(out) > 0 {
					w.decoded(short, out, depth)
				}
			}
		}
		from, odd, narrow = to, false, false
	}
	for at := 0; at < len(b); {
		end := len(b)
		if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := bytes.TrimSpace(b[at:end])
		at = end
		if len(line) == 0 {
			done(at)
			continue
		}
		odd = odd || narrow || bytes.IndexByte(line, ' ') >= 0 || bytes.IndexByte(line, '\t') >= 0
		narrow = len(line) < pieceMin
	}
	done(len(b))
}

// rare counts the characters that are rare in prose: half of base64, a fifth of
// base32 in lower case.
func rare(b []byte) (n int) {
	for _, c := range b {
		n += int(airy[c] >> 1)
	}
	return n
}

// joined decodes chars as the first of hex, base32 and base64 that reads, nil if
// none does.
func joined(chars []byte) []byte {
	head := chars[:min(len(chars), trial)]
	all := func(in *[256]bool) bool {
		from, to := nextStretch(chars, 0, len(chars), in)
		return to-from == len(chars)
	}
	for _, e := range []struct {
		may    bool
		skips  int
		decode func(chars []byte) []byte
	}{
		{all(&hexDigits), 2, hexFrom},
		{all(&upper32) || all(&lower32), 8, base32From},
		{true, 4, base64From},
	} {
		for skip := range e.skips {
			if e.may && reads(e.decode(head[skip:])) {
				return e.decode(chars[skip:])
			}
		}
	}
	return nil
}
