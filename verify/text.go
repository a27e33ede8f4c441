package verify

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// Text renders the report in plain text, without colour, ending with a newline.
// file is the bundle's name for the line that says what to type next. Names in a
// bundle may be anybody's: what cannot be printed is replaced.
func (r *Report) Text(file string) string {
	var b strings.Builder
	line := func(word, format string, args ...any) {
		fmt.Fprintf(&b, " %-11s %s\n", word, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&b, "%s\n", printable(r.title()))
	if c := r.FailedCheck(); c != nil {
		line("failed", "%s: %s", c.ID, c.Detail)
		if c.Hint != "" {
			line("hint", "%s", c.Hint)
		}
		r.conflict(&b)
		line("checked", "%d of %d checks passed before it", r.passed(), len(r.Checks))
		meaning := "nothing in this file can be relied on"
		if r.Verdict == Unusable {
			meaning = "this is no bundle, so there is nothing to verify"
		}
		line("meaning", "%s", meaning)
		return b.String()
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
	line("run by", "%s", r.Runner.text("runner"))
	if r.Second != nil {
		line("and by", "%s", r.Second.text("runner"))
	}
	role := "owner"
	if r.Assurance != nil && r.Assurance.Level == L1 {
		role = "owner, logged before the run"
	}
	line("sealed by", "%s%s", r.Owner.text(role), r.Benchmark.text())
	if r.Run == nil {
		return b.String()
	}
	if len(r.Why) > 0 {
		line("why", "%s", plural(uint64(len(r.Why)), "reason", "reasons"))
	}
	for _, w := range r.Why {
		at := "whole run"
		if w.Event > 0 {
			at = fmt.Sprintf("event %d  %s", w.Event, w.What)
		}
		fmt.Fprintf(&b, "   %s\n", printable(fmt.Sprintf("%s  %s [%s]", at, w.Detail, w.Reason)))
	}
	if len(r.Phases) > 0 {
		line("phases", "%s", phasesText(r.Phases))
	}
	r.footprint(&b)
	r.namedPath(&b)
	if r.Score != nil {
		line("score", "%s %s, counts as %s", r.Score.Source, r.Score.Value, r.CountsAs)
	}
	if authored := r.Counts.Authored; authored > 0 {
		line("authored", "%s that the run wrote, nothing inbound before", plural(authored, "sealed item", "sealed items"))
	}
	if n := r.Counts.Generated; n > 0 {
		line("generated", "%s that the model's replies hold", plural(n, "sealed item", "sealed items"))
	}
	word := "checked"
	if r.Checked.Rederived == RederivedCompact {
		word = "re-derived:"
	}
	line(word, "%s: %s, %s", r.Checked.Level, plural(r.Checked.Events, "event", "events"), plural(r.Checked.Digests, "digest", "digests"))
	list := func(word string, items []string) {
		if len(items) == 0 {
			items = []string{"nothing known"}
		}
		for i, l := range wrap(printable(strings.Join(items, "; "))) {
			if i > 0 {
				word = ""
			}
			fmt.Fprintf(&b, " %-11s %s\n", word, l)
		}
	}
	list("attested", r.Attested)
	list("asserted", r.Asserted)
	if len(r.Trusted) > 0 {
		list("trusted", r.Trusted)
	}
	list("NOT covered", r.NotCovered)
	line("assurance", "%s: %s", r.Assurance.Level, r.Assurance.Detail)
	if l := r.Logged; l != nil && l.Registered > 0 {
		line("logged", "%s, registered by %s, ended by %s, receipt %d of %d", l.Origin, rfc3339(l.Registered), rfc3339(l.Closed), l.Index, l.Size)
	}
	if next := r.next(file); next != "" {
		line("next", "%s", next)
	}
	return b.String()
}

// conflict prints signed checkpoints as they stand: they are evidence, and lines
// may be cut out of the report.
func (r *Report) conflict(b *strings.Builder) {
	for i, note := range r.Conflict {
		fmt.Fprintf(b, " %-11s %s\n", "evidence", fmt.Sprintf("signed checkpoint %d of %d", i+1, len(r.Conflict)))
		for l := range strings.Lines(note) {
			fmt.Fprintf(b, "   %s\n", printable(strings.TrimSuffix(l, "\n")))
		}
	}
}

// title is the first line: the verdict, and for whom.
func (r *Report) title() string {
	t := r.Verdict
	if r.Verdict == Undecided && r.Derived != "" {
		t += ", would be " + string(r.Derived)
	}
	if r.Run != nil {
		t += fmt.Sprintf("  %s/%s  trial %d, attempt %d", r.Run.Benchmark, r.Run.Task, r.Run.Trial, r.Run.Attempt)
	}
	if r.Score != nil {
		t += "  score " + r.Score.Value
		if r.Score.Source != attest.ScoreObserved {
			t += " (asserted)"
		} else if r.Grader == attest.GraderRunner {
			t += " (by the runner's own grader)"
		}
		if r.CountsAs != r.Score.Value {
			t += ", counts as " + r.CountsAs
		}
	}
	if r.Agent != "" {
		t += "  agent " + r.Agent
	}
	return t
}

// phasesText says how each phase ended.
func phasesText(list []attest.PhaseClaim) string {
	var parts []string
	for _, p := range list {
		text := map[string]string{"exited": fmt.Sprintf("%s exited with %d", p.Phase, p.Code), "timeout": p.Phase + " took too long",
			"not-started": p.Phase + " could not start"}[p.How]
		if p.Left > 0 {
			text += ", " + plural(uint64(p.Left), "process", "processes") + " left behind and killed"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (r *Report) passed() (n int) {
	for _, c := range r.Checks {
		if c.Status == OK {
			n++
		}
	}
	return n
}

func (p *Party) text(role string) string {
	if p == nil {
		return "unknown"
	}
	if p.Pinned {
		return fmt.Sprintf("%s   (pinned %s)", p.Name, role)
	}
	return fmt.Sprintf("unknown, calls itself %q   (not pinned, key %s)", p.Name, p.Fingerprint)
}

func (b *Benchmark) text() string {
	switch {
	case b == nil:
		return ""
	case b.Weak > 0:
		return fmt.Sprintf("   (benchmark of %s, %s left out as too weak to seal)", plural(uint64(b.Tasks), "task", "tasks"), group(uint64(b.Weak)))
	}
	return fmt.Sprintf("   (benchmark of %s)", plural(uint64(b.Tasks), "task", "tasks"))
}

// wrap cuts a long list into lines of at most 100 characters, at spaces. A word
// that is longer stands alone.
func wrap(s string) (lines []string) {
	const width = 100
	for len(s) > width {
		at := strings.LastIndexByte(s[:width+1], ' ')
		if at < 0 {
			if at = strings.IndexByte(s, ' '); at < 0 {
				break
			}
		}
		lines, s = append(lines, s[:at]), s[at+1:]
	}
	return append(lines, s)
}

func (r *Report) next(file string) string {
	for _, w := range r.Why {
		if w.Event > 0 {
			if w.Reason == attest.ReasonFootprint && !slices.ContainsFunc(r.Why, func(o Why) bool { return o.Event > 0 && o.Reason != w.Reason }) {
				return "cleanrun explain " + file // its overview has who changed each path; a footprint has no compact proof
			}
			if r.Checked != nil && r.Checked.Rederived == RederivedCompact {
				return "ask the runner for the bundle with its evidence, which cleanrun explain reads"
			}
			return fmt.Sprintf("cleanrun explain %s %d", file, w.Event)
		}
	}
	for _, w := range r.Why {
		return attest.Advice(w.Reason)
	}
	for _, c := range r.Checks {
		if c.Status == Open && c.Hint != "" {
			return c.Hint
		}
	}
	return ""
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
