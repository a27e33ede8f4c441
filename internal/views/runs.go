package views

import (
	"unicode/utf8"
)

const (
	pieceMin  = 16 // characters of an encoded run on one line, at least
	base64Min = 32 // characters of a run: 24 bytes, the shortest sealed line
	hexMin    = 48 // the same in hex; a SHA-1 is shorter
	base32Min = 40 // the same in base32
	ragged    = 20 // lines of an encoded block may differ in length from here on
	ownView   = 96 // decoded bytes from which a run is a view of its own
)

// digit is the base64 value of each character of RFC 4648, sections 4 and 5
// (both alphabets at once), 0xff for the others. nibble is the same for hex.
var digit, nibble = tablesOf()

func tablesOf() (d, n [256]byte) {
	for i := range d {
		d[i], n[i] = 0xff, 0xff
	}
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" {
		d[c] = byte(i)
	}
	d['-'], d['_'] = 62, 63
	for i, c := range "0123456789abcdef" {
		n[c] = byte(i)
	}
	for i, c := range "ABCDEF" {
		n[c] = byte(10 + i)
	}
	return d, n
}

// Classes of the alphabets that are parts of base64's. Base32 (RFC 4648, section
// 6) is upper case; lower case is read too.
var (
	hexDigits = classOf("0123456789abcdefABCDEF")
	upper32   = classOf("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
	lower32   = classOf("abcdefghijklmnopqrstuvwxyz234567")
)

// pool gathers short decoded runs of one kind, a line for each.
type pool struct {
	kind string
	b    []byte
}

// flush derives the view of what was gathered.
func (w *walker) flush(p *pool, depth int) {
	if len(p.b) > 0 {
		w.text(p.kind, p.b, depth+1, 0, encoded)
	}
}

// runs finds base64, base32 and hex in b and derives their views.
func (w *walker) runs(b []byte, depth int) {
	short := [3]pool{{kind: "base64"}, {kind: "hex"}, {kind: "base32"}}
	var chars []byte
	for at := 0; ; {
		var from int
		chars, from, at = nextRun(b, at, chars[:0])
		if from < 0 {
			break
		}
		if len(chars) < base64Min || !varied(chars) {
			continue
		}
		whole := false
		for lo, hi := nextStretch(chars, 0, hexMin, &hexDigits); lo < len(chars); lo, hi = nextStretch(chars, hi, hexMin, &hexDigits) {
			w.decoded(&short[1], best(2, chars[lo:hi], hexFrom), depth)
			whole = hi-lo == len(chars)
		}
		if !whole && !w.base32(&short[2], chars, depth) {
			w.decoded(&short[0], best(4, chars, base64From), depth)
		}
	}
	for i := range short {
		w.flush(&short[i], depth)
	}
}

// base32 derives the views of base32 in a run, if they read: letters of one case
// are also words and base64. It tells whether the run was nothing else.
func (w *walker) base32(short *pool, chars []byte, depth int) (whole bool) {
	for _, in := range []*[256]bool{&upper32, &lower32} {
		for lo, hi := nextStretch(chars, 0, base32Min, in); lo < len(chars); lo, hi = nextStretch(chars, hi, base32Min, in) {
			if out := best(8, chars[lo:hi], base32From); varied(chars[lo:hi]) && reads(out) {
				w.decoded(short, out, depth)
				whole = whole || hi-lo == len(chars)
			}
		}
	}
	return whole
}

// decoded takes what one run decodes to. Below the last level only something
// that reads is worth a report: hashes and long words decode to noise.
func (w *walker) decoded(short *pool, out []byte, depth int) {
	long := len(out) >= ownView || sniff(inMemory(out)) != ""
	switch {
	case depth == MaxDepth:
		if readable(out) || sniff(inMemory(out)) != "" {
			w.result.Bounds |= BoundDepth
		}
	case long:
		w.text(short.kind, out, depth+1, 0, encoded)
	default:
		short.b = append(append(short.b, out...), '\n')
	}
}

// nextRun finds the next encoded run from b[at:]: a piece of pieceMin characters
// of the alphabet, and the lines after it that continue it. It appends the run's
// characters to chars, without line breaks, and returns where the run starts,
// -1 if there is none, and where to look on.
func nextRun(b []byte, at int, chars []byte) (run []byte, from, next int) {
	lo := at
	for i := at + pieceMin - 1; i < len(b); {
		// A piece of 16 has a character at one of any 16 places apart.
		if digit[b[i]] == 0xff {
			i += pieceMin
			continue
		}
		start := i
		for start > lo && digit[b[start-1]] != 0xff {
			start--
		}
		end := pieceEnd(b, i)
		if end-start < pieceMin {
			lo = end
			i = end + pieceMin - 1
			continue
		}
		chars, end = gather(b, start, end, chars)
		return chars, start, end
	}
	return chars, -1, len(b)
}

func pieceEnd(b []byte, i int) int {
	for i < len(b) && digit[b[i]] != 0xff {
		i++
	}
	return i
}

// gather appends the piece b[start:end] and the lines that go on with it. Tools
// wrap at one width, so a shorter line is the last, unless the lines are long
// all the same. Five dashes are no base64 but the frame of PEM (RFC 7468).
func gather(b []byte, start, end int, chars []byte) ([]byte, int) {
	width := end - start
	for lines := 1; ; lines++ {
		chars = append(chars, b[start:end]...)
		n := end - start
		if n < ragged && n != width {
			return chars, end
		}
		next := lineBreak(b, end)
		if next < 0 {
			return chars, end
		}
		stop := pieceEnd(b, next)
		if stop == next || len(b)-next >= 5 && string(b[next:next+5]) == "-----" {
			return chars, end
		}
		if m := stop - next; m < ragged && (m > width || n < width && lines > 1) {
			return chars, end
		}
		start, end = next, stop
	}
}

// lineBreak returns where the next line's text starts if b[i:] is a line break,
// else -1. Blocks in YAML and source code are indented.
func lineBreak(b []byte, i int) int {
	if i < len(b) && b[i] == '\r' {
		i++
	}
	if i >= len(b) || b[i] != '\n' {
		return -1
	}
	i++
	for n := 0; i < len(b) && n < 64 && (b[i] == ' ' || b[i] == '\t'); n++ {
		i++
	}
	return i
}

// varied tells rulers like "--------" from data: at least 8 distinct characters.
func varied(chars []byte) bool {
	var set [2]uint64
	n := 0
	for _, c := range chars {
		if m := uint64(1) << (c & 63); set[c>>6]&m == 0 {
			set[c>>6] |= m
			if n++; n == 8 {
				return true
			}
		}
	}
	return false
}

func hexFrom(digits []byte) []byte {
	out := make([]byte, len(digits)/2)
	for i := range out {
		out[i] = nibble[digits[2*i]]<<4 | nibble[digits[2*i+1]]
	}
	return out
}

func base64From(in []byte) []byte {
	out := make([]byte, 0, len(in)/4*3+3)
	for ; len(in) >= 4; in = in[4:] {
		v := uint(digit[in[0]])<<18 | uint(digit[in[1]])<<12 | uint(digit[in[2]])<<6 | uint(digit[in[3]])
		out = append(out, byte(v>>16), byte(v>>8), byte(v))
	}
	switch len(in) {
	case 3:
		v := uint(digit[in[0]])<<10 | uint(digit[in[1]])<<4 | uint(digit[in[2]])>>2
		out = append(out, byte(v>>8), byte(v))
	case 2:
		out = append(out, digit[in[0]]<<2|digit[in[1]]>>4)
	}
	return out
}

// base32From decodes letters of either case and the digits 2 to 7.
func base32From(chars []byte) []byte {
	out := make([]byte, 0, len(chars)/8*5+5)
	bits, n := uint(0), 0
	for _, c := range chars {
		v := c - '2' + 26
		if c >= 'A' {
			v = c&^0x20 - 'A'
		}
		bits = bits<<5 | uint(v)
		if n += 5; n >= 8 {
			n -= 8
			out = append(out, byte(bits>>n))
		}
	}
	return out
}

// best returns the first decoding that reads, or the first. A letter or slash
// before the run may belong to the text around it, so a run that decodes to noise
// is tried from its second character, its third and so on too, as many as decode
// to whole bytes.
func best(n int, chars []byte, decode func(chars []byte) []byte) []byte {
	first := decode(chars)
	if readable(first) || sniff(inMemory(first)) != "" {
		return first
	}
	for skip := 1; skip < n; skip++ {
		if out := decode(chars[skip:]); readable(out) || sniff(inMemory(out)) != "" {
			return out
		}
	}
	return first
}

// readable tells text from noise by the first 4 KiB: valid UTF-8, or at least
// seven eighths of it ASCII, and few control characters.
func readable(b []byte) bool {
	b = b[:min(len(b), 4096)]
	ascii, control := 0, 0
	for _, c := range b {
		switch {
		case c >= 0x20 && c < 0x7f || c == '\n' || c == '\t' || c == '\r':
			ascii++
		case c < 0x20 || c == 0x7f:
			control++
		}
	}
	if len(b) == 0 || control > len(b)/16 {
		return false
	}
	if ascii >= len(b)-len(b)/8 {
		return true
	}
	for n := 0; n < utf8.UTFMax && n < len(b); n++ { // the cut may be inside a letter
		if utf8.Valid(b[:len(b)-n]) {
			return true
		}
	}
	return false
}
