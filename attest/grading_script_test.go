package attest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Grading is what a script says of the phases beside the agent. A script with a
// step of the grade phase and none of this has a grader that gives 0.
type Grading struct {
	Runner  bool     `json:"runner,omitempty"`  // the runner chose the grader: the set says nothing
	Rule    string   `json:"rule,omitempty"`    // exit-code unless stated
	Rewards []string `json:"rewards,omitempty"` // "exit 1", "stdout 0.5", "text 1", "json 0"
	Code    uint32   `json:"code,omitempty"`    // of the grader
	How     string   `json:"how,omitempty"`     // exited unless stated: timeout, not-started, unended (no phase row)
	Agent   End      `json:"agent,omitzero"`    // how the agent phase ended
	Absent  bool     `json:"absent,omitempty"`  // the journal ends after the agent phase
	Signal  bool     `json:"signal,omitempty"`  // the set seals a completion signal: item "signal"
	Tests   bool     `json:"tests,omitempty"`   // the set seals a hidden test whole: item "test-raw"
}

// End of a phase.
type End struct {
	Code uint32 `json:"code,omitempty"`
	How  string `json:"how,omitempty"`
	Left uint32 `json:"left,omitempty"`
}

func (e End) end() journal.PhaseEnd {
	how := map[string]journal.How{"": journal.Exited, "timeout": journal.TimedOut, "not-started": journal.NotStarted}[e.How]
	return journal.PhaseEnd{Code: e.Code, How: how, Left: e.Left}
}

// grading is what the script says or implies; nil for an agent alone.
func (s Script) grading() *Grading {
	if s.Grading == nil && slices.ContainsFunc(s.Rows, func(step Step) bool { return step.Phase == "grade" }) {
		return &Grading{Rewards: []string{"exit 0"}, Code: 1}
	}
	return s.Grading
}

func (g *Grading) rule() string {
	if g.Rule == "" {
		return journal.RewardExit
	}
	return g.Rule
}

// groups adds what the set seals for grading.
func (g *Grading) groups(list []fixture.Group) []fixture.Group {
	if g != nil && g.Signal {
		list = append(list, fixture.Group{Kind: contraband.KindSignal, Class: contraband.ClassLine, Items: []string{"signal"}})
	}
	if g != nil && g.Tests {
		list = append(list, fixture.Group{Kind: contraband.KindTest, Class: contraband.ClassRaw, Items: []string{"test-raw"}})
	}
	return list
}

// sealed puts the owner's grader into the set.
func (g *Grading) sealed(set *contraband.Set) {
	if g != nil && !g.Runner {
		set.Phases = fixture.Phases(g.rule())
	}
}

// chosen puts the runner's grader into the start row.
func (g *Grading) chosen(start *journal.Start) {
	if g != nil && g.Runner {
		p := fixture.Phases(g.rule())
		start.Phases = &journal.Phases{Setup: p.Setup, Grade: p.Grade, Tests: p.Tests, Reward: p.Reward, RewardDir: p.RewardDir, Guard: p.Guard}
	}
}

func (g *Grading) finish(t testing.TB, r *fixture.Run) {
	if g == nil || g.Absent {
		return
	}
	if r.Phase != journal.PhaseGrade {
		r.Grade(g.Agent.end())
	}
	var rewards []journal.Reward
	for _, word := range g.Rewards {
		source, value, _ := strings.Cut(word, " ")
		n := map[string]journal.RewardSource{"exit": journal.FromExit, "stdout": journal.FromStdout, "text": journal.FromText, "json": journal.FromJSON}[source]
		if n == 0 {
			t.Fatalf("reward %q", word)
		}
		rewards = append(rewards, journal.Reward{Value: value, Source: n})
	}
	var end *journal.PhaseEnd
	if g.How != "unended" {
		e := End{Code: g.Code, How: g.How}.end()
		end = &e
	}
	r.Graded(rewards, end)
}

// gradeStep does the steps that only grading has, or changes that matter to it.
func gradeStep(r *fixture.Run, s Step, path string, c fixture.Content, objects map[string]uint32) (seq uint64, object uint32, ok bool) {
	switch s.Do {
	case "spawn": // a child that acts from here on
		r.Spawn()
		return 0, 0, true
	case "exec": // a file that was there, or one that the step Of wrote
		return r.Exec(path, objects[s.Of], c), 0, true
	case "create": // a file with nothing in it
		return 0, r.Make(path), true
	case "cut": // a file that was there is emptied
		return 0, r.Cut(path), true
	case "fill": // the file of the step Of gets content
		return r.Date(path, objects[s.Of], &c), objects[s.Of], true
	case "date": // it is dated, and empty
		return r.Date(path, objects[s.Of], nil), objects[s.Of], true
	case "make-folder":
		return r.Add(journal.Row{Op: journal.OpMkdir, Flags: journal.FlagText, Dir: journal.DirOut, Origin: journal.OriginRun},
			journal.Detail{Path: path, Text: []byte("name")}, &fixture.Content{Size: 4, Canonical: 4}), 0, true
	case "move": // what the step Of wrote gets another name
		return r.Add(journal.Row{Op: journal.OpRename, Flags: journal.FlagText, Dir: journal.DirOut, Origin: journal.OriginRun, Object: objects[s.Of]},
			journal.Detail{Path: path, Path2: path + ".new", Text: []byte("name")}, &fixture.Content{Size: 4, Canonical: 4}), 0, true
	case "planted":
		return r.Guard(path, journal.GuardReward, false), 0, true
	case "declared":
		return r.Guard(path, journal.GuardDeclared, false), 0, true
	case "reward-changed":
		return r.Guard(path, journal.GuardReward, true), 0, true
	case "declared-changed":
		return r.Guard(path, journal.GuardDeclared, true), 0, true
	case "hook":
		return r.Guard(path, journal.GuardHook, false), 0, true
	}
	return 0, 0, false
}
