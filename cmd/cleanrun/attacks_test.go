package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAttackList holds spec/attacks.md to the tests: a row that says tested is
// named by a test or a vector (RT12 is row 12, Incident9 row i9), and every open
// row stands in SECURITY.md.
func TestAttackList(t *testing.T) {
	list, err := os.ReadFile("../../spec/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	security, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:\bRT|_RT|RT|redteam: |/rt|-rt)0*([0-9]+[a-f]?)(?:[_\s"/-]|$)`)
	incident := regexp.MustCompile(`Incident0*([0-9]+)[_(]`)
	have := map[string]bool{}
	take := func(text string) {
		for _, m := range incident.FindAllStringSubmatch(text, -1) {
			have["i"+m[1]] = true
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			have[m[1]] = true
		}
	}
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		path = filepath.ToSlash(path)
		if strings.Contains(path, "/testvectors/") {
			take(path)
		}
		if strings.HasSuffix(path, "_test.go") && filepath.Base(path) != "attacks_test.go" || strings.Contains(path, "/testvectors/") && strings.HasSuffix(path, ".txt") {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			take(string(b[:min(len(b), 1<<20)]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The open table names single rows and ranges: "32-36", "58b-58f", "13, 14".
	open := map[string]bool{}
	number := regexp.MustCompile(`^([0-9]+)([a-f]?)$`)
	for _, line := range strings.Split(string(security), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, part := range strings.Split(cells[1], ",") {
			from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
			a := number.FindStringSubmatch(from)
			if a == nil {
				continue
			}
			open[from] = true
			b := number.FindStringSubmatch(to)
			if !isRange || b == nil {
				continue
			}
			for _, row := range regexp.MustCompile(`(?m)^\| ([0-9]+)([a-f]?) `).FindAllStringSubmatch(string(list), -1) {
				key := func(n []string) string { return strings.Repeat("0", 4-len(n[1])) + n[1] + n[2] }
				if key(a) <= key(row) && key(row) <= key(b) {
					open[row[1]+row[2]] = true
				}
			}
		}
	}
	rows := regexp.MustCompile(`(?m)^\| (i?[0-9]+[a-f]?) \|.*\| (tested|open) \|$`).FindAllStringSubmatch(string(list), -1)
	if len(rows) < 104 {
		t.Fatalf("spec/attacks.md has %d rows, want at least 104", len(rows))
	}
	for _, r := range rows {
		if r[2] == "tested" && !have[r[1]] {
			t.Errorf("attack %s is said to be tested, and no test or vector carries its number", r[1])
		}
		if (r[2] == "open") != open[r[1]] {
			t.Errorf("attack %s: spec/attacks.md says %s; SECURITY.md lists it as open: %v", r[1], r[2], open[r[1]])
		}
	}
}
