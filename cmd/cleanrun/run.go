package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
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
	hidden                               []string         // more paths that the run must not find
	promptFile                           bool             // show the prompt at sandbox.PromptPath
	tools                                func() []string  // folders of tools; nil asks for them
	ended                                func(dir string) // is told the run folder before anything is applied
	command                              []string
	logging                              runLogging
	stdin                                io.Reader
	stdout, stderr                       io.Writer
}

var (
	runFlags      = runOptions{trial: 1, attempt: 1}
	runPhaseFlags phaseFlags
	runLogFlags   runLogFlag
)

// runLogFlag are the flags of run about a log.
type runLogFlag struct {
	logFlags
	key      string // the runner's
	optional bool
}

// open opens the log and loads the key that signs what is put into it.
func (v *runLogFlag) open(ctx context.Context, sealed string, warn func(string, ...any)) (runLogging, error) {
	if v.log == "" && (v.key != "" || v.optional) {
		return runLogging{}, cli.Failf(cli.ExitUsage, "give -log too", "-key and -log-optional without -log mean nothing")
	}
	if v.log != "" && (sealed == "" || v.key == "") {
		return runLogging{}, cli.Failf(cli.ExitUsage, "cleanrun run -log URL -key runner.key -sealed task.sealed -prompt PROMPT -- CMD",
			"-log: -sealed or -key is missing: a run is registered under the runner's key, for a task that is sealed")
	}
	if v.log == "" {
		return runLogging{}, v.check()
	}
	signer, err := keys.Load(v.key)
	if err != nil {
		return runLogging{}, err
	}
	l, err := v.logFlags.open(ctx)
	if err != nil && v.optional && errors.Is(err, registry.ErrUnavailable) {
		warn(unlogged, err)
		return runLogging{}, nil
	}
	return runLogging{log: l, signer: signer, optional: v.optional}, withoutLog(err)
}

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

With -log the run is put into a transparency log (spec/log.md): it is registered before it starts, its journal's head is logged while it goes
on, and its end afterwards. -key is the runner's signing key, the one that attest signs with; the owner's SEAL must be in the log already. If
the log does not answer, nothing is run (exit 125); with -log-optional the run goes on without, and cannot have assurance L1. An outage later
stops nothing: what is missing is a gap that verify sees, and "cleanrun attest -log" logs an end that is missing. A folder as -log is opened
by run itself, with -log-key; only one process can have it. An attempt is registered once: after a kill the next -attempt is due.

Where namespaces cannot be set up (a container's seccomp profile, a nest without user namespaces), CMD works on a copy of the workspace in
RUNDIR, with HOME and TMPDIR there, no network and a shared /tmp in which it gets at what it made itself (backend plain). run says so, and
verify prints what that backend cannot see. -backend forces one.

The exit code is CMD's, not the grader's: 128+n if signal n ended it; 124 if its time was over; 125 if the run failed by itself, or if
a signal ended it while its journal was being closed: the recording then stays open and counts as INCONCLUSIVE.`,
	Flags: func(f *cli.Flags) {
		v := &runFlags
		f.String(&v.task, "task", "`task.yaml` that names workspace and prompt")
		f.String(&v.sealed, "sealed", "`task.sealed` whose task this is, or b.sealed")
		f.String(&v.data, "data", "`benchmark.yaml` of the sealed benchmark")
		f.String(&v.taskID, "task-id", "`name` of the task of the sealed benchmark")
		f.String(&v.workspace, "workspace", "workspace `folder`, by default the current one")
		f.String(&v.prompt, "prompt", "`file` with the sealed task's prompt")
		f.String(&v.out, "o", "new `folder` for the recording")
		f.String(&v.backend, "backend", "`name` of the backend, namespaces or plain; by default plain only where namespaces cannot be set up")
		f.Bool(&v.observe, "observe", "show the host read-only and record what is out of scope")
		f.Bool(&v.apply, "apply", "afterwards copy what the run changed into the real workspace, whatever its exit code")
		f.Strings(&v.env, "env", "pass this variable although its `name` looks like a secret; RUNDIR keeps its value")
		v.keep.flags(f)
		runPhaseFlags.flags(f)
		runLogFlags.flags(f, "the run is registered in")
		f.String(&runLogFlags.key, "key", "with -log: runner's signing key `file`")
		f.Bool(&runLogFlags.optional, "log-optional", "with -log: run also if the log does not answer, without assurance L1")
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
		if v.logging, err = runLogFlags.open(context.Background(), v.sealed, e.Warn); err != nil {
			return usage125(err)
		}
		if v.logging.log != nil {
			defer v.logging.log.Close()
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
			fmt.Fprintf(e.Stderr, "cleanrun: changes copied into the workspace: %d\n", res.applied)
		}
		if !e.JSON && v.out == "" {
			fmt.Fprintf(e.Stderr, "cleanrun: recorded %s in %s\ncleanrun: hint: cleanrun inspect -events %s\n", several(res.Rows, "event", "events"), dir, dir)
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
