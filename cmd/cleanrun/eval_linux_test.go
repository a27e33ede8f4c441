package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/attest"
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

func TestEvalGrid(t *testing.T) {
	b := newBench(t, 6, "")
	began := time.Now()
	rep := b.eval(0, b.args("honest", honest, append(b.attested(), "-trials", "2", "-jobs", "4", "-agent-name", "honest")...)...)
	t.Logf("honest: %v, recorder %s", time.Since(began), rep.Table.Share())
	if rep.Table.States["CLEAN"] != 12 || rep.Made != 12 {
		t.Errorf("got %v, made %d, want 12 CLEAN\n%s", rep.Table.States, rep.Made, rep.Table.Text())
	}
	rep = b.eval(0, b.args("cheat", cheat, append(b.attested(), "-trials", "2", "-jobs", "4")...)...)
	if rep.Table.States["DIRTY"] != 12 {
		t.Errorf("got %v, want 12 DIRTY\n%s", rep.Table.States, rep.Table.Text())
	}
	for _, row := range rep.Table.Trials {
		if !strings.Contains(strings.Join(row.Reasons, " "), "out-of-scope") {
			t.Errorf("%s trial %d: got %q, want out-of-scope", row.Task, row.Trial, row.Reasons)
		}
	}
	// Each receipt holds for whoever has the policy.
	for _, dir := range []string{"honest", "cheat"} {
		found, err := filepath.Glob(b.at(dir + "/receipts/*.cleanrun"))
		b.ok(err)
		if len(found) != 12 {
			t.Fatalf("%s: got %d receipts, want 12", dir, len(found))
		}
		r, err := verifyFile(found[0], b.at("policy.txt"))
		b.ok(err)
		if want := map[string]string{"honest": "CLEAN", "cheat": "DIRTY"}[dir]; r.Verdict != want {
			t.Errorf("%s: verify says %s, want %s", dir, r.Text(found[0]), want)
		}
	}
	// Again: nothing is made, the table is the same. More trials: only those.
	rep = b.eval(0, b.args("honest", honest, append(b.attested(), "-trials", "2", "-agent-name", "honest")...)...)
	if rep.Made != 0 || rep.Table.States["CLEAN"] != 12 {
		t.Errorf("again: made %d, %v", rep.Made, rep.Table.States)
	}
	rep = b.eval(0, b.args("honest", honest, append(b.attested(), "-trials", "3", "-jobs", "4", "-agent-name", "honest")...)...)
	if rep.Made != 6 || rep.Table.States["CLEAN"] != 18 {
		t.Errorf("a third trial: made %d, %v", rep.Made, rep.Table.States)
	}
	if left, err := os.ReadDir(b.at("honest/staged")); err == nil {
		t.Errorf("hidden tests are left: %v", left)
	}
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
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || len(alive([]int{cmd.Process.Pid})) == 0 {
			b.t.Fatalf("it did not get that far: %s", errs.String())
		}
	}
	return cmd
}

// gone waits until none of the processes is left.
func (b *bench) gone(pids []int, mark string) {
	b.t.Helper()
	var left []int
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
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

// A kill of eval at any point leaves no process, and the same command goes on:
// finished trials are kept, killed attempts stay on record and are made again.
func TestEvalKill(t *testing.T) {
	b := newBench(t, 3, "")
	mark := b.mark()
	// Odd trials wait for ever the first time, with a process in the background and
	// a model that talks to nobody.
	script := `cat > answer.txt; if [ $2 = 2 ]; then setsid sleep ` + mark + ` & sleep ` + mark + `; fi`
	quick := `cat > answer.txt; if [ $2 = 9 ]; then sleep ` + mark + `; fi`
	for _, c := range []struct {
		name   string
		script string
		ready  func(out string) bool
		hangs  bool // attempts hang: they must be killed, and the plan cannot finish
	}{
		{"at the start", quick, func(out string) bool { _, err := os.Stat(b.at(out + "/lock")); return err == nil }, false},
		{"first attempt begun", quick, func(out string) bool {
			found, _ := filepath.Glob(b.at(out + "/attempts/*/*/journal"))
			return len(found) > 0
		}, false},
		{"after two results", quick, func(out string) bool { return b.lines(out) >= 2 }, false},
		{"receipts being made", quick, func(out string) bool { found, _ := filepath.Glob(b.at(out + "/receipts/*")); return len(found) > 2 }, false},
		{"agents hang", script, func(out string) bool { return len(marked("sleep\x00"+mark)) >= 2 && b.lines(out) >= 1 }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			out := strings.ReplaceAll(c.name, " ", "-")
			args := b.args(out, c.script, append(b.attested(), "-trials", "2", "-jobs", "2")...)
			cmd := b.begin(func() bool { return c.ready(out) }, args...)
			pids := append(descendants(cmd.Process.Pid), cmd.Process.Pid)
			b.ok(cmd.Process.Kill())
			cmd.Wait()
			b.gone(pids, mark)
			before := b.lines(out)
			if c.hangs {
				return
			}
			rep := b.eval(0, args...)
			if rep.Table.States["CLEAN"] != 6 {
				t.Errorf("got %v, want 6 CLEAN\n%s", rep.Table.States, rep.Table.Text())
			}
			// Every run folder is on record, with its receipt.
			folders, _ := filepath.Glob(b.at(out + "/attempts/*/*"))
			receipts, _ := filepath.Glob(b.at(out + "/receipts/*.cleanrun"))
			if rep.Table.Attempts != len(folders) || len(receipts) != len(folders) {
				t.Errorf("%d attempts on record, %d run folders, %d receipts", rep.Table.Attempts, len(folders), len(receipts))
			}
			if rep.Made+before > 6+rep.Table.Killed {
				t.Errorf("made %d after %d lines: finished trials were made again", rep.Made, before)
			}
			t.Logf("%d lines before, %d killed attempts on record", before, rep.Table.Killed)
		})
	}
}

// An attempt that was killed with its eval is attested as open, and the next
// number is made.
func TestEvalKilledOnRecord(t *testing.T) {
	b := newBench(t, 1, "")
	mark := b.mark()
	// The model hangs the first time only: then there is no file to wait for.
	b.write("wait", "")
	b.write("model.sh", "[ ! -e "+b.at("wait")+" ] || sleep "+mark+"\ncat \"$1\"\n")
	args := b.args("out", honest, b.attested()...)
	args[slices.Index(args, "-model-stdin")+1] = "sh " + b.at("model.sh") + " " + b.at("bench/tasks/{task}/solution/answer.txt")
	cmd := b.begin(func() bool {
		st, err := os.Stat(b.at("out/attempts/task-1/t1-a1/journal"))
		return len(marked("sleep\x00"+mark)) > 0 && err == nil && st.Size() > 0
	}, args...)
	pids := append(descendants(cmd.Process.Pid), cmd.Process.Pid)
	b.ok(cmd.Process.Kill())
	cmd.Wait()
	b.gone(pids, mark)
	b.ok(os.Remove(b.at("wait")))
	b.eval(0, args...)
	s, err := eval.Read(b.at("out"))
	b.ok(err)
	if len(s.Results) != 2 {
		t.Fatalf("got %d results, want 2: %+v", len(s.Results), s.Results)
	}
	k, next := s.Results[0], s.Results[1]
	if k.Outcome != eval.Killed || k.Verdict != "INCONCLUSIVE" || k.Retry != "journal-open" || !k.Interrupted || k.Attempt != 1 {
		t.Errorf("got %+v, want attempt 1 killed, INCONCLUSIVE, journal-open", k)
	}
	if next.Attempt != 2 || next.Outcome != eval.Completed {
		t.Errorf("got %+v, want attempt 2 completed", next)
	}
	r, err := verifyFile(b.at("out/"+k.Receipt()), b.at("policy.txt"))
	b.ok(err)
	result{report: r}.want(t, attest.Inconclusive, attest.ReasonOpen)
}

// Ctrl-C stops all, leaves killed attempts on record, and the exit code says so.
func TestEvalInterrupt(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, unix.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			b := newBench(t, 2, "")
			mark := b.mark()
			args := b.args("out", `cat > answer.txt; setsid sleep `+mark+` & sleep `+mark, "-jobs", "2")
			cmd := b.begin(func() bool { return len(marked("sleep\x00"+mark)) >= 4 }, args...)
			pids := descendants(cmd.Process.Pid)
			b.ok(cmd.Process.Signal(sig))
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("got exit code %d, want 130", code)
			}
			b.gone(pids, mark)
			s, err := eval.Read(b.at("out"))
			b.ok(err)
			if len(s.Results) != 2 {
				t.Fatalf("got %+v, want both attempts on record", s.Results)
			}
			for _, r := range s.Results {
				if r.Outcome != eval.Killed || !r.Interrupted || eval.Due([]eval.Result{r}, 0) != 2 {
					t.Errorf("got %+v, want killed, and attempt 2 due", r)
				}
			}
			if left, err := os.ReadDir(b.at("out/staged")); err == nil {
				t.Errorf("hidden tests are left: %v", left)
			}
		})
	}
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

// ls and watch look at an eval that runs, one that was killed, and one that ended.
func TestLsAndWatch(t *testing.T) {
	b := newBench(t, 2, "")
	mark := b.mark()
	args := b.args("out", `cat > answer.txt; sleep `+mark, append(b.attested(), "-agent-name", "slow")...)
	cmd := b.begin(func() bool { return len(marked("sleep\x00"+mark)) > 0 }, args...)
	want := func(what, text string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%s: got %q, want %q", what, text, p)
			}
		}
	}
	rundir := b.at("out/attempts/task-1/t1-a1")
	want("ls", b.said(0, "ls", b.dir), "eval ", "out ", "2 missing, running", "agent slow", "benchmark", "b.sealed", "2 sealed tasks")
	want("ls of the eval", b.said(0, "ls", b.at("out")), "attempts/task-1/t1-a1", "running")
	want("watch", b.said(0, "watch", "-once", b.at("out")), "2 missing, running", "task-1 t1-a1", "phase agent")
	want("watch run", b.said(0, "watch", "-once", rundir), "bench/task-1 t1-a1", "phase agent, last ")
	var now struct {
		Running bool
		Now     []struct {
			Task  string
			State followed
		}
	}
	b.ok(json.Unmarshal([]byte(b.said(0, "watch", "-json", b.at("out"))), &now))
	if !now.Running || len(now.Now) != 1 || now.Now[0].State.Phase != "agent" || now.Now[0].State.Events < 3 {
		t.Errorf("watch -json: got %+v", now)
	}
	// A watcher does not get in the way, and ends with what it watches.
	watcher := program("watch", b.at("out"))
	var seen bytes.Buffer
	watcher.Stdout, watcher.Stderr = &seen, &seen
	b.ok(watcher.Start())
	time.Sleep(300 * time.Millisecond)
	pids := descendants(cmd.Process.Pid)
	b.ok(cmd.Process.Kill())
	cmd.Wait()
	b.gone(pids, mark)
	b.ok(watcher.Wait())
	want("live watch", seen.String(), "running", "killed: the journal is open")
	want("watch after a kill", b.said(0, "watch", b.at("out")), "killed: the journal is open")
	want("watch of a killed run", b.said(0, "watch", rundir), "killed: the journal is open")
	want("ls after a kill", b.said(0, "ls", b.at("out")), "not on record: the eval was killed")

	b.eval(0, b.args("done", honest, b.attested()...)...)
	want("watch at the end", b.said(0, "watch", b.at("done")), "2 CLEAN")
	want("watch run at the end", b.said(0, "watch", b.at("done/attempts/task-1/t1-a1")), "completed, exit code 0")
	want("ls of runs", b.said(0, "ls", b.at("done/attempts/task-1")), "run", "t1-a1", "completed, exit code 0")
	want("ls of receipts", b.said(0, "ls", b.at("done/receipts")), "receipt", "says CLEAN, bench/task-1 trial 1, attempt 1")
	b.write("junk/x.cleanrun", "junk")
	want("ls of junk", b.said(0, "ls", b.at("junk")), "cannot be read")
	want("watch of nothing", b.said(2, "watch", b.dir), "neither eval.json nor a journal")
}

// Two evals do not share a folder, and a folder belongs to one plan.
func TestEvalRefuses(t *testing.T) {
	b := newBench(t, 2, "")
	mark := b.mark()
	args := b.args("out", "sleep "+mark)
	cmd := b.begin(func() bool { return len(marked("sleep\x00"+mark)) > 0 }, args...)
	said := b.said
	if s := said(2, args...); !strings.Contains(s, "another eval works") {
		t.Errorf("got %s", s)
	}
	b.ok(cmd.Process.Kill())
	cmd.Wait()
	if s := said(2, b.args("out", "true")...); !strings.Contains(s, "another eval: agent is") {
		t.Errorf("another agent: %s", s)
	}
	if s := said(2, append(args, "-timeout", "5s")...); !strings.Contains(s, "timeoutNs") {
		t.Errorf("another timeout: %s", s)
	}
	b.write("bench/tasks/task-1/workspace/readme.txt", "changed\n")
	if s := said(3, b.args("other", "true")...); !strings.Contains(s, "differ from what was sealed") {
		t.Errorf("a changed workspace: %s", s)
	}
	b.sealAll()
	if s := said(2, args...); !strings.Contains(s, "another eval: seal is") {
		t.Errorf("sealed again: %s", s)
	}
}
