package canon

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxSegment is the longest sequence of runes that is normalised together. It
// bounds what a run of combining marks can make us hold.
const maxSegment = 32

// A former turns raw bytes into the canonical form, piece by piece.
//
// Bytes that are no part of a valid UTF-8 sequence are read as U+FFFD, which is
// no letter: so the form of each piece of text does not depend on damage
// elsewhere, and one stray byte does not hide a file.
type former struct {
	held []byte // raw bytes of an incomplete sequence or of the open segment
	join []byte // scratch
}

// Canonical returns the canonical form of content.
func Canonical(content []byte) []byte { return Append(make([]byte, 0, len(content)), content) }

// Append appends the canonical form of content to dst.
func Append(dst, content []byte) []byte {
	var f former
	dst, _ = f.form(dst, nil, content, true)
	return dst
}

// form appends the canonical form of what p completes to dst, and the length of
// dst at each line feed to breaks. With last, nothing is held back.
func (f *former) form(dst []byte, breaks []int, p []byte, last bool) ([]byte, []int) {
	if len(f.held) > 0 {
		f.join = append(append(f.join[:0], f.held...), p...)
		p = f.join
	}
	i := 0
	for i < len(p) {
		end := i + asciiLen(p[i:])
		if end > i && isLetter(p[end-1]) && !f.closed(p[end:], last) {
			end-- // the letter may compose with what follows
		}
		dst, breaks = ascii(dst, breaks, p[i:end])
		if i = end; i == len(p) {
			break
		}
		if p[i] >= utf8.RuneSelf {
			n := 0
			if dst, n = singles(dst, p[i:], last); n > 0 {
				i += n
				continue
			}
		}
		n, done := segment(p[i:], last)
		if !done {
			break
		}
		dst = appendSegment(dst, p[i:i+n])
		i += n
	}
	f.held = append(f.held[:0], p[i:]...)
	return dst, breaks
}

// singles appends the forms of the segments of one rune with which p, which
// begins with a byte that is not ASCII, goes on, up to the next ASCII byte. It
// returns how many bytes they have. It is segment and appendSegment in one, for
// what is most of all text: each rune is decoded once.
func singles(dst, p []byte, last bool) (form []byte, n int) {
	if !last && !utf8.FullRune(p) {
		return dst, 0
	}
	r, size := utf8.DecodeRune(p)
	for {
		next, nextSize := rune(0), 0
		switch rest := p[n+size:]; {
		case len(rest) == 0:
			if !last {
				return dst, n
			}
		case rest[0] >= utf8.RuneSelf:
			if !last && !utf8.FullRune(rest) {
				return dst, n
			}
			if next, nextSize = utf8.DecodeRune(rest); !lookup(next).starts {
				return dst, n
			}
		}
		if r != utf8.RuneError {
			pg := pageOf(r)
			in := pg.info[r&0xff]
			dst = append(dst, pg.out[in.off:int(in.off)+int(in.len)]...)
		}
		if n += size; nextSize == 0 {
			return dst, n
		}
		r, size = next, nextSize
	}
}

// closed tells whether rest cannot add to the segment before it.
func (f *former) closed(rest []byte, last bool) bool {
	if len(rest) == 0 {
		return last
	}
	if !last && !utf8.FullRune(rest) {
		return false
	}
	r, _ := utf8.DecodeRune(rest)
	return lookup(r).starts
}

// segment returns the length of the first segment of p, which is not empty: a
// rune and the runes after it that are no start of a segment, at most
// maxSegment in all. It is not done if more bytes may belong to it.
func segment(p []byte, last bool) (n int, done bool) {
	for count := 0; ; count++ {
		if n == len(p) {
			return n, last || count == maxSegment
		}
		if !last && !utf8.FullRune(p[n:]) {
			return n, count == maxSegment
		}
		r, size := utf8.DecodeRune(p[n:])
		if count == maxSegment || count > 0 && lookup(r).starts {
			return n, true
		}
		n += size
	}
}

// appendSegment appends the canonical form of one segment.
func appendSegment(dst, seg []byte) []byte {
	r, size := utf8.DecodeRune(seg)
	if size < len(seg) {
		return appendForm(dst, seg)
	}
	pg := pageOf(r)
	in := pg.info[r&0xff]
	return append(dst, pg.out[in.off:int(in.off)+int(in.len)]...)
}

// appendForm is the definition: NFKC, full case folding, NFKC, letters and
// numbers only (Unicode categories L and N).
func appendForm(dst, seg []byte) []byte {
	b := norm.NFKC.Bytes(bytes.ToValidUTF8(seg, []byte("\ufffd")))
	b = norm.NFKC.Bytes(cases.Fold().Bytes(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			dst = append(dst, b[:size]...)
		}
		b = b[size:]
	}
	return dst
}

// A page holds the forms of 256 runes, each alone in its segment.
type page struct {
	info [256]runeInfo
	out  []byte
}

type runeInfo struct {
	off    uint16
	len    uint8
	starts bool // begins a segment: neither it nor its form composes with what is before
}

// pages are filled on first use: all of them take 50 ms.
var pages [(unicode.MaxRune + 1) / 256]atomic.Pointer[page]

func lookup(r rune) runeInfo { return pageOf(r).info[r&0xff] }

func pageOf(r rune) *page {
	if pg := pages[r>>8].Load(); pg != nil {
		return pg
	}
	pg := new(page)
	var buf [utf8.UTFMax]byte
	for i := range pg.info {
		seg := buf[:utf8.EncodeRune(buf[:], r&^0xff|rune(i))]
		off := len(pg.out)
		pg.out = appendForm(pg.out, seg)
		// Some compatibility letters (U+314F and its like) do not compose
		// themselves, but what they become does.
		form := cases.Fold().Bytes(norm.NFKC.Bytes(seg))
		pg.info[i] = runeInfo{
			off:    uint16(off),
			len:    uint8(len(pg.out) - off),
			starts: norm.NFKC.Properties(seg).BoundaryBefore() && norm.NFKC.Properties(form).BoundaryBefore(),
		}
	}
	pages[r>>8].Store(pg)
	return pg
}

// fold maps an ASCII letter or digit to its form in the low byte and 1 in the
// high byte, and everything else to 0.
var fold = func() (fold [256]uint16) {
	for c := range 128 {
		switch b := byte(c); {
		case b >= '0' && b <= '9', b >= 'a' && b <= 'z':
			fold[c] = 1<<8 | uint16(b)
		case b >= 'A' && b <= 'Z':
			fold[c] = 1<<8 | uint16(b|0x20)
		}
	}
	return fold
}()

func isLetter(b byte) bool { return byte(fold[b]) >= 'a' }

// ascii appends the form of ASCII text, line by line.
func ascii(dst []byte, breaks []int, p []byte) ([]byte, []int) {
	if len(p) < 16 { // in binary content: shorter than it takes to set up the rest
		for _, c := range p {
			if x := fold[c]; x != 0 {
				dst = append(dst, byte(x))
			} else if c == '\n' {
				breaks = append(breaks, len(dst))
			}
		}
		return dst, breaks
	}
	j := len(dst)
	dst = slices.Grow(dst, len(p))[:j+len(p)]
	for len(p) > 0 {
		n := bytes.IndexByte(p, '\n')
		line := p
		if n >= 0 {
			line = p[:n]
		}
		j += foldASCII(dst[j:j+len(line)], line)
		if n < 0 {
			break
		}
		breaks = append(breaks, j)
		p = p[n+1:]
	}
	return dst[:j], breaks
}

// foldASCII writes the form of p to out, which is as long, and returns how many
// bytes it has.
func foldASCII(out, p []byte) int {
	k := 0
	for _, c := range p {
		// The byte is stored always and kept by moving on: no branch.
		x := fold[c]
		out[k] = byte(x)
		k += int(x >> 8)
	}
	return k
}

// asciiLen is the number of bytes before the first one that is not ASCII.
func asciiLen(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if binary.LittleEndian.Uint64(p[i:])&0x8080808080808080 != 0 {
			break
		}
	}
	for i < len(p) && p[i] < utf8.RuneSelf {
		i++
	}
	return i
}
