package attest

// Reason ids that make a run DIRTY. spec/statement.md says of each what the
// user should do next.
const (
	ReasonCanary     = "canary"       // a canary, anywhere
	ReasonObject     = "whole-object" // a whole sealed object came in
	ReasonFragments  = "fragments"    // shingles of one source came in, at or above its limit
	ReasonLines      = "lines"        // whole lines of one source came in, at or above its limit
	ReasonTokens     = "tokens"       // generated tokens came in, at or above the limit
	ReasonNamed      = "task-named"   // the task's id, title, signal or test command came in from the network
	ReasonOutOfScope = "out-of-scope" // an access outside the allowed roots and grants
)

// Reason ids that make a run INCONCLUSIVE if nothing makes it DIRTY.
const (
	ReasonTrace         = "trace"                // sealed items came in, but fewer than the limit
	ReasonAuthored      = "authored"             // the run wrote sealed content and no channel is declared that it can be from
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
	ReasonSetSmall      = "set-too-small"        // the sealed set holds too little to be found
	ReasonSetCut        = "set-subtracted"       // the baseline took more than half of the novel part
)

// reasonOrder is the closed list, DIRTY first. Reasons of a verdict are listed in
// this order.
var reasonOrder = []string{
	ReasonCanary, ReasonObject, ReasonFragments, ReasonLines, ReasonTokens, ReasonNamed, ReasonOutOfScope,
	ReasonTrace, ReasonAuthored, ReasonUnexplained, ReasonControls, ReasonOpaque, ReasonBounds, ReasonUnreadable,
	ReasonUnstable, ReasonLost, ReasonKilled, ReasonOpen, ReasonAbandoned, ReasonDelta, ReasonProcesses,
	ReasonNotifications, ReasonIdle, ReasonSetSmall, ReasonSetCut,
}

// dirtyReasons is how many of reasonOrder make a run DIRTY.
const dirtyReasons = 7

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
