package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// TestJSONPromise: every command that takes -json prints exactly one object with
// it, also on failure, and its exit code is the same as without.
func TestJSONPromise(t *testing.T) {
	n := 0
	for _, c := range table.All() {
		if !c.JSON {
			continue
		}
		n++
		for _, args := range [][]string{{"-nosuchflag"}, {"a", "b", "c", "d"}} {
			var plain, out, errs bytes.Buffer
			name := strings.Fields(c.Name)
			want := table.Main(slices.Concat(name, args), os.Stdin, &plain, &plain)
			got := table.Main(slices.Concat(name, []string{"-json"}, args), os.Stdin, &out, &errs)
			if got != want || want == 0 {
				t.Errorf("%s %v: exit %d with -json, %d without; want the same failure", c.Name, args, got, want)
			}
			dec := json.NewDecoder(&out)
			var object map[string]any
			if err := dec.Decode(&object); err != nil || object["error"] == "" || object["exit"] != float64(want) {
				t.Errorf("%s %v: got %v (%v), want one object with error and exit %d", c.Name, args, object, err, want)
			}
			if dec.More() {
				t.Errorf("%s %v: more than one object", c.Name, args)
			}
			if !strings.HasPrefix(errs.String(), "cleanrun: error: ") {
				t.Errorf("%s %v: stderr is %q", c.Name, args, errs.String())
			}
		}
	}
	if n < 8 {
		t.Errorf("%d commands take -json, want those that print a result", n)
	}
}

// TestOnlyOnTerminals: no colour and no progress off a terminal.
func TestOnlyOnTerminals(t *testing.T) {
	var b bytes.Buffer
	if got := cli.Colour(&b, "1;31", "DIRTY"); got != "DIRTY" {
		t.Errorf("got %q off a terminal, want no colour", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if cli.Terminal(f) || cli.Terminal(&b) {
		t.Error("a file or a buffer counts as a terminal")
	}
	p := cli.NewProgress(&b, "working")
	for i := range uint64(1000) {
		p.Update(i, 1000, "events")
	}
	p.Done()
	if b.Len() != 0 {
		t.Errorf("progress off a terminal: %q", b.String())
	}
}
