package submission

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
)

// Bounds of a statement, besides its size.
const (
	MaxTrials  = 100_000 // trials of a task
	maxFiles   = 1000    // files of an agent or a model
	maxReasons = 64      // of a cell
	maxExact   = 1<<53 - 1
)

// check holds a statement to its form (spec/submission.md, "Grammar").
func (s *Statement) check() error {
	if s.Type != attest.StatementType {
		return bad("_type", quote(s.Type), quote(attest.StatementType))
	}
	if s.PredicateType != PredicateType {
		return bad("predicateType", quote(s.PredicateType), quote(PredicateType)+": another version of cleanrun may read it")
	}
	if len(s.Subject) != 1 {
		return bad("subject", fmt.Sprintf("%d subjects", len(s.Subject)), "exactly 1, the root over the receipts")
	}
	if !hexDigest(s.Subject[0].Digest.SHA256, 32) {
		return bad("subject", quote(s.Subject[0].Digest.SHA256), "a SHA-256 value in lower-case hex")
	}
	if want := NamePrefix + s.ID(); s.Subject[0].Name != want {
		return bad("subject", quote(s.Subject[0].Name), quote(want)+", from its digest")
	}
	p := &s.Predicate
	for _, n := range []struct {
		where string
		named *Named
	}{{"agent", &p.Agent}, {"model", &p.Model}} {
		if err := n.named.check(n.where); err != nil {
			return err
		}
	}
	if err := p.Benchmark.check(); err != nil {
		return err
	}
	if p.Trials == 0 || p.Trials > MaxTrials {
		return bad("trials", fmt.Sprint(p.Trials), fmt.Sprintf("1 to %d", MaxTrials))
	}
	if len(p.Grid) == 0 {
		return bad("grid", "no cell", "at least one")
	}
	for i := range p.Grid {
		if err := p.checkCell(i); err != nil {
			return err
		}
	}
	return p.Score.check()
}

func quote(s string) string { return fmt.Sprintf("%.80q", s) }

func (n *Named) check(where string) error {
	if !contraband.CheckName(n.Name) {
		return bad(where, quote(n.Name), "a printable name of at most 1,024 bytes")
	}
	if n.Files == nil || len(n.Files) > maxFiles {
		return bad(where+".files", fmt.Sprintf("%d files", len(n.Files)), fmt.Sprintf("a list of at most %d", maxFiles))
	}
	for i, f := range n.Files {
		if f.Name == "" || !contraband.CheckName(f.Name) {
			return bad(where+".files", quote(f.Name), "a printable name")
		}
		if !hexDigest(f.SHA256, 32) {
			return bad(where+".files", quote(f.SHA256), "a SHA-256 value in lower-case hex")
		}
		if i > 0 && n.Files[i-1].Name >= f.Name {
			return bad(where+".files", quote(f.Name), "files sorted by name, each name once")
		}
	}
	return nil
}

func (b *Benchmark) check() error {
	if b.Name == "" || !contraband.CheckName(b.Name) {
		return bad("benchmark.name", quote(b.Name), "a printable name of at most 1,024 bytes")
	}
	for _, d := range []struct{ where, value string }{{"benchmark.head", b.Head}, {"benchmark.root", b.Root}} {
		if !hexDigest(d.value, 32) {
			return bad(d.where, quote(d.value), "a SHA-256 value in lower-case hex")
		}
	}
	if b.Tasks == 0 || b.Tasks > contraband.MaxTasks || b.Weak > contraband.MaxTasks {
		return bad("benchmark", fmt.Sprintf("%d tasks, %d weak", b.Tasks, b.Weak), fmt.Sprintf("1 to %d tasks", contraband.MaxTasks))
	}
	return nil
}

// Order compares two cells by their place in the grid.
func Order(a, b *Cell) int {
	return cmp.Or(strings.Compare(a.Task, b.Task), cmp.Compare(a.Trial, b.Trial), cmp.Compare(a.Attempt, b.Attempt))
}

// Name of the cell on screen.
func (c *Cell) Name() string {
	if c.State == Missing {
		return fmt.Sprintf("%s, trial %d", c.Task, c.Trial)
	}
	return fmt.Sprintf("%s, trial %d, attempt %d", c.Task, c.Trial, c.Attempt)
}

func (p *Predicate) checkCell(i int) error {
	c := &p.Grid[i]
	where := fmt.Sprintf("cell %d", i)
	if c.Task == "" || !contraband.CheckName(c.Task) {
		return bad(where, "task "+quote(c.Task), "a printable name of at most 1,024 bytes")
	}
	if c.Trial == 0 || c.Trial > p.Trials {
		return bad(where, fmt.Sprintf("trial %d", c.Trial), fmt.Sprintf("1 to %d", p.Trials))
	}
	if i > 0 && Order(&p.Grid[i-1], c) >= 0 {
		return bad(where, c.Name(), "cells sorted by task, trial and attempt, each once")
	}
	if i > 0 && c.Task == p.Grid[i-1].Task && c.Trial == p.Grid[i-1].Trial && p.Grid[i-1].State == Missing {
		return bad(where, c.Name(), "no attempt of a trial that is missing")
	}
	if !c.State.Attested() && c.State != Failed && c.State != Missing {
		return bad(where, "state "+quote(string(c.State)), "CLEAN, DIRTY, INCONCLUSIVE, error or missing")
	}
	if (c.Attempt == 0) != (c.State == Missing) {
		return bad(where, fmt.Sprintf("attempt %d of state %s", c.Attempt, c.State), "attempts from 1, and 0 for a missing trial")
	}
	if c.Reasons == nil || len(c.Reasons) > maxReasons {
		return bad(where, fmt.Sprintf("%d reasons", len(c.Reasons)), fmt.Sprintf("a list of at most %d", maxReasons))
	}
	for _, r := range c.Reasons {
		if r == "" || !contraband.CheckName(r) || len(r) > 64 {
			return bad(where, "reason "+quote(r), "a reason id")
		}
	}
	if !c.State.Attested() {
		if c.Bundle+c.Receipt+c.Root+c.Run != "" || c.Score != nil || len(c.Reasons) > 0 {
			return bad(where, "digests, reasons or a score of state "+string(c.State), "none: there is no receipt")
		}
		return nil
	}
	for _, d := range []struct {
		what, value string
		size        int
	}{{"bundle", c.Bundle, 32}, {"receipt", c.Receipt, 32}, {"root", c.Root, 32}, {"run", c.Run, 16}} {
		if !hexDigest(d.value, d.size) {
			return bad(where, d.what+" "+quote(d.value), fmt.Sprintf("%d bytes in lower-case hex", d.size))
		}
	}
	if (c.State == Clean) != (len(c.Reasons) == 0) {
		return bad(where, fmt.Sprintf("%s with %d reasons", c.State, len(c.Reasons)), "reasons exactly if it is not CLEAN")
	}
	if c.Score != nil {
		if c.Score.Source != attest.ScoreObserved && c.Score.Source != attest.ScoreAsserted {
			return bad(where, "score source "+quote(c.Score.Source), "observed or asserted")
		}
		if _, ok := parseDecimal(c.Score.Value); !ok {
			return bad(where, "score "+quote(c.Score.Value), "a decimal number such as 1 or 0.75")
		}
	}
	return nil
}

func (s *Score) check() error {
	if s.Headline != Plain && s.Headline != Ruled {
		return bad("score.headline", quote(string(s.Headline)), "plain or ruled")
	}
	if _, err := newRule(s.Rule, s.K); err != nil {
		return err
	}
	for _, t := range []struct {
		where string
		total *Total
	}{{"score.plain", &s.Plain}, {"score.ruled", &s.Ruled}} {
		if err := t.total.check(t.where); err != nil {
			return err
		}
	}
	return nil
}

func (t *Total) check(where string) error {
	for _, n := range []uint64{t.Missing, t.Scored, t.Unscored, t.Tasks} {
		if n > maxExact {
			return bad(where, fmt.Sprint(n), "at most 2^53-1")
		}
	}
	i := &t.Interval
	values := []string{t.Value}
	switch i.Method {
	case MethodNone:
		if i.Low+i.High != "" {
			return bad(where+".interval", quote(i.Low)+" to "+quote(i.High), "empty bounds without a method")
		}
	case MethodWilson, MethodClustered:
		values = append(values, i.Low, i.High)
	default:
		return bad(where+".interval", "method "+quote(i.Method), strings.Join([]string{MethodWilson, MethodClustered, MethodNone}, ", "))
	}
	if t.Value == "" && i.Method == MethodNone {
		return nil
	}
	for _, v := range values {
		if r, ok := parseDecimal(v); !ok || printDecimal(r) != v {
			return bad(where, quote(v), "a decimal number with six digits after the point")
		}
	}
	return nil
}
