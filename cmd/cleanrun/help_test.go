package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// TestHelpWidth holds the help of every command to 80 columns, the width of a
// terminal that nobody has changed.
func TestHelpWidth(t *testing.T) {
	pages := [][]string{{"help"}}
	var all func(list []*cli.Command)
	all = func(list []*cli.Command) {
		for _, c := range list {
			pages = append(pages, append([]string{"help"}, strings.Fields(c.Name)...))
			all(c.Commands)
		}
	}
	all(table.Commands)
	if len(pages) < 30 {
		t.Fatalf("got %d pages, want all commands and theirs", len(pages))
	}
	for _, args := range pages {
		var out bytes.Buffer
		if code := table.Main(args, os.Stdin, &out, io.Discard); code != 0 || out.Len() == 0 {
			t.Errorf("%v: exit code %d, %d bytes", args, code, out.Len())
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
	}
}
