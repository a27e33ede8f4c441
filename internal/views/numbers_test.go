package views

import (
	"bytes"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// list writes each byte in a format.
func list(b []byte, format, sep string) []byte {
	var out []string
	for _, c := range b {
		out = append(out, fmt.Sprintf(format, c))
	}
	return []byte(strings.Join(out, sep))
}

func runes(s, format string) (out []byte) {
	for _, r := range s {
		out = fmt.Appendf(out, format, r)
	}
	return out
}

// TestNextStretchEqualsNaive: skipping misses no stretch and cuts none.
func TestNextStretchEqualsNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 3000 {
		b := make([]byte, random.IntN(120))
		for i := range b {
			b[i] = "1111111111111x?"[random.IntN(14+random.IntN(2))]
		}
		least := 1 + random.IntN(12)
		var want, got [][2]int
		for from := 0; from < len(b); from++ {
			to := from
			for to < len(b) && hexDigits[b[to]] {
				to++
			}
			if to-from >= least {
				want = append(want, [2]int{from, to})
			}
			from = max(from, to)
		}
		for from, to := nextStretch(b, 0, least, &hexDigits); from < len(b); from, to = nextStretch(b, to, least, &hexDigits) {
			got = append(got, [2]int{from, to})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, %d: got %v, want %v", b, least, got, want)
		}
	}
}

// TestSearchIsLinear: contents made to be looked at again and again take the time
// of others.
func TestSearchIsLinear(t *testing.T) {
	for name, unit := range map[string]string{
		"numbers": "12 ", "words": "0x12,", "A": "A", "Ab": "Ab ", "paragraphs": "ABCDEFGH 12345678 abcdefgh ABCDEFGH 12345678 abcdefgh ABCDEFGH 12345678 abcdefgh 123\n\n",
		"amp": "&amp;", "amp in a row": "&amp;amp;amp;amp;amp;amp;amp;", "octal": "\\\\101", "dump": "00000000: 41\n", "blanks": " ", "lines": "\n",
		"narrow": "AB12\n", "hex lines": "4142434445464748494a4b4c4d4e4f50\n",
	} {
		took := func(n int) time.Duration {
			content := bytes.Repeat([]byte(unit), n/len(unit))
			start := time.Now()
			Each(content, func(View) {})
			return time.Since(start)
		}
		for try := 1; ; try++ { // a busy machine does not hold up all three
			small, large := took(256<<10), took(4<<20)
			if large <= 100*small+2*time.Second { // 16 times the bytes
				break
			}
			if try == 3 {
				t.Errorf("%s: got %v for 256 KiB, %v for 4 MiB", name, small, large)
				break
			}
		}
	}
}

// TestNumbersThatAreNoText: tables, addresses and words that look like encodings
// give no view and no report, also below the last level.
func TestNumbersThatAreNoText(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var scores, floats, words []byte
	for range 3000 {
		scores = fmt.Appendf(scores, "%d,", 40+random.IntN(60))
		floats = fmt.Appendf(floats, "%.3f %d\n", random.NormFloat64(), random.IntN(5000))
		words = append(words, "A Boy And His Dog Went To Sea In 1912 with many OTHER Folk "[random.IntN(30):]...)
	}
	cut := gz(t, []byte(prose(14, 300)))[:400]
	for name, c := range map[string]struct {
		content  []byte
		views    bool
		reported uint32
	}{
		"control: a list":     {list([]byte(prose(15, 50)), "%d", ","), true, BoundDepth},
		"control: a dump":     {[]byte(hex.Dump([]byte(prose(15, 50)))), true, BoundDepth},
		"control: base32":     {[]byte(base32.StdEncoding.EncodeToString([]byte(prose(15, 50)))), true, BoundDepth},
		"control: blanks":     {wrap(b64([]byte(prose(15, 50))), 4, " "), true, BoundDepth},
		"control: HTML":       {runes(prose(15, 50), "&#%d;"), true, 0},
		"scores":              {scores, true, 0}, // they read, alas
		"floats":              {floats, false, 0},
		"words":               {words, false, 0},
		"addresses":           {list(noise(6, 600), "%02x", ":"), false, 0},
		"a short list":        {list([]byte("twenty-three bytes, no m"), "%02x", " ")[:68], false, 0},
		"base64 of noise":     {wrap(b64(noise(8, 3000)), 4, " "), false, 0},
		"base32 of noise":     {wrap([]byte(base32.StdEncoding.EncodeToString(noise(8, 3000))), 8, " "), false, 0},
		"code":                {[]byte("if (a &lt b && c & d) { return a&b; }"), false, 0},
		"a cut gzip, numbers": {list(cut, "0x%02x", ", "), true, BoundDepth},
		"dump of a cut gzip":  {[]byte(hex.Dump(cut)), true, BoundDepth},
	} {
		if r := Each(c.content, func(View) {}); r.Bounds != 0 || r.Parsed != c.views {
			t.Errorf("%s: got %+v, want views %v, no bound", name, r, c.views)
		}
		if r := Each(b64(tarball(t, gz(t, c.content))), func(View) {}); r.Bounds != c.reported {
			t.Errorf("%s, three levels down: got bounds %x, want %x", name, r.Bounds, c.reported)
		}
	}
	long := gz(t, noise(9, 3000))
	if r := Each(list(long[:2000], "%02x", " "), func(View) {}); r.Bounds != BoundView {
		t.Errorf("got %+v of a list that is a long gzip file cut off, want the view bound", r)
	}
}
