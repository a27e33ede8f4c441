package verify_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// gradedKit is a kit whose set states a grader. before is what the agent does;
// then it writes an answer, which grading reads.
func gradedKit(before func(*fixture.Run), rewards ...journal.Reward) *kit {
	k := newKit()
	k.set = func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardFile) }
	k.record = func(r *fixture.Run) {
		before(r)
		_, answer := r.Write("/work/answer", fixture.Content{Filler: 2})
		r.Grade(journal.PhaseEnd{How: journal.Exited, Left: 2})
		r.Reread("/work/answer", answer, fixture.Content{Filler: 2})
		r.Graded(rewards, &journal.PhaseEnd{How: journal.Exited})
	}
	return k
}

var fullReward = journal.Reward{Value: "1", Source: journal.FromText}

// RT83, RT84 and all that a runner may say of a score that stands in the rows.
func TestLyingAboutTheReward(t *testing.T) {
	score := func(value, source string) func(*attest.Statement) {
		return func(s *attest.Statement) { s.Predicate.Score = &attest.Score{Value: value, Source: source} }
	}
	for _, c := range []struct {
		name   string
		before func(*fixture.Run)
		lie    func(*attest.Statement)
		check  string
	}{
		{"control", honest, nil, ""},
		{"RT83 stored CLEAN, evidence DIRTY", cheat, func(s *attest.Statement) { s.Predicate.Verdict = attest.Clean }, verify.CheckVerdict},
		{"RT84 stored DIRTY, evidence CLEAN", honest, func(s *attest.Statement) { s.Predicate.Verdict = attest.Dirty }, verify.CheckVerdict},
		{"a higher score", honest, score("2", attest.ScoreObserved), verify.CheckFields},
		{"the same score in another spelling", honest, score("1.0", attest.ScoreObserved), verify.CheckFields},
		{"the score as asserted", honest, score("1", attest.ScoreAsserted), verify.CheckFields},
		{"a higher score as asserted", honest, score("2", attest.ScoreAsserted), verify.CheckFields},
		{"no score", honest, func(s *attest.Statement) { s.Predicate.Score = nil }, verify.CheckFields},
		{"processes left behind are not told", honest, func(s *attest.Statement) { s.Predicate.Phases[0].Left = 0 }, verify.CheckFields},
		{"a phase is not told", honest, func(s *attest.Statement) { s.Predicate.Phases = s.Predicate.Phases[:1] }, verify.CheckFields},
		{"somebody else's grader", honest, func(s *attest.Statement) { s.Predicate.Grader = attest.GraderRunner }, verify.CheckFields},
		{"shared processes", honest, func(s *attest.Statement) { s.Predicate.Counts.GradeShared = 1 }, verify.CheckFields},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := gradedKit(c.before, fullReward)
			k.statement = c.lie
			want := result{verify.ExitInvalid, c.check}
			if c.check == "" {
				want.exit = verify.ExitClean
			}
			if got := of(verify.Verify(k.make(t), k.policy(), now)); got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
		})
	}
}

// RT58f: a runner that leaves a verdict file off the guard list, or grades with
// a command of its own, was not recorded under this set.
func TestRT58f_OtherGrader(t *testing.T) {
	for name, change := range map[string]func(*journal.Phases){
		"control":      nil,
		"guard list":   func(p *journal.Phases) { p.Guard = nil },
		"command":      func(p *journal.Phases) { p.Grade = []string{"true"} },
		"other folder": func(p *journal.Phases) { p.RewardDir = "/work/reward" },
	} {
		k := gradedKit(honest, fullReward)
		want := result{verify.ExitClean, ""}
		if change != nil {
			k.start = func(s *journal.Start) { change(s.Phases) }
			want = result{verify.ExitInvalid, verify.CheckBinding}
		}
		r := verify.Verify(k.make(t), k.policy(), now)
		if got := of(r); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if c := r.FailedCheck(); c != nil && (!strings.Contains(c.Detail, "(phases)") || c.Hint == "") {
			t.Errorf("%s: got %q, want the refusal phases with a hint", name, c.Detail)
		}
	}
}

// The first line says which score is only claimed, and what it counts as.
func TestScoreOnTheFirstLine(t *testing.T) {
	claimed := newKit()
	claimed.score = &attest.Score{Value: "0.75", Source: attest.ScoreAsserted}
	lied := newKit()
	lied.record, lied.score = cheat, claimed.score
	for _, c := range []struct {
		name string
		kit  *kit
		want string
	}{
		{"observed", gradedKit(honest, fullReward), "CLEAN  bench/task-1  trial 1, attempt 1  score 1  agent"},
		{"observed, DIRTY", gradedKit(cheat, fullReward), "DIRTY  bench/task-1  trial 1, attempt 1  score 1, counts as 0  agent"},
		{"asserted", claimed, "CLEAN  bench/task-1  trial 1, attempt 1  score 0.75 (asserted)  agent"},
		{"asserted, DIRTY", lied, "DIRTY  bench/task-1  trial 1, attempt 1  score 0.75 (asserted), counts as 0  agent"},
		{"the runner's grader", runnersGrader(), "CLEAN  bench/task-1  trial 1, attempt 1  score 1 (by the runner's own grader)  agent"},
		{"none", newKit(), "CLEAN  bench/task-1  trial 1, attempt 1  agent"},
		{"two sources that differ", gradedKit(honest, fullReward, journal.Reward{Value: "0", Source: journal.FromJSON}),
			"INCONCLUSIVE  bench/task-1  trial 1, attempt 1  score 0, counts as unscored  agent"},
	} {
		if text := verify.Verify(c.kit.make(t), c.kit.policy(), now).Text("x"); !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: got %.120q, want %q", c.name, text, c.want)
		}
	}
}

// runnersGrader is a kit whose set says nothing of phases.
func runnersGrader() *kit {
	k := gradedKit(honest, fullReward)
	k.set = nil
	k.start = func(s *journal.Start) {
		p := fixture.Phases(journal.RewardFile)
		s.Phases = &journal.Phases{Grade: p.Grade, Reward: p.Reward, RewardDir: p.RewardDir}
	}
	return k
}

// What the report says of grading: observed, by whose grader, how it ended.
func TestGradingInTheReport(t *testing.T) {
	k := gradedKit(honest, fullReward)
	r := verify.Verify(k.make(t), k.policy(), now)
	text := r.Text("x")
	if !strings.Contains(text, " phases      agent exited with 0, 2 processes left behind and killed; grade exited with 0\n") {
		t.Errorf("phases: got %s", text)
	}
	attested, asserted := strings.Join(r.Attested, "; "), strings.Join(r.Asserted, "; ")
	if !strings.Contains(attested, "grading") || strings.Contains(asserted, "chosen by the runner") || strings.Contains(asserted, "score") {
		t.Errorf("owner's grader: attested %s, asserted %s", attested, asserted)
	}

	k = runnersGrader()
	r = verify.Verify(k.make(t), k.policy(), now)
	if asserted = strings.Join(r.Asserted, "; "); r.Exit != verify.ExitClean || !strings.Contains(asserted, "grader chosen by the runner") {
		t.Errorf("runner's grader: exit %d, asserted %s", r.Exit, asserted)
	}

	k = gradedKit(honest)
	r = verify.Verify(k.make(t), k.policy(), now)
	if attested = strings.Join(r.Attested, "; "); r.Exit != verify.ExitUndecided || strings.Contains(attested, "grading") || r.Score != nil || len(r.Phases) != 2 {
		t.Errorf("no reward: exit %d, attested %s, score %v, phases %v", r.Exit, attested, r.Score, r.Phases)
	}
}

// Incident 9: an object that equals everything passes tests that run in one
// process with it. Nothing can tell; the report says so.
func TestIncident9_TestsShareAProcess(t *testing.T) {
	k := gradedKit(honest, fullReward)
	k.record = func(r *fixture.Run) {
		honest(r)
		_, answer := r.Write("/work/answer", fixture.Content{Filler: 2})
		r.Grade(journal.PhaseEnd{How: journal.Exited})
		r.Read("/cleanrun/tests/test.py", fixture.Content{Items: fixture.Names("g", 20)})
		r.Reread("/work/answer", answer, fixture.Content{Filler: 2})
		r.Graded([]journal.Reward{fullReward}, &journal.PhaseEnd{How: journal.Exited})
	}
	const said = "reward: tests were open in one process with the agent's code, or in one that it started (1 process)"
	r := verify.Verify(k.make(t), k.policy(), now)
	if asserted := strings.Join(r.Asserted, "; "); r.Exit != verify.ExitClean || !strings.Contains(asserted, said) {
		t.Errorf("got exit %d, asserted %s", r.Exit, asserted)
	}
	control := gradedKit(honest, fullReward)
	if asserted := strings.Join(verify.Verify(control.make(t), control.policy(), now).Asserted, "; "); strings.Contains(asserted, "one process") {
		t.Errorf("control: asserted %s", asserted)
	}
}

// What is no bundle is not called INVALID, which is a finding about one.
func TestNoBundleIsUnusable(t *testing.T) {
	r := verify.Verify([]byte("{}"), newKit().policy(), now)
	if r.Verdict != verify.Unusable || r.Exit != verify.ExitUnusable || !strings.HasPrefix(r.Text("x"), "UNUSABLE\n failed      bundle: ") ||
		strings.Contains(r.Text("x"), "INVALID") {
		t.Errorf("got %s, exit %d, %s", r.Verdict, r.Exit, r.Text("x"))
	}
	k := newKit()
	data := k.make(t)
	data[len(data)/2] ^= 1
	if r := verify.Verify(data, k.policy(), now); r.Verdict != verify.Invalid {
		t.Errorf("control: got %s", r.Verdict)
	}
}
