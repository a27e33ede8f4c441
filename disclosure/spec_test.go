package disclosure

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
)

var update = flag.Bool("update", false, "write the example into spec/disclosure.md")

// TestSpecExample holds the example in the specification to the code.
func TestSpecExample(t *testing.T) {
	const file = "../spec/disclosure.md"
	const begin, end = "<!-- example: go test ./disclosure -run TestSpecExample -update -->\n", "<!-- end of example -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, 0x65)
	raw, err := Format(file1(t, b))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := f.Verify(b.head)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "The head that a receipt signs, and a disclosure of its event %d with content, %d bytes:\n\n```\n%s\n", openRow, len(raw), journal.FormatHead(b.head))
	hex := fmt.Sprintf("%x", raw)
	for len(hex) > 0 {
		n := min(len(hex), 110)
		s.WriteString(hex[:n] + "\n")
		hex = hex[n:]
	}
	fmt.Fprintf(&s, "```\n\nIt shows: event %d is an open of %q, and the %d bytes that it exposed are %q.\n", shown[0].Row.Seq, shown[0].Detail.Path, len(shown[0].Content), shown[0].Content)
	i, j := bytes.Index(old, []byte(begin)), bytes.Index(old, []byte(end))
	if i < 0 || j < i {
		t.Fatalf("%s has no place for the example", file)
	}
	now := string(old[:i+len(begin)]) + s.String() + string(old[j:])
	if *update {
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != string(old) {
		t.Errorf("%s: the example is not what the code writes: run the test with -update", file)
	}
}

func file1(t *testing.T, b *bench) *File {
	return file(b, Event{Opening: b.opening(t, openRow), Content: &b.content})
}
