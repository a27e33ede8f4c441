package eval

import (
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/submission"
)

// The page's examples are what the parsers read, and its list of reasons is the
// code's.
func TestSpecPage(t *testing.T) {
	page, err := os.ReadFile("../spec/eval.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```json\n")
	if len(blocks) != 3 {
		t.Fatalf("got %d JSON examples, want a plan and a result", len(blocks)-1)
	}
	text := func(i int) string { s, _, _ := strings.Cut(blocks[i], "```"); return s }
	if _, err := ParsePlan([]byte(text(1))); err != nil {
		t.Errorf("plan: %v", err)
	}
	if _, err := ParseResult([]byte(strings.TrimSuffix(text(2), "\n"))); err != nil {
		t.Errorf("result: %v", err)
	}
	_, list, _ := strings.Cut(string(page), "`retry` is the first of these reasons that the attempt has:")
	list, _, _ = strings.Cut(list, ".")
	var ids []string
	for i, part := range strings.Split(list, "`") {
		if i%2 == 1 {
			ids = append(ids, part)
		}
	}
	if len(ids) < 3 {
		t.Errorf("got %q", ids)
	}
	for _, id := range ids {
		if got := submission.Infrastructure(submission.Inconclusive, []string{id}); got != id {
			t.Errorf("the page names %s, and an attempt with it stands", id)
		}
	}
}
