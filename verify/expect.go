package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
)

// unrequired is why the check of a named path is skipped: what the run did is reported alone.
const unrequired = "nothing is required of a named path"

// checkExpect asks for what the policy requires of a named path. A run that missed it
// is no forgery: the result is undecided, whatever its verdict.
func (v *verifier) checkExpect() (string, error) {
	if v.policy == nil || !v.policy.Expect {
		return "", skipped(unrequired)
	}
	if v.composed == nil {
		return "", &undecided{"nothing is derived that shows what was done with a named path", "ask the runner for the bundle with its evidence"}
	}
	r := v.composed.Predicate.Expect
	switch {
	case v.derived.Verdict == attest.Dirty:
		return "", skipped("the run is DIRTY whatever it did with a named path")
	case r == nil:
		return "", &undecided{"the sealed set expects nothing of a named path, and the policy requires it", "take require expect out of the policy of this task"}
	case r.Outcome != expect.Passed:
		return "", &undecided{fmt.Sprintf("got %s (%s), want %s, as the policy requires", r.Outcome, strings.Join(unmet(r), ", "), expect.Passed), "look at the dimensions above: each says why"}
	}
	return string(r.Outcome), nil
}

// unmet names the dimensions that are not met.
func unmet(r *expect.Result) (names []string) {
	for _, d := range r.Dimensions {
		if d.State != expect.Met {
			names = append(names, d.Name)
		}
	}
	return names
}

// namedPath shows each dimension on a line of its own.
func (r *Report) namedPath(b *strings.Builder) {
	if r.Expect == nil {
		return
	}
	line := fmt.Sprintf("%s  %s", r.Expect.Outcome, r.NamedPath)
	if r.Expect.Outcome != expect.Passed && slices.ContainsFunc(r.Checks, func(c Check) bool { return c.ID == CheckExpect && c.Detail == unrequired }) {
		line += " (reported; no policy requires it)"
	}
	fmt.Fprintf(b, " %-11s %s\n", "named path", printable(line))
	for _, d := range r.Expect.Dimensions {
		line := fmt.Sprintf("%-22s %s", d.Name, d.State)
		if d.Event > 0 {
			line += fmt.Sprintf(", event %d", d.Event)
		}
		if d.Why != "" {
			line += fmt.Sprintf(": %s [%s]", d.Why.Says(), d.Why)
		}
		fmt.Fprintf(b, "   %s\n", printable(line))
	}
}
