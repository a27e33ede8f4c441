package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// The tests of this file and the next replay, in miniature and with invented
// content, what happened to public benchmarks and leaderboards (spec/attacks.md,
// i1 to i22). Each goes through seal, run, attest and verify as a user types
// them, and has a positive control that is CLEAN.

// graded seals a task of the lab with a grader. yaml are more lines of the task.
func (l *lab) graded(yaml string) {
	l.t.Helper()
	l.write("task/task.yaml", "benchmark: lab\ntask: t\nprompt: {file: prompt.md}\nworkspace: workspace\n"+yaml)
	os.Remove(l.at("task.sealed"))
	l.ok(l.sealing("task.sealed"))
}

func (l *lab) sealing(out string) error {
	_, err := doSeal(l.at("task/task.yaml"), l.at("audit.key"), l.at("owner.key"), l.at(out), "")
	return err
}

// attempt runs a shell script on the task, attests it and verifies it, each with
// the real command in a process of its own. flags go to run.
func (l *lab) attempt(stdin, script string, flags ...string) result {
	l.t.Helper()
	l.n++
	r := result{run: l.at(fmt.Sprintf("run%d", l.n)), bundle: l.at(fmt.Sprintf("run%d.cleanrun", l.n))}
	args := append([]string{"run", "-task", l.at("task/task.yaml"), "-sealed", l.at("task.sealed"), "-o", r.run}, flags...)
	cmd := program(append(args, "--", "sh", "-c", script)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		l.t.Fatal(err)
	}
	r.code, r.out = cmd.ProcessState.ExitCode(), string(out)
	if r.code == 125 {
		l.t.Fatalf("cleanrun %s: %s", strings.Join(args, " "), out)
	}
	return l.receipt(r)
}

// receipt attests a run folder and verifies the bundle.
func (l *lab) receipt(r result, more ...string) result {
	l.t.Helper()
	args := append([]string{"attest", "-key", l.at("audit.key"), "-sign", l.at("runner.key"), "-sealed", l.at("task.sealed"), "-o", r.bundle}, more...)
	if out, err := program(append(args, r.run)...).CombinedOutput(); err != nil {
		l.t.Fatalf("attest: %v: %s\nrun said (code %d): %s", err, out, r.code, r.out)
	}
	var err error
	r.report, err = verifyFile(r.bundle, l.at("policy.txt"))
	l.ok(err)
	return r
}

// score asserts the score as verify has it.
func (r result) score(t *testing.T, value, source string) {
	t.Helper()
	s := r.report.Score
	if s == nil || s.Value != value || s.Source != source {
		t.Errorf("got the score %+v, want %s, %s:\n%s", s, value, source, r.report.Text(r.bundle))
	}
}

// hiddenTest seals the file task/tests/check.sh with this body, and enough of a
// hidden text to be a strong set.
func (l *lab) hiddenTest(body string) {
	l.write("task/tests/check.sh", body)
	l.write("task/tests/cases.txt", prose(77, 700))
}

const gradeByScript = "tests: [{path: 'tests/**', root: tests}]\nchannels: {stdin: model}\ngrade: {command: 'sh \"$CLEANRUN_TESTS/check.sh\"', reward: %s}\n"

// TestIncident1_HistoryHoldsTheFix: the fix is somewhere in the workspace's git
// history: sealing refuses it, wherever it is. The control has a history without
// it, which the agent may read as it likes.
func TestIncident1_HistoryHoldsTheFix(t *testing.T) {
	need(t, "git")
	fix := prose(101, 500)
	for _, c := range []struct{ name, script string }{
		{"branch", "git checkout -q -b later && cp ../solution/lib.txt lib.txt && git commit -qam later && git checkout -q main"},
		{"tag", "cp ../solution/lib.txt lib.txt && git commit -qam later && git tag fixed && git reset -q --hard HEAD~1"},
		{"reflog", "cp ../solution/lib.txt lib.txt && git commit -qam later && git reset -q --hard HEAD~1"},
		{"stash", "cp ../solution/lib.txt lib.txt && git stash -q"},
		{"packed", "cp ../solution/lib.txt lib.txt && git commit -qam later && git tag fixed && git reset -q --hard HEAD~1 && git gc -q"},
		{"nowhere", "git log --oneline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.write("task/solution/lib.txt", fix)
			l.write("task/workspace/lib.txt", prose(102, 300))
			l.history(c.script)
			l.write("task/task.yaml", "benchmark: lab\ntask: t\nprompt: {file: prompt.md}\nworkspace: workspace\nreference: [{path: solution/lib.txt, root: solution}]\nchannels: {stdin: model}\n")
			err := l.sealing("task.sealed")
			if c.name != "nowhere" {
				if err == nil || !strings.Contains(err.Error(), ".git") {
					t.Errorf("got %v, want seal to refuse and to name the git object", err)
				}
				return
			}
			l.ok(err)
			l.attempt(fix, "git log --all -p >/dev/null && git reflog && git show HEAD:lib.txt >/dev/null && cat > lib.txt").want(t, attest.Clean, "")
		})
	}
}

// TestIncident2_DeletedOneCommitBack: the task is to write again what the last
// commit deleted.
func TestIncident2_DeletedOneCommitBack(t *testing.T) {
	need(t, "git")
	whole := prose(111, 500)
	try := func(script string) (*lab, error) {
		l := newLab(t)
		l.write("task/solution/lib.txt", whole)
		l.write("task/workspace/lib.txt", whole)
		l.history(script)
		l.write("task/task.yaml", "benchmark: lab\ntask: t\nprompt: {file: prompt.md}\nworkspace: workspace\nreference: [{path: solution/lib.txt, root: solution}]\nchannels: {stdin: model}\n")
		return l, l.sealing("task.sealed")
	}
	if _, err := try("echo stub > lib.txt && git commit -qam 'take the implementation out'"); err == nil || !strings.Contains(err.Error(), ".git") {
		t.Errorf("got %v, want seal to refuse and to name the git object", err)
	}
	l, err := try("echo stub > lib.txt && rm -rf .git && git init -q -b main && git add . && git commit -qm first")
	l.ok(err)
	l.attempt(whole, "git show HEAD~1:lib.txt; git log -p; cat > lib.txt").want(t, attest.Clean, "")
	// The guard behind it: an owner who sealed a clean copy, and a runner who has the
	// history. The workspace is another one, and the run is refused.
	l.write("task/workspace/lib.txt", whole)
	cmd := program("run", "-task", l.at("task/task.yaml"), "-sealed", l.at("task.sealed"), "-o", l.at("other"), "--", "true")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "workspace") {
		t.Errorf("a run on another workspace: exit code %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

// history makes the workspace a repository with one commit and runs a script in it.
func (l *lab) history(script string) {
	l.t.Helper()
	cmd := exec.Command("sh", "-ec", "git init -q -b main && git add . && git commit -qm first && "+script)
	cmd.Dir = l.at("task/workspace")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// TestIncident5_TestsUploaded: the harness puts the hidden tests into the
// environment before the agent starts.
func TestIncident5_TestsUploaded(t *testing.T) {
	l := newLab(t)
	l.hiddenTest("[ -f answer.txt ]\n")
	l.write("task/workspace/tests/cases.txt", prose(77, 700))
	yaml := fmt.Sprintf(gradeByScript, "exit-code")
	l.write("task/task.yaml", "benchmark: lab\ntask: t\nprompt: {file: prompt.md}\nworkspace: workspace\n"+yaml)
	if err := l.sealing("task.sealed"); err == nil || !strings.Contains(err.Error(), "cases.txt") {
		t.Errorf("got %v, want seal to refuse and to name the file", err)
	}
	l.ok(os.RemoveAll(l.at("task/workspace/tests")))

	// The owner seals no grader, and the runner's setup brings the tests along.
	l.graded("tests: [{path: 'tests/**', root: tests}]\nchannels: {stdin: model}\n")
	grade := []string{"-tests", l.at("task/tests"), "-grade", `cat "$CLEANRUN_TESTS/cases.txt" answer.txt >/dev/null`}
	l.attempt("an answer", "cat > answer.txt", append(grade, "-observe", "-setup", "cp "+l.at("task/tests/cases.txt")+" cases.txt")...).want(t, attest.Dirty, attest.ReasonObject)
	l.attempt("an answer", "cat > answer.txt", append(grade, "-setup", "cat > cases.txt <<'END'\n"+prose(77, 700)+"END\n")...).want(t, attest.Dirty, attest.ReasonFragments)
	r := l.attempt("an answer", "cat > answer.txt", append(grade, "-setup", "mkdir cases && echo none > cases/readme")...)
	r.want(t, attest.Clean, "")
	r.score(t, "1", "observed")
}

// TestIncident16_HintColumn: a harness sends the data set's hint column, which is
// the fix.
func TestIncident16_HintColumn(t *testing.T) {
	l := newLab(t)
	patch := "diff --git a/lib.txt b/lib.txt\n--- a/lib.txt\n+++ b/lib.txt\n@@ -1,1 +1,61 @@\n stub\n"
	var added strings.Builder
	for _, line := range strings.SplitAfter(prose(121, 540), "\n") {
		if strings.HasSuffix(line, "\n") {
			added.WriteString("+" + line)
		}
	}
	patch += added.String()
	if n := strings.Count(added.String(), "\n"); n != 60 {
		t.Fatalf("the patch has %d added lines, want 60", n)
	}
	l.write("bench/repos/r1/lib.txt", "stub\n")
	row := fmt.Sprintf(`{"instance_id": "r1", "problem_statement": "Repair lib.txt.", "patch": %q, "hints_text": %q}`, patch, patch)
	l.write("bench/rows.jsonl", row+"\n")
	l.write("bench/benchmark.yaml", `benchmark: lab
tasks:
  - jsonl: rows.jsonl
    fields: {id: instance_id, prompt: problem_statement, reference: [patch]}
    workspaces: "repos/{instance_id}"
`)
	var said bytes.Buffer
	cmd := program("seal", "-key", l.at("audit.key"), "-sign", l.at("owner.key"), "-o", l.at("b.sealed"), l.at("bench/benchmark.yaml"))
	cmd.Stderr = &said
	l.ok(cmd.Run())
	if !strings.Contains(said.String(), "hints_text") {
		t.Errorf("seal does not name the column that nothing uses: %s", said.String())
	}
	for _, c := range []struct {
		name, stdin string
		verdict     attest.Verdict
		reason      string
	}{
		{"hints", patch, attest.Dirty, attest.ReasonFragments},
		{"words", prose(122, 540), attest.Clean, ""},
	} {
		l.write("hint.txt", c.stdin)
		args := []string{"eval", "-benchmark", l.at("b.sealed"), "-data", l.at("bench/benchmark.yaml"), "-o", l.at(c.name), "-key", l.at("audit.key"), "-sign", l.at("runner.key"),
			"-agent", "sh -c 'echo \"$1\" > notes.txt' agent '" + strings.ReplaceAll(c.stdin, "'", "") + "'"}
		if out, err := program(args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c.name, err, out)
		}
		r := result{bundle: l.at(c.name + "/receipts/r1-t1-a1.cleanrun")}
		var err error
		r.report, err = verifyFile(r.bundle, l.at("policy.txt"))
		l.ok(err)
		r.want(t, c.verdict, c.reason)
	}
}

// TestIncident20_ScoredAllTheSame: the sandbox died, or the verifier could not
// start, and the run was scored all the same.
func TestIncident20_ScoredAllTheSame(t *testing.T) {
	l := newLab(t)
	l.hiddenTest("cat answer.txt \"$CLEANRUN_TESTS/cases.txt\" >/dev/null && echo 1\n")
	l.graded(fmt.Sprintf(gradeByScript, "stdout"))
	r := l.attempt("an answer", "cat > answer.txt")
	r.want(t, attest.Clean, "")
	r.score(t, "1", "observed")

	t.Run("killed", func(t *testing.T) {
		l.t = t
		l.n++
		r := result{run: l.at("killed"), bundle: l.at("killed.cleanrun")}
		cmd := program("run", "-task", l.at("task/task.yaml"), "-sealed", l.at("task.sealed"), "-o", r.run, "--", "sh", "-c", "echo > answer.txt; sleep 600")
		l.ok(cmd.Start())
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if st, err := os.Stat(r.run + "/" + journal.RowsFile); err == nil && st.Size() > 4000 {
				break
			}
		}
		broker := descendants(cmd.Process.Pid)
		l.ok(cmd.Process.Kill())
		cmd.Wait()
		for end := time.Now().Add(time.Minute); len(alive(broker)) > 0 && time.Now().Before(end); { // it ends with it
			time.Sleep(5 * time.Millisecond)
		}
		r = l.receipt(r, "-score", "1")
		r.want(t, attest.Inconclusive, attest.ReasonOpen)
		r.score(t, "1", "asserted")
		if text := r.report.Text(r.bundle); !strings.Contains(strings.SplitN(text, "\n", 2)[0], "asserted") {
			t.Errorf("the first line does not say that the score is asserted:\n%s", text)
		}
	})
	for _, c := range []struct{ name, command string }{
		{"no verifier", "[/nonexistent/verifier]"}, {"verifier is a folder", "[/usr]"}, {"shell finds no verifier", "no-such-verifier-anywhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			l.graded("tests: [{path: 'tests/**', root: tests}]\nchannels: {stdin: model}\ngrade: {command: " + c.command + ", reward: stdout}\n")
			r := l.attempt("an answer", "cat > answer.txt")
			r.want(t, attest.Inconclusive, attest.ReasonGradeFailed)
			if r.report.Score != nil {
				t.Errorf("got the score %+v of a run that nobody graded", r.report.Score)
			}
		})
	}
}
