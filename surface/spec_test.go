package surface

import (
	"encoding/hex"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

var update = flag.Bool("update", false, "write the example of spec/surface.md")

// example is the observation of spec/surface.md.
func example() *Observation {
	text := "the answer is 42\n"
	d := sum(text)
	modified := int64(1767225600_000000000)
	return &Observation{Source: Description{Kind: "folder"}, Location: glob("out/*.txt"), Scope: Scope{Window: &Window{1767225590_000000000, 1767225700_000000000}, Attempt: "a1"},
		NotApplied: []Key{KeyAttempt}, Acquisition: Complete, Outside: []Outside{{KeyWindow, 1}}, Gaps: []Gap{{LinkDangling, "out/old.txt", 1}},
		Entries: []Entry{{Location: "out/report.txt", Size: uint64(len(text)), SHA256: &d, Modified: &modified, Changed: &modified, Links: 1, Encoding: UTF8, Text: text}}}
}

func TestSpecExample(t *testing.T) {
	b, err := Format(example())
	if err != nil {
		t.Fatal(err)
	}
	diag, err := cbor.Diagnose(b)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for h := hex.EncodeToString(b); h != ""; {
		n := min(100, len(h))
		lines.WriteString(h[:n] + "\n")
		h = h[n:]
	}
	want := "```\n" + strings.ReplaceAll(diag, ", 13: ", ",\n 13: ") + "\n```\n\nAs bytes:\n\n```\n" + lines.String() + "```\n"
	name := filepath.Join("..", "spec", "surface.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), "-->\n")
	got, tail, ok2 := strings.Cut(rest, "<!-- end of example -->")
	if !ok || !ok2 {
		t.Fatal("the page has no example")
	}
	if *update {
		if err := os.WriteFile(name, []byte(head+"-->\n"+want+"<!-- end of example -->"+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

// The page lists every reason, and no other.
func TestSpecReasons(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "spec", "surface.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n## Reasons\n")
	list, _, _ = strings.Cut(list, "\n## ")
	var got, want []string
	parts := map[string]place{"acquisition": ofAcquisition, "coverage": ofCoverage, "entry": ofEntry, "result": ofResult}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
		if reasons[Reason(m[1])] != parts[m[2]] {
			t.Errorf("%s: the page says %s", m[1], m[2])
		}
	}
	for r := range maps.Keys(reasons) {
		want = append(want, string(r))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The tests that doc.go names exist.
func TestDocNamesTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(b)
		}
	}
	names := regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(string(doc), -1)
	if len(names) < 30 {
		t.Fatalf("got %d names of tests in doc.go", len(names))
	}
	for _, n := range names {
		if !strings.Contains(sources.String(), "func "+n+"(t *testing.T)") {
			t.Errorf("doc.go names %s, which is not there", n)
		}
	}
}
