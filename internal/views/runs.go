package views

import (
	"unicode/utf8"
)

const (
	pieceMin  = 16 // characters of an encoded run on one line, at least
	base64Min = 32 // characters of a run: 24 bytes, the shortest sealed line
	hexMin    = 48 // the same in hex; a SHA-1 is shorter
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

// pool gathers short decoded runs of one kind, a line for each.
type pool struct {
	kind string
	b    []byte
}

// runs finds base64 and hex in b and derives their views.
func (w *walker) runs(b []byte, depth int) {
	short := [2]pool{{kind: "base64"}, {kind: "hex"}}
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
		for lo, hi := nextHex(chars, 0); lo < len(chars); lo, hi = nextHex(chars, hi) {
			w.decoded(&short[1], decodeHex(chars[lo:hi]), depth)
			whole = hi-lo == len(chars)
		}
		if !whole {
			w.decoded(&short[0], decodeBase64(chars), depth)
		}
	}
	for _, p := range short {
		if len(p.b) > 0 {
			w.text(p.kind, p.b, depth+1, 0, encoded)
		}
	}
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

// nextHex returns the next stretch of at least hexMin hex digits from
// chars[at:], an empty one at the end if there is none.
func nextHex(chars []byte, at int) (lo, hi int) {
	for lo = at; lo < len(chars); lo = hi + 1 {
		hi = lo
		for hi < len(chars) && nibble[chars[hi]] != 0xff {
			hi++
		}
		if hi-lo >= hexMin {
			return lo, hi
		}
	}
	return len(chars), len(chars)
}

// decodeHex decodes digits from the first or, if only that reads, the second.
func decodeHex(digits []byte) []byte {
	return best(2, func(skip int) []byte {
		in := digits[skip:]
		out := make([]byte, len(in)/2)
		for i := range out {
			out[i] = nibble[in[2*i]]<<4 | nibble[in[2*i+1]]
		}
		return out
	})
}

// decodeBase64 decodes chars. A letter or slash before the run may belong to the
// text around it, so a run that decodes to noise is tried from its second, third
// and fourth character too.
func decodeBase64(chars []byte) []byte {
	return best(4, func(skip int) []byte {
		in := chars[skip:]
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
	})
}

// best returns the first of n decodings that reads, or the first.
func best(n int, decode func(skip int) []byte) []byte {
	first := decode(0)
	if readable(first) || sniff(inMemory(first)) != "" {
		return first
	}
	for skip := 1; skip < n; skip++ {
		if out := decode(skip); readable(out) || sniff(inMemory(out)) != "" {
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
