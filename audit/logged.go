package audit

import (
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/verify"
)

// assurance reports the bundles that verify could not decide, and those that are
// at a lower level than others of the submission. A run that was killed is
// INCONCLUSIVE, which says enough where it counts, and where it was replaced the
// policy's rate decides. Where nobody is known to have
// sealed, that was reported and the log adds nothing to it.
func (s *Submission) assurance() {
	levels := map[string]int{}
	for i := range s.facts {
		if f := &s.facts[i]; f.known {
			levels[f.assurance.Level]++
		}
	}
	for i := range s.facts {
		f := &s.facts[i]
		if !f.known || f.ownerNotice != "" {
			continue
		}
		name := s.statement.Predicate.Grid[i].Bundle + BundleExt
		switch open, logged := f.open, levels[verify.L1]; {
		case open != nil && !strings.HasPrefix(open.ID, "log-"):
			s.at(BundleUndecided, i, "the file %s: %s: %s", name, open.ID, open.Detail)
		case open != nil:
			s.at(AssuranceLower, i, "the file %s: %s, and %s at L1: %s: %s", name, f.assurance.Level, others(logged), open.ID, open.Detail)
		case logged > 0 && f.assurance.Level != verify.L1 && !f.killed:
			s.at(AssuranceLower, i, "the file %s: %s, and %s at L1: %s", name, f.assurance.Level, others(logged), f.assurance.Detail)
		}
	}
}

func others(n int) string {
	if n == 1 {
		return "1 other bundle of the submission is"
	}
	return fmt.Sprintf("%d other bundles of the submission are", n)
}

func (s *Submission) assuranceText() string {
	var all uint64
	for i := range s.Cells {
		if s.Cells[i].Level != "" {
			all++
		}
	}
	text := fmt.Sprintf("L1: %s sealed and registered before the run", count(int(s.Logged), "bundle", "bundles"))
	if low := all - s.Logged; low > 0 {
		text += fmt.Sprintf("; L0: %s", count(int(low), "bundle", "bundles"))
	}
	return text
}

// split adds a finding with both checkpoints.
func (s *Submission) split(cell int, detail string, notes []string) {
	s.at(SplitView, cell, "%s", detail)
	if s.found[SplitView] <= MaxFindings {
		s.Findings[len(s.Findings)-1].Evidence = notes
	}
}

// splitViews looks for a log that signed two trees of one size, in whatever
// bundles. Which of the two is the true one nothing here tells, so both cells are
// charged.
func splitViews(list []*Submission) {
	type place struct {
		log    [32]byte
		origin string
		size   uint64
	}
	type seen struct {
		use
		verify.Checkpoint
		charged bool
	}
	first := map[place]*seen{}
	for _, s := range list {
		for i := range s.facts {
			told := false // one finding for a cell
			for _, c := range s.facts[i].checkpoints {
				at := place{c.Log, c.Origin, c.Size}
				a := first[at]
				if a == nil {
					first[at] = &seen{use{s, i}, c, false}
					continue
				}
				if a.Root == c.Root || told {
					continue
				}
				told = true
				b := use{s, i}
				notes := []string{a.Note, c.Note}
				say := func(u, other use) {
					u.s.split(u.cell, fmt.Sprintf("%s has two trees of %s: that of this bundle, and that of %s", c.Origin, count(int(c.Size), "entry", "entries"), other), notes)
				}
				if !a.charged {
					a.charged = true
					say(a.use, b)
				}
				say(b, a.use)
			}
		}
	}
}
