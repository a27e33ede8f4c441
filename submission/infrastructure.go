package submission

import (
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// infrastructure are the reasons that say that the recorder itself ended: the
// evidence for making a trial again. Lost events, unreadable or unstable content,
// killed processes and failed gradings are not among them: a run that would
// rather be tried again can cause each of those.
var infrastructure = []string{attest.ReasonOpen, attest.ReasonAbandoned, attest.ReasonNotifications}

// content are the reasons that say something of what the run held. A trial that
// has one is not made again, whatever else broke: the next attempt would be a
// second try.
var content = []string{attest.ReasonTrace, attest.ReasonAuthored, attest.ReasonUnexplained, attest.ReasonConflict}

// late are the reasons of content that an open journal may have because its end
// is not there.
var late = []string{attest.ReasonControls, attest.ReasonNoSignal, attest.ReasonTestsUnread, attest.ReasonAnswerUnread}

// Infrastructure is the reason id for which an attempt of this state and these
// reasons failed without the run's doing, so that another attempt of the same
// trial may stand in its place; "" if it stands.
func Infrastructure(state State, reasons []string) string {
	if state != Inconclusive {
		return ""
	}
	open := slices.Contains(reasons, attest.ReasonOpen)
	for _, r := range reasons {
		if slices.Contains(content, r) || !open && slices.Contains(late, r) {
			return ""
		}
	}
	for _, r := range infrastructure {
		if slices.Contains(reasons, r) {
			return r
		}
	}
	return ""
}
