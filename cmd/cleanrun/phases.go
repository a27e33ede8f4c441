package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// testsDir is where the hidden tests of a task wait in the run folder, until the
// run is over.
const testsDir = "staged"

// phaseOptions is what runs beside the command, and for how long.
type phaseOptions struct {
	setup, grade, reward string // for a task that does not say
	tests                string // folder of the hidden tests, as the grader finds them

	timeout, setupTimeout, gradeTimeout time.Duration
	limits                              sandbox.Limits
}

// phaseFlags are phaseOptions as they are typed.
type phaseFlags struct {
	phaseOptions
	timeText, setupText, gradeText  string
	memoryText, diskText, tasksText string
}

func (v *phaseFlags) flags(f *cli.Flags) {
	f.String(&v.setup, "setup", "shell `command` that prepares the workspace before CMD")
	f.String(&v.grade, "grade", "shell `command` that grades in the workspace when all of CMD's processes are gone")
	f.String(&v.reward, "reward", "`rule` of the grade's reward: exit-code (the default), stdout or file")
	f.String(&v.tests, "tests", "`folder` of hidden tests, read-only in $CLEANRUN_TESTS when grading starts, and nowhere before")
	f.String(&v.timeText, "timeout", "`time` after which CMD is killed and grading begins, like 90s, 20m or 2h")
	f.String(&v.setupText, "setup-timeout", "`time` after which the setup is killed")
	f.String(&v.gradeText, "grade-timeout", "`time` after which the grading is killed")
	f.String(&v.memoryText, "limit-memory", "`bytes` (K, M, G) of memory: of the run in a cgroup, else of each process")
	f.String(&v.diskText, "limit-disk", "`bytes` that the run may add")
	f.String(&v.tasksText, "limit-processes", "`number` of processes and threads at one time")
}

// parse turns texts into values.
func (v *phaseFlags) parse() (phaseOptions, error) {
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"timeout", v.timeText, &v.timeout}, {"setup-timeout", v.setupText, &v.setupTimeout}, {"grade-timeout", v.gradeText, &v.gradeTimeout}} {
		if d.text == "" {
			continue
		}
		t, err := time.ParseDuration(d.text)
		if err != nil || t <= 0 {
			return v.phaseOptions, cli.Failf(cli.ExitRunner, "", "-%s: got %q, want a time like 90s, 20m or 2h", d.flag, d.text)
		}
		*d.to = t
	}
	var tasks uint64
	for _, l := range []struct {
		flag, text string
		to         *uint64
	}{{"limit-memory", v.memoryText, &v.limits.Memory}, {"limit-disk", v.diskText, &v.limits.Disk}, {"limit-processes", v.tasksText, &tasks}} {
		if l.text == "" {
			continue
		}
		n, err := parseSize(l.text)
		if err != nil {
			return v.phaseOptions, cli.Failf(cli.ExitRunner, "", "-%s: %w", l.flag, err)
		}
		*l.to = n
	}
	if tasks > math.MaxUint32 {
		return v.phaseOptions, cli.Failf(cli.ExitRunner, "", "-limit-processes: got %d, want at most %d", tasks, uint32(math.MaxUint32))
	}
	v.limits.Processes = uint32(tasks)
	return v.phaseOptions, nil
}

// apply sets the phases of a run: those of the task, or of the flags if the task
// has none.
func (o phaseOptions) apply(c *sandbox.Config, task *contraband.Phases) error {
	c.Timeout, c.SetupTimeout, c.GradeTimeout, c.Limits = o.timeout, o.setupTimeout, o.gradeTimeout, o.limits
	switch {
	case task != nil && (o.setup != "" || o.grade != "" || o.reward != ""):
		return cli.Failf(cli.ExitRunner, "leave out -setup, -grade and -reward", "the task says itself what prepares and grades it")
	case task != nil:
		c.Start.Phases = &journal.Phases{Setup: task.Setup, Grade: task.Grade, Tests: task.Tests, Reward: task.Reward, RewardDir: task.RewardDir, Guard: task.Guard}
	case o.grade == "" && (o.reward != "" || o.tests != ""):
		return cli.Failf(cli.ExitRunner, "name the grader with -grade", "-reward and -tests mean nothing without a grader")
	case o.setup != "" || o.grade != "":
		p := &journal.Phases{}
		if o.setup != "" {
			p.Setup = []string{"sh", "-c", o.setup}
		}
		if o.grade != "" {
			p.Grade, p.Reward = []string{"sh", "-c", o.grade}, o.reward
			if o.reward == "" {
				p.Reward = journal.RewardExit
			}
			if o.reward == journal.RewardFile {
				p.RewardDir = sandbox.RewardPath
			}
			if o.tests != "" {
				p.Tests = sandbox.TestsPath
			}
		}
		c.Start.Phases = p
	}
	p := c.Start.Phases
	if o.setupTimeout > 0 && (p == nil || len(p.Setup) == 0) {
		return cli.Failf(cli.ExitRunner, "", "-setup-timeout: there is no setup command")
	}
	if o.gradeTimeout > 0 && (p == nil || len(p.Grade) == 0) {
		return cli.Failf(cli.ExitRunner, "", "-grade-timeout: there is no grader")
	}
	if err := journal.CheckPhases(p); err != nil {
		return cli.Failf(cli.ExitRunner, "", "%w", err)
	}
	return nil
}

// stageTests puts the hidden tests where the sandbox takes them from. The returned
// function removes them.
func (o phaseOptions) stageTests(c *sandbox.Config, task *seal.Task) (remove func() error, err error) {
	keep := func() error { return nil }
	p := c.Start.Phases
	switch {
	case p == nil || p.Tests == "":
		if o.tests != "" {
			return keep, cli.Failf(cli.ExitRunner, "leave out -tests", "the task's grader gets no hidden tests")
		}
		return keep, nil
	case o.tests != "":
		c.Tests = o.tests
		return keep, nil
	case task == nil:
		return keep, cli.Failf(cli.ExitRunner, "name their folder with -tests, or the task with -task, or -data and -task-id", "the task is graded with hidden tests")
	}
	dir := filepath.Join(c.RunDir, testsDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return keep, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	if err := task.StageTests(dir); err != nil {
		return remove, err
	}
	c.Tests = dir
	return remove, nil
}

type phaseJSON struct {
	Phase string `json:"phase"`
	How   string `json:"how"` // exited, timeout or not started
	Code  uint32 `json:"code"`
	Left  uint32 `json:"left"` // processes that were killed when the command had ended
}

type rewardJSON struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

type guardJSON struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"` // reward, declared or hook
	After bool   `json:"after"`
}

type costJSON struct {
	Setup  float64 `json:"setup"` // seconds
	Answer float64 `json:"answer"`
	Close  float64 `json:"close"`
}

type runJSON struct {
	Dir     string       `json:"dir"`
	Outcome string       `json:"outcome"`
	Code    int          `json:"code"`
	Rows    uint64       `json:"rows"`
	Root    string       `json:"root"`
	Backend string       `json:"backend"`
	Phases  []phaseJSON  `json:"phases"`
	Rewards []rewardJSON `json:"rewards"`
	Guards  []guardJSON  `json:"guards"`
	Limits  []string     `json:"limits"`
	Cost    costJSON     `json:"cost"`
}

var (
	phaseNames  = [...]string{journal.PhaseSetup: "setup", journal.PhaseAgent: "agent", journal.PhaseGrade: "grade"}
	howNames    = [...]string{journal.Exited: "exited", journal.TimedOut: "timeout", journal.NotStarted: "not started"}
	sourceNames = [...]string{journal.FromExit: "exit code", journal.FromStdout: "stdout", journal.FromText: "reward.txt", journal.FromJSON: "reward.json"}
	guardNames  = [...]string{journal.GuardReward: "reward", journal.GuardDeclared: "declared", journal.GuardHook: "hook"}
)

func resultJSON(dir string, r *sandbox.Result) runJSON {
	out := runJSON{Dir: dir, Outcome: r.Outcome.String(), Code: r.Code, Rows: r.Rows, Root: fmt.Sprintf("%x", r.Root), Backend: r.Backend,
		Phases: []phaseJSON{}, Rewards: []rewardJSON{}, Guards: []guardJSON{}, Limits: append([]string{}, r.Limits...),
		Cost: costJSON{r.Cost.Setup.Seconds(), r.Cost.Answer.Seconds(), r.Cost.Close.Seconds()}}
	for _, p := range r.Phases {
		out.Phases = append(out.Phases, phaseJSON{phaseNames[p.Phase], howNames[p.How], p.Code, p.Left})
	}
	for _, w := range r.Rewards {
		out.Rewards = append(out.Rewards, rewardJSON{w.Value, sourceNames[w.Source]})
	}
	for _, g := range r.Guards {
		out.Guards = append(out.Guards, guardJSON{g.Path, guardNames[g.Kind], g.After})
	}
	return out
}

// graded tells a person how the grading went.
func graded(r *sandbox.Result, say func(format string, args ...any), warn func(format string, args ...any)) {
	for _, p := range r.Phases {
		if p.Phase == journal.PhaseGrade && p.How != journal.Exited {
			warn("grading: %s", howNames[p.How])
		}
	}
	for _, g := range r.Guards {
		what := map[journal.GuardKind]string{journal.GuardReward: "a place of the reward", journal.GuardDeclared: "a guarded file", journal.GuardHook: "a test hook"}[g.Kind]
		when := "was not as it must be when grading started"
		switch {
		case g.Kind == journal.GuardHook:
			when = "was made or changed by the run, and grading opened it"
		case g.After:
			when = "was changed when the grader had ended"
		}
		warn("%s, %s, %s", g.Path, what, when)
	}
	for _, w := range r.Rewards {
		say("reward %s (%s)", w.Value, sourceNames[w.Source])
	}
}
