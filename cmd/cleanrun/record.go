package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// doRun records one command and returns the folder it recorded into. A run that ended and
// could not be applied is returned with the error.
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
		if o.sealed == "" && task.Expect != nil {
			return nil, "", cli.Failf(cli.ExitRunner, "give the sealed task with -sealed", "%s plants a file (expect): only a sealed run has a marker, since its start row binds it", o.task)
		}
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
		if e := set.Expect; e != nil {
			c.Plant = &sandbox.Plant{Path: e.Read, Template: e.Template}
		}
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
	logged, err := o.logging.of(&c, sealedBytes, warn)
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir)) // nothing ran
	}
	res, err := sandbox.Run(context.Background(), c)
	logged.end()
	if e := removeTests(); err == nil && e != nil {
		return nil, "", fmt.Errorf("remove hidden tests: %w", e)
	}
	if err != nil {
		var unavailable *sandbox.Unavailable
		var refused *sandbox.Refused
		var not *sandbox.NotExecuted
		var unregistered *sandbox.NotRegistered
		switch err := logged.failed(err); {
		case logged.sent(err):
			return nil, "", cli.Failf(cli.ExitRunner, "this attempt is used up: try again with the next number, -attempt", "%w (its registration and what was recorded are in %s)", err, dir)
		case errors.As(err, &unavailable) || errors.As(err, &refused) || errors.As(err, &not) || errors.As(err, &unregistered):
			return nil, "", errors.Join(err, os.RemoveAll(dir)) // nothing ran
		default:
			return nil, "", fmt.Errorf("%w (what was recorded is in %s)", err, dir)
		}
	}
	out := &ran{Result: res}
	if o.ended != nil {
		o.ended(dir)
	}
	if o.apply {
		applied, left, err := sandbox.Apply(dir, c.Workspace)
		err = errors.Join(err, sandbox.Scrub(c))
		if err != nil {
			return out, dir, fmt.Errorf("%w (the run itself is in %s)", err, dir)
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
