// Package footprint compares what a run changed with what it may change. It has no clock,
// network or process of its own: the caller hands it an open folder, the journaled writes
// and, for cached modules of Python, somebody who compiles.
//
// Limits first. A walk sees two moments, not what was between them; only journaled writes
// show that. Times do not count, since whoever writes a file sets them. Of extended
// attributes, those of the user and capabilities are compared, on Linux alone; owners
// and numbers of names on Unix alone; the number of names in walked folders alone. A walk
// that does not read contents takes the system's time of change for them, which whoever
// sets the clock can repeat. A file opened for writing counts as written. The temporary
// name of an atomic write counts too, but for the import system's own.
//
// The report's format and the rules are in spec/footprint.md.
//
// # Tests
//
// What Inspect's scope_check tests, and what tests it here:
//
//	glob table of 20 cases                     TestPatternTable, TestPatternAgainstRegexp
//	three kinds of difference                  TestWalkAndDiff, TestThreeKindsLessAllowed
//	an error that comes or goes is a change    TestRT58d_UnreadableBothTimesIsInconclusive (a gap here)
//	allowed is taken away                      TestThreeKindsLessAllowed
//	metadata widens, malformed metadata        TestPolicy
//	a difference alone scores nothing          script scope.txtar ("Without -gate")
//	gate fails, gate passes                    script scope.txtar, TestScopeExit
//	caches of Python                           TestRT58e_..., script scopepython.txtar
//	a failed last look under gate              TestScopeLastLookFails, TestScopeExit
//	a failed last look without gate            TestScopeExit
//	the command's own failure stays            TestScopeExit, script scope.txtar
//
// What it lets through, and what holds it here:
//
//	tools inside the sandbox are replaced      the look is from outside (script scope.txtar)
//	unreadable before and after                TestRT58d_UnreadableIsNamed
//	poisoned .pyc, other files in __pycache__  TestRT58e_..., script scopepython.txtar
//	written and restored                       TestRT58b_WrittenAndRestored, script scope.txtar
//	an absent root, a link as root             refused, resolved (script scope.txtar)
//	owner, mode, attributes, number of names   TestWhatLinuxKeeps
//	a process that writes after the last look  ended before it (script scope.txtar); TestRT58c_...
//	no report when cancelled                   script scope.txtar ("Cancelled")
//	/tmp and HOME are not watched              they are the run's own, and gone afterwards
package footprint

// Version of the report (spec/footprint.md).
const Version = "cleanrun/footprint/v1"
