package canon

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// The naive twin of this package: whole content at once, quadratic loops, plain
// HMAC, no tables but the published definition of the keyed ones.

type item struct {
	class contraband.Class
	bytes string
}

// naiveSegments cuts content by the definition in spec/sealed-set.md.
func naiveSegments(content []byte) []string {
	var segs []string
	var prev rune
	count := 0
	for _, r := range string(content) { // ranging yields U+FFFD for each invalid byte
		form := cases.Fold().String(norm.NFKC.String(string(r)))
		starts := norm.NFKC.PropertiesString(string(r)).BoundaryBefore() && norm.NFKC.PropertiesString(form).BoundaryBefore()
		asciiSymbol := prev < 128 && !unicode.IsLetter(prev)
		if len(segs) == 0 || starts || asciiSymbol || count == 32 {
			segs, count = append(segs, ""), 0
		}
		segs[len(segs)-1] += string(r)
		count++
		prev = r
	}
	return segs
}

func naiveForm(seg string) string {
	s := norm.NFKC.String(cases.Fold().String(norm.NFKC.String(seg)))
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r
		}
		return -1
	}, s)
}

// naiveCanonical returns the canonical bytes and the lines.
func naiveCanonical(content []byte) (canonical string, lines []string) {
	line := ""
	for _, seg := range naiveSegments(content) {
		if seg == "\n" {
			lines, line = append(lines, line), ""
			continue
		}
		f := naiveForm(seg)
		canonical, line = canonical+f, line+f
	}
	return canonical, append(lines, line)
}

func naiveRank(table [256]uint64, mul uint64, gram string) uint32 {
	var r uint64
	for i := range len(gram) {
		n := (len(gram) - 1 - i) % 64
		x := table[gram[i]]
		r ^= x<<n | x>>(64-n)
	}
	return uint32(r * mul >> 32)
}

func naiveShingles(key contraband.TaskKey, c string, class contraband.Class, k, w int) (out []item) {
	table, mul := contraband.Table(key.Select())
	n := len(c) - k + 1
	if n < 1 {
		return nil
	}
	for i := 0; i+min(w, n) <= n; i++ {
		best := i
		for j := i; j < i+min(w, n); j++ {
			if naiveRank(table, mul, c[j:j+k]) <= naiveRank(table, mul, c[best:best+k]) {
				best = j
			}
		}
		distinct := map[byte]bool{}
		for _, b := range []byte(c[best : best+k]) {
			distinct[b] = true
		}
		if len(distinct) >= 8 {
			out = append(out, item{class, c[best : best+k]})
		}
	}
	return out
}

var (
	naiveRuns  = regexp.MustCompile(`[A-Za-z0-9_./:@-]+`)
	naiveWords = regexp.MustCompile(`[A-Za-z0-9_]+`)
)

// naiveItems is everything that Object emits if the filter lets all pass.
func naiveItems(key contraband.TaskKey, content []byte, text bool) map[item]bool {
	out := map[item]bool{}
	naiveAdd(out, key, content, text)
	if len(content) >= 2 {
		var order binary.ByteOrder
		switch string(content[:2]) {
		case "\xff\xfe":
			order = binary.LittleEndian
		case "\xfe\xff":
			order = binary.BigEndian
		default:
			return out
		}
		var units []uint16
		for i := 2; i+1 < len(content); i += 2 {
			units = append(units, order.Uint16(content[i:]))
		}
		naiveAdd(out, key, []byte(string(utf16.Decode(units))), text)
	}
	sum := sha256.Sum256(content)
	for it := range out { // the raw object is one, whatever the reading
		if it.class == contraband.ClassRaw && it.bytes != string(sum[:]) {
			delete(out, it)
		}
	}
	return out
}

func naiveAdd(out map[item]bool, key contraband.TaskKey, content []byte, text bool) {
	c, lines := naiveCanonical(content)
	if len(c) >= 64 {
		raw, canon := sha256.Sum256(content), sha256.Sum256([]byte(c))
		out[item{contraband.ClassRaw, string(raw[:])}] = true
		out[item{contraband.ClassCanonical, string(canon[:])}] = true
	}
	for _, it := range naiveShingles(key, c, contraband.ClassShingle, 48, 49) {
		out[it] = true
	}
	if text {
		for _, it := range naiveShingles(key, c, contraband.ClassShingle24, 24, 25) {
			out[it] = true
		}
	}
	for _, l := range lines {
		if len(l) >= 24 && len(l) <= 4096 {
			out[item{contraband.ClassLine, l}] = true
		}
	}
	for _, re := range []*regexp.Regexp{naiveRuns, naiveWords} {
		for _, m := range re.FindAll(content, -1) {
			a := strings.ToLower(string(regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAll(m, nil)))
			if len(m) >= 8 && len(m) <= 256 && len(a) >= 8 {
				out[item{contraband.ClassAtom, a}] = true
			}
		}
	}
	for i := 0; i+24 <= len(c); i++ {
		out[item{contraband.ClassCanary, c[i : i+24]}] = true
	}
}

// naiveDigest is layer 1 written out from RFC 2104 and RFC 5869.
func naiveDigest(key contraband.TaskKey, it item) [32]byte {
	hexKey := strings.TrimSuffix(strings.TrimPrefix(string(key.Format()), "cleanrun-task-key-v1 "), "\n")
	raw, err := hex.DecodeString(hexKey)
	if err != nil {
		panic(err)
	}
	var info []byte
	for _, f := range []string{"cleanrun/v1", "class", contraband.Profile, string([]byte{byte(it.class)})} {
		info = append(binary.BigEndian.AppendUint32(info, uint32(len(f))), f...)
	}
	classKey := hmac.New(sha256.New, raw)
	classKey.Write(append(info, 1)) // the first block of HKDF-Expand
	h := hmac.New(sha256.New, classKey.Sum(nil))
	h.Write([]byte{1, byte(it.class)})
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(it.bytes))))
	h.Write([]byte(it.bytes))
	return [32]byte(h.Sum(nil))
}

type digest struct {
	class contraband.Class
	s     [32]byte
}

// naiveDigests is what a fingerprinter with this filter must emit.
func naiveDigests(key contraband.TaskKey, filter []uint32, items map[item]bool) map[digest]bool {
	values := key.Filter()
	in := map[uint32]bool{}
	for _, v := range filter {
		in[v] = true
	}
	out := map[digest]bool{}
	for it := range items {
		if it.class.Filtered() && !in[values.Value(it.class, []byte(it.bytes))] {
			continue
		}
		out[digest{it.class, naiveDigest(key, it)}] = true
	}
	return out
}

func testKey(seed string) contraband.TaskKey {
	sum := sha256.Sum256([]byte(seed))
	k, err := contraband.NewTaskKey(sum[:])
	if err != nil {
		panic(err)
	}
	return k
}

func collect(f *Fingerprinter, content []byte, text bool) (map[digest]bool, uint64) {
	out := map[digest]bool{}
	n := f.Object(content, text, func(c contraband.Class, s [32]byte) { out[digest{c, s}] = true })
	return out, n
}

// shared counts the digests of class in both.
func shared(a, b map[digest]bool, class contraband.Class) (n int) {
	for d := range a {
		if d.class == class && b[d] {
			n++
		}
	}
	return n
}

func validRunes(p []byte) bool { return utf8.Valid(p) && !bytes.ContainsRune(p, utf8.RuneError) }
