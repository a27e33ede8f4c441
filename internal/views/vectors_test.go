package views

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVectors reads what other programs wrote (testvectors/views/make.sh).
func TestVectors(t *testing.T) {
	dir := filepath.Join("..", "..", "testvectors", "views")
	plain, err := os.ReadFile(filepath.Join(dir, "plain.txt"))
	must(t, err)
	index, err := os.ReadFile(filepath.Join(dir, "index.txt"))
	must(t, err)
	names := map[string]uint32{"none": 0, "depth": BoundDepth, "views": BoundViews, "bytes": BoundBytes, "ratio": BoundRatio, "view": BoundView}
	n := 0
	for line := range strings.Lines(string(index)) {
		f := strings.Fields(line)
		content, err := os.ReadFile(filepath.Join(dir, f[0]))
		must(t, err)
		var bounds uint32
		for name := range strings.SplitSeq(f[2], "+") {
			bit, ok := names[name]
			if !ok {
				t.Fatalf("%s: got bound %q, want one of %v", f[0], name, names)
			}
			bounds |= bit
		}
		got := "no"
		r := Each(content, func(v View) {
			switch {
			case bytes.Contains(v.Content, bytes.TrimSpace(plain)):
				got = "yes"
			case got == "no" && bytes.Contains(v.Content, plain[:200]):
				got = "part"
			}
		})
		if got != f[1] || r.Bounds != bounds || r.Opaque > 0 != (f[3] == "yes") {
			t.Errorf("%s: got plain text %s, bounds %x, %d opaque bytes, want %s", f[0], got, r.Bounds, r.Opaque, strings.TrimSpace(line))
		}
		n++
	}
	if n < 60 {
		t.Errorf("got %d vectors, want at least 60", n)
	}
}
