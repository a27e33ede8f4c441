package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var (
	owner  = fixture.NewKey("bench.example/owner")
	runner = fixture.NewKey("evals.example/runner")
	other  = fixture.NewKey("other.example/runner")
	now    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// tasks of the benchmark, in order.
var tasks = []string{"task-a", "task-b", "task-c"}

var sealed = sync.OnceValue(func() *fixture.Seal { return mustSeal(owner, "bench", tasks) })

func mustSeal(by fixture.Key, benchmark string, tasks []string) *fixture.Seal {
	s, err := fixture.NewSeal(by, benchmark, tasks)
	if err != nil {
		panic(err)
	}
	return s
}

func policy(extra ...string) *verify.Policy {
	lines := append([]string{"owner " + owner.Public().String(), "runner " + runner.Public().String()}, extra...)
	p, err := verify.ParsePolicy([]byte(strings.Join(lines, "\n")))
	if err != nil {
		panic(err)
	}
	return p
}

// A kit makes one submission: three tasks in two trials each, all CLEAN with
// score 1, unless attempts says otherwise.
type kit struct {
	seal         *fixture.Seal
	signer       fixture.Key // of the submission
	runner       fixture.Key // of the receipts
	agent, model string
	tasks        []string
	trials       uint32
	attempts     []fixture.Attempt
	rule         string
	headline     submission.Counting
	bundles      map[string][]byte // by SHA-256

	add       func() []submission.Attempt    // besides what the bundles attest
	build     func(*submission.Input)        // before the statement is made
	statement func(*submission.Statement)    // before it is signed
	folder    func(t testing.TB, dir string) // at the end
}

func newKit() *kit {
	k := &kit{seal: sealed(), signer: runner, runner: runner, agent: "agent 1.0", model: "model 2", tasks: tasks, trials: 2, rule: "mean", headline: submission.Plain}
	for _, t := range tasks {
		for trial := range uint32(2) {
			k.attempts = append(k.attempts, fixture.Attempt{Task: t, Trial: trial + 1, Attempt: 1, Score: "1"})
		}
	}
	return k
}

// at is the attempt of a trial.
func (k *kit) at(task string, trial, attempt uint32) *fixture.Attempt {
	i := slices.IndexFunc(k.attempts, func(a fixture.Attempt) bool { return a.Task == task && a.Trial == trial && a.Attempt == attempt })
	if i < 0 {
		panic(fmt.Sprintf("no attempt %s %d %d", task, trial, attempt))
	}
	return &k.attempts[i]
}

// drop takes an attempt out and returns it.
func (k *kit) drop(task string, trial, attempt uint32) fixture.Attempt {
	a := *k.at(task, trial, attempt)
	k.attempts = slices.DeleteFunc(k.attempts, func(b fixture.Attempt) bool { return b.Task == task && b.Trial == trial && b.Attempt == attempt })
	return a
}

// sum of a bundle, in hex.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// attempt is what a bundle attests, read without checks.
func attempt(t testing.TB, data []byte) submission.Attempt {
	t.Helper()
	b, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := attest.ParseStatement(u.Unauthenticated().Payload)
	if err != nil {
		t.Fatal(err)
	}
	return submission.FromReceipt(s, sha256.Sum256(data), b.Receipt)
}

// benchmark is what a submission says of a seal.
func benchmark(s *fixture.Seal) submission.Benchmark {
	head := sha256.Sum256(s.Head)
	return submission.Benchmark{Head: hex.EncodeToString(head[:]), Name: s.Claims.Benchmark, Root: hex.EncodeToString(s.Claims.Root[:]), Tasks: s.Claims.Tasks, Weak: s.Claims.Weak}
}

// make writes the submission into a new folder.
func (k *kit) make(t testing.TB) string {
	t.Helper()
	rule, err := submission.ParseRule(k.rule)
	if err != nil {
		t.Fatal(err)
	}
	in := submission.Input{
		Benchmark: benchmark(k.seal), Agent: submission.Named{Name: k.agent}, Model: submission.Named{Name: k.model},
		Tasks: k.tasks, Trials: k.trials, Rule: rule, Headline: k.headline,
	}
	k.bundles = map[string][]byte{}
	for _, a := range k.attempts {
		if a.Agent == "" {
			a.Agent, a.Model = k.agent, k.model
		}
		data, err := k.seal.Bundle(k.runner, a)
		if err != nil {
			t.Fatal(err)
		}
		k.bundles[sum(data)] = data
		in.Attempts = append(in.Attempts, attempt(t, data))
	}
	if k.add != nil {
		in.Attempts = append(in.Attempts, k.add()...)
	}
	if k.build != nil {
		k.build(&in)
	}
	s, err := submission.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if k.statement != nil {
		k.statement(s)
	}
	dir := filepath.Join(t.TempDir(), "submission")
	write(t, dir, s, k.signer, k.bundles)
	if k.folder != nil {
		k.folder(t, dir)
	}
	return dir
}

// write signs a statement and writes a submission's folder.
func write(t testing.TB, dir string, s *submission.Statement, by fixture.Key, bundles map[string][]byte) {
	t.Helper()
	data, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	cose, err := receipt.Sign1(receipt.KindSubmission, by, s.ID(), data)
	if err != nil {
		t.Fatal(err)
	}
	dsse, err := receipt.SignEnvelope(receipt.KindSubmission, by, data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, dir, audit.MemberCOSE, cose)
	put(t, dir, audit.MemberDSSE, dsse)
	for name, data := range bundles {
		put(t, dir, name+audit.BundleExt, data)
	}
}

func put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// cell of a statement.
func cell(s *submission.Statement, task string, trial, attempt uint32) *submission.Cell {
	for i := range s.Predicate.Grid {
		if c := &s.Predicate.Grid[i]; c.Task == task && c.Trial == trial && c.Attempt == attempt {
			return c
		}
	}
	panic("no cell " + task)
}

// retotal makes the totals and the root of a changed grid fit again, as a runner
// would who edits before signing. leaves are the receipts in the order of the
// grid; without them the root stays.
func retotal(t testing.TB, s *submission.Statement) {
	t.Helper()
	rule, err := s.Rule()
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Predicate
	if p.Score.Plain, p.Score.Ruled, err = submission.Totals(rule, p.Benchmark.Tasks, p.Trials, p.Grid); err != nil {
		t.Fatal(err)
	}
}

// reroot sets the subject to the receipts of the grid.
func reroot(t testing.TB, s *submission.Statement, bundles map[string][]byte) {
	t.Helper()
	var list []submission.Attempt
	for _, c := range s.Predicate.Grid {
		if c.State.Attested() {
			list = append(list, attempt(t, bundles[c.Bundle]))
		}
	}
	root := submission.Root(list)
	s.Subject[0].Digest.SHA256 = hex.EncodeToString(root[:])
	s.Subject[0].Name = submission.NamePrefix + s.ID()
}

func run(p *verify.Policy, dirs ...string) *audit.Report {
	return audit.Run(dirs, audit.Options{Policy: p, Now: now})
}

// ids of the findings of a submission, each once, in order.
func ids(s *audit.Submission) []string {
	list := []string{}
	for _, f := range s.Findings {
		if !slices.Contains(list, f.ID) {
			list = append(list, f.ID)
		}
	}
	return list
}

// expect compares exit code and findings of the one submission.
func expect(t testing.TB, r *audit.Report, exit int, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if got := ids(r.Submissions[0]); r.Exit != exit || !slices.Equal(got, want) {
		t.Fatalf("got exit %d, findings %q, want exit %d, %q\n%s", r.Exit, got, exit, want, r.Text())
	}
}

// detail of the first finding of an id.
func detail(t testing.TB, s *audit.Submission, id string) string {
	t.Helper()
	for _, f := range s.Findings {
		if f.ID == id {
			return f.Where + ": " + f.Detail
		}
	}
	t.Fatalf("no finding %s", id)
	return ""
}
