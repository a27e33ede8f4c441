package submission

import (
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// infrastructure are the reasons that say that the machine failed, not the agent:
// the evidence for making a trial again.
var infrastructure = []string{
	attest.ReasonOpen, attest.ReasonAbandoned, attest.ReasonLost, attest.ReasonKilled, attest.ReasonUnreadable,
	attest.ReasonNotifications, attest.ReasonProcesses, attest.ReasonUnstable, "grade-failed",
}

// content are the reasons that say something of what the run held. A trial that
// has one is not made again, whatever else broke: the next attempt would be a
// second try.
var content = []string{attest.ReasonTrace, attest.ReasonAuthored, attest.ReasonUnexplained, "reward-conflict"}

// late are the reasons of content that an open journal may have because its end
// is not there.
var late = []string{attest.ReasonControls, "signal-missing", "tests-unread", "answer-unread"}

// Infrastructure tells whether a receipt of this state and these reasons is
// evidence that its attempt failed for reasons of infrastructure, so that
// another attempt of the same trial may stand in its place.
func Infrastructure(state State, reasons []string) bool {
	if state != Inconclusive {
		return false
	}
	open := slices.Contains(reasons, attest.ReasonOpen)
	failed := false
	for _, r := range reasons {
		if slices.Contains(content, r) || !open && slices.Contains(late, r) {
			return false
		}
		failed = failed || slices.Contains(infrastructure, r)
	}
	return failed
}
