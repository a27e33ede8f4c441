package sandbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// phased is a run of shell scripts in phases; an empty script is no phase. The
// reward is "stdout" unless the caller changes it.
func phased(t *testing.T, setup, agent, grade string) sandbox.Config {
	t.Helper()
	c := shell(folder(t, filepath.Join(base(t), "ws")), agent)
	p := &journal.Phases{}
	if setup != "" {
		p.Setup = []string{"sh", "-c", setup}
	}
	if grade != "" {
		p.Grade, p.Reward = []string{"sh", "-c", grade}, journal.RewardStdout
	}
	c.Start.Phases = p
	return c
}

// withTests adds hidden tests.
func withTests(t *testing.T, c sandbox.Config) sandbox.Config {
	t.Helper()
	c.Tests = folder(t, filepath.Join(filepath.Dir(c.Workspace), "hidden"))
	write(t, filepath.Join(c.Tests, "cases"), "the secret cases\n")
	c.Start.Phases.Tests = sandbox.TestsPath
	return c
}

func (r *recorded) rewarded() string {
	var out []string
	for _, w := range r.Rewards {
		out = append(out, fmt.Sprintf("%s by %d", w.Value, w.Source))
	}
	return strings.Join(out, ", ")
}

func (r *recorded) guards() string {
	var out []string
	for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpGuard }) {
		out = append(out, fmt.Sprintf("%s %d %v", filepath.Base(e.D.Path), e.Guard.Kind, e.Guard.After))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (r *recorded) ends() string {
	var out []string
	for _, p := range r.Phases {
		out = append(out, fmt.Sprintf("%d:%d/%d/%d", p.Phase, p.How, p.Code, p.Left))
	}
	return strings.Join(out, " ")
}

// want compares how the phases ended, the reward and the guards.
func (r *recorded) want(t *testing.T, ends, reward, guards string) {
	t.Helper()
	if r.ends() != ends || r.rewarded() != reward || r.guards() != guards {
		t.Errorf("got ends %q, reward %q, guards %q\nwant     %q,        %q,        %q\nstdout %q stderr %q", r.ends(), r.rewarded(), r.guards(), ends, reward, guards, r.stdout, r.stderr)
	}
	r.closed(t)
}

// Three commands one after another, each in the workspace that the one before
// left, and each row in its phase.
func TestSandboxPhases(t *testing.T) {
	c := phased(t, "echo set > a; wc -c", `cat; cat a; ls /cleanrun/tests; echo answer > b; exit 3`, `wc -c; cat a b "$CLEANRUN_TESTS"/cases; touch "$CLEANRUN_TESTS"/x; echo 0.50`)
	c = withTests(t, c)
	c.Stdin, c.ControlText = strings.NewReader("typed\n"), "the control text, which is read first\n"
	r := run(t, c)
	r.want(t, "0:1/0/0 1:1/3/0 2:1/0/0", "0.5 by 2", "")
	if r.Code != 3 || r.Outcome != journal.Failed {
		t.Errorf("code %d outcome %v, want the agent's", r.Code, r.Outcome)
	}
	if want := "0\ntyped\nset\n0\nset\nanswer\nthe secret cases\n0.50\n"; r.stdout != want {
		t.Errorf("stdout %q, want %q", r.stdout, want)
	}
	if !strings.Contains(r.stderr, "Read-only file system") {
		t.Errorf("the hidden tests can be changed: %q", r.stderr)
	}
	for phase, path := range map[journal.Phase]string{journal.PhaseAgent: c.Workspace + "/b", journal.PhaseSetup: c.Workspace + "/a"} {
		r.has(t, "what was written is dated in its phase", func(e entry) bool { return e.Op == journal.OpWrote && e.D.Path == path && e.Phase == phase })
	}
	for _, e := range r.opens(sandbox.TestsPath + "/cases") {
		if e.Phase != journal.PhaseGrade || e.Flags&journal.FlagOutOfScope != 0 {
			t.Errorf("hidden tests: %v", e)
		}
	}
	given := r.find(func(e entry) bool { return e.Op == journal.OpArgv && e.Origin == journal.OriginDriver })
	if len(given) != 4 || given[0].D.Note != "environment" || given[0].Phase != journal.PhaseSetup || given[1].Phase != journal.PhaseSetup || given[3].Phase != journal.PhaseGrade {
		t.Errorf("the driver gave %v, want environment and three command lines", given)
	}
	if n := len(r.find(func(e entry) bool { return e.Op == journal.OpStdin && e.Phase != journal.PhaseAgent })); n > 0 {
		t.Errorf("%d rows of typed input in other phases", n)
	}
	if r.Cost.Setup <= 0 || r.Cost.Answer <= 0 || r.Cost.Close <= 0 || !strings.HasPrefix(r.Backend, cmp.Or(os.Getenv(backVar), sandbox.Backend)) {
		t.Errorf("cost %+v backend %q", r.Cost, r.Backend)
	}
	if len(r.find(func(e entry) bool { return e.Flags&journal.FlagControl != 0 })) != 1 {
		t.Error("the control file was not opened once")
	}
}

// Whatever an agent leaves running, in whatever session, is gone before the
// grader starts, and counted.
func TestSandboxNothingIsLeftAtTheBoundary(t *testing.T) {
	needs(t, "setsid")
	for name, c := range map[string]struct {
		leave  string
		left   int
		sleeps int // among them
	}{
		"nothing (positive control)": {"true", 0, 0},
		"background":                 {"sleep 300 &", 1, 1},
		"session":                    {"setsid sleep 300 >/dev/null 2>&1 &", 1, 1},
		"double fork":                {"(setsid sh -c 'sleep 300 & sleep 301 &' &)", 2, 2},
		"deaf":                       {"sh -c 'trap \"\" HUP TERM INT QUIT; while :; do sleep 300; done' &", 2, 1},
		"forking":                    {"(while :; do sleep 0.01 & done) & sleep 0.3", -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			probe := `n=0; for p in /proc/[0-9]*; do { read x < $p/status; } 2>/dev/null && n=$((n+1)); done; sleep 0.3; echo late >> mark; cat mark; echo $n`
			cfg := phased(t, "", c.leave+" (while :; do echo alive >> mark; sleep 0.05; done) & sleep 0.2; echo", probe)
			if c.left >= 0 {
				// It ends when all that it leaves has become what it is to be.
				cfg.Command[2] = c.leave + fmt.Sprintf(`
while n=0 s=0; for p in /proc/[0-9]*; do { read x < $p/comm; } 2>/dev/null && n=$((n+1)) && if [ "$x" = sleep ]; then s=$((s+1)); fi; done; [ $n != %d ] || [ $s != %d ]; do :; done`, c.left+1, c.sleeps)
			}
			cfg.Stdout = nil
			r := run(t, cfg)
			if len(r.Phases) != 2 {
				t.Fatalf("phases %v", r.Phases)
			}
			left := int(r.Phases[0].Left)
			if c.left >= 0 && left != c.left || left < c.left {
				t.Errorf("%d processes were left, want %d", left, c.left)
			}
			if !strings.HasSuffix(r.stdout, "late\n1\n") { // the probe sees itself alone
				t.Errorf("the grader saw other processes, or was written to: %q", r.stdout[max(0, len(r.stdout)-40):])
			}
			r.closed(t)
		})
	}
}

// The hidden tests are nowhere before grading, whatever the agent tries.
func TestSandboxTestsBeforeGrading(t *testing.T) {
	c := withTests(t, phased(t, "", `
ls -a /cleanrun/tests; cat /cleanrun/tests/cases "$HIDDEN/cases" /proc/1/root/cleanrun/tests/cases
cat /proc/[0-9]*/root/"$HIDDEN"/cases; ls -l /proc/[0-9]*/fd; grep hidden /proc/self/mountinfo
mount --bind / /tmp; mkdir /cleanrun/tests/x; echo planted > /cleanrun/tests/cases; rmdir /cleanrun/tests; mv /cleanrun/tests /cleanrun/old; ln -s . /cleanrun/tests
cd /cleanrun/tests; exec 9</cleanrun/tests; (sleep 1; cat cases <&9) & :`, `cat "$CLEANRUN_TESTS"/cases; echo 1`))
	c.Env = append(environment(filepath.Join(t.TempDir(), "home")), "HIDDEN="+c.Tests)
	r := run(t, c)
	if strings.Count(r.stdout, "secret") != 1 || !strings.HasSuffix(r.stdout, "the secret cases\n1\n") {
		t.Errorf("stdout %q", r.stdout)
	}
	for _, e := range r.find(func(e entry) bool {
		return e.Phase != journal.PhaseGrade && e.Result == 0 && strings.HasSuffix(e.D.Path, "/cases")
	}) {
		t.Errorf("before grading: %v", e)
	}
	r.has(t, "the hidden folder outside is hidden and out of scope", func(e entry) bool {
		return e.D.Path == c.Tests+"/cases" && e.Flags&(journal.FlagHidden|journal.FlagOutOfScope) == journal.FlagHidden|journal.FlagOutOfScope
	})
	if r.rewarded() != "1 by 2" {
		t.Errorf("reward %q", r.rewarded())
	}
}

// With the host visible the agent can read them, and that is out of scope.
func TestSandboxTestsObserved(t *testing.T) {
	c := withTests(t, phased(t, "", `cat "$HIDDEN/cases"`, `cat "$CLEANRUN_TESTS"/cases; echo 1`))
	c.Env, c.Observe = append(environment(filepath.Join(t.TempDir(), "home")), "HIDDEN="+c.Tests), true
	r := run(t, c)
	r.has(t, "an open out of scope", func(e entry) bool {
		return e.Op == journal.OpOpen && e.Phase == journal.PhaseAgent && e.D.Path == c.Tests+"/cases" && e.Flags&journal.FlagOutOfScope != 0
	})
	for _, e := range r.opens(sandbox.TestsPath + "/cases") {
		if e.Flags&journal.FlagOutOfScope != 0 {
			t.Errorf("grading: %v", e)
		}
	}
}

// Tests that wait in the run folder are not shown even then.
func TestSandboxTestsInRunDir(t *testing.T) {
	c := phased(t, "", `cat "$HIDDEN/cases"; ls "$HIDDEN" "$HIDDEN/.."`, `cat "$CLEANRUN_TESTS"/cases; echo 1`)
	c.RunDir, c.Observe = runDir(t), true
	c.Tests, c.Start.Phases.Tests = folder(t, filepath.Join(c.RunDir, "staged")), sandbox.TestsPath
	write(t, filepath.Join(c.Tests, "cases"), "the secret cases\n")
	c.Env = append(environment(filepath.Join(t.TempDir(), "home")), "HIDDEN="+c.Tests)
	if r := run(t, c); r.stdout != "the secret cases\n1\n" {
		t.Errorf("stdout %q", r.stdout)
	}
}

// A command whose time is over is killed with all that it started. An agent is
// graded all the same.
func TestSandboxTimeouts(t *testing.T) {
	const wait = "echo early > a; (setsid sleep 300 &); trap '' TERM; while :; do sleep 300; done"
	c := phased(t, "", wait, "cat a; echo 1")
	c.Timeout = 2 * time.Second
	began := time.Now()
	r := run(t, c)
	r.want(t, "1:2/124/2 2:1/0/0", "1 by 2", "")
	if r.Code != 124 || r.Outcome != journal.Failed || r.stdout != "early\n1\n" || time.Since(began) > 2*time.Minute {
		t.Errorf("code %d outcome %v stdout %q after %v", r.Code, r.Outcome, r.stdout, time.Since(began))
	}
	c = phased(t, "", "true", "echo 1; "+wait)
	c.GradeTimeout = 2 * time.Second
	r = run(t, c)
	r.want(t, "1:1/0/0 2:2/124/2", "", "")
	if r.Code != 0 || r.Outcome != journal.Completed {
		t.Errorf("code %d outcome %v", r.Code, r.Outcome)
	}
	c = shell(folder(t, filepath.Join(base(t), "ws")), wait) // without phases
	c.Timeout = 2 * time.Second
	if r = run(t, c); r.Code != 124 || r.Outcome != journal.Failed || len(r.Phases) != 0 {
		t.Errorf("without phases: code %d outcome %v", r.Code, r.Outcome)
	}
	// In time, nothing is killed.
	c = phased(t, "true", "sleep 0.1", "echo 0")
	c.Timeout, c.SetupTimeout, c.GradeTimeout = time.Minute, time.Minute, time.Minute
	run(t, c).want(t, "0:1/0/0 1:1/0/0 2:1/0/0", "0 by 2", "")
}

// If the setup fails, the agent is not run, and nobody can take the journal for a
// run's.
func TestSandboxSetupFails(t *testing.T) {
	for name, setup := range map[string]string{"code": "exit 7", "signal": "kill -9 $$", "time": "sleep 300", "absent": ""} {
		t.Run(name, func(t *testing.T) {
			c := phased(t, setup, "echo ran > ran", "echo 1")
			if name == "absent" {
				c.Start.Phases.Setup = []string{"no-such-setup"}
			}
			c.SetupTimeout, c.RunDir, c.Env = time.Second, runDir(t), environment(filepath.Join(t.TempDir(), "home"))
			res, err := sandbox.Run(t.Context(), c)
			var un *sandbox.Unavailable
			if errors.As(err, &un) {
				t.Skip(err)
			}
			if err == nil {
				t.Fatalf("got %+v", res)
			}
			t.Log(err)
			rows := readRows(t, c.RunDir)
			last := rows[len(rows)-1]
			if last.Op != journal.OpFinal || last.Final.Outcome != journal.Abandoned || slices.ContainsFunc(rows, func(e entry) bool { return e.Phase != journal.PhaseSetup }) {
				t.Errorf("last row %v, outcome %v", last, last.Final)
			}
		})
	}
}

// Incident 20: the verifier fails to start, or does not get to a verdict. There is
// no reward then, and the end says why.
func TestIncident20_VerifierFails(t *testing.T) {
	for name, c := range map[string]struct {
		grade []string
		ends  string
	}{
		"positive control": {[]string{"sh", "-c", "exit 1"}, "1:1/0/0 2:1/1/0"},
		"absent":           {[]string{"no-such-verifier"}, "1:1/0/0 2:3/127/0"},
		"absent path":      {[]string{"/usr/bin/no-such-verifier"}, "1:1/0/0 2:3/127/0"},
		"no program":       {[]string{"/etc/passwd"}, "1:1/0/0 2:3/127/0"},
		"shell finds none": {[]string{"sh", "-c", "no-such-verifier"}, "1:1/0/0 2:1/127/0"},
		"signal":           {[]string{"sh", "-c", "kill -SEGV $$"}, "1:1/0/0 2:1/139/0"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := phased(t, "", "true", "x")
			cfg.Start.Phases.Grade, cfg.Start.Phases.Reward = c.grade, journal.RewardExit
			r, want := run(t, cfg), ""
			if name == "positive control" {
				want = "0 by 1"
			}
			r.want(t, c.ends, want, "")
			if r.Code != 0 || r.Outcome != journal.Completed {
				t.Errorf("code %d outcome %v, want the agent's", r.Code, r.Outcome)
			}
		})
	}
}

// Places that the run could change, or that are others', are refused.
func TestSandboxPhasesRefused(t *testing.T) {
	for name, change := range map[string]func(c *sandbox.Config){
		"tests in tmp":           func(c *sandbox.Config) { c.Start.Phases.Tests = "/tmp/tests" },
		"tests in the workspace": func(c *sandbox.Config) { c.Start.Phases.Tests = c.Workspace + "/tests" },
		"tests around it":        func(c *sandbox.Config) { c.Start.Phases.Tests = filepath.Dir(c.Workspace) },
		"tests in the system":    func(c *sandbox.Config) { c.Start.Phases.Tests = "/usr/tests" },
		"tests in proc":          func(c *sandbox.Config) { c.Start.Phases.Tests = "/proc/tests" },
		"no folder of tests":     func(c *sandbox.Config) { c.Tests = "" },
		"folder in workspace":    func(c *sandbox.Config) { c.Tests = c.Workspace },
		"no place of tests":      func(c *sandbox.Config) { c.Start.Phases.Tests = "" },
		"reward in home": func(c *sandbox.Config) {
			c.Start.Phases.Reward, c.Start.Phases.RewardDir = journal.RewardFile, lookupEnv(c.Env, "HOME")+"/reward"
		},
		"another grader": func(c *sandbox.Config) { c.Grade = []string{"true"} },
		"small memory":   func(c *sandbox.Config) { c.Limits.Memory = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			c := withTests(t, phased(t, "", "true", "echo 1"))
			c.RunDir, c.Env = runDir(t), environment(filepath.Join(t.TempDir(), "home"))
			change(&c)
			_, err := sandbox.Run(t.Context(), c)
			var refused *sandbox.Refused
			if !errors.As(err, &refused) || refused.Hint == "" {
				t.Errorf("got %v, want a refusal with a hint", err)
			}
		})
	}
	c := withTests(t, phased(t, "", "true", `cat "$CLEANRUN_TESTS/cases" >/dev/null; echo 0.25 > "$CLEANRUN_REWARD_DIR/reward.txt"`))
	c.Start.Phases.Tests, c.Start.Phases.Reward, c.Start.Phases.RewardDir = "/tests", journal.RewardFile, "/logs/verifier"
	run(t, c).want(t, "1:1/0/0 2:1/0/0", "0.25 by 3", "")
}

func lookupEnv(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
