package journal

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// checkFirst holds row 0, and only row 0, to be the start row.
func (c *Checker) checkFirst(r *Row) *RuleError {
	switch {
	case r.Op != OpStart:
		return broken(RuleStart, "the start row first", "operation %d", r.Op)
	case c.start != nil:
		return broken(RuleStart, "one start row", "a second one")
	case r.Time != 0 || r.Phase != PhaseSetup || r.Object != 0:
		return broken(RuleStart, "time 0, phase setup, object 0", "time %d, phase %d, object %d", r.Time, r.Phase, r.Object)
	}
	if err := CheckStart(r.Start); err != nil {
		return broken(RuleStart, "a valid start", "%v", err)
	}
	return nil
}

func (c *Checker) begin(s *Start) {
	table, err := scope.NewTable(s.Roots)
	if err != nil {
		panic(err) // CheckStart checked the roots
	}
	c.table, c.start = table, s
	for _, ch := range s.Channels {
		c.model = c.model || ch.Name == "stdin" && ch.Role == "model"
	}
}

// maxText bounds each text of the start row, in bytes. They are shown on
// screens: control characters are refused too.
const maxText = 1024

// CheckStart refuses a start that a journal of this version may not open with.
func CheckStart(s *Start) error {
	if s.Version != Version {
		return fmt.Errorf("got version %q, want %q", s.Version, Version)
	}
	if s.Run == ([16]byte{}) {
		return fmt.Errorf("got a zero run id, want one that was drawn")
	}
	for _, text := range slices.Concat([]string{s.Benchmark, s.Task, s.Recorder, s.Backend, s.Agent, s.Model}, s.Blind) {
		if err := checkText(text); err != nil {
			return err
		}
	}
	if s.Recorder == "" || s.Backend == "" {
		return fmt.Errorf("got recorder %q, backend %q, want both named", s.Recorder, s.Backend)
	}
	task := s.Task != ""
	if task != (s.Benchmark != "") || task != (s.Trial != 0) || task != (s.Attempt != 0) ||
		task != (s.Commitment != [32]byte{}) || task != (s.Seal != [32]byte{}) {
		return fmt.Errorf("got benchmark %q, task %q, trial %d, attempt %d, want all of them with commitment and seal, or none", s.Benchmark, s.Task, s.Trial, s.Attempt)
	}
	if err := scope.CheckRoots(s.Roots); err != nil {
		return err
	}
	if err := checkWorkspace(s); err != nil {
		return err
	}
	for i, ch := range s.Channels {
		if ch.Name != "stdin" || ch.Role != "model" && ch.Role != "driver" {
			return fmt.Errorf("got channel %q of role %q, want stdin of role model or driver", ch.Name, ch.Role)
		}
		if i > 0 {
			return fmt.Errorf("got channel %q twice, want it once", ch.Name)
		}
	}
	for i := 1; i < len(s.Blind); i++ {
		if s.Blind[i-1] >= s.Blind[i] {
			return fmt.Errorf("got %q after %q, want the blind spots sorted and unique", s.Blind[i], s.Blind[i-1])
		}
	}
	if s.Registration != nil || s.Freshness != nil {
		return fmt.Errorf("got a registration or freshness value, want null in this version")
	}
	return nil
}

func checkWorkspace(s *Start) error {
	found := 0
	for _, r := range s.Roots {
		if r.Class != scope.Workspace {
			continue
		}
		found++
		if r.Path != s.Workspace || r.Mode != scope.ReadTree && r.Mode != scope.WriteTree {
			return fmt.Errorf("got workspace root %q of mode %d, want the tree %q", r.Path, r.Mode, s.Workspace)
		}
	}
	if found != 1 {
		return fmt.Errorf("got %d workspace roots, want 1", found)
	}
	return nil
}

func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("got a text of %d bytes, want at most %d", len(text), maxText)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Errorf("got text %q, want printable characters only", text)
	}
	return nil
}

// checkFinal compares what the closing row binds with the rows.
func (c *Checker) checkFinal(r *Row) *RuleError {
	f := r.Final
	if f.Outcome < Completed || f.Outcome > Abandoned || f.Code > 255 {
		return broken(RuleFinal, "outcome 1 to 4, code at most 255", "outcome %d, code %d", f.Outcome, f.Code)
	}
	if f.Outcome == Completed && f.Code != 0 || f.Outcome == Failed && f.Code == 0 {
		return broken(RuleFinal, "code 0 exactly if completed", "outcome %d, code %d", f.Outcome, f.Code)
	}
	if counts := c.counted(); !sameCounts(f.Counts, counts) {
		return broken(RuleFinal, fmt.Sprintf("counts %v, as the rows before", counts), "counts %v", f.Counts)
	}
	for _, n := range [...]struct {
		name       string
		bound, row uint64
	}{
		{"processes born", f.Born, uint64(len(c.ended) - 1)},
		{"processes ended", f.Ended, c.sum.Ended},
		{"void notifications", f.Void, c.sum.Void},
	} {
		if n.bound != n.row {
			return broken(RuleFinal, fmt.Sprintf("%d %s, as the rows before", n.row, n.name), "%d", n.bound)
		}
	}
	if f.Lost < c.sum.Lost {
		return broken(RuleFinal, fmt.Sprintf("at least %d events lost, one for each lost row", c.sum.Lost), "%d", f.Lost)
	}
	if f.Delta.Unexplained > f.Delta.Changed {
		return broken(RuleFinal, "at most as many paths unexplained as changed", "%d of %d", f.Delta.Unexplained, f.Delta.Changed)
	}
	return nil
}
