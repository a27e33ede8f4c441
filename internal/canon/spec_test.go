package canon

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// The values in the specification are those of the code.
func TestSpecValues(t *testing.T) {
	spec, err := os.ReadFile("../../spec/sealed-set.md")
	if err != nil {
		t.Fatal(err)
	}
	audit, err := contraband.ParseAuditKey([]byte("cleanrun-audit-key-v1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"))
	if err != nil {
		t.Fatal(err)
	}
	key := audit.Task("bench", "", "task", [32]byte{}, [32]byte{})
	content := "Straße № 5: the QUICK brown ﬁsh, naïve cafe\u0301s & 日本語のテキスト ①②③."
	form := Canonical([]byte(content))
	s := key.Digester().Digest(contraband.ClassLine, form)
	salt := contraband.RunSalt([]byte("start row"))
	d, c := contraband.RunDigest(salt, s), contraband.Control(s)
	f := key.Filter()
	want := []string{
		strings.Fields(string(key.Format()))[1], fmt.Sprintf("`%s`, %d bytes", form, len(form)),
		hex.EncodeToString(s[:]), hex.EncodeToString(c[:]), hex.EncodeToString(salt[:]), hex.EncodeToString(d[:]),
		fmt.Sprintf("`%06x`, `%06x`, `%06x`", f.Value(contraband.ClassLine, form),
			f.Value(contraband.ClassAtom, []byte("q7x9k2m4p8w3z5t1")), f.Value(contraband.ClassCanary, form[:24])),
		strings.Trim(fmt.Sprint(contraband.ChallengeControls([]byte("head"), 64)), "[]"),
		contraband.Version, contraband.Profile,
	}
	New(key, nil).Shingles(contraband.ClassShingle24, form, func(shingle []byte, _ uint32) {
		want = append(want, fmt.Sprintf("`%s`", shingle))
	})
	for _, w := range want {
		if !strings.Contains(string(spec), w) {
			t.Errorf("spec/sealed-set.md has no %s", w)
		}
	}
	if len(want) != 12 {
		t.Errorf("got %d values, want 12", len(want))
	}
}

func FuzzObject(f *testing.F) {
	key := testKey("fuzz")
	for _, p := range pieces {
		f.Add([]byte(strings.Repeat(p, 30)), 7)
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		if len(content) > 2000 {
			return
		}
		items := naiveItems(key, content, true)
		filter := []uint32{0}
		values := key.Filter()
		for it := range items {
			if it.class.Filtered() && len(filter) < 20 {
				filter = append(filter, values.Value(it.class, []byte(it.bytes)))
			}
		}
		fp := New(key, filter)
		got := map[digest]bool{}
		emit := func(c contraband.Class, d [32]byte) { got[digest{c, d}] = true }
		s := fp.Whole(true)
		size = 1 + max(size, -size)%100
		if size < 1 {
			size = 1
		}
		for p := content; len(p) > 0; {
			n := min(size, len(p))
			s.Chunk(p[:n], emit)
			p = p[n:]
		}
		s.End(emit)
		compare(t, fmt.Sprintf("%q in chunks of %d", content, size), got, naiveDigests(key, filter, items))
	})
}
