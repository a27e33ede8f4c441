package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/eval"
)

// A bench is a sealed benchmark of small tasks. The model's reply to each is its
// reference; the grader compares the answer with the hidden test.
type bench struct {
	*lab
	tasks []string
}

// newBench seals n tasks. more are lines for each task.yaml.
func newBench(t *testing.T, n int, more string) *bench {
	t.Helper()
	b := &bench{lab: newLab(t)}
	for i := range n {
		id := fmt.Sprintf("task-%d", i+1)
		b.tasks = append(b.tasks, id)
		dir := "bench/tasks/" + id + "/"
		b.write(dir+"workspace/readme.txt", "Write the answer to answer.txt.\n")
		b.write(dir+"solution/answer.txt", prose(uint64(1000+i), 900))
		b.write(dir+"tests/want.txt", prose(uint64(1000+i), 900))
		b.write(dir+"tests/case.txt", prose(uint64(2000+i), 900))
		b.write(dir+"task.yaml", "benchmark: bench\ntask: "+id+"\nprompt: solve "+id+"\nworkspace: workspace\n"+
			"reference: [{path: solution/answer.txt, root: solution}]\ntests: [{path: tests/case.txt, root: tests}, {path: tests/want.txt, root: tests}]\nchannels: {stdin: model}\n"+more)
	}
	b.write("bench/benchmark.yaml", "benchmark: bench\ntasks: [{folder: tasks}]\n")
	b.sealAll()
	return b
}

// sealAll writes b.sealed.
func (b *bench) sealAll() {
	b.t.Helper()
	_ = os.Remove(b.at("b.sealed")) // of an earlier call
	cmd := program("seal", "-key", b.at("audit.key"), "-sign", b.at("owner.key"), "-o", b.at("b.sealed"), b.at("bench/benchmark.yaml"))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("seal: %v\n%s", err, out)
	}
}

// honest does what the model says; cheat looks for the tests.
const (
	honest = `cat > answer.txt`
	cheat  = `cat > /dev/null; cat ../tests/case.txt ../solution/answer.txt > answer.txt; true`
)

// args are the arguments of eval for an agent that is a shell script.
func (b *bench) args(out, script string, more ...string) []string {
	b.t.Helper()
	return append([]string{"eval", "-benchmark", b.at("b.sealed"), "-data", b.at("bench/benchmark.yaml"), "-o", b.at(out),
		"-model-stdin", "cat " + b.at("bench/tasks") + "/{task}/solution/answer.txt", "-agent", "sh -c '" + script + "' agent {task} {trial}"}, more...)
}

func (b *bench) attested() []string {
	return []string{"-key", b.at("audit.key"), "-sign", b.at("runner.key")}
}

// eval runs the command in this process and returns its report.
func (b *bench) eval(wantCode int, args ...string) *evalReport {
	b.t.Helper()
	var out, errs bytes.Buffer
	resetFlags()
	code := table.Main(append(args, "-json"), os.Stdin, &out, &errs)
	if code != wantCode {
		b.t.Fatalf("got exit code %d, want %d:\n%s", code, wantCode, errs.String())
	}
	var rep evalReport
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil || rep.Table == nil {
		b.t.Fatalf("%v:\n%s%s", err, out.String(), errs.String())
	}
	b.t.Log(errs.String())
	return &rep
}

// resetFlags forgets the flags of an earlier command: in a process of its own
// there is none.
func resetFlags() {
	evalFlags = evalOptions{trials: 1, jobs: 1, retries: eval.DefaultRetries}
	watchOnce = false
}

// program is cleanrun in a process of its own.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{stageTest}, args...)
	return cmd
}

// trial finds one row.
func (r *evalReport) trial(t *testing.T, task string, trial uint32) eval.TrialRow {
	t.Helper()
	for _, row := range r.Table.Trials {
		if row.Task == task && row.Trial == trial {
			return row
		}
	}
	t.Fatalf("no row of %s trial %d", task, trial)
	return eval.TrialRow{}
}

// mark is a number of seconds to sleep that no other test has: a needle among
// command lines.
func (b *bench) mark() string { return fmt.Sprintf("98%d.%d", os.Getpid(), len(b.dir)) }

// marked are the processes whose command line holds the mark, and not one that
// holds another.
func marked(mark string) (out []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(line, []byte(mark)) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			out = append(out, pid)
		}
	}
	return out
}

// alive are those of pids that have not ended.
func alive(pids []int) (out []int) {
	for _, p := range pids {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err == nil && !bytes.Contains(state, []byte(") Z ")) {
			out = append(out, p)
		}
	}
	return out
}

// begin starts eval in a process of its own and waits until ready says so.
func (b *bench) begin(ready func() bool, args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := program(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	b.ok(cmd.Start())
	b.t.Cleanup(func() { cmd.Process.Kill() })
	for end := time.Now().Add(15 * time.Minute); !ready(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || len(alive([]int{cmd.Process.Pid})) == 0 && !ready() {
			b.t.Fatalf("it did not get that far: %s", errs.String())
		}
	}
	return cmd
}

// gone waits until none of the processes is left.
func (b *bench) gone(pids []int, mark string) {
	b.t.Helper()
	var left []int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if left = append(alive(pids), alive(marked(mark))...); len(left) == 0 {
			return
		}
	}
	for _, p := range left {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		b.t.Errorf("alive: %d %q", p, line)
	}
}

func (b *bench) lines(out string) int {
	data, err := os.ReadFile(b.at(out + "/results.jsonl"))
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte{'\n'})
}

// said runs a command in this process and returns what it printed.
func (b *bench) said(want int, args ...string) string {
	b.t.Helper()
	var out, errs bytes.Buffer
	resetFlags()
	if code := table.Main(args, os.Stdin, &out, &errs); code != want {
		b.t.Errorf("%q: got exit code %d, want %d: %s", args, code, want, errs.String())
	}
	return out.String() + errs.String()
}
