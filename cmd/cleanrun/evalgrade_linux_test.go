package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/eval"
)

const benchGrade = `grade:
  command: [sh, -c, 'if cmp -s answer.txt "$CLEANRUN_TESTS/want.txt"; then echo 1; else echo 0; fi; cat "$CLEANRUN_TESTS/case.txt" > /dev/null']
  reward: stdout
`

// results are the lines of an eval.
func (b *bench) results(out string) []eval.Result {
	b.t.Helper()
	s, err := eval.Read(b.at(out))
	b.ok(err)
	return s.Results
}

// The hidden tests are there when grading starts, and the score is what the rows
// hold.
func TestEvalGraded(t *testing.T) {
	b := newBench(t, 3, benchGrade)
	for _, c := range []struct {
		name, script, state, score, reason string
	}{
		{"honest", honest, "CLEAN", "1", ""},
		{"idle", `cat > /dev/null`, "CLEAN", "0", ""},
		{"cheat", cheat, "DIRTY", "0", "out-of-scope"},
		{"early", `cat > answer.txt; cat /cleanrun/tests/* > /dev/null 2>&1; ls /cleanrun/tests | wc -l > count`, "CLEAN", "1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			rep := b.eval(0, b.args(c.name, c.script, append(b.attested(), "-jobs", "2")...)...)
			for _, row := range rep.Table.Trials {
				if row.State != c.state || row.Score == nil || *row.Score != (eval.Score{Value: c.score, Source: "observed"}) || c.reason != "" && !slices.Contains(row.Reasons, c.reason) {
					t.Errorf("%s: got %s %q, score %+v, want %s, observed %s", row.Task, row.State, row.Reasons, row.Score, c.state, c.score)
				}
			}
			if rep.Table.Mean != c.score || rep.Table.Share() == "" {
				t.Errorf("got mean %s, recorder's share %q", rep.Table.Mean, rep.Table.Share())
			}
			if left, err := os.ReadDir(b.at(c.name + "/staged")); err == nil {
				t.Errorf("hidden tests are left: %v", left)
			}
		})
	}
	// Without keys the score is known all the same, and attested later.
	t.Run("attested later", func(t *testing.T) {
		b.t = t
		rep := b.eval(0, b.args("later", honest)...)
		if rep.Table.States[eval.Unattested] != 3 || rep.Table.Mean != "1" || rep.Table.Sources["observed"] != 3 {
			t.Errorf("got %+v", rep.Table)
		}
		rep = b.eval(0, b.args("later", honest, b.attested()...)...)
		if rep.Made != 0 || rep.Table.States["CLEAN"] != 3 || rep.Table.Attempts != 3 {
			t.Errorf("got made %d, %v", rep.Made, rep.Table.States)
		}
	})
}

// The prompt comes as text or as a file, and reading it is nothing that a run is
// held to.
func TestEvalPrompt(t *testing.T) {
	b := newBench(t, 1, "")
	script := `[ "$(cat "$1")" = "solve $2" ] && [ "$3" = "solve $2 (trial 1)" ] && [ $# = 3 ]`
	args := b.args("out", "true", b.attested()...)
	args[slices.Index(args, "-agent")+1] = "sh -c '" + script + "' agent {prompt_file} {task} '{prompt} (trial {trial})'"
	rep := b.eval(0, args...)
	if row := rep.Table.Trials[0]; row.State != "CLEAN" || row.Outcome != eval.Completed {
		t.Errorf("got %s, %s, want a clean run that was completed:\n%s", row.State, row.Outcome, rep.Table.Text())
	}
}

// What an agent does to the machine is its own failure: it is scored, and not made
// again.
func TestEvalHostileAgents(t *testing.T) {
	b := newBench(t, 1, benchGrade)
	mark := b.mark()
	for _, c := range []struct {
		name, script string
		flags        []string
		outcome      string
		code         uint32
		score        string
	}{
		{"sleeps", `cat > answer.txt; sleep ` + mark, []string{"-timeout", "2s"}, eval.Failed, 124, "1"},
		{"daemon", `cat > answer.txt; setsid sleep ` + mark + ` > /dev/null 2>&1 < /dev/null & (setsid sh -c "sleep ` + mark + ` & sleep ` + mark + `" &) & true`, nil, eval.Completed, 0, "1"},
		{"fills the disk", `cat > answer.txt; exec head -c 90000000 /dev/zero > big`, []string{"-limit-disk", "16M"}, "", 0, ""},
		{"fails", `exit 3`, nil, eval.Failed, 3, "0"},
		{"kills itself", `kill -9 $$`, nil, eval.Failed, 137, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			out := strings.ReplaceAll(c.name, " ", "-")
			rep := b.eval(0, b.args(out, c.script, append(b.attested(), c.flags...)...)...)
			list := b.results(out)
			if len(list) != 1 || list[0].Retry != "" {
				t.Fatalf("got %+v, want one attempt and no retry", list)
			}
			r := list[0]
			if c.outcome != "" && (r.Outcome != c.outcome || r.Code != c.code) {
				t.Errorf("got %s, code %d, want %s, code %d (%s)", r.Outcome, r.Code, c.outcome, c.code, r.Note)
			}
			if c.score != "" && (r.Score == nil || r.Score.Value != c.score) {
				t.Errorf("got score %+v, want %s: %s", r.Score, c.score, rep.Table.Text())
			}
			if c.name == "fills the disk" && (r.Outcome == eval.Completed || r.Verdict == "") {
				t.Errorf("got %s %s: the limit was not felt", r.Outcome, r.Verdict)
			}
			b.gone(nil, mark)
		})
	}
}

// An attempt whose grading failed stands: an agent that would rather be tried
// again can break what grading needs.
func TestEvalFailedGradingStands(t *testing.T) {
	b := newBench(t, 1, "grade:\n  command: [no-such-grader]\n  reward: exit-code\n")
	b.eval(0, b.args("out", honest, append(b.attested(), "-retries", "2")...)...)
	list := b.results("out")
	if len(list) != 1 {
		t.Fatalf("got %d attempts, want one: %+v", len(list), list)
	}
	if r := list[0]; r.Verdict != "INCONCLUSIVE" || r.Retry != "" || !slices.Contains(r.Reasons, "grade-failed") {
		t.Errorf("got %+v, want INCONCLUSIVE with grade-failed, and no retry", r)
	}
	// Nor is a bad score a reason.
	c := newBench(t, 1, benchGrade)
	c.eval(0, c.args("out", `cat > /dev/null`, append(c.attested(), "-retries", "5")...)...)
	if list := c.results("out"); len(list) != 1 || list[0].Score == nil || list[0].Score.Value != "0" {
		t.Errorf("got %+v, want one attempt with score 0", list)
	}
}

// A crash of one attempt's process takes no other along; the attempt is on record
// as killed and made again.
func TestEvalCrashOfOne(t *testing.T) {
	b := newBench(t, 2, "")
	mark := b.mark()
	b.write("wait", "")
	b.write("model.sh", "[ $2 = task-1 ] || [ ! -e "+b.at("wait")+" ] || sleep "+mark+"\ncat \"$1\"\n")
	args := b.args("out", honest, append(b.attested(), "-jobs", "2")...)
	args[slices.Index(args, "-model-stdin")+1] = "sh " + b.at("model.sh") + " " + b.at("bench/tasks/{task}/solution/answer.txt") + " {task}"
	cmd := b.begin(func() bool {
		st, err := os.Stat(b.at("out/attempts/task-2/t1-a1/journal"))
		return len(marked("sleep\x00"+mark)) > 0 && err == nil && st.Size() > 0 && b.lines("out") == 1
	}, args...)
	b.ok(os.Remove(b.at("wait")))
	worker := 0
	for _, p := range descendants(cmd.Process.Pid) {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p)); err == nil && strings.HasPrefix(string(line), stageAttempt) {
			worker = p
		}
	}
	b.ok(unix.Kill(worker, unix.SIGKILL))
	b.ok(cmd.Wait())
	b.gone(nil, mark)
	list := b.results("out")
	if len(list) != 3 || list[0].Task != "task-1" || list[0].Verdict != "CLEAN" {
		t.Fatalf("got %+v, want task-1 and two attempts of task-2", list)
	}
	if k := list[1]; k.Outcome != eval.Killed || k.Interrupted || k.Verdict != "INCONCLUSIVE" || k.Retry != "journal-open" || !strings.Contains(k.Note, "killed") {
		t.Errorf("got %+v, want attempt 1 killed, and why", k)
	}
	if r := list[2]; r.Attempt != 2 || r.Verdict != "CLEAN" {
		t.Errorf("got %+v, want attempt 2", r)
	}
}

// A secret is passed and kept out of the folder, and an encrypted recording is
// attested with its identity.
func TestEvalKeepsSecrets(t *testing.T) {
	b := newBench(t, 1, "")
	identity, err := age.GenerateX25519Identity()
	b.ok(err)
	b.write("age.txt", identity.String()+"\n")
	b.ok(os.Chmod(b.at("age.txt"), 0o600))
	const value = "correct-horse-battery-staple-77193"
	t.Setenv("AGENT_API_KEY", value)
	script := `cat > answer.txt; printf %s "$AGENT_API_KEY" | wc -c > length; echo "key is $AGENT_API_KEY" > log; cat log`
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"plain", []string{"-secret", "AGENT_API_KEY"}},
		{"encrypted", []string{"-secret", "AGENT_API_KEY", "-encrypt", identity.Recipient().String(), "-identity", b.at("age.txt")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			rep := b.eval(0, b.args(c.name, script, append(b.attested(), c.flags...)...)...)
			if s := rep.Table.States["CLEAN"] + rep.Table.States["INCONCLUSIVE"]; s != 1 {
				t.Errorf("got %v\n%s", rep.Table.States, rep.Table.Text())
			}
			files := 0
			b.ok(filepath.WalkDir(b.at(c.name), func(p string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				files++
				data, err := os.ReadFile(p)
				if strings.Contains(string(data), value) {
					t.Errorf("%s holds the secret", p)
				}
				return err
			}))
			if files < 8 {
				t.Errorf("looked at %d files, want those of an eval", files)
			}
			plan, err := os.ReadFile(b.at(c.name + "/eval.json"))
			b.ok(err)
			var p eval.Plan
			b.ok(json.Unmarshal(plan, &p))
			if len(p.Secrets) != 1 || p.Secrets[0] != "AGENT_API_KEY" {
				t.Errorf("got %q in the plan, want the name", p.Secrets)
			}
		})
	}
}
