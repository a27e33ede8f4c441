package eval

import "github.com/cleanrun-dev/cleanrun/submission"

// Attested gives a result what attesting derived.
func (r Result) Attested(verdict string, reasons []string, score *Score) Result {
	r.Verdict, r.Reasons, r.Score = verdict, reasons, score
	r.Retry = submission.Infrastructure(submission.State(verdict), reasons)
	return r
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
