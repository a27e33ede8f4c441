package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/eval"
)

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
	b.shared("honest")
}

// shared checks that attempts keep large contents together, and that one of them, read
// through its links, derives the same verdict again.
func (b *bench) shared(out string) {
	b.t.Helper()
	found, err := filepath.Glob(b.at(out + "/attempts/*/*/objects/*/*"))
	b.ok(err)
	var all, disk int64
	seen := map[uint64]bool{}
	run := ""
	for _, p := range found {
		var st unix.Stat_t
		b.ok(unix.Lstat(p, &st))
		all += st.Blocks * 512
		if !seen[st.Ino] {
			disk += st.Blocks * 512
		} else {
			run = filepath.Dir(filepath.Dir(filepath.Dir(p)))
		}
		seen[st.Ino] = true
	}
	b.t.Logf("%s: contents of %d bytes take %d on the disk", out, all, disk)
	if run == "" || disk*2 > all {
		b.t.Fatalf("contents of %d bytes take %d on the disk, want less than half: every attempt runs the same shell", all, disk)
	}
	task := filepath.Base(filepath.Dir(run))
	a, _, err := doAttest(attestOptions{key: b.at("audit.key"), sign: b.at("runner.key"), sealed: b.at(out + "/tasks/" + task + "/task.sealed"), out: b.at("again.cleanrun"), dir: run}, nil, func(string, ...any) {})
	b.ok(err)
	if a.Derivation.Verdict != attest.Clean {
		b.t.Errorf("%s: attested again: got %v, want CLEAN", run, a.Derivation.Verdict)
	}
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
	seen, err := os.Create(b.at("seen"))
	b.ok(err)
	defer seen.Close()
	watcher.Stdout, watcher.Stderr = seen, seen
	b.ok(watcher.Start())
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(seen.Name()); bytes.Contains(text, []byte("running")) {
			break
		}
	}
	pids := descendants(cmd.Process.Pid)
	b.ok(cmd.Process.Kill())
	cmd.Wait()
	b.gone(pids, mark)
	b.ok(watcher.Wait())
	text, err := os.ReadFile(seen.Name())
	b.ok(err)
	want("live watch", string(text), "running", "killed: the journal is open")
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
	pids := descendants(cmd.Process.Pid)
	b.ok(cmd.Process.Kill())
	cmd.Wait()
	b.gone(pids, mark)
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
