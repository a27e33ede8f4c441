package canon

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// pieces from which random contents are put together: all that could go wrong
// at a border.
var pieces = []string{
	"a", "Z", "0", "_", "\n", "\r\n", " ", ".", "/", "e\u0301", "\u0301", "\u0345", "\u0300\u0316", "é", "Å", "ﬁ", "ß", "İ", "ǆ",
	"漢字", "テスト", "ﾃｽﾄ", "각", "\u1100\u1161\u11a8", "\u1161", "\u11a8", "Ａ１", "①", "½", "\u200b", "\ufeff", "🙂", "𝔘", "ﷺ", "Ω", "ΐ",
	"\xff", "\xc3", "\xe6\xbc", "\xed\xa0\x80", "\x00", "\x80", "क्षि", "ो", "=\u0338", strings.Repeat("\u0301", 40), strings.Repeat("x", 70),
	"identifier_name", "https://example.com/a-b", "token-4f9c2d1e8b7a", strings.Repeat("word ", 20), strings.Repeat("Q7", 130), "\xff\xfe", "\xfe\xff",
}

func randomContent(r *rand.Rand) []byte {
	var b bytes.Buffer
	alphabet := pieces
	if r.IntN(2) == 0 {
		alphabet = pieces[:1+r.IntN(len(pieces))]
	}
	for n := r.IntN(120); n > 0; n-- {
		if r.IntN(4) == 0 {
			for range r.IntN(40) {
				b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789 \n"[r.IntN(38)])
			}
		}
		b.WriteString(alphabet[r.IntN(len(alphabet))])
	}
	return b.Bytes()
}

// someFilter lets about half of the filtered items pass, and some others.
func someFilter(r *rand.Rand, key contraband.TaskKey, items map[item]bool) (filter []uint32) {
	values := key.Filter()
	for it := range items {
		if it.class.Filtered() && r.IntN(2) == 0 {
			filter = append(filter, values.Value(it.class, []byte(it.bytes)))
		}
	}
	return append(filter, r.Uint32N(1<<24))
}

func TestObjectEqualsOracle(t *testing.T) {
	key := testKey("oracle")
	emitted := map[contraband.Class]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		content, text := randomContent(r), r.IntN(2) == 0
		items := naiveItems(key, content, text)
		filter := someFilter(r, key, items)
		want := naiveDigests(key, filter, items)
		got, n := collect(New(key, filter), content, text)
		if c, _ := naiveCanonical(content); n != uint64(len(c)) {
			t.Fatalf("seed %d: got %d canonical bytes, want %d: %q", seed, n, len(c), content)
		}
		compare(t, fmt.Sprintf("seed %d: %q", seed, content), got, want)
		for d := range got {
			emitted[d.class]++
		}
	}
	for c := contraband.ClassCanary; c <= contraband.ClassAtom; c++ {
		if emitted[c] < 30 {
			t.Errorf("class %d: got %d digests in all contents, want at least 30: the test shows nothing", c, emitted[c])
		}
	}
}

func compare(t *testing.T, what string, got, want map[digest]bool) {
	t.Helper()
	for d := range want {
		if !got[d] {
			t.Fatalf("%s\nmissing a digest of class %d", what, d.class)
		}
	}
	for d := range got {
		if !want[d] {
			t.Fatalf("%s\na digest of class %d too many", what, d.class)
		}
	}
}

// Chunks of any size give what the whole gives, and an item comes no earlier
// than its last byte: RT39 read 40 bytes at a time.
func TestRT39_ChunksEqualWhole(t *testing.T) {
	key := testKey("chunks")
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		content := bytes.Repeat(randomContent(r), 1+r.IntN(3))
		if seed%50 == 0 { // over several blocks
			content = bytes.Repeat(content, 1+100_000/(1+len(content)))
		}
		filter := []uint32{}
		if len(content) < 5000 {
			filter = someFilter(r, key, naiveItems(key, content, true))
		}
		f := New(key, filter)
		want, n := collect(f, content, true)
		size := []int{1, 7, 40, 1000}[r.IntN(4)]
		got := map[digest]bool{}
		var total uint64
		s := f.Whole(true)
		for part := range slices.Chunk(content, size) {
			total += s.Chunk(part, func(c contraband.Class, d [32]byte) { got[digest{c, d}] = true })
		}
		total += s.End(func(c contraband.Class, d [32]byte) { got[digest{c, d}] = true })
		if total != n {
			t.Fatalf("seed %d: chunks of %d: got %d canonical bytes, want %d", seed, size, total, n)
		}
		compare(t, fmt.Sprintf("seed %d, chunks of %d", seed, size), got, want)
	}
}

func TestChunkThatCompletesEmits(t *testing.T) {
	key := testKey("complete")
	line := "the quick brown fox jumps over the lazy dog"
	c := Canonical([]byte(line))
	f := New(key, []uint32{key.Filter().Value(contraband.ClassLine, c)})
	s := f.Stream(false)
	var at []int
	for i, part := range []string{line[:10], line[10:], "\n", "next\n"} {
		s.Chunk([]byte(part), func(contraband.Class, [32]byte) { at = append(at, i) })
	}
	s.End(func(c contraband.Class, _ [32]byte) {
		if c == contraband.ClassLine {
			at = append(at, -1)
		}
	})
	if !slices.Equal(at, []int{2}) {
		t.Errorf("got the line in chunks %v, want [2], where its line feed is", at)
	}
}

func TestWinnowEqualsNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 50_000 {
		v, w := make([]uint32, r.IntN(60)), 1+r.IntN(20)
		spread := 1 + r.Uint32N(40)
		for i := range v {
			v[i] = r.Uint32N(spread)
		}
		var want []int
		for i := 0; i+w <= len(v); i++ {
			m := i
			for j := range w {
				if v[i+j] <= v[m] {
					m = i + j
				}
			}
			if len(want) == 0 || want[len(want)-1] != m {
				want = append(want, m)
			}
		}
		if got := winnow(nil, v, w); !slices.Equal(got, want) {
			t.Fatalf("w=%d %v: got %v, want %v", w, v, got, want)
		}
	}
}

// Any 96 shared canonical bytes are found, in whatever context.
func TestGuarantee(t *testing.T) {
	f := New(testKey("guarantee"), nil)
	r := rand.New(rand.NewPCG(4, 4))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz"[r.IntN(26)]
		}
		return string(b)
	}
	for range 500 {
		run := word(96)
		a, _ := collect(f, []byte(word(r.IntN(200))+run+word(r.IntN(200))), false)
		b, _ := collect(f, []byte(word(r.IntN(200))+run+word(r.IntN(200))), false)
		if shared(a, b, contraband.ClassShingle) == 0 {
			t.Fatalf("no shared shingle for the run %q", run)
		}
		run24 := word(48)
		a, _ = collect(f, []byte(word(r.IntN(99))+run24+word(r.IntN(99))), true)
		b, _ = collect(f, []byte(word(r.IntN(99))+run24+word(r.IntN(99))), true)
		if shared(a, b, contraband.ClassShingle24) == 0 {
			t.Fatalf("no shared text shingle for the run %q", run24)
		}
	}
}

// The cut into segments is exact: the whole content, normalised at once, has
// the same form wherever no segment is overlong.
func TestSegmentsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	n := 0
	for range 3000 {
		content := randomContent(r)
		if bytes.Contains(content, []byte(strings.Repeat("\u0301", 20))) || !validRunes(content) {
			continue
		}
		n++
		if got, want := string(Canonical(content)), naiveForm(string(content)); got != want {
			t.Fatalf("%q\ngot  %q\nwant %q", content, got, want)
		}
	}
	if n < 300 {
		t.Errorf("got %d contents, want at least 300", n)
	}
}

func TestRT29_UnicodeVersionIsInTheProfile(t *testing.T) {
	want := "unicode-" + norm.Version + " "
	if norm.Version != unicode.Version || cases.UnicodeVersion != norm.Version || !strings.Contains(contraband.Profile, want) {
		t.Errorf("got norm %s, cases %s, unicode %s, profile %q: want one version, named in the profile",
			norm.Version, cases.UnicodeVersion, unicode.Version, contraband.Profile)
	}
}

// A UTF-16 mark that a chunk cuts in two, odd chunks, a pair cut in two, and a
// raw digest that the caller has.
func TestUTF16InChunks(t *testing.T) {
	key := testKey("utf16")
	content := []byte{0xfe, 0xff}
	for i := range 400 {
		content = append(content, 0x4e, byte(i*7), 0xd8, 0x3d, 0xde, byte(i))
	}
	content = append(content, 0x00)
	f := New(key, nil)
	want, n := collect(f, content, true)
	compare(t, "whole", want, naiveDigests(key, nil, naiveItems(key, content, true)))
	for _, size := range []int{1, 2, 3, 5, 1000} {
		got := map[digest]bool{}
		emit := func(c contraband.Class, d [32]byte) { got[digest{c, d}] = true }
		s := f.Whole(true)
		s.Known(sha256.Sum256(content))
		var total uint64
		for part := range slices.Chunk(content, size) {
			total += s.Chunk(part, emit)
		}
		if total += s.End(emit); total != n {
			t.Errorf("chunks of %d: got %d canonical bytes, want %d", size, total, n)
		}
		compare(t, fmt.Sprintf("chunks of %d", size), got, want)
	}
}

func TestCloneSharesNoScratch(t *testing.T) {
	f := New(testKey("clone"), nil)
	content := []byte(strings.Repeat("Some text that is long enough for a few shingles 0123456789. ", 300))
	want, _ := collect(f, content, true)
	done := make(chan map[digest]bool)
	for range 4 {
		go func(f *Fingerprinter) {
			got, _ := collect(f, content, true)
			done <- got
		}(f.Clone())
	}
	for range 4 {
		compare(t, "clone", <-done, want)
	}
}
