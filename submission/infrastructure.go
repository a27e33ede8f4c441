package submission

import (
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// infrastructure are the reasons that say that the machine failed, not the agent:
// the evidence for making a trial again.
var infrastructure = []string{
	attest.ReasonUnreadable, attest.ReasonUnstable, attest.ReasonLost, attest.ReasonKilled, attest.ReasonOpen,
	attest.ReasonAbandoned, attest.ReasonProcesses, attest.ReasonNotifications, "grade-failed",
}

// telling are the reasons that say something of the agent's work. A trial that
// has one is not made again, whatever else broke: the next attempt would be a
// second try.
var telling = []string{
	attest.ReasonTrace, attest.ReasonAuthored, attest.ReasonUnexplained, "reward-conflict", "signal-missing",
	"tests-unread", "answer-unread",
}

// Infrastructure tells whether a receipt of this state and these reasons is
// evidence that its attempt failed for reasons of infrastructure, so that
// another attempt of the same trial may stand in its place.
func Infrastructure(state State, reasons []string) bool {
	if state != Inconclusive {
		return false
	}
	failed := false
	for _, r := range reasons {
		if slices.Contains(telling, r) {
			return false
		}
		failed = failed || slices.Contains(infrastructure, r)
	}
	return failed
}
