// Command gen writes the test vectors of testvectors/journal. It imports nothing
// of this module: what it writes comes from spec/journal.md alone.
//
//	go run ./testvectors/journal/gen testvectors/journal
//
// A vector is a text file: "name: value" lines, an empty line, then the journal
// file in hex, one record a line (its length and its row). A file holds exactly
// one failure and is named after it. rule says which rule must refuse it, and row
// at which row; "ok" that none may. head is the head that the reader trusts:
// size and root in hex. A second run writes the same files.
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func (v vector) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule: %s\n", v.stage)
	fmt.Fprintf(&b, "row: %d\n", v.row)
	if v.redteam != "" {
		fmt.Fprintf(&b, "redteam: %s\n", v.redteam)
	}
	fmt.Fprintf(&b, "comment: %s\n", v.comment)
	signed := v.signed
	if signed == nil {
		signed = v.rows
	}
	fmt.Fprintf(&b, "head: %d %x\n\n", len(signed), treeHash(signed))
	if v.file != nil {
		for data := v.file; len(data) > 0; {
			n := min(len(data), 60)
			fmt.Fprintf(&b, "%s\n", hex.EncodeToString(data[:n]))
			data = data[n:]
		}
		return b.String()
	}
	for _, r := range v.rows {
		fmt.Fprintf(&b, "%s\n", hex.EncodeToString(frame([][]byte{r})))
	}
	return b.String()
}

func write(dir string) error {
	seen := make(map[string]bool)
	for _, v := range vectors() {
		if seen[v.name] {
			return fmt.Errorf("two vectors named %s", v.name)
		}
		seen[v.name] = true
		if err := os.WriteFile(filepath.Join(dir, v.name+".txt"), []byte(v.text()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "gen: error: got no folder\ngen: hint: go run ./testvectors/journal/gen testvectors/journal")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen: error:", err)
		os.Exit(2)
	}
}
