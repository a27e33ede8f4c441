package views

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	context   = 512     // letters and digits around an escape that belong to its segment
	reach     = 8 << 10 // bytes that they are looked for in, at most
	escapeMin = 24      // a shorter segment holds nothing that is sealed
	percents  = 3       // percent or HTML escapes that make a segment
)

// unescape derives the views of b with JSON escapes (RFC 8259, section 7),
// percent escapes (RFC 3986, section 2.1) and HTML character references taken off. Quotes are not looked
// for: a stray one would turn inside into outside, and text of other languages
// is escaped alike. So \xHH and \NNN (octal) are read too.
//
// A view holds the text around escapes only, segment after segment, each with a
// newline; the rest reads the same in b itself.
func (w *walker) unescape(b []byte, depth, light int) {
	last := light == escapes-1
	for _, d := range []struct {
		kind   string
		mark   byte
		at     func(out, b []byte, i int, all bool) ([]byte, int)
		enough int
	}{
		{"json", '\\', jsonEscape, 1},
		{"percent", '%', percentEscape, percents},
		{"html", '&', htmlEscape, percents},
	} {
		if out := segments(b, d.mark, d.enough, func(out []byte, i int) ([]byte, int) { return d.at(out, b, i, last) }); len(out) > 0 {
			from := around
			if b[0] == d.mark {
				from = encoded // the whole content may be one escaped file
			}
			w.text(d.kind, out, depth, light+1, from)
		}
	}
}

// segments decodes b around the escapes that begin with mark. at appends what
// the escape at i stands for and returns its length, 0 if it is none. An escape
// that decodes to punctuation changes no canonical byte and makes no segment.
func segments(b []byte, mark byte, enough int, at func(out []byte, i int) ([]byte, int)) []byte {
	var out, first []byte
	done := -1 // where the last segment in out ended
	for i := 0; i < len(b); {
		k := bytes.IndexByte(b[i:], mark)
		if k < 0 {
			break
		}
		i += k
		text, n := at(first[:0], i)
		first = text
		if n == 0 || !weighty(b, i, text, n) {
			i += max(n, 1)
			continue
		}
		// The segment runs from some text before this escape to some text after
		// the last that is near. It goes on with one that ends where it starts.
		mid, start := len(out), before(b, i)
		joined := start <= done
		if joined {
			start, mid = done, mid-1
			out = out[:mid]
		}
		out = append(out, b[start:i]...)
		count, end := 0, after(b, i+n)
		for i < end {
			k := bytes.IndexByte(b[i:end], mark)
			if k < 0 {
				out = append(out, b[i:end]...)
				i = end
				break
			}
			out = append(out, b[i:i+k]...)
			i += k
			from := len(out)
			out, n = at(out, i)
			if n == 0 {
				out = append(out, mark)
				i++
				continue
			}
			if weighty(b, i, out[from:], n) {
				count++
				end = max(end, after(b, i+n))
			}
			i += n
		}
		if !joined && (count < enough || len(out)-mid < escapeMin) {
			out = out[:mid]
			continue
		}
		out = append(out, '\n')
		done = i
	}
	return out
}

// weighty tells whether the escape of n bytes at b[i], or one that it hides, hides
// or adds a letter or digit.
func weighty(b []byte, i int, text []byte, n int) bool {
	if n > 2 || len(text) == 1 && text[0] < ' ' {
		return true
	}
	// An escaped backslash before a letter: a layer further in.
	if len(text) != 1 || text[0] != '\\' || i+n >= len(b) {
		return false
	}
	_, three := octalValue(b, i+n)
	return three || simple[b[i+n]] != 0 || b[i+n] == 'u' || b[i+n] == 'x'
}

// before and after find the bounds of the text around b[i] that a segment
// takes. Letters are counted, not bytes, so that blanks cannot cut a segment.
func before(b []byte, i int) int {
	for n, far := 0, max(i-reach, 0); i > far && n < context; i-- {
		n += int(letter[b[i-1]])
	}
	return i
}

func after(b []byte, i int) int {
	for n, far := 0, min(i+reach, len(b)); i < far && n < context; i++ {
		n += int(letter[b[i]])
	}
	return i
}

// letter is 1 for bytes that may be part of a letter or digit.
var letter = func() (t [256]byte) {
	for i := range t {
		c := byte(i)
		if c >= 0x80 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
			t[i] = 1
		}
	}
	return t
}()

var simple = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/'}

// jsonEscape reads the escape at b[i], a backslash, and appends what it is. With all, backslashes in
// front of an escape are taken for layers of escaping and go with it.
func jsonEscape(out, b []byte, i int, all bool) ([]byte, int) {
	start := i
	for all && i+1 < len(b) && b[i+1] == '\\' {
		i++
	}
	if i+1 >= len(b) {
		return out, 0
	}
	lead := i - start
	switch c := b[i+1]; c {
	case 'u':
		u, ok := hexValue(b, i+2, 4)
		if !ok {
			return out, 0
		}
		if utf16.IsSurrogate(u) && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
			if v, ok := hexValue(b, i+8, 4); ok {
				if r := utf16.DecodeRune(u, v); r != utf8.RuneError {
					return utf8.AppendRune(out, r), lead + 12
				}
			}
		}
		return utf8.AppendRune(out, u), lead + 6
	case 'x':
		if v, ok := hexValue(b, i+2, 2); ok {
			return append(out, byte(v)), lead + 4
		}
	default:
		if s := simple[c]; s != 0 {
			return append(out, s), lead + 2
		}
		if v, ok := octalValue(b, i+1); ok {
			return append(out, v), lead + 4
		}
	}
	return out, 0
}

// percentEscape reads the escape at b[i], a percent sign, and appends what it is. With all, "%2525" and
// so on are layers of escaping.
func percentEscape(out, b []byte, i int, all bool) ([]byte, int) {
	j := i + 1
	for all && j+4 <= len(b) && b[j] == '2' && b[j+1] == '5' && nibble[b[j+2]] != 0xff && nibble[b[j+3]] != 0xff {
		j += 2
	}
	v, ok := hexValue(b, j, 2)
	if !ok {
		return out, 0
	}
	return append(out, byte(v)), j + 2 - i
}

// htmlEscape reads the character reference at b[i], an ampersand (HTML, section
// 13.5, of the names only these), and appends what it is. Browsers take a number
// without its semicolon. With all, "&amp;amp;" and so on are layers of escaping.
func htmlEscape(out, b []byte, i int, all bool) ([]byte, int) {
	j := i + 1
	for all && bytes.HasPrefix(b[j:], []byte("amp;")) {
		if _, n := htmlName(b[j+3:]); n == 0 {
			break
		}
		j += 4
	}
	j--
	if r, n := htmlName(b[j:]); n > 0 {
		return utf8.AppendRune(out, r), j + n - i
	}
	return out, 0
}

// htmlName reads the reference after b[0] and returns its length with b[0].
func htmlName(b []byte) (r rune, n int) {
	if len(b) < 3 {
		return 0, 0
	}
	if b[1] != '#' {
		for _, e := range names {
			if bytes.HasPrefix(b[1:], e.name) {
				return e.r, 1 + len(e.name)
			}
		}
		return 0, 0
	}
	i, radix := 2, rune(10)
	if b[2]|0x20 == 'x' {
		i, radix = 3, 16
	}
	from := i
	for ; i < len(b) && rune(nibble[b[i]]) < radix; i++ {
		if r = r*radix + rune(nibble[b[i]]); r > utf8.MaxRune {
			return 0, 0
		}
	}
	if i == from {
		return 0, 0
	}
	if i < len(b) && b[i] == ';' {
		i++
	}
	return r, i
}

var names = []struct {
	name []byte
	r    rune
}{
	{[]byte("lt;"), '<'}, {[]byte("gt;"), '>'}, {[]byte("amp;"), '&'}, {[]byte("quot;"), '"'}, {[]byte("apos;"), '\''}, {[]byte("nbsp;"), '\u00a0'},
}

// octalValue reads three octal digits of a byte.
func octalValue(b []byte, i int) (v byte, ok bool) {
	if i+3 > len(b) || b[i] < '0' || b[i] > '3' {
		return 0, false
	}
	for _, c := range b[i : i+3] {
		if c < '0' || c > '7' {
			return 0, false
		}
		v = v<<3 | (c - '0')
	}
	return v, true
}

func hexValue(b []byte, i, n int) (v rune, ok bool) {
	if i+n > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+n] {
		if nibble[c] == 0xff {
			return 0, false
		}
		v = v<<4 | rune(nibble[c])
	}
	return v, true
}
