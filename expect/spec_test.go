package expect_test

import (
	"os"
	"path/filepath"
	"regexp"
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

// Each test that the package comment names is there.
func TestCasesAreTested(t *testing.T) {
	comment, err := os.ReadFile("expect.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "../attest/named*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(b)
		}
	}
	head, _, _ := strings.Cut(string(comment), "\npackage expect\n")
	names := regexp.MustCompile(`\b((?:Test|Fuzz)\w+)(?:/([\w',]*[\w']))?`).FindAllStringSubmatch(head, -1)
	if len(names) < 25 {
		t.Fatalf("got %d names, want at least 25", len(names))
	}
	for _, n := range names {
		if !strings.Contains(tests.String(), "\nfunc "+n[1]+"(") {
			t.Errorf("no test %s", n[1])
		}
		if sub := strings.ReplaceAll(n[2], "_", " "); sub != "" && !strings.Contains(tests.String(), `{"`+sub+`",`) {
			t.Errorf("%s has no case %q", n[1], sub)
		}
	}
}
