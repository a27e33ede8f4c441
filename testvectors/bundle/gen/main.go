// Command gen writes the test vectors of testvectors/cose, dsse, logreceipt and
// bundle. It imports nothing of this module: what it writes comes
// from the specifications alone.
//
//	go run ./testvectors/bundle/gen testvectors
//
// A vector is a text file: "name: value" lines, an empty line, then the bytes in
// hex. A file holds exactly one failure and is named after it; stage says which
// check must refuse it, "ok" that none may. All keys and signatures are
// deterministic, so a second run writes the same files.
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A vector is one file. Lines is its head without the stage.
type vector struct {
	dir, name string
	stage     string
	redteam   string // row of the attack list, or ""
	comment   string
	lines     [][2]string
	data      []byte
}

func (v vector) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stage: %s\n", v.stage)
	if v.redteam != "" {
		fmt.Fprintf(&b, "redteam: %s\n", v.redteam)
	}
	fmt.Fprintf(&b, "comment: %s\n", v.comment)
	for _, l := range v.lines {
		fmt.Fprintf(&b, "%s: %s\n", l[0], l[1])
	}
	b.WriteString("\n")
	for data := v.data; len(data) > 0; {
		n := min(len(data), 40)
		fmt.Fprintf(&b, "%s\n", hex.EncodeToString(data[:n]))
		data = data[n:]
	}
	return b.String()
}

func all() []vector {
	return slices.Concat(coseVectors(), entryVectors(), dsseVectors(), logReceiptVectors(), bundleVectors())
}

func write(root string) error {
	seen := make(map[string]bool)
	for _, v := range all() {
		path := filepath.Join(root, v.dir, v.name+".txt")
		if seen[path] {
			return fmt.Errorf("two vectors named %s", path)
		}
		seen[path] = true
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(v.text()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "gen: error: got no folder\ngen: hint: go run ./testvectors/bundle/gen testvectors")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen: error:", err)
		os.Exit(2)
	}
}

// check stops the generator: its inputs are constants.
func check[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
