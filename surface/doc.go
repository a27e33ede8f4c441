// Package surface answers one question: does that content stand at that location, and
// did the run write it there?
//
// Limits first. A folder, an archive, a bucket or a server shows what is there when it
// is looked at: not since when, not by whom, and not what was there and is gone. Times
// of modification are chosen by whoever writes. Only the journal of a run knows who wrote
// (package surface/rundir). An observation is not authenticated. A True says no more than
// its Basis. Text in other encodings than UTF-8 and marked UTF-16 is hashed, not read.
//
// A Condition names a Location and a Matcher. A Source hands what is at the location to
// a Collector, which holds it to a Scope and to Limits and makes an Observation. Judge
// answers the condition from the observation: True at the first entry that matches,
// False only if everything was seen and read, else Undetermined with the reasons. An
// observation is stored by Format and judged again by Parse and Judge, without its
// source. The format, the rules and the reasons: spec/surface.md.
//
// # What is tested
//
// Scorers of file writes have a known list of cases. Each has its tests here; those of
// rundir are marked so, and cmd/cleanrun/testdata/script has surface.txtar and surfacerun.txtar.
//
//	exact read                                  TestExactRead
//	absence, of a path and of a glob's folder   TestAbsenceIsComplete
//	no root                                     TestNoRootIsUnavailable
//	locations that escape                       TestEscapingLocationsAreRefused
//	a glob names files only                     TestGlobNamesFilesOnly
//	each folder is listed once                  TestEachFolderIsListedOnce
//	a walk that leaves folders out              TestWalkAgainstOracle
//	limit of files, for a path and a glob       TestFileLimit
//	limit of entries                            TestEntryLimit
//	limit of bytes drops the digest; exact end  TestReadBudgetDropsTheDigest
//	limits of zero and below                    TestLimitsAboveZero
//	link out, link in under its own name,
//	  dangling, to a folder, to a file          TestLinks
//	binary content is hashed, not kept          TestBinaryIsHashed
//	text cut within a character                 TestWhatAnEntryProves
//	a beginning proves contains, and no more    TestWhatAnEntryProves
//	UTF-16, and case beyond ASCII               TestWhatAnEntryProves, TestIgnoreCase
//	folder that cannot be listed, or half way   TestUnlistableFolder
//	ENOTDIR is absence, EACCES is not           TestAbsenceIsComplete, TestUnreadable
//	a folder or pipe at an exact path           TestPipesAndFoldersAreNoFiles
//	failure to open, at three places            TestUnreadable, TestReadFailureClosesTheHandle, TestPipeSwappedIn
//	the handle is closed after a failure        TestReadFailureClosesTheHandle, TestCancelWithinAFile
//	a handle that is no file is not read        TestPipeSwappedIn
//	a folder swapped before it is opened        TestFolderSwappedDuringTheWalk
//	a link swapped in for a file                TestRT53_LinkSwappedIn
//	a folder moved out after it was opened      TestFolderMovedOutDuringTheWalk
//	edges of containment                        TestStrictlyBelow
//	where a handle lies, by system              TestHandlePath, TestWithoutHandlePathNothingIsConfined
//	cancelled at the next entry or chunk        TestCancel, TestCancelWithinAFile
//	stored, and judged again; refused elsewhere TestReplay
//	scope: window, labels, attempt              TestWindow, TestLabelsAndAttempt
//	keys that a source cannot apply             TestScopeThatIsNotApplied
//	conditions that are none                    TestConditionsThatAreNone
//
// Holes of such scorers, with what is the answer here:
//
//	written and deleted again                   TestVersions, TestWhoWrote (rundir): true, with its end
//	there before the run                        TestWhoWrote (rundir): false; TestPlantedOlderFile: false by ctime
//	modification time forged                    TestForgedModificationTime: undetermined
//	a hard link fakes it                        TestWhoWrote (rundir): false; TestHardLinkIsCounted: said
//	who wrote                                   TestVersions, TestAgainstOracle (rundir)
//	a swapped folder gives away names           TestFolderSwappedDuringTheWalk: none
//	pipe, dangling link                         TestPipesAndFoldersAreNoFiles, TestLinks: undetermined
//	a sparse file of 5 GB                       TestSparseFileOfFiveGigabytes: read to the limit, no digest
//	newlines and invalid UTF-8 in names         TestStrangeNames: taken as they are
//	changed while it was read                   TestChangedWhileRead: undetermined
//	no score taken for a no                     TestNoRootIsUnavailable, TestWhoWrote (rundir): undetermined
//
// Out of reach: a conversation that went on after an observation. What was observed later is
// another observation; a journal ends with its run.
package surface
