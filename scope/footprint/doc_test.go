package footprint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests and scripts that doc.go names exist.
func TestDocNamesTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../../cmd/cleanrun/scope*_test.go"} {
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
	scripts := regexp.MustCompile(`\w+\.txtar`).FindAllString(string(doc), -1)
	if len(names) < 30 || len(scripts) < 5 {
		t.Fatalf("got %d names of tests and %d of scripts in doc.go", len(names), len(scripts))
	}
	for _, n := range names {
		if !strings.Contains(sources.String(), "func "+n+"(t *testing.T)") {
			t.Errorf("doc.go names %s, which is not there", n)
		}
	}
	for _, s := range scripts {
		if _, err := os.Stat("../../cmd/cleanrun/testdata/script/" + s); err != nil {
			t.Errorf("doc.go names %s: %v", s, err)
		}
	}
}
