package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// runOptions is what run and quickstart pass to doRun.
type runOptions struct {
	task, sealed, workspace, prompt, out string
	data, taskID                         string // one task of a sealed benchmark
	agent, model                         string
	backend                              string // "" chooses
	trial, attempt                       uint32
	observe, apply                       bool
	env                                  []string // variables to pass although they look like secrets
	keep                                 keepFlags
	phases                               phaseOptions
	hidden                               []string        // more paths that the run must not find
	promptFile                           bool            // show the prompt at sandbox.PromptPath
	tools                                func() []string // folders of tools; nil asks for them
	command                              []string
	stdin                                io.Reader
	stdout, stderr                       io.Writer
}

var (
	runFlags      = runOptions{trial: 1, attempt: 1}
	runPhaseFlags phaseFlags
)

var runCommand = &cli.Command{
	Name:   "run",
	Short:  "run a command in the sandbox and record what it touches",
	Dashed: true,
	JSON:   true,
	Fail:   cli.ExitRunner,
	Long: `Runs CMD in the sandbox. It sees the system read-only, its workspace at the same path over an overlay (outside, the
workspace stays unchanged), and a HOME and /tmp of its own that hold only toolchains. There is no network but loopback.

With -sealed the run is one attempt at a sealed task and can be attested: workspace (by default the current folder) and -prompt must be
those that were sealed. If it is a benchmark's, -task-id names the task and -data the benchmark.yaml, through which both are found; the run
is given that task's part of the seal alone. With -task, workspace and prompt are found through task.yaml. Without either, CMD is recorded with the current
folder as workspace, to look at (cleanrun inspect), not to attest.

With -observe the rest of the host is visible read-only too, but for its /tmp, /var/tmp, /run and HOME, and what is out of scope is
recorded instead of hidden.

RUNDIR gets the journal, the private details and every content that was opened. Keep it private. By default it is a new folder for
temporary files, whose name is printed at the end. -encrypt encrypts what it keeps to age recipients; attest, inspect, explain and
disclose then need -identity. -store-max bounds it.

Variables whose names look like secrets are not passed: what the command is given is content, and RUNDIR keeps it. -secret NAME passes
one and replaces its value by asterisks wherever it appears in what is stored: files, streams, arguments, names. So is what has the shape
of a well-known key (sk-..., ghp_..., AKIA..., a private key in PEM) or matches -secret-pattern. Encoded forms of a value are not found.
-env NAME passes a variable and keeps its value.

With -apply, what the run changed in its workspace is copied into the real one afterwards. Otherwise it stays in RUNDIR.

A task can say what prepares its workspace (setup) and what grades it; -setup and -grade do so where it does not. Each is a phase of its own
with CMD in between, and begins when nothing of the one before is left: what CMD leaves running is killed. The hidden tests (of -task or
-data, or -tests) appear when grading starts, read-only, and are nowhere before. The reward is the exit code (0 is 1, others 0), the last line of the grader's
output, or a number in reward.txt or reward.json in $CLEANRUN_REWARD_DIR. If the setup fails, CMD is not run. When -timeout is over, CMD is killed with code 124
and graded all the same. A limit that cannot be set is an error.

SIGTERM and Ctrl-C go to the running command first; a second one kills the run. The outcome is then "cancelled", and nothing is graded.
While the recording is being closed, also between two phases, any of them ends it at once: the journal stays open.

Where namespaces cannot be set up (a container's seccomp profile, a nest without user namespaces), CMD works on a copy of the workspace in
RUNDIR, with HOME and TMPDIR there, no network and a shared /tmp in which it gets at what it made itself (backend plain). run says so, and
verify prints what that backend cannot see. -backend forces one.

The exit code is CMD's, not the grader's: 128+n if signal n ended it; 124 if its time was over; 125 if the run failed by itself.`,
	Flags: func(f *cli.Flags) {
		v := &runFlags
		f.String(&v.task, "task", "`task.yaml` that names workspace and prompt")
		f.String(&v.sealed, "sealed", "`task.sealed` whose task this is, or b.sealed")
		f.String(&v.data, "data", "`benchmark.yaml` of the sealed benchmark")
		f.String(&v.taskID, "task-id", "`name` of the task of the sealed benchmark")
		f.String(&v.workspace, "workspace", "workspace `folder`, by default the current one")
		f.String(&v.prompt, "prompt", "`file` with the sealed task's prompt")
		f.String(&v.out, "o", "new `folder` for the recording")
		f.String(&v.backend, "backend", "`namespaces` or plain; by default plain only where namespaces cannot be set up")
		f.Bool(&v.observe, "observe", "show the host read-only and record what is out of scope")
		f.Bool(&v.apply, "apply", "afterwards copy what the run changed into the real workspace, whatever its exit code")
		f.Strings(&v.env, "env", "pass this variable although its `name` looks like a secret; RUNDIR keeps its value")
		v.keep.flags(f)
		runPhaseFlags.flags(f)
		f.String(&v.agent, "agent", "`name` of the agent (asserted)")
		f.String(&v.model, "model", "`name` of the model (asserted)")
		f.Uint(&v.trial, "trial", "`number` of the trial, from 1")
		f.Uint(&v.attempt, "attempt", "`number` of the attempt, from 1")
	},
	Run: func(e *cli.Env, args []string) error {
		if len(args) > 0 {
			return cli.Failf(cli.ExitRunner, "cleanrun run [flags] -- CMD ARG...", "unexpected argument %q: the command goes after --", args[0])
		}
		v := runFlags
		if e.Program == nil {
			return cli.Failf(cli.ExitRunner, "cleanrun run [flags] -- CMD ARG...", "no command: nothing after --")
		}
		var err error
		if v.phases, err = runPhaseFlags.parse(); err != nil {
			return err
		}
		v.command, v.stdin, v.stdout, v.stderr = e.Program, e.Stdin, e.Stdout, e.Stderr
		if e.JSON {
			v.stdout = e.Stderr // stdout is for the object
		}
		var p *cli.Progress
		if !cli.Terminal(e.Stdout) { // else it is the program's own screen
			p = cli.NewProgress(e.Stderr, "recording")
		}
		res, dir, err := doRun(v, p, e.Warn)
		p.Done()
		if err != nil {
			return usage125(err)
		}
		if e.JSON {
			if err := e.PrintJSON(resultJSON(dir, res.Result)); err != nil {
				return err
			}
		} else if graded(res.Result, func(format string, args ...any) { fmt.Fprintf(e.Stderr, "cleanrun: "+format+"\n", args...) }, e.Warn); v.apply {
			fmt.Fprintf(e.Stderr, "cleanrun: %d changes copied into the workspace\n", res.applied)
		}
		if !e.JSON && v.out == "" {
			fmt.Fprintf(e.Stderr, "cleanrun: recorded %d events in %s\ncleanrun: hint: cleanrun inspect -events %s\n", res.Rows, dir, dir)
		}
		if res.Code != 0 {
			return cli.Exit(res.Code)
		}
		return nil
	},
}

// usage125 gives an error of run its own exit code: the command's codes are its
// own, so the usual 2 would be ambiguous.
func usage125(err error) error {
	var own *cli.Error
	if errors.As(err, &own) {
		return &cli.Error{Code: cli.ExitRunner, Err: own.Err, Hint: own.Hint}
	}
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		return &cli.Error{Code: cli.ExitRunner, Err: err, Hint: un.Hint}
	}
	var refused *sandbox.Refused
	if errors.As(err, &refused) {
		return &cli.Error{Code: cli.ExitRunner, Err: err, Hint: refused.Hint}
	}
	if strings.Contains(err.Error(), syscall.ENOSPC.Error()) { // it comes from another process, as text
		return &cli.Error{Code: cli.ExitRunner, Err: err, Hint: "the disk is full: name a folder with more room with -o, or bound what is stored with -store-max; " +
			"cleanrun prune frees the room of runs that have a receipt"}
	}
	var not *sandbox.NotExecuted
	if errors.As(err, &not) {
		return &cli.Error{Code: cli.ExitRunner, Err: err, Hint: "CMD starts in the workspace and must be a program, or a script with a #! line, " +
			"in the workspace, the system or a path of scope.grants; -observe shows the rest of the host"}
	}
	return &cli.Error{Code: cli.ExitRunner, Err: err}
}

// doRun records one command and returns the folder it recorded into.
func doRun(o runOptions, p *cli.Progress, warn func(string, ...any)) (*ran, string, error) {
	c := sandbox.Config{Command: o.command, Observe: o.observe, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
		HiddenHints: homes()}
	tools := o.tools
	if tools == nil {
		tools = toolDirs()
	}
	if err := o.keep.apply(&c, os.Environ()); err != nil {
		return nil, "", err
	}
	env, withheld, err := environment(os.Environ(), append(slices.Clone(o.env), o.keep.secrets...))
	if err != nil {
		return nil, "", err
	}
	c.Env = env
	if len(withheld) > 0 && warn != nil {
		warn("not passed to the command, since the names look like secrets and RUNDIR keeps all values: %s; -secret NAME passes one and keeps its value out", strings.Join(withheld, ", "))
	}
	if c.Backend, err = backendOf(o.backend); err != nil {
		return nil, "", err
	}
	c.Chosen = func(_ string, why error) {
		if warn != nil {
			warn("backend plain, without namespaces: %v; verify prints what it cannot see", why)
		}
	}
	c.Progress = func(r sandbox.Progress) { p.Update(r.Rows, 0, "events") }
	c.Start.Agent, c.Start.Model = o.agent, o.model
	for name, v := range map[string]string{"agent": o.agent, "model": o.model} {
		if v != "" && !contraband.CheckName(v) {
			return nil, "", cli.Failf(cli.ExitRunner, "", "-%s: got %q, want printable characters on one line, at most 1024 bytes", name, v)
		}
	}

	var task *seal.Task
	var prompt []byte
	workspace := o.workspace
	var part *benchmarkTask
	if o.data != "" || o.taskID != "" {
		switch {
		case o.data == "" || o.taskID == "" || o.sealed == "":
			return nil, "", cli.Failf(cli.ExitRunner, "cleanrun run -sealed b.sealed -data benchmark.yaml -task-id ID -- CMD", "-data and -task-id go together, with -sealed")
		case o.task != "" || o.prompt != "" || o.workspace != "":
			return nil, "", cli.Failf(cli.ExitRunner, "", "-data names workspace and prompt already: leave out -task, -workspace and -prompt")
		}
		if part, err = openBenchmarkTask(o.sealed, o.data, o.taskID); err != nil {
			return nil, "", err
		}
		task, prompt, workspace = part.Task, part.Prompt, part.Task.WorkspacePath()
		c.HiddenHints = append(c.HiddenHints, part.Hidden...)
	} else if o.task != "" {
		if o.prompt != "" || o.workspace != "" {
			return nil, "", cli.Failf(cli.ExitRunner, "", "-task names workspace and prompt already: leave out -workspace and -prompt")
		}
		if task, prompt, err = readTask(o.task); err != nil {
			return nil, "", err
		}
		workspace = filepath.Join(filepath.Dir(o.task), filepath.FromSlash(task.Workspace.Value))
		hidden, err := task.Hidden()
		if err != nil {
			return nil, "", err
		}
		c.HiddenHints = append(c.HiddenHints, hidden...)
		c.Start.Benchmark, c.Start.Task, c.Start.Trial, c.Start.Attempt = task.Benchmark, task.ID, o.trial, o.attempt
		setScope(&c, task.Scope, task.Channels)
	} else if o.prompt != "" {
		if o.sealed == "" {
			return nil, "", cli.Failf(cli.ExitRunner, "", "-prompt without -sealed means nothing")
		}
		if prompt, err = readFile(o.prompt, maxPrompt); err != nil {
			return nil, "", err
		}
	}
	if workspace == "" {
		workspace = "."
	}
	if c.Workspace, err = filepath.Abs(workspace); err != nil {
		return nil, "", err
	}
	if c.Workspace, err = filepath.EvalSymlinks(c.Workspace); err != nil {
		return nil, "", err
	}
	c.HiddenHints = append(append(c.HiddenHints, filepath.Dir(c.Workspace)), o.hidden...)
	if c.Workspace == "/" {
		return nil, "", cli.Failf(cli.ExitRunner, "cd into a project folder, or name one with -workspace", "the workspace is /: a workspace must be bounded")
	}
	if err := outside(o.out, c.Workspace); err != nil {
		return nil, "", err
	}

	// Only a sealed run is held to a baseline. Reading a whole workspace for a run
	// that is only looked at would be a long wait for nothing.
	var sealedBytes, baseline []byte
	var phases *contraband.Phases
	if task != nil {
		phases = task.Phases
	}
	if o.sealed != "" {
		base, err := manifest.Build(c.Workspace, prompt)
		if err != nil {
			return nil, "", err
		}
		c.Start.Baseline = base.Root()
		if baseline, err = base.Marshal(); err != nil {
			return nil, "", err
		}
		var file []byte
		var set *contraband.Set
		if part != nil {
			file, set = part.Sealed, part.Set
		} else if file, set, err = readSealed(o.sealed); err != nil {
			return nil, "", err
		}
		if task != nil && (set.Benchmark != task.Benchmark || set.Task != task.ID) {
			return nil, "", cli.Failf(cli.ExitRunner, "", "%s seals %s/%s, and %s is %s/%s", o.sealed, set.Benchmark, set.Task, task.File, task.Benchmark, task.ID)
		}
		if set.Baseline != c.Start.Baseline && task == nil && o.prompt == "" {
			return nil, "", cli.Failf(cli.ExitRunner, "give the sealed task's prompt with -prompt, or -task", "%s: workspace %s without a prompt is not what was sealed (got baseline %x, want %x)",
				o.sealed, c.Workspace, c.Start.Baseline[:8], set.Baseline[:8])
		}
		if set.Baseline != c.Start.Baseline {
			return nil, "", cli.Failf(cli.ExitRunner, "use the workspace and prompt that were sealed, unchanged, or seal again",
				"%s: workspace %s or prompt differ from what was sealed (got baseline %x, want %x)", o.sealed, c.Workspace, c.Start.Baseline[:8], set.Baseline[:8])
		}
		sealedBytes = file
		c.Start.Benchmark, c.Start.Task, c.Start.Trial, c.Start.Attempt = set.Benchmark, set.Task, o.trial, o.attempt
		c.Start.Commitment, c.Start.Seal = set.Commitment, sealDigest(file)
		c.ControlText = set.Control
		setScope(&c, set.Scope, set.Channels)
		phases = set.Phases
	} else if task == nil {
		// A run to look at: the whole workspace may be changed.
		setScope(&c, contraband.Scope{Workspace: uint8(scope.WriteTree)}, nil)
	}
	if o.sealed == "" && task != nil && warn != nil {
		warn("no -sealed: this run can be looked at, not attested")
	}

	if err := o.phases.apply(&c, phases); err != nil {
		return nil, "", err
	}
	if o.promptFile {
		c.Prompt = string(prompt)
	}
	dir, err := makeRunDir(o.out)
	if err != nil {
		return nil, "", err
	}
	c.RunDir = dir
	removeTests, err := o.phases.stageTests(&c, task)
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir)) // nothing ran
	}
	if sealedBytes != nil {
		err = durable.CreateNew(filepath.Join(dir, "baseline"), baseline, 0o600)
		if err == nil {
			err = durable.CreateNew(filepath.Join(dir, "task.sealed"), sealedBytes, 0o600)
		}
		if err != nil {
			return nil, "", err
		}
	}
	c.ToolDirs, c.ApplyFirst = tools(), o.apply
	res, err := sandbox.Run(context.Background(), c)
	if e := removeTests(); err == nil && e != nil {
		return nil, "", fmt.Errorf("remove hidden tests: %w", e)
	}
	if err != nil {
		var unavailable *sandbox.Unavailable
		var refused *sandbox.Refused
		var not *sandbox.NotExecuted
		if errors.As(err, &unavailable) || errors.As(err, &refused) || errors.As(err, &not) {
			return nil, "", errors.Join(err, os.RemoveAll(dir)) // nothing ran
		}
		return nil, "", fmt.Errorf("%w (what was recorded is in %s)", err, dir)
	}
	out := &ran{Result: res}
	if o.apply {
		applied, left, err := sandbox.Apply(dir, c.Workspace)
		err = errors.Join(err, sandbox.Scrub(c))
		if err != nil {
			return nil, "", fmt.Errorf("%w (the run itself is in %s)", err, dir)
		}
		out.applied = len(applied)
		if warn != nil {
			for _, s := range left {
				warn("not copied into the workspace: %s", s)
			}
		}
	}
	if warn != nil {
		if res.KeysLeft {
			warn("the run held more text of the shape of keys than is removed: %s holds some as it was; keep it private, or use -encrypt", dir)
		}
		for _, s := range res.Skipped {
			warn("not shown inside: %s", s)
		}
		for _, l := range res.Limits {
			if strings.Contains(l, "reached") {
				warn("%s", l)
			}
		}
	}
	return out, dir, nil
}

// ran is a finished run.
type ran struct {
	*sandbox.Result
	applied int // changes copied into the workspace
}

// readTask reads a task file and its prompt, and nothing of the ground truth.
func readTask(path string) (*seal.Task, []byte, error) {
	data, err := readFile(path, seal.MaxTaskFile)
	if err != nil {
		return nil, nil, err
	}
	task, err := seal.ParseTask(path, data)
	if err != nil {
		return nil, nil, err
	}
	if task.Prompt.File.Value == "" {
		return task, []byte(task.Prompt.Inline), nil
	}
	prompt, err := readFile(filepath.Join(filepath.Dir(path), filepath.FromSlash(task.Prompt.File.Value)), maxPrompt)
	return task, prompt, err
}

const maxPrompt = 16 << 20

func setScope(c *sandbox.Config, s contraband.Scope, channels []contraband.Channel) {
	c.ReadOnly = scope.Mode(s.Workspace) == scope.ReadTree
	for _, g := range s.Grants {
		c.Grants = append(c.Grants, scope.Root{Path: g.Path, Mode: scope.Mode(g.Mode), Class: scope.Grant})
	}
	c.Start.Channels = nil
	for _, ch := range channels {
		c.Start.Channels = append(c.Start.Channels, journal.Channel{Name: ch.Name, Role: ch.Role})
	}
}

// outside refuses a recording inside the workspace: the run could read it.
func outside(out, workspace string) error {
	abs, err := filepath.Abs(cmp.Or(out, os.TempDir()))
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(workspace, abs); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil
	}
	if out == "" {
		return cli.Failf(cli.ExitRunner, "name a folder outside the workspace with -o", "without -o the recording goes to %s, which is inside the workspace %s", abs, workspace)
	}
	return cli.Failf(cli.ExitRunner, "choose a folder outside the workspace with -o", "-o %s is inside the workspace %s, which the run can read", out, workspace)
}

// makeRunDir makes the folder of a recording. One that exists is refused: a
// recording is never mixed with another.
func makeRunDir(out string) (string, error) {
	if out == "" {
		return os.MkdirTemp("", "cleanrun-run-")
	}
	abs, err := filepath.Abs(out)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(abs, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return "", cli.Failf(cli.ExitRunner, "name a new folder", "-o %s exists", out)
		}
		return "", err
	}
	return abs, nil
}
