package attest_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// gradeOracle answers what spec/statement.md says of grading, from a script's
// words, each question by walking the steps again.
type gradeOracle struct{ s Script }

func (o gradeOracle) positive() bool {
	return slices.ContainsFunc(o.values(), func(v *big.Rat) bool { return v.Sign() > 0 })
}

func (o gradeOracle) values() (list []*big.Rat) {
	for _, r := range o.s.Grading.Rewards {
		v, ok := new(big.Rat).SetString(r[strings.IndexByte(r, ' ')+1:])
		if !ok {
			panic(r)
		}
		list = append(list, v)
	}
	return list
}

// agent is the steps of the agent phase, and grade those after.
func (o gradeOracle) agent() (steps []Step) {
	for _, s := range o.s.Rows {
		if s.Phase == "" {
			steps = append(steps, s)
		}
	}
	return steps
}

// written tells whether the agent phase wrote content under a name of the script.
func (o gradeOracle) written(name string) bool {
	return slices.ContainsFunc(o.agent(), func(s Step) bool { return s.Do == "write" && s.As == name })
}

func (o gradeOracle) holdsTest(s Step) bool {
	g := 0
	for _, item := range s.items() {
		if item == "test-raw" && o.s.Grading.Tests {
			return true
		}
		if strings.HasPrefix(item, "g") {
			g++
		}
	}
	return g >= 3
}

func opens(s Step) bool { return s.Do == "read" || s.Do == "reread" || s.Do == "exec" }

// process is who does step i: the number of processes that grading started
// before, since each child acts until the next one.
func (o gradeOracle) process(i int) (n int) {
	for _, s := range o.s.Rows[:i+1] {
		if s.Do == "spawn" {
			n++
		}
	}
	return n
}

// has tells whether the process of step i has something in memory after it: what
// it opened since its last exec or, before one, since its birth, and what its
// parent had then.
func (o gradeOracle) has(i int, what func(Step) bool) bool {
	if i < 0 || o.s.Rows[i].Phase != "grade" {
		return false
	}
	s := o.s.Rows[i]
	switch {
	case opens(s) && what(s):
		return true
	case s.Do == "exec":
		return false
	}
	return o.has(i-1, what) // an earlier step of the process, or of its parent before the birth
}

// below tells whether the process of step i, or one that it descends from, ever
// had something in memory before.
func (o gradeOracle) below(i int, what func(Step) bool) bool {
	for k := range i {
		if o.s.Rows[k].Phase == "grade" && opens(o.s.Rows[k]) && what(o.s.Rows[k]) {
			return true // each child acts until the next one: all earlier ones are its parents
		}
	}
	return false
}

func (o gradeOracle) derive() (reasons []string, shared int) {
	g := o.s.Grading
	add := func(id string, yes bool) {
		if yes {
			reasons = append(reasons, id)
		}
	}
	failed := g.How != "" || g.Code == 126 || g.Code == 127 || g.Code >= 129 && g.Code <= 192
	add(attest.ReasonGradeFailed, failed)
	values := o.values()
	add(attest.ReasonNoReward, len(values) == 0 && !failed)
	add(attest.ReasonConflict, len(values) == 2 && values[0].Cmp(values[1]) != 0)
	var signal, test, answer bool
	processes := map[int]bool{}
	ours := func(s Step) bool { return s.Of != "" && o.written(s.Of) }
	for i, s := range o.s.Rows {
		if s.Phase != "grade" {
			continue
		}
		signal = signal || s.Do == "stdout" && slices.Contains(s.items(), "signal")
		test = test || opens(s) && slices.Contains(s.items(), "test-raw")
		answer = answer || opens(s) && ours(s)
		if opens(s) && o.has(i, o.holdsTest) && (o.has(i, ours) || o.below(i, ours)) {
			processes[o.process(i)] = true
		}
	}
	contents := !slices.ContainsFunc(o.agent(), func(s Step) bool { return s.Do == "create" || s.Do == "make-folder" || s.Do == "remove" })
	if o.positive() {
		add(attest.ReasonNoSignal, g.Signal && !signal)
		add(attest.ReasonTestsUnread, g.Tests && !test)
		add(attest.ReasonAnswerUnread, contents && !answer)
	}
	return reasons, len(processes)
}

// randomGrading draws a graded run whose agent sees nothing sealed.
func randomGrading(rng *rand.Rand) Script {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	s := Script{
		Grading: &Grading{Rule: journal.RewardFile, Signal: rng.IntN(2) == 0, Tests: rng.IntN(2) == 0, Runner: rng.IntN(2) == 0},
		Rows:    []Step{{Do: "command"}, {Do: "read"}},
	}
	g := s.Grading
	values := []string{"1", "1.0", "0", "-1", "0.25", "0.000000001", "999999999999999.999999999", "999999999999999.999999998"}
	for _, source := range []string{"text", "json"} {
		if rng.IntN(4) > 0 {
			g.Rewards = append(g.Rewards, source+" "+values[rng.IntN(len(values))])
		}
	}
	if rng.IntN(4) == 0 {
		g.How = pick("timeout", "not-started", "unended")
	}
	if g.How != "unended" {
		g.Code = []uint32{0, 0, 0, 1, 126, 127, 128, 129, 192, 193, 255}[rng.IntN(11)]
	}
	var wrote []string
	for range rng.IntN(4) {
		step := Step{Do: pick("write", "write", "write", "read", "create", "make-folder", "remove", "move"), Path: fmt.Sprintf("/work/f%d", len(s.Rows))}
		switch step.Do {
		case "write":
			step.As = fmt.Sprintf("w%d", len(wrote))
			wrote = append(wrote, step.As)
		case "move":
			if len(wrote) == 0 {
				continue
			}
			step.Of = wrote[rng.IntN(len(wrote))]
		}
		s.Rows = append(s.Rows, step)
	}
	s.Rows = append(s.Rows, Step{Do: "read", Phase: "grade"})
	for range rng.IntN(7) {
		step := Step{Phase: "grade", Do: pick("read", "read", "reread", "spawn", "exec", "stdout")}
		switch step.Do {
		case "read":
			step.Items = pick("", "g1..g3", "g1 g2", "f2..f9")
			if g.Tests && rng.IntN(2) == 0 {
				step.Items = "test-raw"
			}
		case "exec", "reread":
			if len(wrote) > 0 {
				step.Of = wrote[rng.IntN(len(wrote))]
			} else if step.Do == "reread" {
				continue
			}
			if step.Do == "exec" && rng.IntN(2) == 0 {
				step.Of = ""
			}
		case "stdout":
			if g.Signal && rng.IntN(2) == 0 {
				step.Items = "signal"
			}
		}
		s.Rows = append(s.Rows, step)
	}
	return s
}

func TestGradingEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	seen := map[string]int{}
	for round := range rounds {
		s := randomGrading(rng)
		p := play(t, s)
		d := deriveTwice(t, p)
		want, shared := gradeOracle{s}.derive()
		if diff := gocmp.Diff(want, reasonIDs(d)); diff != "" {
			t.Fatalf("round %d: %+v, %+v\n(-oracle +got):\n%s", round, s.Rows, s.Grading, diff)
		}
		if d.Counts.GradeShared != uint64(shared) {
			t.Fatalf("round %d: %+v: got %d shared processes, want %d", round, s.Rows, d.Counts.GradeShared, shared)
		}
		for _, id := range want {
			seen[id]++
		}
		if len(want) == 0 {
			seen["none"]++
		}
		if shared > 0 {
			seen["shared"]++
		}
		// The lowest reward is the score.
		values := gradeOracle{s}.values()
		if (d.Observed != nil) != (len(values) > 0) {
			t.Fatalf("round %d: observed %v of %v", round, d.Observed, s.Grading.Rewards)
		}
		for _, v := range values {
			if got, _ := new(big.Rat).SetString(d.Observed.Value); got.Cmp(v) > 0 {
				t.Fatalf("round %d: observed %v of %v", round, d.Observed, s.Grading.Rewards)
			}
		}
	}
	for _, id := range []string{attest.ReasonGradeFailed, attest.ReasonNoReward, attest.ReasonConflict, attest.ReasonNoSignal, attest.ReasonTestsUnread,
		attest.ReasonAnswerUnread, "none", "shared"} {
		if seen[id] < rounds/50 {
			t.Errorf("only %d of %d runs with %s", seen[id], rounds, id)
		}
	}
}
