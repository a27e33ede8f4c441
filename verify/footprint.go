package verify

import (
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// checkFootprint asks for what the policy requires of the footprint. A run that left it
// is no forgery: the result is undecided, unless it is DIRTY anyway.
func (v *verifier) checkFootprint() (string, error) {
	if v.policy == nil || !v.policy.Footprint && !v.policy.FootprintObserved {
		return "", skipped("nothing is required of the footprint")
	}
	if v.composed == nil {
		return "", &undecided{"nothing is derived that shows what the run changed", "ask the runner for the bundle with its evidence"}
	}
	f := v.composed.Predicate.Footprint
	switch {
	case v.derived.Verdict == attest.Dirty:
		return "", skipped("the run is DIRTY whatever it changed")
	case f == nil:
		return "", &undecided{"the sealed set states no footprint, and the policy requires one", "ask the owner to state footprint in task.yaml, or take the requirement out of the policy"}
	case f.Outcome == attest.FootprintOutside:
		return "", &undecided{fmt.Sprintf("got %s out of it, want none, as the policy requires", plural(f.Outside.Total, "path", "paths")), "look at the paths above; cleanrun explain says who changed them"}
	case f.Outcome != attest.FootprintWithin:
		return "", &undecided{"not all that the run changed is known (" + unknown(f) + "), and the policy requires that it is within", "ask the runner to attest the run again with its secret, or to run it again"}
	case v.policy.FootprintObserved && f.Compiled > 0:
		return "", &undecided{fmt.Sprintf("%s left out on the runner's word, and the policy requires that all is observed", plural(f.Compiled, "cached module of Python is", "cached modules of Python are")),
			"ask the runner to run it with PYTHONDONTWRITEBYTECODE=1"}
	}
	return fmt.Sprintf("%s changed, all within", plural(f.Written, "path", "paths")), nil
}

// unknown says why a footprint is inconclusive.
func unknown(f *attest.FootprintClaim) string {
	if f.Unopened > 0 {
		return fmt.Sprintf("the evidence does not name %s", plural(f.Unopened, "path", "paths"))
	}
	return "the journal may lack writes"
}

// maxOutside is how many paths the text shows.
const maxOutside = 20

// footprint shows what the run changed that it was not allowed to.
func (r *Report) footprint(b *strings.Builder) {
	f := r.Footprint
	if f == nil {
		return
	}
	text := fmt.Sprintf("%s: %s changed", f.Outcome, plural(f.Written, "path", "paths"))
	switch {
	case f.Outcome == attest.FootprintOutside:
		text += ", " + plural(f.Outside.Total, "path", "paths") + " not allowed"
		if !f.Gate {
			text += " (reported; the task has no gate)"
		}
	case f.Outcome == attest.FootprintInconclusive:
		text += "; " + unknown(f)
	}
	if f.Compiled > 0 { // shown without -v: nothing in the bundle proves it
		text += "; " + plural(f.Compiled, "cached module", "cached modules") + " left out on the runner's word"
	}
	fmt.Fprintf(b, " %-11s %s\n", "footprint", printable(text))
	for i, o := range f.Outside.First {
		if i == maxOutside {
			break
		}
		fmt.Fprintf(b, "   %s\n", printable(fmt.Sprintf("last event %d  %s by p%d  %s", o.Event, o.Op, o.Process, o.Path)))
	}
	if n := f.Outside.Total - uint64(min(len(f.Outside.First), maxOutside)); n > 0 {
		fmt.Fprintf(b, "   and %s\n", plural(n, "other", "others"))
	}
}
