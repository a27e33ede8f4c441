package audit

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// compare holds a submission to its receipts, once these are verified.
func (s *Submission) compare(o *Options) {
	for i := range s.facts {
		if s.facts[i].known {
			s.fit(i)
		}
	}
	s.root()
	s.seal()
	s.gaps()
	s.attempts(o.Policy)
	s.assurance()
	s.totals()
}

// seal looks under which seals the receipts are, and who signed these.
func (s *Submission) seal() {
	b := &s.statement.Predicate.Benchmark
	heads := map[string][]int{} // cells by head
	notices := map[string]int{}
	for i := range s.facts {
		f := &s.facts[i]
		if !f.known {
			continue
		}
		s.Owner = verify.Party{Name: f.owner.Name, Fingerprint: receipt.Fingerprint(f.owner.Key), Pinned: f.owner.Pinned}
		if f.ownerNotice != "" {
			notices[fmt.Sprintf("%s: %q, key %s", f.ownerNotice, f.owner.Name, s.Owner.Fingerprint)]++
		}
		head := ""
		if f.seal.Claims != nil {
			head = hexOf(f.seal.Head)
		}
		heads[head] = append(heads[head], i)
	}
	for _, notice := range sortedKeys(notices) {
		s.find(SealedByJudged, -1, "", "sealed by the party being judged: %s (%s)", notice, count(notices[notice], "receipt", "receipts"))
	}
	if len(heads) > 1 {
		var list []string
		for _, h := range sortedKeys(heads) {
			list = append(list, fmt.Sprintf("%s under %s", count(len(heads[h]), "receipt", "receipts"), headName(h)))
		}
		s.find(SealMixed, -1, "", "%s", strings.Join(list, ", "))
		return
	}
	for head, cells := range heads {
		if head != b.Head {
			s.find(SealOther, -1, "", "the submission names %s, its receipts are under %s", headName(b.Head), headName(head))
			continue
		}
		claims := s.facts[cells[0]].seal.Claims
		want := submission.Benchmark{Head: head, Name: claims.Benchmark, Root: hexOf(claims.Root), Tasks: claims.Tasks, Weak: claims.Weak}
		if *b != want {
			s.find(SealOther, -1, "", "the submission says of the seal %+v, the seal itself %+v", *b, want)
		}
	}
}

func headName(head string) string {
	if head == "" {
		return "no benchmark's seal"
	}
	return "the seal " + head[:16]
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// gaps looks for tasks and trials that the grid does not list.
func (s *Submission) gaps() {
	p := &s.statement.Predicate
	tasks := uint64(0)
	var seen uint32 // trials of the task so far; they are sorted
	for i := range p.Grid {
		c := &p.Grid[i]
		if i == 0 || p.Grid[i-1].Task != c.Task {
			tasks++
			seen = 0
		}
		if c.Trial > seen+1 {
			s.find(GridGap, -1, c.Task, "trial %d is followed by trial %d", seen, c.Trial)
		}
		seen = c.Trial
		if (i+1 == len(p.Grid) || p.Grid[i+1].Task != c.Task) && seen < p.Trials {
			s.find(GridGap, -1, c.Task, "got %s, want the %d planned ones", count(int(seen), "trial", "trials"), p.Trials)
		}
	}
	if tasks != p.Benchmark.Tasks {
		s.find(GridGap, -1, "", "the grid lists %s, the benchmark has %d", count(int(tasks), "task", "tasks"), p.Benchmark.Tasks)
	}
}

// attempts looks at how the attempts of each trial follow each other.
func (s *Submission) attempts(policy *verify.Policy) {
	grid := s.statement.Predicate.Grid
	made, replaced := 0, 0
	for i := range grid {
		c := &grid[i]
		if c.State == submission.Missing {
			continue
		}
		made++
		before := uint32(0)
		if i > 0 && grid[i-1].Task == c.Task && grid[i-1].Trial == c.Trial {
			before = grid[i-1].Attempt
		}
		if c.Attempt != before+1 {
			s.at(AttemptHidden, i, "the attempt before it in the grid is %d: %s not there", before, count(int(c.Attempt-before-1), "attempt is", "attempts are"))
		}
		last := i+1 == len(grid) || grid[i+1].Task != c.Task || grid[i+1].Trial != c.Trial
		if last {
			continue
		}
		replaced++
		shown := s.cell(i)
		if submission.Infrastructure(shown.State, shown.Reasons) == "" {
			s.at(AttemptReplaced, i, "it is %s%s, and another attempt stands in its place", shown.State, because(shown.Reasons))
		}
	}
	// replaced/made > rate/100
	if replaced*100 > policy.InfrastructureRate*made {
		s.find(InfrastructureRate, -1, "", "%d of %s were replaced after failures of infrastructure; the policy allows %d%%", replaced, count(made, "attempt", "attempts"), policy.InfrastructureRate)
	}
}

func because(reasons []string) string {
	if len(reasons) == 0 {
		return ""
	}
	return " (" + strings.Join(reasons, ", ") + ")"
}

// totals computes the score again: from the grid as it is stated, and from the
// receipts.
func (s *Submission) totals() {
	p := &s.statement.Predicate
	plain, ruled, err := submission.Totals(s.rule, p.Benchmark.Tasks, p.Trials, p.Grid)
	if err != nil {
		s.find(ScoreMismatch, -1, "", "%v", err)
		return
	}
	s.total("plain", &p.Score.Plain, &plain, submission.Plain)
	s.total("ruled", &p.Score.Ruled, &ruled, submission.Ruled)

	// Where no bundle verifies, the cell carries no score. That was reported: a score
	// is called too high only for what receipts say.
	real, charitable := make([]submission.Cell, len(p.Grid)), make([]submission.Cell, len(p.Grid))
	for i := range p.Grid {
		c := s.cell(i)
		real[i] = submission.Cell{Task: c.Task, Trial: c.Trial, Attempt: c.Attempt, State: c.State, Score: c.Score}
		charitable[i] = real[i]
		if c.State == Invalid {
			charitable[i] = p.Grid[i]
		}
	}
	score := submission.Score{Headline: p.Score.Headline, Rule: p.Score.Rule, K: p.Score.K}
	score.Plain, score.Ruled, err = submission.Totals(s.rule, p.Benchmark.Tasks, p.Trials, real)
	carried := score
	if err == nil {
		carried.Plain, carried.Ruled, err = submission.Totals(s.rule, p.Benchmark.Tasks, p.Trials, charitable)
	}
	if err != nil {
		s.find(ScoreMismatch, -1, "", "%v", err)
		return
	}
	s.Recomputed = &score
	// A mean without scores is an attestation alone. Who names k says that there is a value.
	if t := score.Of(score.Headline); score.K > 0 && t.Tasks < p.Benchmark.Tasks {
		s.find(TooFewTrials, -1, "", "%s needs %d scored trials of a task: got a value for %d of %s", s.rule, score.K, t.Tasks, count(int(p.Benchmark.Tasks), "task", "tasks"))
	}
	if stated, most := p.Score.Of(p.Score.Headline).Value, carried.Of(p.Score.Headline).Value; above(stated, most) {
		s.find(ScoreAbove, -1, "", "the submission says %s, its receipts carry %s", stated, orNone(most))
	}
}

// total compares a stated total with the one that follows from the stated grid,
// and says what kind of mistake it is.
func (s *Submission) total(name string, stated, want *submission.Total, by submission.Counting) {
	if *stated == *want {
		return
	}
	p := &s.statement.Predicate
	if stated.Scored+stated.Unscored+stated.Missing < want.Scored+want.Unscored+want.Missing ||
		stated.Scored == want.Scored && (stated.Unscored < want.Unscored || stated.Missing < want.Missing) {
		s.find(UnscoredLeftOut, -1, name, "got %s, want %s", trials(stated), trials(want))
	}
	if stated.Value != want.Value || stated.Interval != want.Interval || stated.Tasks != want.Tasks || stated.Scored > want.Scored {
		failed, err := submission.AsFailed(s.rule, p.Benchmark.Tasks, p.Trials, p.Grid, by)
		switch {
		case err == nil && stated.Value == failed && failed != want.Value:
			s.find(UnscoredAsFailed, -1, name, "got %s, which counts unscored trials as 0, want %s over %s", stated.Value, orNone(want.Value), trials(want))
		case above(stated.Value, want.Value):
			s.find(ScoreAbove, -1, name, "got %s, want %s, from the grid", stated.Value, orNone(want.Value))
		default:
			s.find(ScoreMismatch, -1, name, "got %s over %d tasks, %s; want %s over %d tasks, %s", orNone(stated.Value), stated.Tasks, bounds(stated), orNone(want.Value), want.Tasks, bounds(want))
		}
	}
	if s.found[UnscoredLeftOut]+s.found[UnscoredAsFailed]+s.found[ScoreAbove]+s.found[ScoreMismatch] == 0 {
		s.find(ScoreMismatch, -1, name, "got %s, want %s", trials(stated), trials(want))
	}
}

func trials(t *submission.Total) string {
	return fmt.Sprintf("%d scored, %d unscored, %d missing trials", t.Scored, t.Unscored, t.Missing)
}

func bounds(t *submission.Total) string {
	if t.Interval.Method == submission.MethodNone {
		return "no interval"
	}
	return fmt.Sprintf("%s to %s (%s)", t.Interval.Low, t.Interval.High, t.Interval.Method)
}

func orNone(v string) string {
	if v == "" {
		return "no value"
	}
	return v
}

// above tells whether a decimal is larger than another; no value is the least.
func above(a, b string) bool {
	if a == "" || b == "" {
		return a != "" && b == ""
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok1 && ok2 && x.Cmp(y) > 0
}
