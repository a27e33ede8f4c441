package submission

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
)

// An Attempt is a cell with the leaf that its receipt is in the tree over all
// receipts.
type Attempt struct {
	Cell
	Leaf [32]byte // of the receipt, LeafOf; zero without one
}

// LeafOf is the leaf hash of a receipt in the submission's tree (RFC 9162,
// section 2.1.1): the data of a leaf is the file receipt.cose.
func LeafOf(receipt []byte) [32]byte {
	return sha256.Sum256(append([]byte{0}, receipt...))
}

// FromReceipt is the attempt that a verified receipt attests. s is the statement
// in it, as derived from the evidence; bundle is the SHA-256 of the *.cleanrun
// file and receipt is the member receipt.cose.
func FromReceipt(s *attest.Statement, bundle [32]byte, receipt []byte) Attempt {
	p := &s.Predicate
	sum := sha256.Sum256(receipt)
	c := Cell{
		Task: p.Run.Task, Trial: p.Run.Trial, Attempt: p.Run.Attempt, State: State(p.Verdict), Reasons: []string{},
		Run: p.Run.ID, Root: p.Journal.Root, Score: p.Score,
		Bundle: hex.EncodeToString(bundle[:]), Receipt: hex.EncodeToString(sum[:]),
	}
	for _, r := range p.Reasons {
		c.Reasons = append(c.Reasons, r.ID)
	}
	return Attempt{c, LeafOf(receipt)}
}

// Input of Build.
type Input struct {
	Benchmark    Benchmark
	Agent, Model Named
	Tasks        []string  // of the plan, in any order; those without an attempt become missing
	Trials       uint32    // planned for each task
	Attempts     []Attempt // in any order, each once
	Rule         Rule
	Headline     Counting
}

// Build makes the statement. Every trial of every task that has no attempt
// becomes a missing cell. It is pure: the same input gives the same bytes.
func Build(in Input) (*Statement, error) {
	if len(in.Tasks) == 0 {
		return nil, bad("tasks", "none", "the tasks of the eval")
	}
	made := map[string]bool{} // trials that have an attempt
	known := map[string]bool{}
	for _, t := range in.Tasks {
		if known[t] {
			return nil, bad("tasks", quote(t)+" twice", "each task once")
		}
		known[t] = true
	}
	attempts := slices.Clone(in.Attempts)
	trial := func(task string, n uint32) string { return fmt.Sprintf("%d %s", n, task) }
	for _, a := range attempts {
		if !known[a.Task] {
			return nil, bad("attempts", "task "+quote(a.Task), "a task of the eval")
		}
		made[trial(a.Task, a.Trial)] = true
	}
	for _, t := range in.Tasks {
		for n := uint32(1); n <= in.Trials; n++ {
			if !made[trial(t, n)] {
				attempts = append(attempts, Attempt{Cell: Cell{Task: t, Trial: n, State: Missing, Reasons: []string{}}})
			}
		}
	}
	slices.SortFunc(attempts, func(a, b Attempt) int { return Order(&a.Cell, &b.Cell) })
	p := Predicate{
		Agent: in.Agent, Model: in.Model, Benchmark: in.Benchmark, Trials: in.Trials,
		Grid: make([]Cell, len(attempts)),
	}
	for _, n := range []*Named{&p.Agent, &p.Model} {
		n.Files = slices.Clone(n.Files)
		if n.Files == nil {
			n.Files = []File{}
		}
		slices.SortFunc(n.Files, func(a, b File) int { return compareFiles(a, b) })
	}
	for i := range attempts {
		p.Grid[i] = attempts[i].Cell
	}
	p.Score = Score{Headline: in.Headline, Rule: in.Rule.name, K: in.Rule.k}
	var err error
	if p.Score.Plain, p.Score.Ruled, err = Totals(in.Rule, in.Benchmark.Tasks, in.Trials, p.Grid); err != nil {
		return nil, err
	}
	root := Root(attempts)
	digest := hex.EncodeToString(root[:])
	s := &Statement{
		Type: attest.StatementType, PredicateType: PredicateType, Predicate: p,
		Subject: []attest.Subject{{Name: NamePrefix + digest[:32], Digest: attest.SubjectDigest{SHA256: digest}}},
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func compareFiles(a, b File) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// Root is the RFC 9162 root over the receipts of attempts, which are in grid
// order. Attempts without a receipt are no leaves.
func Root(attempts []Attempt) [32]byte {
	var t merkle.Tree
	for i := range attempts {
		if attempts[i].State.Attested() {
			t.Push(attempts[i].Leaf)
		}
	}
	return t.Root()
}

// Last returns, of cells in grid order, the index of each trial's last attempt:
// the one that counts.
func Last(grid []Cell) (last []int) {
	for i := range grid {
		if i+1 == len(grid) || grid[i].Task != grid[i+1].Task || grid[i].Trial != grid[i+1].Trial {
			last = append(last, i)
		}
	}
	return last
}

// Totals computes a grid's score by rule, plain and ruled. tasks is the number
// of tasks in the benchmark: trials of tasks that the grid does not list are
// missing. Cells must be well formed and in order.
func Totals(rule Rule, tasks uint64, trials uint32, grid []Cell) (plain, ruled Total, err error) {
	if rule.name == "" {
		return plain, ruled, bad("score rule", "none", "mean, pass@k or pass^k")
	}
	if tasks > contraband.MaxTasks || trials > MaxTrials {
		return plain, ruled, bad("benchmark", fmt.Sprintf("%d tasks, %d trials", tasks, trials), fmt.Sprintf("at most %d and %d", contraband.MaxTasks, MaxTrials))
	}
	plain, err = total(rule, tasks, trials, grid, Plain)
	if err == nil {
		ruled, err = total(rule, tasks, trials, grid, Ruled)
	}
	return plain, ruled, err
}

func total(rule Rule, tasks uint64, trials uint32, grid []Cell, by Counting) (Total, error) {
	var t Total
	var values, task []*big.Rat
	last := Last(grid)
	for n, i := range last {
		c := &grid[i]
		score, err := counted(c, by)
		if err != nil {
			return Total{}, err
		}
		switch {
		case score != nil:
			t.Scored++
			task = append(task, score)
		case c.State.Attested():
			t.Unscored++
		}
		if n+1 == len(last) || grid[last[n+1]].Task != c.Task {
			if v := rule.value(task); v != nil {
				values = append(values, v)
			}
			task = nil
		}
	}
	if all := tasks * uint64(trials); t.Scored+t.Unscored <= all {
		t.Missing = all - t.Scored - t.Unscored
	}
	t.Tasks = uint64(len(values))
	if mean := meanOf(values); mean != nil {
		t.Value = printDecimal(mean)
	}
	t.Interval = interval(values)
	return t, nil
}

// counted is what a cell counts as, nil if it is unscored.
func counted(c *Cell, by Counting) (*big.Rat, error) {
	if !c.State.Attested() {
		return nil, nil
	}
	if by == Ruled {
		switch c.State {
		case Dirty:
			return new(big.Rat), nil
		case Inconclusive:
			return nil, nil
		}
	}
	if c.Score == nil {
		return nil, nil
	}
	r, ok := parseDecimal(c.Score.Value)
	if !ok {
		return nil, bad(c.Name(), "score "+quote(c.Score.Value), "a decimal number")
	}
	return r, nil
}

// Rule of the statement's score.
func (s *Statement) Rule() (Rule, error) { return newRule(s.Predicate.Score.Rule, s.Predicate.Score.K) }

// Of is the total that a way of counting gives.
func (s *Score) Of(by Counting) *Total {
	if by == Ruled {
		return &s.Ruled
	}
	return &s.Plain
}

// AsFailed is the value that a grid would have if every trial without a score
// counted as 0: the mistake that an audit names.
func AsFailed(rule Rule, tasks uint64, trials uint32, grid []Cell, by Counting) (string, error) {
	zero := &attest.Score{Value: "0", Source: attest.ScoreAsserted}
	changed := slices.Clone(grid)
	for i := range changed {
		c := &changed[i]
		if score, err := counted(c, by); err != nil {
			return "", err
		} else if score == nil {
			c.State, c.Score = Clean, zero
		}
	}
	t, err := total(rule, tasks, trials, changed, by)
	return t.Value, err
}
