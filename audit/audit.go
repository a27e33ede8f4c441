// Package audit checks folders of submissions: every signature, every bundle,
// every cell of the grid against its receipt, and the score; and, across
// submissions, what no single one shows. spec/submission.md lists the findings.
//
// Limits first. What a receipt proves is what verify says of it. A run that was
// made and never numbered leaves no trace here. Agent and model are names that
// somebody wrote: two submissions with other names may be one program.
//
// The package reads the folders that it is given and nothing else: no network,
// no clock, no key.
//
//	report := audit.Run(dirs, audit.Options{Policy: policy, Now: time.Now()})
package audit

import (
	"encoding/hex"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// Options of Run.
type Options struct {
	Policy *verify.Policy // whose keys are trusted; not nil
	Now    time.Time      // as for verify.Verify
	// Seal is the SHA-256 of the signed head that the submissions must be judged
	// by. nil: the one that most of the submissions with a pinned owner name.
	Seal *[32]byte
	// Workers verify bundles at the same time; 0 is one for each processor.
	Workers int
	// Memory bounds the bytes of bundles in memory; 0 is 64 MiB. One bundle is
	// read whatever its size.
	Memory int64
	// Progress is called now and then with the bundles done and in all; it may be
	// nil.
	Progress func(done, total uint64)
}

const defaultMemory = 64 << 20

// A Report is what Run found out.
type Report struct {
	Verdict     string        `json:"verdict"` // CLEAN, DIRTY, UNDECIDED or INVALID
	Exit        int           `json:"exit"`    // 0 only if every cell of every submission holds and is CLEAN
	Seal        string        `json:"seal"`    // the head that the submissions were compared with; "" if none is known
	Bundles     uint64        `json:"bundles"` // verified
	Submissions []*Submission `json:"submissions"`
}

// A Submission is one folder. Fields after Findings are filled as far as the
// folder could be read.
type Submission struct {
	Dir       string               `json:"dir"`
	Verdict   string               `json:"verdict"`
	Exit      int                  `json:"exit"`
	Findings  []Finding            `json:"findings"`
	ID        string               `json:"id"`
	Agent     submission.Named     `json:"agent"` // asserted
	Model     submission.Named     `json:"model"` // asserted
	Runner    verify.Party         `json:"runner"`
	Owner     verify.Party         `json:"owner"` // of the seal that the receipts are under
	Benchmark submission.Benchmark `json:"benchmark"`
	Trials    uint32               `json:"trials"`
	Score     submission.Score     `json:"score"` // as stated
	// Recomputed is the score of the receipts, nil if it cannot be computed.
	Recomputed *submission.Score `json:"recomputed,omitempty"`
	// Source of the scores that count, the weakest of them: ScoreObserved, observed
	// by the runner's own grader (SourceRunner), or ScoreAsserted; "" without scores.
	Source   string `json:"source"`
	Replaced uint64 `json:"replaced"`
	Counts   Counts `json:"counts"` // of the attempts that count
	// Compact is how many bundles hold a compact proof in place of their evidence:
	// of these the aggregation is the runner's word.
	Compact uint64 `json:"compact"`
	// Logged is how many bundles reach assurance L1. The others are L0.
	Logged uint64 `json:"logged"`
	// Footprints and NamedPaths are nil if no task asks for any.
	Footprints *Footprints `json:"footprints,omitempty"`
	NamedPaths *NamedPaths `json:"named_paths,omitempty"`
	Cells      []Cell      `json:"cells"`

	statement *submission.Statement
	asks      *verify.Policy
	rule      submission.Rule
	signer    verify.Signatory
	folder    *folder
	facts     []fact         // by cell
	first     map[string]int // the first cell that names a bundle
	found     map[string]int
}

// Counts of states over the last attempt of each trial.
type Counts struct {
	Clean        uint64 `json:"clean"`
	Dirty        uint64 `json:"dirty"`
	Inconclusive uint64 `json:"inconclusive"`
	Error        uint64 `json:"error"`
	Missing      uint64 `json:"missing"`
	Invalid      uint64 `json:"invalid"` // no bundle that verifies and fits the cell
}

// SourceRunner is the source of a score that grading gave, by a grader that the
// benchmark's owner did not seal: it is as good as the runner's word.
const SourceRunner = "observed by the runner's grader"

// Invalid is the state of a cell whose bundle is absent, wrong or another one.
const Invalid submission.State = "invalid"

// A Cell is an attempt as its receipt says. Only the last attempt of a trial
// counts.
type Cell struct {
	Task    string           `json:"task"`
	Trial   uint32           `json:"trial"`
	Attempt uint32           `json:"attempt"`
	State   submission.State `json:"state"`
	Reasons []string         `json:"reasons"`
	Score   *attest.Score    `json:"score"`
	Grader  string           `json:"grader"` // who chose it: owner, runner or none
	Counts  bool             `json:"counts"`
	Bundle  string           `json:"bundle"`
	Compact bool             `json:"compact"` // the bundle holds a compact proof
	Level   string           `json:"level"`   // of assurance; "" without a bundle that verifies
	// Footprint and NamedPath are the outcomes; "" if the task asks nothing.
	Footprint string         `json:"footprint,omitempty"`
	NamedPath expect.Outcome `json:"named_path,omitempty"`
}

// A fact is what the bundle of a cell says, as far as it was verified.
type fact struct {
	known       bool // the bundle verifies
	fits        bool // and is that of the cell
	attempt     submission.Attempt
	agent       string
	model       string
	grader      string // who chose it
	compact     bool   // the bundle holds a compact proof
	runner      verify.Signatory
	owner       verify.Signatory
	seal        verify.Seal
	open        *verify.Check // a check that could not be decided
	assurance   verify.Assurance
	killed      bool // registered, and killed
	footprint   string
	named       expect.Outcome
	checkpoints []verify.Checkpoint
	ownerNotice string // why the owner is no third party; "" if it is pinned and another key than the runner's
}

// Run audits folders. It never fails: what cannot be read is a finding.
func Run(dirs []string, o Options) *Report {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	r := &Report{Submissions: []*Submission{}}
	for _, dir := range dirs {
		s := &Submission{Dir: dir, Findings: []Finding{}, Cells: []Cell{}, found: map[string]int{}, asks: o.Policy}
		s.open(&o)
		r.Submissions = append(r.Submissions, s)
	}
	r.Bundles = verifyAll(r.Submissions, &o)
	for _, s := range r.Submissions {
		if s.statement != nil {
			s.compare(&o)
		}
		if s.folder != nil {
			s.folder.close()
		}
	}
	across(r, &o)
	for _, s := range r.Submissions {
		s.finish()
		r.Exit = worse(r.Exit, s.Exit)
	}
	if len(r.Submissions) == 0 {
		r.Exit = verify.ExitUndecided
	}
	r.Verdict = verdictOf(r.Exit)
	return r
}

// worse of two exit codes: INVALID, then DIRTY, then undecided, then CLEAN.
func worse(a, b int) int {
	for _, code := range []int{verify.ExitInvalid, verify.ExitDirty, verify.ExitUndecided} {
		if a == code || b == code {
			return code
		}
	}
	return verify.ExitClean
}

func verdictOf(exit int) string {
	switch exit {
	case verify.ExitClean:
		return string(attest.Clean)
	case verify.ExitDirty:
		return string(attest.Dirty)
	case verify.ExitInvalid:
		return verify.Invalid
	}
	return verify.Undecided
}

// A job is one bundle to verify.
type job struct {
	s    *Submission
	cell int
}

// verifyAll verifies the bundles of all cells, each by one worker, and fills the
// facts. A bundle that several cells of a grid name is verified once: their number
// is the runner's choice.
func verifyAll(list []*Submission, o *Options) uint64 {
	type copied struct{ from, to *fact }
	var again []copied
	var jobs []job
	for _, s := range list {
		if s.statement == nil {
			continue
		}
		first := map[string]int{} // cells, by bundle
		for i := range s.statement.Predicate.Grid {
			c := &s.statement.Predicate.Grid[i]
			if !c.State.Attested() {
				continue
			}
			if j, ok := first[c.Bundle]; ok {
				again = append(again, copied{&s.facts[j], &s.facts[i]})
				continue
			}
			first[c.Bundle] = i
			jobs = append(jobs, job{s, i})
		}
		s.first = first
	}
	checker := newChecker(o)
	next := make(chan job)
	var done progress
	var wg sync.WaitGroup
	for range o.Workers {
		wg.Go(func() {
			var buf []byte
			for j := range next {
				buf = checker.check(j.s, j.cell, buf)
				done.step(uint64(len(jobs)), o.Progress)
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	wg.Wait()
	for _, c := range again {
		*c.to = *c.from
	}
	return uint64(len(jobs))
}

// progress counts bundles and tells one caller at a time.
type progress struct {
	mu   sync.Mutex
	done uint64
}

func (p *progress) step(total uint64, tell func(done, total uint64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if tell != nil && (p.done%64 == 0 || p.done == total) {
		tell(p.done, total)
	}
}

// finish fills what is shown and decides the exit code.
func (s *Submission) finish() {
	s.sortFindings()
	for _, f := range s.Findings {
		s.Exit = worse(s.Exit, f.Exit)
	}
	if s.statement == nil {
		s.Exit = worse(s.Exit, verify.ExitInvalid)
		s.Verdict = verdictOf(s.Exit)
		return
	}
	last := submission.Last(s.statement.Predicate.Grid)
	for i := range s.statement.Predicate.Grid {
		c := s.cell(i)
		c.Counts = len(last) > 0 && last[0] == i
		if c.Counts {
			last = last[1:]
			s.count(&c)
			s.surroundings(&c)
		} else {
			s.Replaced++
			if c.State == submission.Dirty {
				s.Exit = worse(s.Exit, verify.ExitDirty) // a second try does not undo the first
			}
		}
		if c.Compact {
			s.Compact++
		}
		if c.Level == verify.L1 {
			s.Logged++
		}
		s.Cells = append(s.Cells, c)
	}
	s.Verdict = verdictOf(s.Exit)
}

// cell is what the receipt of cell i says.
func (s *Submission) cell(i int) Cell {
	stated, f := &s.statement.Predicate.Grid[i], &s.facts[i]
	c := Cell{Task: stated.Task, Trial: stated.Trial, Attempt: stated.Attempt, State: stated.State, Reasons: []string{}, Bundle: stated.Bundle}
	switch {
	case !stated.State.Attested():
	case !f.known || !f.fits:
		c.State = Invalid
	default:
		c.State, c.Reasons, c.Score, c.Grader = f.attempt.State, f.attempt.Reasons, f.attempt.Score, f.grader
		c.Compact, c.Level, c.Footprint, c.NamedPath = f.compact, f.assurance.Level, f.footprint, f.named
	}
	return c
}

// count adds an attempt that counts to the counts and to the exit code.
func (s *Submission) count(c *Cell) {
	switch c.State {
	case submission.Clean:
		s.Counts.Clean++
	case submission.Dirty:
		s.Counts.Dirty++
		s.Exit = worse(s.Exit, verify.ExitDirty)
	case submission.Inconclusive:
		s.Counts.Inconclusive++
	case submission.Failed:
		s.Counts.Error++
	case submission.Missing:
		s.Counts.Missing++
	default:
		s.Counts.Invalid++
	}
	if c.State != submission.Clean {
		s.Exit = worse(s.Exit, verify.ExitUndecided)
	}
	if c.Score != nil {
		source := c.Score.Source
		if source == attest.ScoreObserved && c.Grader == attest.GraderRunner {
			source = SourceRunner
		}
		s.Source = weaker(s.Source, source)
	}
}

// weaker of two sources of scores.
func weaker(a, b string) string {
	for _, s := range []string{attest.ScoreAsserted, SourceRunner, attest.ScoreObserved} {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:]) }

// sortedKeys of a map.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
