package eval

import "slices"

// infrastructure are the reason ids that say that the machinery failed, not the
// agent. Only they call for another attempt.
var infrastructure = []string{
	"journal-open", "abandoned", "events-lost", "killed", "unreadable", "notifications-left", "processes-left", "unstable", "grade-failed",
}

// content are reason ids that say something of what the run held. An attempt
// with one of them stands, whatever failed beside it: a retry would replace it.
var content = []string{"trace", "authored", "authored-unexplained", "controls-missing", "reward-conflict", "answer-unread", "tests-unread", "signal-missing"}

// Attested gives a result what attesting derived. What the journal alone shows
// decides whether a failed grading calls for a retry: the verdict's reason does
// not say how it failed.
func (r Result) Attested(verdict string, reasons []string, score *Score) Result {
	r.Verdict, r.Reasons, r.Score = verdict, reasons, score
	if r.Retry != "grade-failed" {
		reasons = slices.DeleteFunc(slices.Clone(reasons), func(s string) bool { return s == "grade-failed" })
	}
	r.Retry = RetryFor(verdict, reasons)
	return r
}

// RetryFor is the reason id for which an attempt calls for another, "" if it
// stands. A DIRTY or a CLEAN attempt always stands, and so does one whose agent
// merely scored badly or ran out of time. Without a verdict the reasons are those
// that the journal shows.
func RetryFor(verdict string, reasons []string) string {
	if verdict == "DIRTY" || verdict == "CLEAN" {
		return ""
	}
	// An open journal lacks whatever comes late. What it lacks says nothing.
	open := slices.Contains(reasons, "journal-open")
	for _, r := range reasons {
		late := r == "controls-missing" || r == "answer-unread" || r == "tests-unread" || r == "signal-missing"
		if slices.Contains(content, r) && !(open && late) {
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

// DefaultRetries is how many further attempts a trial gets if nothing else is said.
const DefaultRetries = 2

// Due is the next attempt of a trial with these attempts so far, 0 if it is
// finished. An attempt during which the eval was stopped does not count against
// the limit of retries.
func Due(attempts []Result, retries uint32) uint32 {
	if len(attempts) == 0 {
		return 1
	}
	last := attempts[len(attempts)-1]
	if last.Retry == "" {
		return 0
	}
	var failed uint32
	for _, r := range attempts {
		if r.Retry != "" && !r.Interrupted {
			failed++
		}
	}
	if !last.Interrupted && failed > retries || last.Attempt >= MaxAttempts {
		return 0
	}
	return last.Attempt + 1
}
