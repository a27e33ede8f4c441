package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// TestReadmeQuickstart holds the sample in README.md to what quickstart prints:
// the same lines in the same order, apart from numbers and what "..." leaves out.
func TestReadmeQuickstart(t *testing.T) {
	needRecorder(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, ok := strings.Cut(string(readme), "without the key:\n\n")
	if !ok {
		t.Fatal("README.md has no sample")
	}
	sample, _, _ = strings.Cut(sample, "\n    make test\n")
	dir := t.TempDir() + "/q"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, _, err := quickstart(dir, &out, &cli.Env{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`[0-9][0-9,]*`)
	shape := func(line string) string {
		return number.ReplaceAllString(strings.Join(strings.Fields(strings.ReplaceAll(line, dir, "cleanrun-quickstart")), " "), "N")
	}
	rest := strings.Split(out.String(), "\n")
	lines := 0
	for _, want := range strings.Split(sample, "\n") {
		want = shape(want)
		want, cut := strings.CutSuffix(want, "...")
		if want == "" {
			continue
		}
		lines++
		found := false
		for i, got := range rest {
			if got = shape(got); got == want || cut && strings.HasPrefix(got, want) {
				rest, found = rest[i+1:], true
				break
			}
		}
		if !found {
			t.Errorf("README.md shows %q; quickstart printed:\n%s", want, out.String())
			return
		}
	}
	if lines < 20 {
		t.Errorf("the sample has %d lines, want the whole run", lines)
	}
}

// TestReadmeByHand types what README.md says under "The same by hand".
func TestReadmeByHand(t *testing.T) {
	needRecorder(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "## The same by hand\n\n")
	block, _, end := strings.Cut(after, "\n\nThe command starts")
	_, lines, built := strings.Cut(block, "go build -o cleanrun ./cmd/cleanrun\n")
	if !found || !end || !built || strings.Count(lines, "./cleanrun ") < 7 {
		t.Fatalf("README.md has no flow by hand:\n%s", block)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "cleanrun")); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-ec", "./cleanrun quickstart >/dev/null\n"+lines)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nCLEAN  quickstart/word-codes  trial 1, attempt 1\n run by      acme-evals ") {
		t.Fatalf("%v\n%s", err, out)
	}
}
