package expect_test

import (
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/expect"
)

// The page has every dimension and reason of the code, and its transcript is one.
func TestSpecLists(t *testing.T) {
	data, err := os.ReadFile("../spec/expect.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	ids := []string{
		expect.PathRead, expect.Unchanged, expect.Marked, expect.Lined, expect.NotSearched, expect.Complete, expect.Author, expect.SameChannel,
	}
	for _, w := range whys {
		ids = append(ids, string(w))
	}
	for _, id := range ids {
		if !strings.Contains(page, "\n| `"+id+"` |") {
			t.Errorf("spec/expect.md has no line for %s", id)
		}
	}
	_, example, _ := strings.Cut(page, "```\n{\"type\": \"transcript\"")
	example, _, _ = strings.Cut(`{"type": "transcript"`+example, "```")
	c, err := expect.ParseTranscript([]byte(example))
	if err != nil || len(c.Messages) != 2 {
		t.Errorf("the transcript of spec/expect.md: got %+v, %v", c, err)
	}
}
