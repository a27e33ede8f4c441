package submission

import (
	"bytes"
	"os"
	"testing"

	"github.com/gowebpki/jcs"
)

// The example in the specification is a statement, and its totals follow from its
// grid.
func TestSpecExample(t *testing.T) {
	page, err := os.ReadFile("../spec/submission.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(page, []byte("```json\n"))
	text, _, ok := bytes.Cut(rest, []byte("\n```"))
	if !ok {
		t.Fatal("no example")
	}
	data, err := jcs.Transform(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseStatement(data)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := s.Rule()
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Predicate
	plain, ruled, err := Totals(rule, p.Benchmark.Tasks, p.Trials, p.Grid)
	if err != nil || plain != p.Score.Plain || ruled != p.Score.Ruled {
		t.Errorf("got %+v and %+v, %v, want %+v", plain, ruled, err, p.Score)
	}
	if Infrastructure(p.Grid[1].State, p.Grid[1].Reasons) == "" {
		t.Errorf("the replaced attempt of the example may not be replaced")
	}
}
