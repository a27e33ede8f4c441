package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/eval"
)

// An example is a copy of examples/bench, sealed, with its agents on PATH. It has
// all 20 tasks if the test is long, else a third of them.
type example struct {
	*bench
	dir   string // the copy
	tasks int
}

// long asks for all tasks and trials of the example benchmark.
var long = os.Getenv("CLEANRUN_LONG") != ""

func newExample(t *testing.T) *example {
	t.Helper()
	need(t, "go", "python3", "sed", "grep", "timeout", "sha256sum", "cmp", "join")
	x := &example{bench: &bench{lab: newLab(t)}}
	x.dir = x.at("example")
	x.ok(os.CopyFS(x.dir, os.DirFS("../../examples/bench")))
	agents, err := filepath.Glob(x.dir + "/agent/*.sh")
	x.ok(err)
	for _, a := range agents {
		x.ok(os.Chmod(a, 0o755))
	}
	t.Setenv("PATH", x.dir+"/agent:"+os.Getenv("PATH"))
	tasks, err := filepath.Glob(x.dir + "/tasks/*")
	x.ok(err)
	if len(tasks) != 20 {
		t.Fatalf("got %d example tasks, want 20", len(tasks))
	}
	want := len(tasks)
	if !long {
		want = 0
		// Each kind of reward is among them. Those in Go, which build the standard library
		// each time, are for make long.
		for i, task := range tasks {
			if i%3 != 1 || strings.HasPrefix(filepath.Base(task), "go-") {
				x.ok(os.RemoveAll(task))
			} else {
				want++
			}
		}
	}
	out := x.cleanrun(0, "seal", "-json", "-key", x.at("audit.key"), "-sign", x.at("owner.key"), "-o", x.at("b.sealed"), x.dir+"/benchmark.yaml")
	var sealed struct {
		Tasks []struct {
			Task  string `json:"task"`
			Items int    `json:"items"`
		} `json:"tasks"`
		Left []any `json:"left"`
	}
	if err := json.Unmarshal(out, &sealed); err != nil || len(sealed.Tasks) != want || len(sealed.Left) > 0 {
		t.Fatalf("sealed %+v (%v), want %d tasks, none left out:\n%s", sealed, err, want, out)
	}
	for _, task := range sealed.Tasks {
		if task.Items < 100 {
			t.Errorf("%s: sealed %d items, want at least 100", task.Task, task.Items)
		}
	}
	x.tasks = len(sealed.Tasks)
	return x
}

// cleanrun runs a command in a process of its own and returns its stdout.
func (x *example) cleanrun(code int, args ...string) []byte {
	x.t.Helper()
	cmd := program(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		x.t.Fatalf("cleanrun %s: %v, want exit code %d:\n%s%s", strings.Join(args, " "), err, code, out, errs.String())
	}
	return out
}

func (x *example) evalArgs(agent string, trials int, more ...string) []string {
	return append(append([]string{"eval", "-benchmark", x.at("b.sealed"), "-data", x.dir + "/benchmark.yaml", "-agent", agent, "-agent-name", agent,
		"-model-stdin", "sh -c 'case {task}-{trial} in *-till-totals-1) until [ -e " + x.at("go") + " ]; do sleep 0.1; done;; esac; exec " + x.dir + "/agent/model.sh {task}'", "-trials", fmt.Sprint(trials), "-jobs", "4", "-o", x.at(agent)}, x.attested()...), more...)
}

// killed starts an eval and kills it when so many results are there and an agent
// is at work: the model of one task waits for that. Nothing of it may live on. Then
// the same command makes what is missing.
func (x *example) killed(after int, args []string) {
	x.t.Helper()
	out := filepath.Base(args[indexOf(args, "-o")+1])
	_ = os.Remove(x.at("go"))
	cmd := x.begin(func() bool { return x.lines(out) >= after && len(marked("/agent/"+out+"\x00")) > 0 }, args...)
	pids := append(descendants(cmd.Process.Pid), cmd.Process.Pid)
	x.ok(cmd.Process.Kill())
	cmd.Wait()
	x.gone(pids, "/agent/"+out+"\x00")
	x.write("go", "")
	x.cleanrun(0, append(args, "-json")...)
}

func indexOf(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// TestExampleBenchmark is the whole flow on the example benchmark: an honest and
// a cheating agent, killed in the middle and gone on with, submitted and audited.
// With CLEANRUN_LONG=1 (make long) it is 20 tasks x 3 trials.
func TestExampleBenchmark(t *testing.T) {
	x := newExample(t)
	trials := 1
	if long {
		trials = 3
	}
	cells := x.tasks * trials
	began := time.Now()
	lap := func(what string) { t.Logf("%s: %.0f s", what, time.Since(began).Seconds()) }

	after := 1 // of few tasks the last ones are soon all being graded
	if long {
		after = cells / 2
	}
	x.killed(after, x.evalArgs("honest.sh", trials))
	lap("honest")
	x.killed(after, x.evalArgs("cheat.sh", trials, "-observe"))
	lap("cheat")
	x.cleanrun(0, x.evalArgs("true", 1)...)
	lap("null")

	x.wantTrials("honest.sh", cells, func(r eval.TrialRow) bool {
		return r.State == "CLEAN" && r.Score != nil && r.Score.Source == "observed" && isOne(r.Score.Value)
	})
	x.wantTrials("cheat.sh", cells, func(r eval.TrialRow) bool {
		reasons := strings.Join(r.Reasons, " ")
		// One that was killed while it looked around is DIRTY by then, and stays so.
		whole := strings.Contains(reasons, attest.ReasonObject) || r.Outcome == eval.Killed
		return r.State == "DIRTY" && whole && strings.Contains(reasons, attest.ReasonOutOfScope)
	})
	// An agent that does nothing gets nothing, and is CLEAN: no task gives itself away.
	x.wantTrials("true", x.tasks, func(r eval.TrialRow) bool {
		return r.State == "CLEAN" && r.Score != nil && r.Score.Source == "observed" && isZero(r.Score.Value)
	})
	for _, agent := range []string{"honest.sh", "cheat.sh"} {
		s, err := eval.Read(x.at(agent))
		x.ok(err)
		killed := 0
		for _, r := range s.Results {
			if r.Outcome == eval.Killed {
				killed++
			}
		}
		if killed == 0 {
			t.Errorf("%s: no attempt is on record as killed: it was not stopped in the middle", agent)
		}
		x.cleanrun(0, "submit", "-sign", x.at("runner.key"), "-o", x.at("sub-"+agent), x.at(agent))
	}
	lap("submit")
	// Attempts that were killed are replaced ones: the policy must allow a share.
	policy, err := os.ReadFile(x.at("policy.txt"))
	x.ok(err)
	x.write("lenient.txt", string(policy)+"require infrastructure-rate 60\n")
	var rep audit.Report
	x.ok(json.Unmarshal(x.cleanrun(4, "audit", "-json", "-policy", x.at("lenient.txt"), x.at("sub-honest.sh"), x.at("sub-cheat.sh")), &rep))
	lap("audit")
	if len(rep.Submissions) != 2 {
		t.Fatalf("got %d submissions, want 2", len(rep.Submissions))
	}
	for i, want := range []struct {
		verdict      string
		clean, dirty uint64
	}{{"CLEAN", uint64(cells), 0}, {"DIRTY", 0, uint64(cells)}} {
		s := rep.Submissions[i]
		if s.Verdict != want.verdict || s.Counts.Clean != want.clean || s.Counts.Dirty != want.dirty || len(s.Findings) > 0 {
			t.Errorf("%s: got %s, %+v, findings %v; want %s, %d CLEAN, %d DIRTY", s.Dir, s.Verdict, s.Counts, s.Findings, want.verdict, want.clean, want.dirty)
		}
		if s.Source != "observed" {
			t.Errorf("%s: the score is %q, want observed", s.Dir, s.Source)
		}
	}
	// The positive control: alone, the honest submission is CLEAN. Under a policy
	// that allows no replaced attempt it is not.
	x.cleanrun(0, "audit", "-policy", x.at("lenient.txt"), x.at("sub-honest.sh"))
	x.cleanrun(3, "audit", "-policy", x.at("policy.txt"), x.at("sub-honest.sh"))
}

// wantTrials wants n trials, all as ok says.
func (x *example) wantTrials(agent string, n int, ok func(eval.TrialRow) bool) {
	x.t.Helper()
	s, err := eval.Read(x.at(agent))
	x.ok(err)
	table := eval.Tabulate(s, eval.DefaultRetries)
	if len(table.Trials) != n {
		x.t.Errorf("%s: got %d trials, want %d", agent, len(table.Trials), n)
	}
	for _, r := range table.Trials {
		if !ok(r) {
			x.t.Errorf("%s: %s trial %d: %s %v, score %+v, %s %s", agent, r.Task, r.Trial, r.State, r.Reasons, r.Score, r.Outcome, r.Note)
		}
	}
}

func isOne(v string) bool  { return worth(v, 1) }
func isZero(v string) bool { return worth(v, 0) }

func worth(v string, n int64) bool {
	r, ok := new(big.Rat).SetString(v)
	return ok && r.Cmp(big.NewRat(n, 1)) == 0
}
