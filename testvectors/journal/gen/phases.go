package main

import (
	"maps"
	"slices"
)

// phasesOf is key 21 of a start row.
func phasesOf(setup, grade [][]byte, tests, reward, dir string, guard ...string) []byte {
	var paths [][]byte
	for _, g := range guard {
		paths = append(paths, tstr(g))
	}
	return list(list(setup...), list(grade...), tstr(tests), tstr(reward), tstr(dir), list(paths...))
}

func argv(words ...string) (texts [][]byte) {
	for _, w := range words {
		texts = append(texts, tstr(w))
	}
	return texts
}

var byFile = phasesOf(nil, argv("sh", "-c", "run\n"), "/cleanrun/tests", "file", "/cleanrun/reward", "out/verdict", "verdict.txt")

func ended(phase uint64, code, how, left uint64) table {
	return row(opPhase, table{kPhase: num(phase), kEnd: table{1: num(code), 2: num(how), 3: num(left)}.encode()})
}

func reward(value string, source uint64) table {
	return row(opReward, table{kPhase: num(2), kReward: table{1: tstr(value), 2: num(source)}.encode()})
}

func guard(kind uint64, after byte) table {
	return row(opGuard, table{kPhase: num(2), kObject: num(9), kPath: ref(2, "/work/verdict.txt"), kGuard: table{1: num(kind), 2: {after}}.encode()})
}

const no, yes = 0xf4, 0xf5 // false and true

// graded is a journal of an agent and a grader, whose start states phases.
func graded(phases []byte) []table {
	s := baseStart()
	s[21] = phases
	s[10] = list(root("/", 2, 2), root("/cleanrun/reward", 1, 4), root("/usr", 0, 2), root("/work", 1, 0))
	return []table{
		row(opStart, table{kPhase: num(0), kStart: s.encode()}),
		row(opFork, table{kPhase: num(0), kChild: num(1)}),
		row(opArgv, table{kPhase: num(0), kProc: num(1), kDir: num(in), kOrigin: num(driver), kSize: num(9), kFlags: num(fText)}),
		row(opArgv, table{kPhase: num(0), kProc: num(1), kDir: num(in), kOrigin: num(driver), kSize: num(9), kFlags: num(fText)}),
		row(opDir, table{kChild: num(1), kPath: ref(0, "/usr")}),
		row(opDir, table{kChild: num(2), kPath: ref(0, "/work")}),
		row(opOpen, table{kProc: num(1), kDir: num(out), kOrigin: num(run), kSize: num(3), kObject: num(2), kFlags: num(fWrite | fCreate | fText), kPath: ref(2, "/work/out")}),
		row(opWrote, table{kProc: num(1), kDir: num(out), kOrigin: num(run), kSize: num(5), kObject: num(2), kPath: ref(2, "/work/out")}),
		row(opExit, table{kProc: num(1)}),
		ended(1, 0, 1, 0),
		row(opFork, table{kPhase: num(2), kChild: num(2)}),
		row(opOpen, table{kPhase: num(2), kProc: num(2), kDir: num(in), kOrigin: num(run), kSize: num(5), kObject: num(2), kFlags: num(fRead), kPath: ref(2, "/work/out")}),
		guard(2, no),
		row(opExec, table{kPhase: num(2), kProc: num(2), kDir: num(in), kOrigin: num(input), kSize: num(7), kObject: num(3), kPath: ref(1, "/usr/sh")}),
		row(opStdout, table{kPhase: num(2), kDir: num(out), kOrigin: num(run), kSize: num(4)}),
		row(opDir, table{kPhase: num(2), kChild: num(3), kPath: ref(0, "/cleanrun")}),
		row(opDir, table{kPhase: num(2), kChild: num(4), kPath: ref(3, "/cleanrun/reward")}),
		row(opOpen, table{kPhase: num(2), kProc: num(2), kDir: num(out), kOrigin: num(run), kSize: num(10), kObject: num(4), kFlags: num(fWrite | fCreate | fText), kPath: ref(4, "/cleanrun/reward/reward.txt")}),
		row(opWrote, table{kPhase: num(2), kProc: num(2), kDir: num(out), kOrigin: num(run), kSize: num(4), kObject: num(4), kPath: ref(4, "/cleanrun/reward/reward.txt")}),
		row(opExit, table{kPhase: num(2), kProc: num(2)}),
		reward("0.5", 3),
		reward("0.50", 4),
		ended(2, 0, 1, 3),
		row(opFinal, table{kPhase: num(2)}),
	}
}

// Places in graded.
const (
	gFork, gEnv, gArgv, gWrote, gExit, gAgent, gGrader, gRead, gGuard, gExec, gPrinted, gFiled, gExit2, gText, gJSON, gGrade, gFinal = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 21, 22, 23
)

// grading changes graded before it is numbered.
func grading(phases []byte, f func(r []table) []table) [][]byte {
	rows := f(graded(phases))
	number(rows, nil)
	return encode(rows)
}

func replace(at int, keys table) func([]table) []table {
	return func(r []table) []table { maps.Copy(r[at], keys); return r }
}

func remove(at int) func([]table) []table {
	return func(r []table) []table { return slices.Delete(r, at, at+1) }
}

func put(at int, rows ...table) func([]table) []table {
	return func(r []table) []table { return slices.Insert(r, at, rows...) }
}

// gradings is the attacks on phases: nothing counts in the grade phase, so what
// stands there wrongly would be hidden.
func gradings() []vector {
	bad := func(name, stage string, at int, redteam, comment string, f func([]table) []table) vector {
		return vector{name: name, stage: stage, row: at, redteam: redteam, comment: comment, rows: grading(byFile, f)}
	}
	ok := func(name, comment string, phases []byte, f func([]table) []table) vector {
		return vector{name: "ok-" + name, stage: "ok", comment: comment, rows: grading(phases, f)}
	}
	exit := phasesOf(argv("prepare"), argv("check"), "", "exit-code", "")
	withSetup := func(r []table) []table {
		r = slices.Insert(r, gArgv+1, ended(0, 0, 1, 1))
		r[gText+1] = reward("1", 1)
		return slices.Delete(r, gJSON+1, gJSON+2)
	}
	byOutput := phasesOf(nil, argv("check"), "", "stdout", "")
	byStdout := func(r []table) []table {
		r[gText] = reward("1", 2)
		return slices.Delete(r, gJSON, gJSON+1)
	}
	byExit := func(value string, code, how uint64) [][]byte {
		return grading(exit, func(r []table) []table {
			r = withSetup(r)
			r[gText+1] = reward(value, 1)
			r[gJSON+1] = ended(2, code, how, 0)
			return r
		})
	}
	all := []vector{
		ok("graded", "an agent, then a grader that gives two rewards", byFile, same),
		ok("graded-open", "the same, broken off while grading", byFile, func(r []table) []table { return r[:gRead+1] }),
		ok("graded-setup", "a setup command first, and a reward by exit code", exit, withSetup),
		ok("setup-alone", "a setup command and no grader", phasesOf(argv("prepare"), nil, "", "", ""),
			func(r []table) []table {
				return append(slices.Insert(r[:gAgent+1], gArgv+1, ended(0, 0, 1, 0)), row(opFinal, nil))
			}),
		ok("guard-after", "a guarded file that changed after grading", byFile, put(gGrade, guard(1, yes))),
		ok("agent-timeout", "an agent that took too long", byFile, func(r []table) []table { r[gAgent] = ended(1, 124, 2, 4); return r }),

		{name: "phases-none-graded", stage: "phase", row: gAgent - 1, comment: "a phase row, and the start states no phases", rows: grading(null, func(r []table) []table { return slices.Delete(r, gArgv, gArgv+1) })},
		{name: "phases-none-grade-row", stage: "phase", row: rFinal, comment: "a row of the grade phase, and the start states no phases",
			rows: add(rFinal, row(opStdout, table{kPhase: num(2), kDir: num(out), kOrigin: num(run), kSize: num(5)}))},
		{name: "phases-no-grader", stage: "phase", row: gGrader + 1, comment: "a row of the grade phase, and the start states no grader",
			rows: grading(phasesOf(argv("prepare"), nil, "", "", ""), put(gArgv+1, ended(0, 0, 1, 0)))},
		{name: "phases-agent-before-setup-ended", stage: "phase", row: gArgv + 1, comment: "a row of the agent, and setup has not ended", rows: grading(exit, same)},
		bad("phases-agent-not-ended", "phase", gAgent, "", "grading before the agent phase was said to have ended", remove(gAgent)),
		bad("phases-agent-ended-twice", "phase", gAgent+1, "", "the agent phase ends twice", put(gAgent, ended(1, 0, 1, 0))),
		bad("phases-agent-alive", "phase", gExit+1, "58c", "grading while a process of the agent lives", remove(gExit)),
		bad("phases-row-after-end", "phase", gAgent+1, "", "a row of the agent after its phase has ended",
			put(gAgent+1, row(opStdout, table{kDir: num(out), kOrigin: num(run), kSize: num(5)}))),
		bad("phases-back-to-agent", "phase", gRead, "", "a row of the agent after grading began: it would use what grading opened", replace(gRead, table{kPhase: num(1)})),
		bad("phases-agent-acts-in-grading", "phase", gRead, "", "a process of the agent in a row of the grade phase, where nothing counts", replace(gRead, table{kProc: num(1)})),
		bad("phases-agent-acts-first", "phase", gGrader, "", "the first row of the grade phase by a process of the agent", replace(gGrader, table{kProc: num(1)})),
		bad("phases-write-dated-in-grading", "origin", gAgent+1, "", "what the agent wrote, dated in the grade phase, where it would not count",
			func(r []table) []table {
				wrote := r[gWrote]
				wrote[kPhase] = num(2)
				wrote[kProc] = num(2)
				r = slices.Delete(r, gWrote, gWrote+1)
				return slices.Insert(r, gGrader, wrote)
			}),
		bad("phases-grade-ended-twice", "phase", gGrade+1, "", "the grade phase ends twice", put(gGrade, ended(2, 0, 1, 3))),
		bad("phases-reward-of-agent", "phase", gWrote, "", "a reward in the agent phase", func(r []table) []table {
			early := reward("1", 3)
			early[kPhase] = num(1)
			return slices.Insert(r, gWrote, early)
		}),
		bad("phases-guard-of-agent", "phase", gWrote, "", "a guard row in the agent phase", func(r []table) []table {
			early := guard(1, no)
			early[kPhase] = num(1)
			return slices.Insert(r, gWrote, early)
		}),
		bad("phases-agent-not-started", "phase", gAgent, "", "an agent that was never started, and is graded all the same", func(r []table) []table { r[gAgent] = ended(1, 127, 3, 0); return r }),
		{name: "phases-setup-failed", stage: "phase", row: gArgv + 2, comment: "a row of the agent after a setup that failed", rows: grading(exit, func(r []table) []table {
			r = withSetup(r)
			r[gArgv+1] = ended(0, 1, 1, 0)
			return r
		})},
		bad("phases-third-environment", "origin", gArgv+1, "", "a third argument vector of the driver in one phase",
			func(r []table) []table { return slices.Insert(r, gArgv, maps.Clone(r[gArgv])) }),
		bad("phases-environment-after-run", "origin", gWrote+1, "", "an argument vector of the driver after one of the run in the same phase",
			func(r []table) []table {
				driver, own := maps.Clone(r[gArgv]), maps.Clone(r[gArgv])
				own[kDir], own[kOrigin] = num(out), num(run)
				own[kPhase], driver[kPhase] = num(1), num(1)
				return slices.Insert(r, gWrote, own, driver)
			}),

		bad("reward-while-processes-live", "reward", gExit2, "", "a reward while a process of grading could still write it", remove(gExit2)),
		bad("reward-file-not-written", "reward", gText-1, "", "a reward of a file that grading did not write", remove(gFiled)),
		bad("reward-file-elsewhere", "reward", gText, "", "a reward of a file, and grading wrote another one in the workspace", func(r []table) []table {
			r[gFiled-1][kPath], r[gFiled][kPath] = ref(2, "/work/other"), ref(2, "/work/other")
			return r
		}),
		{name: "reward-exit-code-without-exec", stage: "reward", row: gText, comment: "a reward of 1 by the exit code of a grader that was never executed", rows: grading(exit, func(r []table) []table { return slices.Delete(withSetup(r), gExec+1, gExec+2) })},
		{name: "reward-stdout-silent", stage: "reward", row: gText - 1, comment: "a reward of output, and there is none", rows: grading(byOutput, func(r []table) []table {
			r = byStdout(r)
			return slices.Delete(r, gPrinted, gPrinted+1)
		})},
		{name: "ok-reward-stdout", stage: "ok", comment: "a reward of output", rows: grading(byOutput, byStdout)},
		bad("reward-twice", "reward", gJSON, "", "two rewards of one source", func(r []table) []table { r[gJSON] = reward("1", 3); return r }),
		bad("reward-other-source", "reward", gText, "", "the exit code under the rule of files", func(r []table) []table { r[gText] = reward("1", 1); return r }),
		bad("reward-source-unknown", "reward", gText, "", "source 5", func(r []table) []table { r[gText] = reward("1", 5); return r }),
		bad("reward-not-decimal", "reward", gText, "", "a reward of 1e9", func(r []table) []table { r[gText] = reward("1e9", 3); return r }),
		bad("reward-leading-zero", "reward", gText, "", "a reward of 01", func(r []table) []table { r[gText] = reward("01", 3); return r }),
		bad("reward-empty", "reward", gText, "", "a reward of no digits", func(r []table) []table { r[gText] = reward("", 3); return r }),
		bad("reward-by-program", "proc", gText, "", "a reward by a process of grading", replace(gText, table{kProc: num(2)})),
		bad("reward-value-missing", "op", gText, "", "a reward row without its value", func(r []table) []table { delete(r[gText], kReward); return r }),
		bad("reward-in-exit-row", "op", gExit2, "", "a reward in an exit row", func(r []table) []table { r[gExit2][kReward] = r[gText][kReward]; return r }),
		{name: "reward-exit-code-zero", stage: "reward", row: gGrade, comment: "a reward of 1 by an exit code of 1", rows: byExit("1", 1, 1)},
		{name: "reward-exit-code-timeout", stage: "reward", row: gGrade, comment: "a reward of 1 by a grader that took too long", rows: byExit("1", 0, 2)},
		{name: "ok-reward-exit-code", stage: "ok", comment: "a reward of 0 by an exit code of 1", rows: byExit("0", 1, 1)},
		bad("end-how-unknown", "reward", gAgent, "", "an end of kind 4", func(r []table) []table { r[gAgent] = ended(1, 0, 4, 0); return r }),
		bad("end-code-large", "reward", gAgent, "", "exit code 256", func(r []table) []table { r[gAgent] = ended(1, 256, 1, 0); return r }),
		bad("end-missing", "op", gAgent, "", "a phase row without its end", func(r []table) []table { delete(r[gAgent], kEnd); return r }),
		bad("end-by-program", "proc", gAgent, "", "a phase row by a program", replace(gAgent, table{kProc: num(1)})),
		bad("guard-kind-unknown", "reward", gGuard, "", "a guard of kind 4", func(r []table) []table { r[gGuard] = guard(4, no); return r }),
		bad("guard-hook-after", "reward", gGuard, "", "a hook after grading", func(r []table) []table { r[gGuard] = guard(3, yes); return r }),
		bad("guard-path-missing", "op", gGuard, "", "a guard of no file", func(r []table) []table { delete(r[gGuard], kPath); return r }),
		bad("guard-missing", "op", gGuard, "", "a guard row without its value", func(r []table) []table { delete(r[gGuard], kGuard); return r }),
	}
	return append(all, badPhases()...)
}

// badPhases is start rows that state phases wrongly.
func badPhases() (all []vector) {
	run := argv("check")
	for _, c := range []struct {
		name, comment string
		phases        []byte
	}{
		{"empty", "neither setup nor grader", phasesOf(nil, nil, "", "", "")},
		{"tests-without-grader", "hidden tests and no grader", phasesOf(argv("prepare"), nil, "/t", "", "")},
		{"reward-without-grader", "a reward rule and no grader", phasesOf(argv("prepare"), nil, "", "stdout", "")},
		{"guard-without-grader", "guarded files and no grader", phasesOf(argv("prepare"), nil, "", "", "", "verdict")},
		{"reward-missing", "a grader and no reward rule", phasesOf(nil, run, "", "", "")},
		{"reward-unknown", "a rule that is not known", phasesOf(nil, run, "", "vibes", "")},
		{"reward-folder-missing", "rewards by file and no folder", phasesOf(nil, run, "", "file", "")},
		{"reward-folder-idle", "rewards by exit code and a folder", phasesOf(nil, run, "", "exit-code", "/r")},
		{"tests-relative", "hidden tests at a relative path", phasesOf(nil, run, "tests", "exit-code", "")},
		{"tests-root", "hidden tests at /", phasesOf(nil, run, "/", "exit-code", "")},
		{"tests-not-clean", "a path with ..", phasesOf(nil, run, "/a/../t", "exit-code", "")},
		{"tests-hold-reward", "the reward folder inside the tests", phasesOf(nil, run, "/t", "file", "/t/r")},
		{"argument-nul", "an argument with a NUL", phasesOf(nil, argv("check", "a\x00b"), "", "exit-code", "")},
		{"arguments-large", "64 KiB and a byte of arguments", phasesOf(nil, argv("check", repeat("a", 65536-6)), "", "exit-code", "")},
		{"program-empty", "a command without a program", phasesOf(nil, argv("", "x"), "", "exit-code", "")},
		{"guard-unsorted", "guarded files out of order", phasesOf(nil, run, "", "exit-code", "", "b", "a")},
		{"guard-twice", "a guarded file twice", phasesOf(nil, run, "", "exit-code", "", "a", "a")},
		{"guard-absolute", "an absolute guarded path", phasesOf(nil, run, "", "exit-code", "", "/work/verdict")},
		{"guard-outside", "a guarded path outside the workspace", phasesOf(nil, run, "", "exit-code", "", "../verdict")},
		{"guard-everything", "the workspace itself", phasesOf(nil, run, "", "exit-code", "", ".")},
	} {
		all = append(all, vector{name: "start-phases-" + c.name, stage: "start", row: 0, comment: c.comment, rows: start(table{21: c.phases})})
	}
	return append(all,
		vector{name: "start-phases-short", stage: "encoding", row: 0, comment: "an array of five", rows: start(table{21: list(argv("a", "b", "c", "d", "e")...)})},
		vector{name: "ok-start-phases-large", stage: "ok", comment: "64 KiB of arguments", rows: start(table{21: phasesOf(nil, argv("check", repeat("a", 65536-7)), "", "exit-code", "")})})
}
