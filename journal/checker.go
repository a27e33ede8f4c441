package journal

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Checker takes the rows of one journal in order and holds each to the rules
// of spec/journal.md. It keeps the numbers it needs: memory grows with
// directories, files and processes, not with rows. The zero value is not usable.
type Checker struct {
	table   *scope.Table
	start   *Start
	final   *Final
	tree    accumulator
	model   bool // stdin is declared as the model's
	last    Row  // previous row: time, phase
	counts  [PhaseGrade + 1][maxOp + 1]uint64
	objects map[uint32]objectState
	ended   []bool              // by process number; 0 is the recorder
	argv    [PhaseGrade + 1]int // command lines that the driver gave, by phase
	phases  phaseState
	sum     Summary
}

// objectState says what earlier rows said of a file.
type objectState uint8

const (
	writable objectState = 1 << iota // the run could change it
	written                          // its present version is the run's
	inbound                          // it had a name, and what it held was not the run's
)

// A Summary is what a journal's rows say together. It is only as good as the
// rows: compare Head with the signed one.
type Summary struct {
	Start *Start // nil if there was no row
	Final *Final // nil if the journal is open
	Head  Head
	// Counts of all rows, sorted by phase, then operation.
	Counts     []OpCount
	Duration   uint64 // nanoseconds from the first row to the last
	Born       uint64 // processes
	Ended      uint64
	Void       uint64 // notifications whose caller was gone
	Lost       uint64 // rows that say that something could not be recorded
	Killed     uint64
	Denied     uint64
	OutOfScope uint64 // rows
	Unreadable uint64 // rows whose content the recorder could not read
	Unstable   uint64 // rows whose content changed while it was read
	Live       uint64 // rows whose content a writer could still change
	Removed    uint64 // rows with values replaced in the detail
	Pseudo     uint64 // rows with FlagPseudo on a path that is not under a kernel root: asserted to have no content
	Controls   uint64 // control files opened before the command
	Bytes      uint64 // of content, in and out
}

// Closed tells whether the journal ends with its final row. Only a closed
// journal can be CLEAN.
func (s *Summary) Closed() bool { return s.Final != nil }

// CheckHead compares the head of the rows with one that the caller trusts. The
// error is a *RuleError of RuleHead.
func (s *Summary) CheckHead(trusted Head) error {
	if s.Head == trusted {
		return nil
	}
	err := broken(RuleHead, fmt.Sprintf("run %x, %d rows, root %x", trusted.Run, trusted.Size, trusted.Root),
		"run %x, %d rows, root %x", s.Head.Run, s.Head.Size, s.Head.Root)
	err.Row = min(s.Head.Size, trusted.Size)
	return err
}

// NewChecker returns a Checker that waits for row 0.
func NewChecker() *Checker {
	return &Checker{tree: newAccumulator(), objects: map[uint32]objectState{}, ended: []bool{false}}
}

// Add checks the next row. On error, a *RuleError, the Checker is as before; the
// rows after a broken one mean nothing.
func (c *Checker) Add(raw []byte) (Row, error) {
	r, err := ParseRow(raw)
	if err != nil {
		return Row{}, at(err, c.rows())
	}
	if err := c.check(&r); err != nil {
		err.Row = c.rows()
		return Row{}, err
	}
	c.apply(&r, raw)
	return r, nil
}

// Summary of the rows so far.
func (c *Checker) Summary() Summary {
	s := c.sum
	s.Start, s.Final = c.start, c.final
	s.Counts = c.counted()
	s.Duration = c.last.Time
	s.Born = uint64(len(c.ended) - 1)
	s.Head = c.head()
	return s
}

func (c *Checker) head() Head {
	h := Head{Size: c.rows(), Root: c.tree.root()}
	if c.start != nil {
		h.Run = c.start.Run
	}
	return h
}

func (c *Checker) rows() uint64 { return c.tree.t.Size() }

func (c *Checker) counted() []OpCount {
	list := []OpCount{}
	for phase, ops := range c.counts {
		for op, n := range ops {
			if n > 0 {
				list = append(list, OpCount{Phase: Phase(phase), Op: Op(op), N: n})
			}
		}
	}
	return list
}

// check applies all rules. It changes nothing, except that an accepted dir row
// is declared (checkDir).
func (c *Checker) check(r *Row) *RuleError {
	if c.final != nil {
		return broken(RuleClosed, "the end of the journal", "a row after the final row")
	}
	if r.Seq != c.rows() {
		return broken(RuleSeq, fmt.Sprint(c.rows()), "%d", r.Seq)
	}
	if r.Phase > PhaseGrade {
		return broken(RulePhase, "setup (0), agent (1) or grade (2)", "phase %v", r.Phase)
	}
	if err := checkShape(r); err != nil {
		return err
	}
	if c.start == nil || r.Op == OpStart {
		return c.checkFirst(r)
	}
	if r.Time < c.last.Time {
		return broken(RuleTime, fmt.Sprintf("at least %d", c.last.Time), "%d", r.Time)
	}
	if r.Phase < c.last.Phase {
		return broken(RulePhase, fmt.Sprintf("at least %d", c.last.Phase), "phase %v", r.Phase)
	}
	if err := c.checkPhases(r); err != nil {
		return err
	}
	if err := c.checkProc(r); err != nil {
		return err
	}
	if err := c.checkObject(r); err != nil {
		return err
	}
	if r.Op == OpDir {
		return c.checkDir(r)
	}
	if err := c.checkScope(r); err != nil {
		return err
	}
	if r.Op == OpFinal {
		return c.checkFinal(r)
	}
	return nil
}

func (c *Checker) checkProc(r *Row) *RuleError {
	born := uint32(len(c.ended) - 1)
	if r.Proc > born {
		return broken(RuleProc, fmt.Sprintf("one of the %d processes born so far", born), "process %d", r.Proc)
	}
	if (r.Op == OpFork || r.Op == OpExit) && c.ended[r.Proc] {
		return broken(RuleProc, "a process that has not ended", "process %d in operation %v", r.Proc, r.Op)
	}
	if r.Op == OpFork && r.Child != born+1 {
		return broken(RuleProc, fmt.Sprintf("child %d, the next number", born+1), "child %d", r.Child)
	}
	return nil
}

// checkObject holds content to what earlier rows said. It stops a recorder's
// mistake, or a lie, that would date foreign content as the run's own.
func (c *Checker) checkObject(r *Row) *RuleError {
	state := c.objects[r.Object]
	switch r.Op {
	case OpStdin:
		if r.Dir == DirIn && (r.Origin == OriginModel) != c.model {
			return broken(RuleOrigin, "the role that the start row declares for stdin, driver if none", "origin %d", r.Origin)
		}
	case OpArgv:
		// The command line comes from the driver: the first of the run, and
		// those that start a phase.
		driver := r.Dir == DirIn
		first := c.argv == [PhaseGrade + 1]int{}
		if first && !driver || driver && c.argv[r.Phase] >= c.commands() {
			return broken(RuleOrigin, "driver for the first argument vector, run for the later ones of a phase", "origin %d", r.Origin)
		}
	case OpOpen, OpExec, OpInterp, OpTruncate:
		if r.Dir == DirIn && r.Origin == OriginRun && state&written == 0 {
			return broken(RuleOrigin, "an earlier row that wrote this object", "origin run for object %d", r.Object)
		}
		open := r.Op == OpOpen && r.Flags&(FlagPath|FlagTrunc|FlagPseudo|FlagDirectory|FlagUnreadable) == 0
		if open && r.Result == 0 && r.Dir == DirNone && state&written == 0 {
			return broken(RuleContent, "the version that an open for writing exposes, or an earlier row that wrote it", "no content for object %d", r.Object)
		}
	case OpWrote:
		if r.Path != nil && r.Dir == DirOut && state&writable == 0 {
			return broken(RuleOrigin, "an earlier row that opened this object for writing", "wrote of object %d", r.Object)
		}
		if r.Path == nil && state&inbound != 0 && state&writable == 0 {
			return broken(RuleOrigin, "a file that never had a name, or was opened for writing", "wrote of object %d, which came in", r.Object)
		}
	}
	return nil
}

func (c *Checker) checkDir(r *Row) *RuleError {
	if r.Path == nil || r.Object != 0 {
		return broken(RuleDir, "a path and no object", "object %d", r.Object)
	}
	// AddDir is the last check and its own rollback: it changes nothing if it
	// fails, and apply has nothing left to do.
	if err := c.table.AddDir(r.Child, r.Path.Dir, r.Path.Digest); err != nil {
		return broken(RuleDir, "the next number, a declared parent, a new directory", "%v", err)
	}
	return nil
}

func (c *Checker) checkScope(r *Row) *RuleError {
	out, err := c.outOfScope(r)
	if err != nil {
		return err
	}
	if out != (r.Flags&FlagOutOfScope != 0) {
		return broken(RuleScope, fmt.Sprintf("out of scope %v, by the start row's roots", out), "out of scope %v", !out)
	}
	return nil
}

// outOfScope decides from the roots whether one of the row's paths was used out
// of scope.
func (c *Checker) outOfScope(r *Row) (bool, *RuleError) {
	out := false
	for _, p := range [2]*PathRef{r.Path, r.Path2} {
		if p == nil {
			continue
		}
		have, _, err := c.table.Access(p.Dir, p.Digest)
		if err != nil {
			return false, broken(RuleDir, "a declared directory", "%v", err)
		}
		out = out || scope.Judge(need(r), have, scope.ResultOf(r.Result), r.Flags&FlagHidden != 0)
	}
	return out, nil
}

// Class is the class of the root that a path of an accepted row lies in, Closed
// without a path or outside every root.
func (c *Checker) Class(p *PathRef) scope.Class {
	if p == nil {
		return scope.Closed
	}
	_, class, err := c.table.Access(p.Dir, p.Digest)
	if err != nil {
		return scope.Closed
	}
	return class
}

// apply takes a row that check accepted into account.
func (c *Checker) apply(r *Row, raw []byte) {
	if r.Op == OpStart {
		c.begin(r.Start)
	}
	c.tree.add(raw)
	c.counts[r.Phase][r.Op]++
	c.last = Row{Time: r.Time, Phase: r.Phase}
	c.enter(r)
	c.track(r)
	c.tally(r)
}

func (c *Checker) track(r *Row) {
	if r.Result != 0 {
		return
	}
	state := c.objects[r.Object]
	switch r.Op {
	case OpOpen, OpExec, OpInterp:
		if r.Dir == DirIn && r.Origin != OriginRun {
			state |= inbound
		}
		if r.Op != OpOpen {
			break
		}
		if r.Flags&FlagWrite != 0 {
			state |= writable
		}
		if r.Flags&(FlagCreate|FlagTrunc) != 0 {
			state |= writable | written
		}
	case OpTruncate:
		if r.Dir == DirIn {
			state |= writable
		}
	case OpWrote:
		state |= written
	case OpMknod:
		if r.Flags&FlagPseudo == 0 {
			state |= writable | written // a new, empty file
		}
	case OpFork:
		c.ended = append(c.ended, false)
	case OpExit:
		c.ended[r.Proc] = true
		c.sum.Ended++
	case OpArgv:
		c.argv[r.Phase]++
		if r.Dir == DirOut {
			c.argv[r.Phase] = c.commands()
		}
	case OpFinal:
		c.final = r.Final
	}
	if state != 0 && r.Object != 0 {
		c.objects[r.Object] = state
	}
}

func (c *Checker) tally(r *Row) {
	s := &c.sum
	s.Bytes += r.Size
	switch r.Op {
	case OpVoid:
		s.Void++
	case OpLost:
		s.Lost++
	case OpKilled:
		s.Killed++
	case OpDenied:
		s.Denied++
	}
	for _, f := range [...]struct {
		flag Flags
		n    *uint64
	}{
		{FlagOutOfScope, &s.OutOfScope}, {FlagUnreadable, &s.Unreadable}, {FlagUnstable, &s.Unstable},
		{FlagLive, &s.Live}, {FlagRemoved, &s.Removed}, {FlagControl, &s.Controls},
	} {
		if r.Flags&f.flag != 0 {
			*f.n++
		}
	}
	if r.Flags&FlagPseudo != 0 && r.Path != nil && r.Result == 0 {
		if _, class, err := c.table.Access(r.Path.Dir, r.Path.Digest); err == nil && class != scope.Kernel {
			s.Pseudo++
		}
	}
}

func compareCounts(a, b OpCount) int {
	return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Op, b.Op), cmp.Compare(a.N, b.N))
}

func sameCounts(a, b []OpCount) bool {
	return slices.EqualFunc(a, b, func(x, y OpCount) bool { return compareCounts(x, y) == 0 })
}
