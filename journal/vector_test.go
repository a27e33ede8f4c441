package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// vector is one file of testvectors/journal, see its gen.
type vector struct {
	name, rule, redteam string
	row                 uint64
	head                Head
	file                []byte
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "testvectors", "journal", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 220 {
		t.Fatalf("got %d vectors, want at least 220", len(paths))
	}
	var list []vector
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		v := vector{name: strings.TrimSuffix(filepath.Base(p), ".txt")}
		top, body, ok := strings.Cut(string(text), "\n\n")
		if !ok {
			t.Fatalf("%s: no empty line", p)
		}
		for line := range strings.Lines(top + "\n") {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "rule":
				v.rule = value
			case "redteam":
				v.redteam = value
			case "row":
				if v.row, err = strconv.ParseUint(value, 10, 64); err != nil {
					t.Fatal(err)
				}
			case "head":
				var root []byte
				if _, err := fmt.Sscanf(value, "%d %x", &v.head.Size, &root); err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				v.head.Root = [32]byte(root)
			}
		}
		if v.file, err = hex.DecodeString(strings.ReplaceAll(body, "\n", "")); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		v.head.Run = [16]byte(bytes.Repeat([]byte{9}, 16))
		list = append(list, v)
	}
	return list
}

func (v *vector) check() (Summary, error) {
	c := NewChecker()
	for line, err := range Rows(bytes.NewReader(v.file)) {
		if err != nil {
			return Summary{}, err
		}
		if _, err := c.Add(line.Raw); err != nil {
			return Summary{}, err
		}
	}
	s := c.Summary()
	return s, s.CheckHead(v.head)
}

// Every rule refuses what it must, at the row where it must, and no other rule
// stands in for it.
func TestVectors(t *testing.T) {
	rules := map[Rule]int{}
	accepted := 0
	for _, v := range readVectors(t) {
		name := v.name
		if v.redteam != "" {
			name = "RT" + v.redteam + "_" + v.name
		}
		t.Run(name, func(t *testing.T) {
			s, err := v.check()
			if v.rule == "ok" {
				if err != nil {
					t.Fatal(err)
				}
				accepted++
				if open := v.name == "ok-open" || v.name == "ok-start-only" || v.name == "ok-graded-open"; s.Closed() == open {
					t.Errorf("got closed %v", s.Closed())
				}
				return
			}
			var broken *RuleError
			if !errors.As(err, &broken) {
				t.Fatalf("got %v, want a RuleError of rule %s", err, v.rule)
			}
			if broken.Rule != Rule(v.rule) || broken.Row != v.row {
				t.Errorf("got %v, want rule %s at row %d", err, v.rule, v.row)
			}
			rules[broken.Rule]++
		})
	}
	if accepted < 10 {
		t.Errorf("got %d accepted vectors, want at least 10", accepted)
	}
	for _, r := range []Rule{RuleFrame, RuleEncoding, RuleStart, RuleSeq, RuleTime, RulePhase, RuleProc, RuleOp, RuleDir, RuleResult,
		RuleFlags, RuleContent, RuleOrigin, RuleScope, RuleReward, RuleFinal, RuleClosed, RuleHead} {
		if rules[r] == 0 {
			t.Errorf("no vector fails at rule %s", r)
		}
	}
}

// A refused row leaves the Checker as it was.
func TestRefusedRowChangesNothing(t *testing.T) {
	refused := 0
	for _, v := range readVectors(t) {
		c := NewChecker()
		for raw := range rawRows(v.file) {
			before := state(c)
			_, err := c.Add(raw)
			if err == nil {
				continue
			}
			refused++
			if after := state(c); after != before {
				t.Errorf("%s: got %s, want %s", v.name, after, before)
			}
			break
		}
	}
	if refused < 100 {
		t.Errorf("got %d refused rows, want at least 100", refused)
	}
}

func state(c *Checker) string {
	dirs := uint32(0)
	if c.table != nil {
		dirs = c.table.Dirs()
	}
	return fmt.Sprint(c.Summary(), c.last, c.objects, c.ended, c.argv, c.phases, dirs)
}

func rawRows(file []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for raw, err := range records(bytes.NewReader(file), MaxRow) {
			if err != nil || !yield(raw) {
				return
			}
		}
	}
}
