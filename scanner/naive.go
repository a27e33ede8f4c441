package scanner

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// naive derives the items of a content from the words of spec/sealed-set.md:
// the whole content at once, quadratic loops, plain HMAC. It shares no code with
// internal/canon and is some hundred times slower. The self-check holds the fast
// derivation against it.
type naive struct {
	keys   [contraband.ClassAtom + 1][]byte
	values *contraband.Filter
	filter map[uint32]bool
	table  [256]uint64
	mul    uint64
}

type item struct {
	class contraband.Class
	bytes string
}

func newNaive(key contraband.TaskKey, filter []uint32) *naive {
	n := &naive{values: key.Filter(), filter: map[uint32]bool{}}
	for _, v := range filter {
		n.filter[v] = true
	}
	n.table, n.mul = contraband.Table(key.Select())
	text := strings.TrimSpace(string(key.Format()))
	raw, err := hex.DecodeString(text[strings.LastIndexByte(text, ' ')+1:])
	if err != nil {
		panic(err) // a key file ends with the key in hex
	}
	for c := contraband.ClassCanary; c <= contraband.ClassAtom; c++ {
		var info []byte
		for _, f := range []string{"cleanrun/v1", "class", contraband.Profile, string([]byte{byte(c)})} {
			info = append(binary.BigEndian.AppendUint32(info, uint32(len(f))), f...)
		}
		h := hmac.New(sha256.New, raw)
		h.Write(append(info, 1)) // the first block of HKDF-Expand (RFC 5869, section 2.3)
		n.keys[c] = h.Sum(nil)
	}
	return n
}

// digest is layer 1.
func (n *naive) digest(it item) [32]byte {
	h := hmac.New(sha256.New, n.keys[it.class])
	h.Write([]byte{1, byte(it.class)})
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(it.bytes))))
	h.Write([]byte(it.bytes))
	return [32]byte(h.Sum(nil))
}

// items visits the items of one content.
func (n *naive) items(content []byte, text bool, visit func(item)) (canonical int) {
	canonical = n.reading(content, content, text, visit)
	if len(content) < 2 {
		return canonical
	}
	var order binary.ByteOrder
	switch string(content[:2]) {
	case "\xff\xfe":
		order = binary.LittleEndian
	case "\xfe\xff":
		order = binary.BigEndian
	default:
		return canonical
	}
	var units []uint16
	for i := 2; i+1 < len(content); i += 2 {
		units = append(units, order.Uint16(content[i:]))
	}
	n.reading([]byte(string(utf16.Decode(units))), nil, text, visit)
	return canonical
}

// reading visits the items of content, read as UTF-8. raw is nil for a second
// reading, which is no object of its own.
func (n *naive) reading(content, raw []byte, text bool, visit func(item)) int {
	c, lines := canonicalOf(content)
	if len(c) >= 64 {
		sum := sha256.Sum256([]byte(c))
		visit(item{contraband.ClassCanonical, string(sum[:])})
		if raw != nil {
			sum := sha256.Sum256(raw)
			visit(item{contraband.ClassRaw, string(sum[:])})
		}
	}
	n.shingles(c, contraband.ClassShingle, 48, 49, visit)
	if text {
		n.shingles(c, contraband.ClassShingle24, 24, 25, visit)
	}
	if len(n.filter) > 0 {
		n.filtered(content, c, lines, visit)
	}
	return len(c)
}

var (
	runPattern  = regexp.MustCompile(`[A-Za-z0-9_./:@-]+`)
	wordPattern = regexp.MustCompile(`[A-Za-z0-9_]+`)
	notAtom     = regexp.MustCompile(`[^A-Za-z0-9]`)
)

// filtered visits lines, atoms and canary windows whose value is in the filter.
func (n *naive) filtered(content []byte, c string, lines []string, visit func(item)) {
	pass := func(class contraband.Class, s string) {
		if n.filter[n.values.Value(class, []byte(s))] {
			visit(item{class, s})
		}
	}
	for _, l := range lines {
		if len(l) >= 24 && len(l) <= 4096 {
			pass(contraband.ClassLine, l)
		}
	}
	for _, pattern := range []*regexp.Regexp{runPattern, wordPattern} {
		for _, m := range pattern.FindAll(content, -1) {
			if len(m) < 8 || len(m) > 256 {
				continue
			}
			if a := strings.ToLower(string(notAtom.ReplaceAll(m, nil))); len(a) >= 8 {
				pass(contraband.ClassAtom, a)
			}
		}
	}
	for i := 0; i+24 <= len(c); i++ {
		pass(contraband.ClassCanary, c[i:i+24])
	}
}

// shingles visits the rightmost minimum of each window of w ranks of k-grams, or
// of all there are if they are fewer.
func (n *naive) shingles(c string, class contraband.Class, k, w int, visit func(item)) {
	var ranks []uint32
	for i := 0; i+k <= len(c); i++ {
		var r uint64
		for j, b := range []byte(c[i : i+k]) {
			turn := (k - 1 - j) % 64
			r ^= n.table[b]<<turn | n.table[b]>>(64-turn)
		}
		ranks = append(ranks, uint32(r*n.mul>>32))
	}
	w = min(w, len(ranks))
	last := -1
	for i := 0; w > 0 && i+w <= len(ranks); i++ {
		window := ranks[i : i+w]
		low := slices.Min(window)
		at := len(window) - 1
		for window[at] != low {
			at--
		}
		if i+at == last {
			continue // the window before had the same
		}
		last = i + at
		gram := c[last : last+k]
		var seen [256]bool
		distinct := 0
		for _, b := range []byte(gram) {
			if !seen[b] {
				seen[b] = true
				distinct++
			}
		}
		if distinct >= 8 {
			visit(item{class, gram})
		}
	}
}

// canonicalOf is canon-text/1 with the lines, segment by segment.
func canonicalOf(content []byte) (canonical string, lines []string) {
	var all, line strings.Builder
	for _, seg := range segmentsOf(content) {
		if seg == "\n" {
			lines = append(lines, line.String())
			line.Reset()
			continue
		}
		form := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsNumber(r) {
				return r
			}
			return -1
		}, norm.NFKC.String(cases.Fold().String(norm.NFKC.String(seg))))
		all.WriteString(form)
		line.WriteString(form)
	}
	return all.String(), append(lines, line.String())
}

// segmentsOf cuts content where nothing composes over the cut.
func segmentsOf(content []byte) (segs []string) {
	var seg []rune
	flush := func() {
		if len(seg) > 0 {
			segs, seg = append(segs, string(seg)), seg[:0]
		}
	}
	for _, r := range string(content) { // an invalid byte is U+FFFD
		if len(seg) > 0 {
			prev := seg[len(seg)-1]
			symbol := prev < 128 && !unicode.IsLetter(prev)
			if symbol || len(seg) == 32 || begins(r) {
				flush()
			}
		}
		seg = append(seg, r)
	}
	flush()
	return segs
}

// begins tells whether r, and what it folds to, composes with nothing before.
func begins(r rune) bool {
	if r < 128 {
		return true
	}
	form := cases.Fold().String(norm.NFKC.String(string(r)))
	return norm.NFKC.PropertiesString(string(r)).BoundaryBefore() && norm.NFKC.PropertiesString(form).BoundaryBefore()
}
