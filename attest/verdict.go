// Package attest derives the verdict of a run from its evidence and writes it
// down as a statement. spec/evidence.md and spec/statement.md are the formats.
//
// Limits first. Evidence says which digests somebody with the task key derived;
// that they were derived honestly shows only when the key is revealed. Nothing
// here checks a signature: who vouches for evidence is verify's business. A
// CLEAN verdict speaks of what the recorder committed to, not of what it missed.
//
// The package is pure: bytes in, values out, no key, no clock, no file. Derive is
// the one function that decides; attester and verifier both call it:
//
//	ev, err := attest.ReadEvidence(pack)  // structure: rows, head, entries, tree
//	err = attest.Bind(set, seal, ev)      // recorded under this sealed set
//	d := attest.Derive(set, ev)           // verdict, reasons, matches
//	s, err := attest.Compose(set, seal, ev, sum, d, score)
package attest

import (
	"fmt"
)

// Verdict of a run.
type Verdict string

const (
	Clean        Verdict = "CLEAN"
	Dirty        Verdict = "DIRTY"
	Inconclusive Verdict = "INCONCLUSIVE"
)

// A Reason is why a verdict is not CLEAN. IDs form a closed list
// (spec/statement.md).
type Reason struct {
	ID    string `json:"id"`
	Event uint64 `json:"event"` // first row concerned, 0 for the whole run
	Count uint64 `json:"count"`
}

// A Match is one row that holds sealed items of one class. It shows no
// plaintext and no digest.
type Match struct {
	Event  uint64 `json:"event"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}

// Reason ids that make a run DIRTY. spec/statement.md says of each what the
// user should do next.
const (
	ReasonCanary     = "canary"          // a canary, anywhere
	ReasonObject     = "whole-object"    // a whole sealed object came in
	ReasonFragments  = "fragments"       // shingles of one source came in, at or above its limit
	ReasonLines      = "lines"           // whole lines of one source came in, at or above its limit
	ReasonTokens     = "tokens"          // generated tokens came in, at or above the limit
	ReasonNamed      = "task-named"      // the task's id, title, signal or test command came in from the network
	ReasonOutOfScope = "out-of-scope"    // an access outside the allowed roots and grants
	ReasonPlanted    = "verdict-planted" // a verdict or grader file that the run put there or changed before grading
	ReasonChanged    = "verdict-changed" // one that changed after the grader had ended
	ReasonHooked     = "grader-hooked"   // grading opened a hook of the run: conftest.py, sitecustomize.py, *.pth
	ReasonFootprint  = "footprint"       // a change that the sealed footprint does not allow, under its gate
)

// Reason ids that make a run INCONCLUSIVE if nothing makes it DIRTY.
const (
	ReasonTrace         = "trace"                // sealed items came in, but fewer than the limit
	ReasonAuthored      = "authored"             // the run wrote sealed content and no model had spoken that it can be from
	ReasonUnexplained   = "authored-unexplained" // the earlier replies of the model hold less than half of it
	ReasonControls      = "controls-missing"     // a challenged control was not opened or not seen
	ReasonOpaque        = "opaque"               // content that no view could read
	ReasonBounds        = "view-bound"           // a limit cut the scan of some content short
	ReasonUnreadable    = "unreadable"           // the recorder could not read some content
	ReasonUnstable      = "unstable"             // content changed while it was read
	ReasonLost          = "events-lost"          // the recorder lost events or content
	ReasonKilled        = "killed"               // the recorder killed a process: what ran was not what was recorded
	ReasonOpen          = "journal-open"         // no final row
	ReasonAbandoned     = "abandoned"            // the recorder gave up
	ReasonDelta         = "unexplained-change"   // the workspace changed without a recorded write
	ReasonProcesses     = "processes-left"       // processes started and ended differ
	ReasonNotifications = "notifications-left"   // notifications received and answered differ
	ReasonIdle          = "no-activity"          // the agent phase exposed nothing
	ReasonGradeFailed   = "grade-failed"         // the grader could not start, was killed or took too long
	ReasonNoReward      = "reward-missing"       // a grader is stated, but no reward was recorded
	ReasonConflict      = "reward-conflict"      // two sources of the reward disagree
	ReasonNoSignal      = "signal-missing"       // a reward, but no sealed completion signal in the grader's output
	ReasonTestsUnread   = "tests-unread"         // a reward, but no sealed hidden test was opened by grading
	ReasonAnswerUnread  = "answer-unread"        // a reward, but grading opened nothing that the run wrote
	ReasonUnopened      = "footprint-unopened"   // the evidence does not name a path that the run changed, under the footprint's gate
	ReasonSetSmall      = "set-too-small"        // the sealed set holds too little to be found
	ReasonSetCut        = "set-subtracted"       // the baseline took more than half of the novel part
)

// reasonOrder is the closed list, DIRTY first. Reasons of a verdict are listed in
// this order.
var reasonOrder = []string{
	ReasonCanary, ReasonObject, ReasonFragments, ReasonLines, ReasonTokens, ReasonNamed, ReasonOutOfScope,
	ReasonPlanted, ReasonChanged, ReasonHooked, ReasonFootprint,
	ReasonTrace, ReasonAuthored, ReasonUnexplained, ReasonControls, ReasonOpaque, ReasonBounds, ReasonUnreadable,
	ReasonUnstable, ReasonLost, ReasonKilled, ReasonOpen, ReasonAbandoned, ReasonDelta, ReasonProcesses,
	ReasonNotifications, ReasonIdle, ReasonGradeFailed, ReasonNoReward, ReasonConflict, ReasonNoSignal, ReasonTestsUnread,
	ReasonAnswerUnread, ReasonUnopened, ReasonSetSmall, ReasonSetCut,
}

// dirtyReasons is how many of reasonOrder make a run DIRTY.
const dirtyReasons = 11

// ReasonDirty tells whether a reason id makes a run DIRTY.
func ReasonDirty(id string) bool { return rank(id) < dirtyReasons }

// rank is the place of id in the closed list, len(reasonOrder) if it is not there.
func rank(id string) int {
	for i, r := range reasonOrder {
		if r == id {
			return i
		}
	}
	return len(reasonOrder)
}

// meanings of the reason ids: what it says, with the count, and what the user
// should do next. A test holds them to the closed list, and spec/statement.md to
// both.
var meanings = map[string]struct{ says, next string }{
	ReasonCanary:        {"canary items in the run: %d", "find with cleanrun explain how the ground truth got there"},
	ReasonObject:        {"whole sealed objects came in: %d", "find with cleanrun explain who opened them"},
	ReasonFragments:     {"sealed fragments came in: %d", "find with cleanrun explain who opened what holds them"},
	ReasonLines:         {"sealed lines came in: %d", "find with cleanrun explain who opened what holds them"},
	ReasonTokens:        {"sealed tokens came in: %d", "find with cleanrun explain who opened what holds them"},
	ReasonNamed:         {"items that name the task came in from the network: %d", "find with cleanrun explain what was fetched"},
	ReasonOutOfScope:    {"accesses outside the allowed roots and grants: %d", "find with cleanrun explain who made them; grant the path in task.yaml if it is legitimate"},
	ReasonPlanted:       {"verdict or grader files that the run had planted or changed when grading started: %d", "find with cleanrun explain who wrote them; take a file that the task asks for off the guard list"},
	ReasonChanged:       {"verdict or grader files that changed after the grader had ended: %d", "find with cleanrun explain who was still running"},
	ReasonHooked:        {"hooks of the run that grading loaded: %d", "find with cleanrun explain who wrote them; run the tests so that they do not load conftest.py, sitecustomize.py or .pth files of the workspace"},
	ReasonFootprint:     {"paths that the run changed and that the footprint does not allow: %d", "find with cleanrun explain who changed them; allow the path in task.yaml if it is legitimate"},
	ReasonTrace:         {"sealed items came in, below the limit: %d", "look with cleanrun explain whether it is a shared excerpt or a leak"},
	ReasonAuthored:      {"sealed items were written by the run itself, and no declared model channel had spoken: %d", "declare the channel that the model speaks on in task.yaml, seal and run again; or look with cleanrun explain where they come from"},
	ReasonUnexplained:   {"sealed items were written by the run itself and stand in no earlier reply of the model: %d", "look with cleanrun explain which program wrote them"},
	ReasonControls:      {"challenged control fragments were not shown: %d", "attest with the task key and profile of this set"},
	ReasonOpaque:        {"rows with content that no view can read: %d", "keep encrypted and unknown formats out of the run, or declare the channel"},
	ReasonBounds:        {"rows with content that was not scanned to its end: %d", "keep deeply nested, huge or broken archives out of the run"},
	ReasonUnreadable:    {"rows with content that the recorder could not read: %d", "make the files readable for the user who records"},
	ReasonUnstable:      {"rows whose content changed while it was read: %d", "run again with nothing else writing to the workspace"},
	ReasonLost:          {"events or contents were lost: %d", "run again with more disk and memory"},
	ReasonKilled:        {"processes were killed because the executed file was not the recorded one: %d", "run again; if it repeats, look who replaces programs while they start"},
	ReasonOpen:          {"the journal has no final row", "run again: the recorder was killed or its disk was full"},
	ReasonAbandoned:     {"the recorder gave up", "read the reason with cleanrun inspect and run again"},
	ReasonDelta:         {"paths changed without a recorded write: %d", "run again; if it repeats, something writes to the workspace from outside"},
	ReasonProcesses:     {"processes started and ended differ by %d", "run again and let background processes end"},
	ReasonNotifications: {"notifications received and answered differ", "run again"},
	ReasonIdle:          {"the agent phase exposed nothing", "check that the agent was started at all"},
	ReasonGradeFailed:   {"the grader could not start, was killed or took too long", "read its output and run again: a run that was not graded has no score"},
	ReasonNoReward:      {"a grader is stated, but no reward was recorded", "look with cleanrun inspect how far the run came, and run again"},
	ReasonConflict:      {"two sources of the reward disagree", "let the grader write reward.txt or reward.json, not both"},
	ReasonNoSignal:      {"a reward above 0, but no sealed completion signal in the grader's output", "read the grader's output: something may have ended the tests early"},
	ReasonTestsUnread:   {"a reward above 0, but grading opened no sealed hidden test", "look which tests the grader ran; it must open the hidden ones where they appear"},
	ReasonAnswerUnread:  {"a reward above 0, but grading opened nothing that the run wrote", "let the grader check the answer: an empty one passes too"},
	ReasonUnopened:      {"paths that the run changed and that the evidence does not name: %d", "attest again with the run's folder and its secret: they open the names"},
	ReasonSetSmall:      {"the sealed set holds too little to be found", "ask the benchmark's owner to seal reference files or tests"},
	ReasonSetCut:        {"the baseline took more than half of the novel part", "ask the benchmark's owner to take the answer out of the workspace"},
}

// Explain says in words what a reason is.
func Explain(r Reason) string {
	says := meanings[r.ID].says
	switch r.ID {
	case ReasonOpen, ReasonAbandoned, ReasonNotifications, ReasonIdle, ReasonSetSmall, ReasonSetCut, ReasonGradeFailed, ReasonNoReward,
		ReasonConflict, ReasonNoSignal, ReasonTestsUnread, ReasonAnswerUnread:
		return says
	case "":
		return ""
	}
	return fmt.Sprintf(says, r.Count)
}

// Advice says what the user should do next about a reason.
func Advice(id string) string { return meanings[id].next }
