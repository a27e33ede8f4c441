package attest

import (
	"cmp"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A graded holds what rows say of phases and grading, as far as Derive needs it.
// It is filled while the rows are read, so that an event stays small.
type graded struct {
	ends    []phaseRow
	rewards []rewardRow
	guards  []guardRow
	rows    []gradeRow        // of the grade phase that move content or processes
	kept    map[gradeRow]bool // those since the last exec
	began   bool              // some row is of the grade phase

	answer map[uint32]bool // objects of which the agent phase wrote the content
	empty  map[uint32]bool // objects that it made in the workspace and wrote nothing into
	other  bool            // it changed something else there: names, modes, folders
}

type phaseRow struct {
	phase journal.Phase
	end   journal.PhaseEnd
	seq   uint64
}

type rewardRow struct {
	reward journal.Reward
	seq    uint64
}

type guardRow struct {
	guard journal.Guard
	seq   uint64
}

type gradeRow struct {
	op   journal.Op
	proc uint32
	// child of a fork, object of everything else
	number uint32
	base   int32 // of its content
}

// read takes one row. class is where the row's path lies, or 0 without a path;
// base is the entry that holds its content's digests.
func (g *graded) read(seq uint64, r *journal.Row, class scope.Class, base int32) {
	switch r.Op {
	case journal.OpPhase:
		g.ends = append(g.ends, phaseRow{r.Phase, *r.End, seq})
	case journal.OpReward:
		g.rewards = append(g.rewards, rewardRow{*r.Reward, seq})
	case journal.OpGuard:
		g.guards = append(g.guards, guardRow{*r.Guard, seq})
	}
	switch {
	case r.Op == journal.OpFinal:
	case r.Phase == journal.PhaseAgent && r.Result == 0:
		g.change(r, class)
	case r.Phase == journal.PhaseGrade:
		g.began = true
		switch r.Op {
		case journal.OpFork:
			g.rows = append(g.rows, gradeRow{r.Op, r.Proc, r.Child, noBase})
		case journal.OpOpen, journal.OpExec, journal.OpInterp, journal.OpStdout, journal.OpStderr:
			if r.Dir != journal.DirNone && r.Result == 0 {
				g.keep(gradeRow{r.Op, r.Proc, r.Object, base})
			}
		}
	}
}

// keep leaves out what adds nothing: content without a digest that is no answer,
// and the same content again. An exec forgets what its process held, so it is
// always kept, and what follows it counts again.
func (g *graded) keep(row gradeRow) {
	if row.op == journal.OpExec {
		clear(g.kept)
	} else if g.kept[row] || row.base == noBase && !g.answer[row.number] {
		return
	}
	if g.kept == nil {
		g.kept = map[gradeRow]bool{}
	}
	g.kept[row] = true
	g.rows = append(g.rows, row)
}

// change notes what a row of the agent phase changed: contents, which a grader
// can only judge by opening them, or anything else.
func (g *graded) change(r *journal.Row, class scope.Class) {
	if g.answer == nil {
		g.answer, g.empty = map[uint32]bool{}, map[uint32]bool{}
	}
	inside := class == scope.Workspace || class == scope.Grant
	own := g.answer[r.Object] || g.empty[r.Object]
	switch r.Op {
	case journal.OpOpen:
		switch {
		case r.Flags&journal.FlagCreate != 0 && inside:
			g.empty[r.Object] = true
		case r.Flags&journal.FlagTrunc != 0:
			g.answer[r.Object] = true
		}
	case journal.OpWrote:
		if r.Size > 0 || !g.empty[r.Object] {
			g.answer[r.Object] = true
			delete(g.empty, r.Object)
		}
	case journal.OpTruncate:
		g.answer[r.Object] = true
	case journal.OpUnlink:
		g.other = g.other || inside && !own
		delete(g.empty, r.Object)
	case journal.OpRename, journal.OpLink, journal.OpChmod, journal.OpChown, journal.OpUtime, journal.OpXattr:
		// Editors write beside a file and rename: with their own object that is
		// a change of content too.
		g.other = g.other || (inside || r.Path == nil) && !own
	case journal.OpSymlink, journal.OpMkdir, journal.OpMknod:
		g.other = g.other || inside
	}
}

// grading judges what grading gave, and whether anything hints that it judged
// nothing. Nothing here looks at scope or at the sealed items of the grade phase
// as an exposure: there they may be read.
func (j *judge) grading() {
	p, g := j.ev.start.Phases, &j.ev.graded
	for _, e := range g.ends {
		j.out.Phases = append(j.out.Phases, PhaseClaim{e.phase.String(), howNames[e.end.How], e.end.Code, e.end.Left})
	}
	if p == nil || len(p.Grade) == 0 {
		return
	}
	j.guards()
	failed := j.gradeFailed()
	j.out.Observed = observed(g.rewards)
	switch {
	case j.out.Observed == nil && !failed:
		j.note(ReasonNoReward, 0, 1)
	case conflicting(g.rewards):
		j.note(ReasonConflict, g.rewards[1].seq, 1)
	}
	if j.ev.partial {
		return // what grading opened needs all its rows
	}
	shared, signal, tests, answer := j.opened()
	j.out.Counts.GradeShared = shared
	if !g.positive() {
		return
	}
	if j.seals(contraband.KindSignal, false) && !signal {
		j.note(ReasonNoSignal, 0, 1)
	}
	if j.seals(contraband.KindTest, true) && !tests {
		j.note(ReasonTestsUnread, 0, 1)
	}
	if !g.other && len(g.empty) == 0 && !answer {
		j.note(ReasonAnswerUnread, 0, 1)
	}
}

// guards lists the verdict and grader files that the run planted or changed.
func (j *judge) guards() {
	for _, r := range j.ev.graded.guards {
		reason := ReasonPlanted
		switch {
		case r.guard.Kind == journal.GuardHook:
			reason = ReasonHooked
		case r.guard.After:
			reason = ReasonChanged
		}
		j.note(reason, r.seq, 1)
		j.out.Matches = append(j.out.Matches, Match{r.seq, classGuard, reason})
	}
}

// gradeFailed tells whether the grader did not run to its own end. A journal
// that has no grade phase at all lacks the reward instead.
func (j *judge) gradeFailed() bool {
	g := &j.ev.graded
	if !g.began {
		return false
	}
	for _, e := range g.ends {
		if e.phase != journal.PhaseGrade {
			continue
		}
		// 126 and 127 are a shell that could not start the grader; 128+n, with
		// the signals of Linux, a grader that was killed.
		code := e.end.Code
		if e.end.How == journal.Exited && code != 126 && code != 127 && (code <= 128 || code > 128+64) {
			return false
		}
		j.note(ReasonGradeFailed, e.seq, 1)
		return true
	}
	j.note(ReasonGradeFailed, 0, 1)
	return true
}

// observed is the score that the rows hold: of several sources the lowest, so
// that a conflict serves nobody. nil without a reward.
func observed(rewards []rewardRow) *Score {
	var least *Score
	for _, r := range rewards {
		if least == nil || compareDecimals(r.reward.Value, least.Value) < 0 {
			least = &Score{r.reward.Value, ScoreObserved}
		}
	}
	return least
}

func conflicting(rewards []rewardRow) bool {
	for _, r := range rewards {
		if compareDecimals(r.reward.Value, rewards[0].reward.Value) != 0 {
			return true
		}
	}
	return false
}

func (g *graded) positive() bool {
	for _, r := range g.rewards {
		if compareDecimals(r.reward.Value, "0") > 0 {
			return true
		}
	}
	return false
}

// compareDecimals orders two decimals (journal.Decimal) by value: 1 and 1.0 are
// equal.
func compareDecimals(a, b string) int {
	x, y := parseDecimal(a), parseDecimal(b)
	return cmp.Or(cmp.Compare(x.whole, y.whole), cmp.Compare(x.billionths, y.billionths))
}

// A decimal has up to 15 digits before the point and 9 after: both parts fit, and
// have one sign.
type decimal struct{ whole, billionths int64 }

func parseDecimal(v string) (d decimal) {
	whole, fraction, _ := strings.Cut(v, ".")
	for _, c := range strings.TrimPrefix(whole, "-") {
		d.whole = 10*d.whole + int64(c-'0')
	}
	for i := range 9 {
		d.billionths *= 10
		if i < len(fraction) {
			d.billionths += int64(fraction[i] - '0')
		}
	}
	if strings.HasPrefix(whole, "-") {
		d.whole, d.billionths = -d.whole, -d.billionths
	}
	return d
}

// seals tells whether the set has sources of a kind; whole asks for whole
// objects.
func (j *judge) seals(kind contraband.Kind, whole bool) bool {
	for i := range j.ix.set.Groups {
		if g := &j.ix.set.Groups[i]; g.Kind == kind && (!whole || g.Class.Whole()) {
			return true
		}
	}
	return false
}

// held is what a process of the grade phase has in its memory. below: it, before
// its last exec, or a process that it descends from held content of the run, and
// so could have chosen what it does.
type held struct{ tests, run, below bool }

// opened walks the grade phase. shared is how many of its processes held hidden
// tests and content of the run, or were started by what did: the run's code could
// change what the tests see, or look up what they want; signal, tests and answer
// say whether a sealed completion signal stood in the output, a whole hidden test
// was opened, and anything that the agent wrote.
func (j *judge) opened() (shared uint64, signal, tests, answer bool) {
	procs := map[uint32]held{}
	known := map[int32]standing{}
	both := map[uint32]bool{}
	for _, r := range j.ev.graded.rows {
		if r.op == journal.OpFork {
			h := procs[r.proc]
			h.below = h.below || h.run
			procs[r.number] = h
			continue
		}
		h := procs[r.proc]
		if r.op == journal.OpExec {
			h = held{below: h.below || h.run} // a new image
		}
		content, ok := known[r.base]
		if !ok {
			content = j.standing(r.base)
			known[r.base] = content
		}
		if r.op == journal.OpStdout || r.op == journal.OpStderr {
			signal = signal || content.signal
			continue
		}
		ours := j.ev.graded.answer[r.number]
		tests, answer = tests || content.whole, answer || ours
		h.tests, h.run = h.tests || content.test, h.run || ours
		procs[r.proc] = h
		if h.tests && (h.run || h.below) {
			both[r.proc] = true
		}
	}
	return uint64(len(both)), signal, tests, answer
}

// A standing tells whether one content alone holds a source of hidden tests or a
// completion signal, at or above its limit, and whether a hidden test whole.
type standing struct{ test, signal, whole bool }

func (j *judge) standing(base int32) (s standing) {
	if base == noBase {
		return s
	}
	found := map[int]uint32{}
	for _, n := range j.ix.hits(j.ev.bases[base].digests) {
		for _, m := range j.ix.in[n] {
			found[m.group]++
		}
	}
	for g, n := range found {
		group := &j.ix.set.Groups[g]
		if n < group.Threshold {
			continue
		}
		switch group.Kind {
		case contraband.KindTest:
			s.test, s.whole = true, s.whole || group.Class.Whole()
		case contraband.KindSignal:
			s.signal = true
		}
	}
	return s
}

var howNames = map[journal.How]string{journal.Exited: "exited", journal.TimedOut: "timeout", journal.NotStarted: "not-started"}
