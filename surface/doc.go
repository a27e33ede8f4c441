// Package surface answers one question: does that content stand at that location, and
// did the run write it there?
//
// Limits first. A folder, an archive, a bucket or a server shows what is there when it
// is looked at: not since when, not by whom, and not what was there and is gone. Times
// of modification are chosen by whoever writes. Only the journal of a run knows who wrote
// (package surface/rundir). An observation is not authenticated. A True says no more than
// its Basis.
//
// A Condition names a Location and a Matcher. A Source hands what is at the location to
// a Collector, which holds it to a Scope and to Limits and makes an Observation. Judge
// answers the condition from the observation: True at the first entry that matches,
// False only if everything was seen and read, else Undetermined with the reasons. An
// observation is stored by Format and judged again by Parse and Judge, without its
// source. The format, the rules and the reasons: spec/surface.md.
package surface
