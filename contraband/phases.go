package contraband

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Phases says what runs beside the agent, as the owner seals it. The start row
// of a run must state the same (journal.Phases has the same shape and rules).
type Phases struct {
	_         struct{} `cbor:",toarray"`
	Setup     []string // argument vector run before the agent, may be empty
	Grade     []string // argument vector of the grader, run in the workspace; if empty, all below is empty too
	Tests     string   // clean absolute path where the hidden tests appear, read-only, when grading starts; "" for none
	Reward    string   // "exit-code", "stdout" or "file"; "" without a grader
	RewardDir string   // clean absolute path of a private writable folder; "" unless Reward is "file"
	Guard     []string // clean paths relative to the workspace, sorted, unique: verdict and grader files
}

// Bounds of Phases.
const (
	maxPhaseArgs = 64 << 10 // bytes of both argument vectors, counting one more for each argument
	maxGuards    = 256
)

// CheckPhases refuses phases that a set may not hold. nil is fine: the task says
// nothing. The error is a *SetError.
func CheckPhases(p *Phases) error {
	if p == nil {
		return nil
	}
	if len(p.Setup) == 0 && len(p.Grade) == 0 {
		return broken(RulePhases, "commands", "neither setup nor grade", "one of them, or no phases")
	}
	size := 0
	for _, arg := range slices.Concat(p.Setup, p.Grade) {
		size += len(arg) + 1
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			return broken(RulePhases, "commands", fmt.Sprintf("%.80q", arg), "UTF-8 without NUL")
		}
	}
	if size > maxPhaseArgs {
		return broken(RulePhases, "commands", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d: put them into a script", maxPhaseArgs))
	}
	for _, argv := range [][]string{p.Setup, p.Grade} {
		if len(argv) > 0 && argv[0] == "" {
			return broken(RulePhases, "commands", `""`, "the name of a program first")
		}
	}
	if len(p.Grade) == 0 {
		if p.Tests != "" || p.Reward != "" || p.RewardDir != "" || len(p.Guard) > 0 {
			return broken(RulePhases, "grade", "tests, a reward or guards without a grade command", "none of them")
		}
		return nil
	}
	return checkGrading(p)
}

func checkGrading(p *Phases) error {
	switch p.Reward {
	case "exit-code", "stdout", "file":
	default:
		return broken(RulePhases, "reward", fmt.Sprintf("%.80q", p.Reward), "exit-code, stdout or file")
	}
	if (p.RewardDir != "") != (p.Reward == "file") {
		return broken(RulePhases, "reward folder", fmt.Sprintf("%.80q with rule %s", p.RewardDir, p.Reward), "one exactly for rule file")
	}
	for _, place := range []string{p.Tests, p.RewardDir} {
		if place != "" && (!path.IsAbs(place) || path.Clean(place) != place || place == "/" || !checkPlace(place)) {
			return broken(RulePhases, "places", fmt.Sprintf("%.80q", place), "a clean absolute path other than /")
		}
	}
	if p.Tests != "" && p.RewardDir != "" && (within(p.Tests, p.RewardDir) || within(p.RewardDir, p.Tests)) {
		return broken(RulePhases, "places", fmt.Sprintf("%.80q and %.80q", p.Tests, p.RewardDir), "neither inside the other")
	}
	if len(p.Guard) > maxGuards {
		return broken(RulePhases, "guard", len(p.Guard), fmt.Sprintf("at most %d paths", maxGuards))
	}
	for i, g := range p.Guard {
		if g == "" || g == "." || path.IsAbs(g) || path.Clean(g) != g || g == ".." || strings.HasPrefix(g, "../") || !checkPlace(g) {
			return broken(RulePhases, "guard", fmt.Sprintf("%.80q", g), "a clean path inside the workspace")
		}
		if i > 0 && p.Guard[i-1] >= g {
			return broken(RulePhases, "guard", fmt.Sprintf("%.80q after %.80q", g, p.Guard[i-1]), "paths sorted, each once")
		}
	}
	return nil
}

// checkPlace holds a path to what a start row may show.
func checkPlace(p string) bool {
	return len(p) <= maxName && !strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) })
}

// within tells whether the clean path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
