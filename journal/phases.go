package journal

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// Phases says what runs beside the agent. Setup runs before it, and Grade when
// its whole process tree is gone. It stands in the start row, so it was fixed
// before the run.
type Phases struct {
	_         struct{} `cbor:",toarray"`
	Setup     []string // argument vector run before the agent, may be empty
	Grade     []string // argument vector of the grader, run in the workspace; if empty, all below is empty too
	Tests     string   // clean absolute path where the hidden tests appear, read-only, when grading starts; "" for none
	Reward    string   // one of the Reward rules; "" without a grader
	RewardDir string   // clean absolute path of a private writable folder; "" unless Reward is RewardFile
	Guard     []string // clean paths relative to the workspace, sorted, unique: verdict and grader files
}

// Rules of what counts as the reward of a graded run.
const (
	RewardExit   = "exit-code" // 1 if the grader exits with 0, else 0
	RewardStdout = "stdout"    // the last line of the grader's output that is not blank, a decimal number
	RewardFile   = "file"      // reward.txt or reward.json in RewardDir
)

// Bounds of Phases.
const (
	MaxPhaseArgs = 64 << 10 // bytes of both argument vectors, counting one more for each argument
	MaxGuards    = 256
)

// A PhaseEnd says how the command of a phase ended.
type PhaseEnd struct {
	Code uint32 `cbor:"1,keyasint"` // exit code, 128+n if signal n ended it
	How  How    `cbor:"2,keyasint"`
	Left uint32 `cbor:"3,keyasint"` // processes that outlived the command and were killed at the boundary
}

// How a phase's command ended.
type How uint8

const (
	Exited     How = iota + 1 // by itself, or by a signal that the recorder did not send
	TimedOut                  // the recorder ended it when its time was over
	NotStarted                // it could not be started
)

// A Reward is what grading gave. Each source that the rule names and that was
// there has its own row.
type Reward struct {
	Value  string       `cbor:"1,keyasint"` // see Decimal
	Source RewardSource `cbor:"2,keyasint"`
}

// RewardSource says where a reward was read.
type RewardSource uint8

const (
	FromExit RewardSource = iota + 1
	FromStdout
	FromText // reward.txt
	FromJSON // reward.json
)

// A Guard is one file that could have decided the reward and that the run put
// there or changed: the row's path.
type Guard struct {
	Kind  GuardKind `cbor:"1,keyasint"`
	After bool      `cbor:"2,keyasint"` // changed after the grader's command had ended; else found when grading started, or, for a hook, opened
}

// GuardKind says why a file is guarded.
type GuardKind uint8

const (
	GuardReward   GuardKind = iota + 1 // it is where the reward is read
	GuardDeclared                      // the task names it (Phases.Guard)
	GuardHook                          // conftest.py, sitecustomize.py, usercustomize.py or *.pth of the run that grading opened, or a fake tool that it executed
)

// Decimal tells whether v is a reward or score in its one spelling: an optional
// minus, up to 15 digits without a leading zero, and an optional point with one
// to nine digits.
func Decimal(v string) bool {
	whole, fraction, point := strings.Cut(v, ".")
	whole = strings.TrimPrefix(whole, "-")
	if len(whole) == 0 || len(whole) > 15 || len(whole) > 1 && whole[0] == '0' || !digits(whole) {
		return false
	}
	return !point || len(fraction) > 0 && len(fraction) <= 9 && digits(fraction)
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// CheckPhases refuses phases that a start row may not state. nil is an agent
// alone.
func CheckPhases(p *Phases) error {
	if p == nil {
		return nil
	}
	if len(p.Setup) == 0 && len(p.Grade) == 0 {
		return fmt.Errorf("got phases with neither a setup nor a grade command, want null")
	}
	size := 0
	for _, arg := range slices.Concat(p.Setup, p.Grade) {
		size += len(arg) + 1
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			return fmt.Errorf("got argument %.80q of a phase, want UTF-8 without NUL", arg)
		}
	}
	if size > MaxPhaseArgs {
		return fmt.Errorf("got %d bytes of phase commands, want at most %d: put them into a script", size, MaxPhaseArgs)
	}
	for _, argv := range [][]string{p.Setup, p.Grade} {
		if len(argv) > 0 && argv[0] == "" {
			return fmt.Errorf("got a phase command without a program, want its name first")
		}
	}
	if len(p.Grade) == 0 {
		if p.Tests != "" || p.Reward != "" || p.RewardDir != "" || len(p.Guard) > 0 {
			return fmt.Errorf("got tests, a reward or guards without a grade command, want none")
		}
		return nil
	}
	return checkGrading(p)
}

func checkGrading(p *Phases) error {
	switch p.Reward {
	case RewardExit, RewardStdout, RewardFile:
	default:
		return fmt.Errorf("got reward rule %.80q, want %s, %s or %s", p.Reward, RewardExit, RewardStdout, RewardFile)
	}
	if (p.RewardDir != "") != (p.Reward == RewardFile) {
		return fmt.Errorf("got reward folder %.80q with rule %s, want one exactly for rule %s", p.RewardDir, p.Reward, RewardFile)
	}
	for _, place := range []string{p.Tests, p.RewardDir} {
		if place != "" && (!path.IsAbs(place) || path.Clean(place) != place || place == "/" || checkText(place) != nil) {
			return fmt.Errorf("got place %.80q, want a clean absolute path other than /", place)
		}
	}
	if p.Tests != "" && p.RewardDir != "" && (within(p.Tests, p.RewardDir) || within(p.RewardDir, p.Tests)) {
		return fmt.Errorf("got tests at %.80q and the reward folder at %.80q, want neither inside the other", p.Tests, p.RewardDir)
	}
	if len(p.Guard) > MaxGuards {
		return fmt.Errorf("got %d guarded paths, want at most %d", len(p.Guard), MaxGuards)
	}
	for i, g := range p.Guard {
		if g == "" || g == "." || path.IsAbs(g) || path.Clean(g) != g || g == ".." || strings.HasPrefix(g, "../") || checkText(g) != nil {
			return fmt.Errorf("got guarded path %.80q, want a clean path inside the workspace", g)
		}
		if i > 0 && p.Guard[i-1] >= g {
			return fmt.Errorf("got guarded path %.80q after %.80q, want them sorted and unique", g, p.Guard[i-1])
		}
	}
	return nil
}

// within tells whether the clean path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// checkParts holds keys 18 to 20 to their operations and ranges.
func checkParts(r *Row) *RuleError {
	if (r.Op == OpPhase) != (r.End != nil) || (r.Op == OpReward) != (r.Reward != nil) || (r.Op == OpGuard) != (r.Guard != nil) {
		return broken(RuleOp, "key 18 in phase rows, 19 in reward rows and 20 in guard rows only", "operation %v", r.Op)
	}
	switch {
	case r.End != nil && (r.End.How < Exited || r.End.How > NotStarted || r.End.Code > 255):
		return broken(RuleReward, "how 1 to 3 and a code of at most 255", "how %d, code %d", r.End.How, r.End.Code)
	case r.Reward != nil && (r.Reward.Source < FromExit || r.Reward.Source > FromJSON || !Decimal(r.Reward.Value)):
		return broken(RuleReward, "source 1 to 4 and a decimal number", "source %d, value %.40q", r.Reward.Source, r.Reward.Value)
	case r.Guard != nil && (r.Guard.Kind < GuardReward || r.Guard.Kind > GuardHook || r.Guard.Kind == GuardHook && r.Guard.After):
		return broken(RuleReward, "kind 1 to 3, a hook not after grading", "kind %d, after %v", r.Guard.Kind, r.Guard.After)
	case r.Guard != nil && r.Path == nil:
		return broken(RuleOp, "the path of the guarded file", "no key 13")
	}
	return nil
}

// phaseState is what a Checker knows of phases.
type phaseState struct {
	last    Phase // of the rows so far, the final row left out
	ended   [PhaseGrade + 1]bool
	stopped bool   // setup failed
	alive   int    // processes born and not ended
	before  uint32 // processes born before grading
	rewards [FromJSON + 1]bool
	exit    string // the reward by exit code

	// What grading did: a reward comes from there.
	executed, printed, filed bool
}

// exitReward is the reward of rule RewardExit.
func exitReward(end *PhaseEnd) string {
	if end.How == Exited && end.Code == 0 {
		return "1"
	}
	return "0"
}

// commands is how many argument vectors the driver may give in one phase. With
// phases, each starts with the environment and the command line.
func (c *Checker) commands() int {
	if c.start != nil && c.start.Phases != nil {
		return 2
	}
	return 1
}

// checkPhases forces the order of phases. Nothing counts in the grade phase, so
// a row of the agent that stood there would be hidden: grading starts only when
// the agent phase was declared to have ended and no process of it lives.
func (c *Checker) checkPhases(r *Row) *RuleError {
	p := c.start.Phases
	if r.Op == OpFinal {
		return nil
	}
	if p == nil {
		if r.Phase == PhaseGrade || r.Op == OpPhase || r.Op == OpReward || r.Op == OpGuard {
			return broken(RulePhase, "setup and agent rows only, for the start row states no phases", "operation %v in phase %v", r.Op, r.Phase)
		}
		return nil
	}
	if c.phases.ended[r.Phase] {
		return broken(RulePhase, fmt.Sprintf("no row of phase %v, which has ended", r.Phase), "operation %v", r.Op)
	}
	if r.Phase > PhaseSetup && len(p.Setup) > 0 && !c.phases.ended[PhaseSetup] {
		return broken(RulePhase, "the phase row of setup first", "a row of phase %v", r.Phase)
	}
	switch {
	case r.Phase > PhaseSetup && c.phases.stopped:
		return broken(RulePhase, "no further phase after a setup that failed", "a row of phase %v", r.Phase)
	case r.Op == OpPhase && r.Phase != PhaseGrade && r.End.How == NotStarted:
		return broken(RulePhase, "a command that was started, or no phase row", "phase %v, not started", r.Phase)
	}
	if r.Phase == PhaseGrade {
		switch {
		case len(p.Grade) == 0:
			return broken(RulePhase, "no grade phase, for the start row states no grader", "operation %v", r.Op)
		case !c.phases.ended[PhaseAgent]:
			return broken(RulePhase, "the phase row of agent first", "a row of phase grade")
		case c.phases.last < PhaseGrade && c.phases.alive > 0:
			return broken(RulePhase, "every process to end before grading starts", "%d without an exit row", c.phases.alive)
		case c.phases.last == PhaseGrade && r.Proc != 0 && r.Proc <= c.phases.before,
			c.phases.last < PhaseGrade && r.Proc != 0:
			return broken(RulePhase, "a process that was born in the grade phase", "process %d", r.Proc)
		}
	}
	return c.checkReward(r)
}

// checkReward holds reward and guard rows to grading, and a reward to the rule
// of the start row. Whoever could still write when it was read could choose it.
func (c *Checker) checkReward(r *Row) *RuleError {
	if r.Op == OpPhase && r.Phase == PhaseGrade && c.phases.rewards[FromExit] {
		// The exit code is in this row, so the reward that it gives is no choice.
		if want := exitReward(r.End); c.phases.exit != want {
			return broken(RuleReward, fmt.Sprintf("a reward of %s by exit code %d", want, r.End.Code), "%s", c.phases.exit)
		}
	}
	if r.Op != OpReward && r.Op != OpGuard {
		return nil
	}
	if r.Phase != PhaseGrade {
		return broken(RulePhase, "reward and guard rows in phase grade", "phase %v", r.Phase)
	}
	if r.Op == OpGuard {
		return nil
	}
	want := map[string][]RewardSource{RewardExit: {FromExit}, RewardStdout: {FromStdout}, RewardFile: {FromText, FromJSON}}[c.start.Phases.Reward]
	switch {
	case !slices.Contains(want, r.Reward.Source):
		return broken(RuleReward, fmt.Sprintf("one of the sources %d of rule %s", want, c.start.Phases.Reward), "source %d", r.Reward.Source)
	case c.phases.rewards[r.Reward.Source]:
		return broken(RuleReward, "one reward of a source", "a second of source %d", r.Reward.Source)
	case c.phases.alive > 0:
		return broken(RuleReward, "every process to end before the reward", "%d without an exit row", c.phases.alive)
	}
	return c.checkSource(r.Reward)
}

// checkSource asks for the rows that a reward comes from.
func (c *Checker) checkSource(w *Reward) *RuleError {
	switch {
	case w.Source == FromExit && w.Value != "0" && !c.phases.executed:
		return broken(RuleReward, "an exec in phase grade before a reward of its exit code", "none")
	case w.Source == FromStdout && !c.phases.printed:
		return broken(RuleReward, "output in phase grade before a reward that was read there", "none")
	case (w.Source == FromText || w.Source == FromJSON) && !c.phases.filed:
		return broken(RuleReward, "a file that grading wrote in a private place, the reward folder, before a reward that was read there", "none")
	}
	return nil
}

// source notes a row of grading that a reward can come from.
func (c *Checker) source(r *Row) {
	switch {
	case r.Phase != PhaseGrade || r.Result != 0:
	case r.Op == OpExec:
		c.phases.executed = true
	case r.Op == OpStdout:
		c.phases.printed = true
	case r.Op == OpGuard && r.Guard.Kind == GuardReward: // the agent's file, which voids the run
		c.phases.filed = true
	case r.Op == OpWrote || r.Op == OpRename || r.Op == OpLink:
		c.phases.filed = c.phases.filed || c.Class(r.Path) == scope.Private || r.Path2 != nil && c.Class(r.Path2) == scope.Private
	}
}

// enter takes an accepted row into account.
func (c *Checker) enter(r *Row) {
	if r.Op == OpFinal {
		return
	}
	if r.Phase == PhaseGrade && c.phases.last < PhaseGrade {
		c.phases.before = uint32(len(c.ended) - 1)
		// What the agent wrote was dated in its own phase. A file that it could
		// change is writable again only when grading opens it so.
		for n, state := range c.objects {
			c.objects[n] = state &^ writable
		}
	}
	c.phases.last = max(c.phases.last, r.Phase)
	c.source(r)
	switch r.Op {
	case OpFork:
		c.phases.alive++
	case OpExit:
		c.phases.alive--
	case OpPhase:
		c.phases.ended[r.Phase] = true
		c.phases.stopped = c.phases.stopped || r.Phase == PhaseSetup && (r.End.How != Exited || r.End.Code != 0)
	case OpReward:
		c.phases.rewards[r.Reward.Source] = true
		if r.Reward.Source == FromExit {
			c.phases.exit = r.Reward.Value
		}
	}
}
