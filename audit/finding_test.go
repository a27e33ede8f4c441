package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// rename moves a member of a submission's folder.
func rename(t testing.TB, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// nameOf the bundle of a trial.
func (k *kit) nameOf(t testing.TB, task string, trial, n uint32) string {
	t.Helper()
	for name, data := range k.bundles {
		if a := attempt(t, data); a.Task == task && a.Trial == trial && a.Attempt == n {
			return name + audit.BundleExt
		}
	}
	t.Fatalf("no bundle of %s", task)
	return ""
}

// One failure each, made on a submission that is CLEAN without it. What is
// expected is the whole list of findings, so that no failure hides another.
var failures = []struct {
	name   string
	do     func(t *testing.T, k *kit)
	policy []string // further lines
	exit   int
	want   []string
	says   string // in the detail of the first finding
}{
	{"bundle cut", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) {
			name := k.nameOf(t, "task-b", 1, 1)
			put(t, dir, name, k.bundles[strings.TrimSuffix(name, audit.BundleExt)][:4096])
		}
	}, nil, 1, []string{audit.BundleInvalid}, "want its name"},
	{"bundle of another signer", func(t *testing.T, k *kit) {
		k.runner = other
		k.signer = other
	}, nil, 1, []string{audit.SubmissionInvalid}, "want one of the 1 runner keys"},
	{"bundle whose verdict is changed", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Score = "1"
		k.folder = nil
		k.add = func() []submission.Attempt {
			for name, data := range k.bundles {
				if a := attempt(t, data); a.Task == "task-b" && a.Trial == 1 {
					bad := append([]byte{}, data...)
					bad[len(bad)-2000] ^= 1 // in the evidence
					delete(k.bundles, name)
					k.bundles[sum(bad)] = bad
				}
			}
			return nil
		}
		k.build = func(in *submission.Input) {
			for i := range in.Attempts {
				if a := &in.Attempts[i]; a.Task == "task-b" && a.Trial == 1 {
					for name, data := range k.bundles {
						if b := attempt(t, data); b.Task == "task-b" && b.Trial == 1 {
							a.Bundle = name
						}
					}
				}
			}
		}
	}, nil, 1, []string{audit.BundleInvalid}, "evidence-digest"},
	{"a receipt removed", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) { remove(t, dir, k.nameOf(t, "task-b", 1, 1)) }
	}, nil, 3, []string{audit.ReceiptMissing}, "want the bundle that the cell names"},
	{"an attempt that the grid does not name", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) {
			data, err := k.seal.Bundle(k.runner, fixture.Attempt{Task: "task-b", Trial: 1, Attempt: 2, Agent: k.agent, Model: k.model})
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, sum(data)+audit.BundleExt, data)
		}
	}, nil, 1, []string{audit.ReceiptUnlisted}, "no cell of the grid names"},
	{"two receipts swapped in the folder", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) {
			a, b := k.nameOf(t, "task-a", 1, 1), k.nameOf(t, "task-b", 1, 1)
			rename(t, dir, a, "x")
			rename(t, dir, b, a)
			rename(t, dir, "x", b)
		}
	}, nil, 1, []string{audit.ReceiptSwapped}, "is the bundle of task-b, trial 1, attempt 1"},
	{"two receipts swapped in the signed grid", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) {
			a, b := cell(s, "task-a", 1, 1), cell(s, "task-b", 1, 1)
			a.Bundle, b.Bundle, a.Receipt, b.Receipt = b.Bundle, a.Bundle, b.Receipt, a.Receipt
			a.Root, b.Root, a.Run, b.Run = b.Root, a.Root, b.Run, a.Run
			reroot(t, s, k.bundles)
		}
	}, nil, 1, []string{audit.ReceiptSwapped}, "the receipt is of task-b, trial 1, attempt 1"},
	{"a DIRTY cell called CLEAN", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Do = fixture.Cheat
		k.statement = func(s *submission.Statement) {
			c := cell(s, "task-b", 1, 1)
			c.State, c.Reasons = submission.Clean, []string{}
			retotal(t, s)
		}
	}, nil, 1, []string{audit.CellMismatch}, "state: the cell says CLEAN, the receipt DIRTY"},
	{"the same with the rule as headline", func(t *testing.T, k *kit) {
		k.headline = submission.Ruled
		k.at("task-b", 1, 1).Do = fixture.Cheat
		k.statement = func(s *submission.Statement) {
			c := cell(s, "task-b", 1, 1)
			c.State, c.Reasons = submission.Clean, []string{}
			retotal(t, s)
		}
	}, nil, 1, []string{audit.CellMismatch, audit.ScoreAbove}, "state"},
	{"a reason left out", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Do = fixture.Cheat
		k.statement = func(s *submission.Statement) {
			c := cell(s, "task-b", 1, 1)
			c.Reasons = c.Reasons[1:]
		}
	}, nil, 1, []string{audit.CellMismatch}, "reasons"},
	{"another run id", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { cell(s, "task-b", 1, 1).Run = strings.Repeat("0", 32) }
	}, nil, 1, []string{audit.CellMismatch}, "run: the cell says 000"},
	{"another journal root", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { cell(s, "task-b", 1, 1).Root = strings.Repeat("0", 64) }
	}, nil, 1, []string{audit.CellMismatch}, "journal root"},
	{"another receipt digest", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { cell(s, "task-b", 1, 1).Receipt = strings.Repeat("0", 64) }
	}, nil, 1, []string{audit.CellMismatch}, "receipt: the cell"},
	{"a root over other receipts", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) {
			s.Subject[0].Digest.SHA256 = strings.Repeat("0", 64)
			s.Subject[0].Name = submission.NamePrefix + s.ID()
		}
	}, nil, 1, []string{audit.SubmissionInvalid}, "over the receipts in the order of the grid"},
	{"a cell's score edited", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Score = "0"
		k.statement = func(s *submission.Statement) {
			cell(s, "task-b", 1, 1).Score.Value = "1"
			retotal(t, s)
		}
	}, nil, 1, []string{audit.ScoreMismatch, audit.ScoreAbove}, "the cell says asserted 1, the receipt asserted 0"},
	{"a cell's score called observed", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { cell(s, "task-b", 1, 1).Score.Source = attest.ScoreObserved }
	}, nil, 1, []string{audit.ScoreMismatch}, "the cell says observed 1"},
	{"a cell's score lowered", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) {
			cell(s, "task-b", 1, 1).Score.Value = "0"
			retotal(t, s)
		}
	}, nil, 1, []string{audit.ScoreMismatch}, "the cell says asserted 0, the receipt asserted 1"},
	{"a score where the receipt has none", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Score = ""
		k.at("task-a", 1, 1).Score = "0"
		k.statement = func(s *submission.Statement) {
			cell(s, "task-b", 1, 1).Score = &attest.Score{Value: "1", Source: attest.ScoreAsserted}
			retotal(t, s)
		}
	}, nil, 1, []string{audit.ScoreMismatch}, "the receipt has no score"},
	{"the total edited", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Score = "0"
		k.statement = func(s *submission.Statement) { s.Predicate.Score.Plain.Value = "0.990000" }
	}, nil, 1, []string{audit.ScoreAbove}, "got 0.990000, want 0.833333"},
	{"the total lowered", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { s.Predicate.Score.Plain.Value = "0.500000" }
	}, nil, 1, []string{audit.ScoreMismatch}, "got 0.500000"},
	{"an interval edited", func(t *testing.T, k *kit) {
		k.statement = func(s *submission.Statement) { s.Predicate.Score.Ruled.Interval.Low = "0.900000" }
	}, nil, 1, []string{audit.ScoreMismatch}, "0.900000 to"},
	{"unscored counted as failed", func(t *testing.T, k *kit) {
		k.headline = submission.Ruled
		k.at("task-b", 1, 1).Do = fixture.Trace
		k.statement = func(s *submission.Statement) { s.Predicate.Score.Ruled.Value = "0.833333" }
	}, nil, 1, []string{audit.UnscoredAsFailed}, "counts unscored trials as 0"},
	{"unscored left out", func(t *testing.T, k *kit) {
		k.headline = submission.Ruled
		k.at("task-b", 1, 1).Do = fixture.Trace
		k.statement = func(s *submission.Statement) { s.Predicate.Score.Ruled.Unscored = 0 }
	}, nil, 1, []string{audit.UnscoredLeftOut}, "got 5 scored, 0 unscored, 0 missing trials, want 5 scored, 1 unscored"},
	{"missing left out", func(t *testing.T, k *kit) {
		k.drop("task-b", 1, 1)
		k.statement = func(s *submission.Statement) {
			s.Predicate.Score.Plain.Missing, s.Predicate.Score.Ruled.Missing = 0, 0
		}
	}, nil, 1, []string{audit.UnscoredLeftOut}, "want 5 scored, 0 unscored, 1 missing"},
	{"unscored called missing", func(t *testing.T, k *kit) {
		k.at("task-b", 1, 1).Score = ""
		k.statement = func(s *submission.Statement) {
			s.Predicate.Score.Plain.Missing, s.Predicate.Score.Plain.Unscored = 1, 0
		}
	}, nil, 1, []string{audit.UnscoredLeftOut}, "got 5 scored, 0 unscored, 1 missing"},
	{"a task left out", func(t *testing.T, k *kit) {
		k.drop("task-c", 1, 1)
		k.drop("task-c", 2, 1)
		k.tasks = tasks[:2]
	}, nil, 3, []string{audit.GridGap}, "the grid lists 2 tasks, the benchmark has 3"},
	{"a task too many", func(t *testing.T, k *kit) {
		k.tasks = append([]string{"invented"}, tasks...)
		k.statement = func(s *submission.Statement) {
			for _, total := range []*submission.Total{&s.Predicate.Score.Plain, &s.Predicate.Score.Ruled} {
				total.Missing = 0
			}
		}
	}, nil, 3, []string{audit.GridGap}, "the grid lists 4 tasks, the benchmark has 3"},
	{"a trial left out", func(t *testing.T, k *kit) {
		k.drop("task-c", 2, 1)
		k.statement = func(s *submission.Statement) { s.Predicate.Grid = s.Predicate.Grid[:5] }
	}, nil, 3, []string{audit.GridGap}, "got 1 trial, want the 2 planned ones"},
	{"a first trial left out", func(t *testing.T, k *kit) {
		k.drop("task-a", 1, 1)
		k.statement = func(s *submission.Statement) { s.Predicate.Grid = s.Predicate.Grid[1:] }
	}, nil, 3, []string{audit.GridGap}, "trial 0 is followed by trial 2"},
	{"a member of another name", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) { put(t, dir, "notes.txt", []byte("hello")) }
	}, nil, 1, []string{audit.MemberUnknown}, "notes.txt"},
	{"a folder as member", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}, nil, 1, []string{audit.MemberUnknown}, "more"},
	{"no submission", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) { remove(t, dir, audit.MemberCOSE) }
	}, nil, 1, []string{audit.FolderUnusable}, "want the signed statement"},
	{"no envelope", func(t *testing.T, k *kit) {
		k.folder = func(t testing.TB, dir string) { remove(t, dir, audit.MemberDSSE) }
	}, nil, 1, []string{audit.SubmissionInvalid}, audit.MemberDSSE},
	{"the seal of another benchmark in the statement", func(t *testing.T, k *kit) {
		k.build = func(in *submission.Input) { in.Benchmark.Head = strings.Repeat("0", 64) }
	}, nil, 1, []string{audit.SealOther}, "its receipts are under"},
	{"another name of the benchmark", func(t *testing.T, k *kit) {
		k.build = func(in *submission.Input) { in.Benchmark.Name = "famous-bench" }
	}, nil, 1, []string{audit.SealOther}, "famous-bench"},
	{"weak tasks denied", func(t *testing.T, k *kit) {
		k.build = func(in *submission.Input) { in.Benchmark.Weak = 7 }
	}, nil, 1, []string{audit.SealOther}, "Weak:7"},
	{"receipts of two runners", func(t *testing.T, k *kit) { k.runner = other }, []string{"runner " + other.Public().String()},
		1, []string{audit.ReceiptOtherRunner}, `signed by "other.example/runner"`},
}

func TestFindings(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			k := newKit()
			f.do(t, k)
			r := run(policy(f.policy...), k.make(t))
			expect(t, r, f.exit, f.want...)
			first := r.Submissions[0].Findings[0]
			if text := first.Where + ": " + first.Detail; !strings.Contains(text, f.says) {
				t.Errorf("got %q, want it to say %q", text, f.says)
			}
			if first.Next == "" || !strings.Contains(r.Text(), "-> "+first.Next) {
				t.Errorf("no next step in\n%s", r.Text())
			}
		})
	}
}

// The list of findings is closed: each id is made by a test, and stands in the
// specification with its exit code.
func TestEveryFinding(t *testing.T) {
	source, err := os.ReadFile("finding.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../spec/submission.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests string
	files, _ := filepath.Glob("*_test.go")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(b)
	}
	consts := regexp.MustCompile(`(?m)^\t(\w+) += "([a-z-]+)"`).FindAllSubmatch(source, -1)
	if len(consts) < 23 {
		t.Fatalf("got %d finding ids, want at least 23", len(consts))
	}
	for _, c := range consts {
		if !strings.Contains(tests, "audit."+string(c[1])) {
			t.Errorf("no test expects %s", c[2])
		}
		exit := regexp.MustCompile(`\{` + string(c[1]) + `, verify\.Exit(\w+), "([^"]+)"\}`).FindSubmatch(source)
		if exit == nil {
			t.Errorf("%s has no exit code", c[2])
			continue
		}
		code := map[string]string{"Invalid": "1", "Undecided": "3"}[string(exit[1])]
		row := regexp.MustCompile("(?m)^\\| `" + string(c[2]) + "` \\| " + code + " \\| .* \\| " + regexp.QuoteMeta(string(exit[2])) + " \\|$")
		if !row.Match(page) {
			t.Errorf("spec/submission.md has no row for %s with exit %s and its next step", c[2], code)
		}
	}
}

// A rule that needs more trials than there are gives no value, and is not CLEAN
// without a word. With as many trials as it needs, and of a mean that claims
// nothing, nothing is found.
func TestTooFewTrials(t *testing.T) {
	for _, c := range []struct {
		rule     string
		unscored int // first trials of tasks
		want     []string
	}{
		{"pass@2", 0, nil}, {"pass^2", 0, nil}, {"mean", 3, nil},
		{"pass@3", 0, []string{audit.TooFewTrials}}, {"pass^3", 0, []string{audit.TooFewTrials}},
		{"pass^2", 1, []string{audit.TooFewTrials}}, {"pass@1", 3, nil},
	} {
		k := newKit()
		k.rule = c.rule
		for _, task := range k.tasks[:c.unscored] {
			k.at(task, 1, 1).Score = ""
		}
		exit := 0
		if c.want != nil {
			exit = 3
		}
		t.Run(fmt.Sprint(c.rule, c.unscored), func(t *testing.T) { expect(t, run(policy(), k.make(t)), exit, c.want...) })
	}
}

// A policy that pins only the owner leaves the signer unknown.
func TestSignerUnknown(t *testing.T) {
	p, err := verify.ParsePolicy([]byte("owner " + owner.Public().String() + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, run(p, newKit().make(t)), 3, audit.SignerUnknown)
}
