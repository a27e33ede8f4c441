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
// What Inspect's scope_check tests, and what tests it here; scripts are in
// cmd/cleanrun/testdata/script:
//
//	glob table of 20 cases                     TestPatternTable, TestPatternAgainstRegexp
//	three kinds of difference                  TestWalkAndDiff, TestDiffAgainstOracle
//	an error that comes or goes is a change    TestRT58d_UnreadableBothTimesIsInconclusive (a gap here)
//	allowed is taken away                      TestThreeKindsLessAllowed
//	metadata widens, malformed metadata        TestPolicy, TestWideningNeverWeakens
//	a difference alone scores nothing          scope.txtar ("Without -gate")
//	gate fails, gate passes                    scope.txtar, TestScopeExit
//	caches of Python                           TestRT58e_OnlyWhatTheSourceCompilesToIsLeftOut, scopepython.txtar
//	a failed last look, with gate and without  TestScopeLastLookFails, TestScopeExit
//	the command's own failure stays            TestScopeExit, scope.txtar
//
// What it lets through, and what holds it here:
//
//	tools inside the sandbox are replaced      TestIncident11_TrojanOnPath: the look is from outside
//	unreadable before and after                TestRT58d_UnreadableIsNamed
//	poisoned .pyc, other files in __pycache__  TestRT58e_OnlyWhatTheSourceCompilesToIsLeftOut, scopepython.txtar
//	written and restored                       TestRT58b_WrittenAndRestored, scope.txtar
//	an absent root, a link as root             scope.txtar: refused, resolved
//	owner, mode, attributes, number of names   TestWhatLinuxKeeps
//	a process that writes after the last look  scope.txtar: ended before it; TestRT58c_ChangedByOthersIsInconclusive
//	no report when cancelled                   scope.txtar ("Cancelled")
//	/tmp and HOME are not watched              they are the run's own, and gone afterwards
//
// Cases at the edge:
//
//	written, then deleted                      TestRT58b_WrittenAndRestored: transient
//	an older file planted                      TestPlantedOlderFile: added, or modified
//	the time of writing forged                 TestModificationTimeProvesNothing: modified; a time alone is nothing
//	a pipe                                     TestWhatLinuxKeeps: listed, not opened
//	a dangling link                            TestLinksAreNotFollowed: its target is compared
//	a folder swapped during the walk           TestRT53_SwappedFolderIsAGap: not entered
//	a file swapped before it is opened         TestRT53_SwappedFileIsAGap: not read
//	a link swapped while it is written to      TestRT53_WriteThroughASwappedLink: the file is named
//	a file that changes while it is read       TestChangedWhileReadIsAGap
//	a sparse file of 5 GB                      TestSparseFileOfFiveGigabytes: its holes are not read
//	newlines and invalid UTF-8 in names        TestWhatLinuxKeeps, TestNamesThatAreNotText: taken as they are
//	left unreadable to its own user            TestScopeLeftUnreadable: compared all the same
//	limits of names, bytes and depth           TestLimitsAreGaps, TestWorkersAgree
package footprint

// Version of the report (spec/footprint.md).
const Version = "cleanrun/footprint/v1"
