package views

import "bytes"

const (
	listMin   = 24 // bytes that a list decodes to, at least: the shortest sealed line
	listChars = 64 // characters of a list, at least: two digits and a separator each
	groupMax  = 64 // digits of one number, at most
)

// A base is a way to write bytes as numbers. What a list says in each base is a
// view if it reads; lists that read in two bases are rare and do no harm.
type base uint8

const (
	hexadecimal base = iota // 48 65, 0x48,0x65, 0xa, 4865 6c6c
	decimal                 // 72, 101
	octal                   // 110 145, 0110; words of six digits, low byte first
)

// listed is the class of bytes that lists are made of.
var listed = classOf("0123456789abcdefABCDEFxX \t\r\n,;:-/._\"'[](){}")

func classOf(members string) (t [256]bool) {
	for _, c := range []byte(members) {
		t[c] = true
	}
	return t
}

// nextStretch returns the next stretch of at least least bytes of the class from
// b[at:], an empty one at the end if there is none. Most bytes are not looked at.
func nextStretch(b []byte, at, least int, in *[256]bool) (from, to int) {
	for i := at + least - 1; i < len(b); {
		if !in[b[i]] {
			i += least
			continue
		}
		from, to = i, i+1
		for from > at && in[b[from-1]] {
			from--
		}
		for to < len(b) && in[b[to]] {
			to++
		}
		if to-from >= least {
			return from, to
		}
		at, i = to, to+least
	}
	return len(b), len(b)
}

// numbers finds lists of numbers and the output of dump programs in b and derives
// their views.
func (w *walker) numbers(b []byte, depth int) {
	short := pool{kind: "numbers"}
	for from, to := nextStretch(b, 0, listChars, &listed); from < len(b); from, to = nextStretch(b, to, listChars, &listed) {
		for _, in := range []base{hexadecimal, decimal, octal} {
			w.list(&short, b[from:to], in, false, depth)
		}
	}
	w.dumps(&short, b, depth)
	w.flush(&short, depth)
}

// dumps reads lines of an offset, numbers and perhaps a column of text: xxd,
// hexdump, od, tcpdump. Other lines between them are passed over; an offset of 0
// begins another dump. The text column may look like hex, so hex ends before it;
// od has none in other bases, but gaps.
func (w *walker) dumps(short *pool, b []byte, depth int) {
	var narrow, wide []byte
	done := func() {
		if len(wide) > 0 {
			w.list(short, narrow, hexadecimal, true, depth)
			w.list(short, wide, decimal, true, depth)
			w.list(short, wide, octal, true, depth)
		}
		narrow, wide = narrow[:0], wide[:0]
	}
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		from, column, to, first := dumpLine(line)
		if from == to {
			continue
		}
		if first {
			done()
		}
		narrow = append(append(narrow, line[from:column]...), '\n')
		wide = append(append(wide, line[from:to]...), '\n')
	}
	done()
}

// dumpLine returns where the numbers of a dump's line begin, where they end if
// what stands after a gap is the text column, and where if it is not. first
// tells an offset of 0. Other lines give nothing.
func dumpLine(line []byte) (from, column, to int, first bool) {
	i := 0
	for i < len(line) && i < 16 && margin[line[i]] {
		i++
	}
	if i+1 < len(line) && line[i] == '0' && line[i+1]|0x20 == 'x' {
		i += 2
	}
	start := i
	for i < len(line) && nibble[line[i]] != 0xff {
		i++
	}
	colon := i < len(line) && line[i] == ':'
	if n := i - start; n < 4 || n > 16 || n < 6 && !colon {
		return 0, 0, 0, false
	}
	first = len(bytes.Trim(line[start:i], "0")) == 0
	if colon {
		i++
	}
	if i == len(line) || !isBlank(line[i]) {
		return 0, 0, 0, false
	}
	from, column, to = i, -1, i
	for digits := 0; i < len(line); {
		gap := i
		for i < len(line) && (isBlank(line[i]) || line[i] == '-') {
			i++
		}
		// A text column has a character for each byte before it, or fewer.
		if rest := len(bytes.TrimRight(line[i:], " \r")); column < 0 && i-gap >= 2 && digits > 0 && rest <= digits/2 {
			column = to
		}
		start := i
		for i < len(line) && nibble[line[i]] != 0xff {
			i++
		}
		if i == start || i < len(line) && !ending[line[i]] {
			break
		}
		digits += i - start
		to = i
	}
	if column < 0 {
		column = to
	}
	return from, column, to, first
}

// margin is what stands before a quoted dump.
var margin = classOf(" \t#/*>|;\"'`")

// ending is what may follow a number of a dump.
var ending = classOf(" \t-\r\"'`\\")

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// list decodes the numbers of b in one base. A number that is no byte in it ends
// a list and begins the next. A dump need not read.
func (w *walker) list(short *pool, b []byte, in base, dump bool, depth int) {
	var out []byte
	pairs := true // all numbers have four digits: perhaps words, low byte first
	done := func() {
		if len(out) >= listMin {
			if dump && in == hexadecimal || reads(out) {
				w.listed(short, out, depth)
			}
			if pairs && in == hexadecimal {
				if swap(out); reads(out) {
					w.listed(short, out, depth)
				}
			}
		}
		out, pairs = out[:0], true
	}
	for i := 0; i < len(b); {
		marked := b[i] == '0' && i+2 < len(b) && b[i+1]|0x20 == 'x' && nibble[b[i+2]] != 0xff
		if marked {
			i += 2
		}
		from := i
		for i < len(b) && nibble[b[i]] != 0xff {
			i++
		}
		if i == from {
			i++
			continue
		}
		n, ok := len(out), false
		if out, ok = number(out, b[from:i], marked, in); !ok {
			out = out[:n]
			done()
		} else if i-from != 4 {
			pairs = false
		}
	}
	done()
}

// number appends the bytes that the digits stand for.
func number(out, digits []byte, marked bool, in base) ([]byte, bool) {
	n, v := len(digits), 0
	switch in {
	case hexadecimal:
		if n == 1 && marked {
			return append(out, nibble[digits[0]]), true
		}
		if n%2 != 0 || n > groupMax {
			return out, false
		}
		for ; len(digits) > 0; digits = digits[2:] {
			out = append(out, nibble[digits[0]]<<4|nibble[digits[1]])
		}
		return out, true
	case decimal:
		if n > 3 || marked {
			return out, false
		}
		for _, c := range digits {
			if c > '9' {
				return out, false
			}
			v = 10*v + int(c-'0')
		}
		return append(out, byte(v)), v <= 0xff
	default:
		if marked || n != 3 && n != 6 && (n != 4 || digits[0] != '0') {
			return out, false
		}
		for _, c := range digits {
			if c > '7' {
				return out, false
			}
			v = 8*v + int(c-'0')
		}
		if n == 6 {
			return append(out, byte(v), byte(v>>8)), v <= 0xffff
		}
		return append(out, byte(v)), v <= 0xff
	}
}

func swap(b []byte) {
	for i := 0; i+1 < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
}

// reads tells whether b begins a container, or whether a piece of it is text.
func reads(b []byte) bool {
	if sniff(inMemory(b)) != "" {
		return true
	}
	for ; len(b) > 0; b = b[min(len(b), 4096):] {
		if readable(b) {
			return true
		}
	}
	return false
}

// listed takes what one list decodes to. Small numbers in a table may read as
// text, so below the last level only words are worth a report. A small container
// that is cut or corrupt is an example or a test.
func (w *walker) listed(short *pool, out []byte, depth int) {
	begins := sniff(inMemory(out)) != ""
	switch {
	case depth == MaxDepth:
		if begins || wordy(out) {
			w.result.Bounds |= BoundDepth
		}
	case begins || len(out) >= ownView:
		was := w.result.Bounds
		w.text(short.kind, out, depth+1, 0, encoded)
		if len(out) < falseStart {
			w.result.Bounds &^= BoundView &^ was
		}
	default:
		short.b = append(append(short.b, out...), '\n')
	}
}

// wordy tells text from a table of small numbers: three quarters are letters and
// blanks.
func wordy(b []byte) bool {
	b = b[:min(len(b), 4096)]
	n := 0
	for _, c := range b {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c == ' ' {
			n++
		}
	}
	return readable(b) && n >= len(b)-len(b)/4
}
