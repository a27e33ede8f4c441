package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// RT88: no plaintext, no raw digest, no name and no length of the ground truth
// in the sealed set. RT91: all sizes are powers of two.
func TestRT88_RT91_NothingInClear(t *testing.T) {
	files := sampleFiles()
	s := build(t, files)
	data, err := s.set.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("bench-1")) || !bytes.Contains(data, s.set.Prompt[:]) {
		t.Fatal("control: the search does not find what is in clear")
	}
	var needles []string
	for name, content := range files {
		if strings.HasPrefix(name, "workspace/") || name == "task.yaml" {
			continue
		}
		raw, canonical := sha256.Sum256([]byte(content)), sha256.Sum256(canon.Canonical([]byte(content)))
		needles = append(needles, name, filepath.Base(name), string(raw[:]), string(canonical[:]), hex.EncodeToString(raw[:8]))
		needles = append(needles, strings.Fields(content)...)
		// Its length as CBOR holds a number.
		if n := len(content); n > 255 {
			needles = append(needles, string([]byte{0x19, byte(n >> 8), byte(n)}))
		}
	}
	needles = append(needles, canary, "q7x9", "nested lists", "unittest", "round trip")
	checked := 0
	for _, n := range needles {
		if len(n) < 3 || n == "=" {
			continue
		}
		if len(n) == 3 && n[0] != 0x19 || len(n) == 4 && bytes.Contains([]byte(s.set.Control), []byte(n)) {
			continue // three letters stand in any random bytes
		}
		checked++
		if len(n) >= 5 && bytes.Contains(data, []byte(n)) && !strings.Contains(s.set.Control, n) {
			t.Errorf("the sealed set holds %q", n)
		}
	}
	if checked < 500 {
		t.Errorf("got %d things looked for, want at least 500", checked)
	}
	sizes := []int{len(s.set.Allowed) / 32, len(s.set.Filter)}
	for _, g := range s.set.Groups {
		sizes = append(sizes, len(g.Items)/32)
	}
	for _, n := range sizes {
		if n != 0 && (n < 16 || bits.OnesCount(uint(n)) != 1) {
			t.Errorf("got a list of %d, want a power of two of at least 16", n)
		}
	}
	// One more or one fewer line in the test changes no size.
	files["hidden/test_nested.py"] += "    one_more_line = of(the_hidden, \"test file\")\n"
	other := build(t, files)
	for i, g := range other.set.Groups {
		if len(g.Items) != len(s.set.Groups[i].Items) || g.Threshold != s.set.Groups[i].Threshold {
			t.Errorf("group %d shows that a line was added", i)
		}
	}
}

// RT89: somebody without the key guesses from the prompt, the workspace and the
// Go standard library: plain digests, and digests under keys that need no
// secret, are none of the published ones.
func TestRT89_Dictionary(t *testing.T) {
	s := build(t, sampleFiles())
	published := map[[32]byte]bool{}
	for _, list := range [][]byte{s.set.Allowed, s.set.Controls} {
		for i := 0; i < len(list); i += 32 {
			published[[32]byte(list[i:])] = true
		}
	}
	for _, g := range s.set.Groups {
		for i := 0; i < len(g.Items); i += 32 {
			published[[32]byte(g.Items[i:])] = true
		}
	}
	guessKey, err := contraband.NewTaskKey([]byte("guess456789abcdefghijklmnopqrstu"))
	if err != nil {
		t.Fatal(err)
	}
	d, real := guessKey.Digester(), s.key.Digester()
	tried, controls := 0, 0
	guess := func(line string) {
		form := canon.Canonical([]byte(line))
		raw, canonical := sha256.Sum256([]byte(line)), sha256.Sum256(form)
		for _, h := range [][32]byte{raw, canonical, contraband.Control(raw), contraband.Control(canonical),
			d.Digest(contraband.ClassLine, form), d.Digest(contraband.ClassAtom, form)} {
			if tried++; published[h] {
				t.Errorf("a guess without the key is published: %q", line)
			}
		}
		if published[real.Digest(contraband.ClassLine, form)] {
			controls++
		}
	}
	for _, line := range strings.Split(sampleFiles()["task.yaml"], "\n") {
		guess(strings.TrimLeft(line, " -"))
		guess(strings.TrimPrefix(line, "title: "))
	}
	if controls == 0 {
		t.Error("control: no guess is right even with the key: the test shows nothing")
	}
	err = filepath.WalkDir(filepath.Join(runtime.GOROOT(), "src", "net"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(p) != ".go" {
			return err
		}
		data, err := os.ReadFile(p)
		for _, line := range strings.Split(string(data), "\n") {
			guess(line)
		}
		return err
	})
	if err != nil {
		t.Skip("the Go source tree is not there to guess from:", err)
	}
	if tried < 200_000 {
		t.Errorf("got %d guesses, want at least 200,000", tried)
	}
}

// RT90: two tasks with the same ground truth share no digest.
func TestRT90_TwoTasksShareNothing(t *testing.T) {
	files := sampleFiles()
	a := build(t, files)
	files["task.yaml"] = strings.Replace(files["task.yaml"], "repair-parser-77", "repair-parser-78", 1)
	b := build(t, files)
	seen := map[string]bool{}
	collect := func(s sealed, visit func(d string)) {
		for _, g := range append(s.set.Groups, contraband.Group{Items: s.set.Controls}, contraband.Group{Items: s.set.Allowed},
			contraband.Group{Items: append(s.set.KeyCommit[:], s.set.Commitment[:]...)}) {
			for i := 0; i < len(g.Items); i += 32 {
				visit(string(g.Items[i : i+32]))
			}
		}
	}
	collect(a, func(d string) { seen[d] = true })
	again := 0
	collect(a, func(d string) {
		if seen[d] {
			again++
		}
	})
	if again < 200 {
		t.Fatalf("control: got %d digests of one task twice, want all", again)
	}
	collect(b, func(d string) {
		if seen[d] {
			t.Errorf("two tasks share the digest %x", d)
		}
	})
	same := 0
	for _, v := range a.set.Filter {
		for _, w := range b.set.Filter {
			if v == w {
				same++
			}
		}
	}
	if same > 3 { // by chance 256*256/2^24
		t.Errorf("two tasks share %d filter values", same)
	}
}
