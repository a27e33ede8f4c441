package audit

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// letters stand for states in the table. An attempt that another one replaced is
// written in small letters before it.
var letters = map[submission.State]string{
	submission.Clean: "C", submission.Dirty: "D", submission.Inconclusive: "I",
	submission.Failed: "E", submission.Missing: "-", Invalid: "X",
}

// Text renders the report in plain text, without colour, ending with a newline.
// What cannot be printed is replaced: names in a submission may be anybody's.
func (r *Report) Text() string {
	var b strings.Builder
	for _, s := range r.Submissions {
		s.text(&b)
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s  %s, %s verified\n", r.Verdict, count(len(r.Submissions), "submission", "submissions"), count(int(r.Bundles), "bundle", "bundles"))
	for _, s := range r.Submissions {
		fmt.Fprintf(&b, " %-12s %s\n", s.Verdict, printable(s.summary()))
	}
	return b.String()
}

// summary is the line of a submission in the closing table.
func (s *Submission) summary() string {
	if s.statement == nil {
		return s.Dir
	}
	t := s.Score.Of(s.Score.Headline)
	return fmt.Sprintf("%s  agent %s  %s %s  %s", s.Dir, orNone(s.Agent.Name), s.rule, orNone(t.Value), s.Counts.text())
}

// unlisted is the number of trials of the benchmark that the grid has no cell for.
func (s *Submission) unlisted() uint64 {
	c := s.Counts
	all := s.Benchmark.Tasks * uint64(s.Trials)
	return all - min(all, c.Clean+c.Dirty+c.Inconclusive+c.Error+c.Missing+c.Invalid)
}

func (c Counts) text() string {
	var list []string
	for _, n := range []struct {
		n    uint64
		what string
	}{{c.Clean, "CLEAN"}, {c.Dirty, "DIRTY"}, {c.Inconclusive, "INCONCLUSIVE"}, {c.Error, "error"}, {c.Missing, "missing"}, {c.Invalid, "invalid"}} {
		if n.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	return strings.Join(list, ", ")
}

func (s *Submission) text(b *strings.Builder) {
	line := func(word, format string, args ...any) {
		fmt.Fprintf(b, " %-11s %s\n", word, printable(fmt.Sprintf(format, args...)))
	}
	title := s.Verdict + "  " + s.Dir
	if s.statement != nil {
		title += fmt.Sprintf("  %s  %s x %s", s.Benchmark.Name, count(int(s.Benchmark.Tasks), "task", "tasks"), count(int(s.Trials), "trial", "trials"))
	}
	fmt.Fprintf(b, "%s\n", printable(title))
	if s.statement != nil {
		model := ""
		if s.Model.Name != "" {
			model = ", model " + s.Model.Name
		}
		line("agent", "%s%s (asserted)", orNone(s.Agent.Name), model)
		line("run by", "%s", partyText(&s.Runner, "runner"))
		line("sealed by", "%s", partyText(&s.Owner, "owner"))
		s.scoreText(line)
		counts := s.Counts.text()
		if n := s.unlisted(); n > 0 {
			counts = strings.TrimPrefix(fmt.Sprintf("%s, %d not in the grid", counts, n), ", ")
		}
		line("trials", "%s", counts)
		if s.Compact > 0 {
			line("compact", "%s: aggregation trusted, as cleanrun verify says of each", count(int(s.Compact), "bundle", "bundles"))
		}
		if s.Logged > 0 {
			line("assurance", "%s", s.assuranceText())
		}
		s.surroundingsText(line)
		if s.Replaced > 0 {
			line("replaced", "%s by a later one", count(int(s.Replaced), "attempt", "attempts"))
		}
		s.grid(b)
		s.reasons(line)
	}
	for i, f := range s.Findings {
		where := f.Where
		if where != "" {
			where += ": "
		}
		line("finding", "%s  %s%s", f.ID, where, f.Detail)
		for n, note := range f.Evidence {
			line("evidence", "signed checkpoint %d of %d", n+1, len(f.Evidence))
			for l := range strings.Lines(note) {
				fmt.Fprintf(b, "   %s\n", printable(strings.TrimSuffix(l, "\n")))
			}
		}
		if i+1 == len(s.Findings) || s.Findings[i+1].ID != f.ID {
			line("", "-> %s", f.Next)
		}
	}
}

func (s *Submission) scoreText(line func(word, format string, args ...any)) {
	for _, by := range []submission.Counting{submission.Plain, submission.Ruled} {
		word, source := "or", ""
		if by == s.Score.Headline {
			word = "score"
		}
		if s.Source != "" {
			source = " " + s.Source
		}
		line(word, "%s %s", s.rule, totalText(s.Score.Of(by), by, source))
		if s.Recomputed == nil {
			continue
		}
		if again := s.Recomputed.Of(by); *again != *s.Score.Of(by) {
			line("recomputed", "%s %s", s.rule, totalText(again, by, source))
		}
	}
}

func totalText(t *submission.Total, by submission.Counting, source string) string {
	text := orNone(t.Value) + source
	if t.Interval.Method != submission.MethodNone {
		text += fmt.Sprintf("  95%%: %s to %s", t.Interval.Low, t.Interval.High)
	}
	return fmt.Sprintf("%s  (%s: %s)", text, by, trials(t))
}

// grid prints a row for each task that is not CLEAN in all trials, and one for
// all others.
func (s *Submission) grid(b *strings.Builder) {
	type row struct{ task, cells string }
	var rows []row
	var clean []string
	for i := 0; i < len(s.Cells); {
		task, cells, all := s.Cells[i].Task, "", true
		for ; i < len(s.Cells) && s.Cells[i].Task == task; i++ {
			c := &s.Cells[i]
			letter := letters[c.State]
			all = all && c.Counts && c.State == submission.Clean
			if !c.Counts {
				cells += strings.ToLower(letter)
				continue
			}
			cells += letter + " "
		}
		if all {
			clean = append(clean, task)
			continue
		}
		rows = append(rows, row{task, strings.TrimSpace(cells)})
	}
	if len(rows)+len(clean) == 0 {
		return
	}
	fmt.Fprintf(b, " %-11s %s\n", "grid", "C CLEAN, D DIRTY, I INCONCLUSIVE, E error, - missing, X invalid; small: replaced")
	width := 0
	for _, r := range rows {
		width = max(width, len([]rune(r.task)))
	}
	width = min(width, 60)
	for _, r := range rows {
		fmt.Fprintf(b, "   %-*s  %s\n", width, printable(r.task), r.cells)
	}
	switch {
	case len(clean) == 1:
		fmt.Fprintf(b, "   %-*s  all C\n", width, printable(clean[0]))
	case len(clean) > 1:
		fmt.Fprintf(b, "   %d tasks  all C\n", len(clean))
	}
}

// maxReasons cells are listed with their reasons.
const maxReasons = 100

// reasons lists why cells are not CLEAN, DIRTY ones first.
func (s *Submission) reasons(line func(word, format string, args ...any)) {
	listed := 0
	for _, state := range []submission.State{submission.Dirty, submission.Inconclusive, submission.Failed} {
		for _, c := range s.Cells {
			if c.State != state {
				continue
			}
			if listed++; listed > maxReasons {
				continue
			}
			why := strings.Join(c.Reasons, ", ")
			if state == submission.Failed {
				why = "no receipt"
			}
			line(string(state), "%s, trial %d, attempt %d  %s", c.Task, c.Trial, c.Attempt, why)
		}
	}
	if listed > maxReasons {
		line("", "%d more cells are not CLEAN; -json lists them all", listed-maxReasons)
	}
}

func partyText(p *verify.Party, role string) string {
	switch {
	case p.Fingerprint == "":
		return "unknown"
	case p.Pinned:
		return fmt.Sprintf("%s   (pinned %s)", p.Name, role)
	}
	return fmt.Sprintf("unknown, calls itself %q   (not pinned, key %s)", p.Name, p.Fingerprint)
}

// printable replaces what a terminal could act on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
