package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

type evalOptions struct {
	benchmark, sealed, data, out  string
	agent, modelStdin             string
	agentName, modelName          string
	tasks                         []string
	trials, jobs, retries         uint32
	observe                       bool
	retryText                     string
	timeout, setupTime, gradeTime string
	memory, disk, processes       string
	env                           []string
	keep                          keepFlags
	key, sign, identity           string
	log                           logFlags
}

var evalFlags = evalOptions{trials: 1, jobs: 1, retries: eval.DefaultRetries}

// exitInterrupted is the exit code after Ctrl-C, as shells have it.
const exitInterrupted = 130

var evalCommand = &cli.Command{
	Name:   "eval",
	Short:  "run one agent on all tasks of a sealed benchmark, in trials",
	Dashed: true,
	JSON:   true,
	Long: `Runs the agent on every task of a sealed benchmark, -trials times each, -jobs at a time, and records each attempt as "cleanrun run" does.
-benchmark (or -sealed) is the file that seal wrote, -data the benchmark.yaml with prompts, workspaces and hidden tests.

The agent is one text, cut into words as a shell does but without running one, or the words after --. In it {prompt} is the task's
prompt, {prompt_file} a file with it, {task} the task's id and {trial} the trial's number. For tasks that declare stdin as the model's,
-model-stdin is a command outside the sandbox whose output is the agent's stdin and that reads the agent's stdout, with the same
placeholders. All that it leaves behind is killed with the attempt.

EVALDIR keeps the plan (eval.json), the recordings (attempts/), the receipts (receipts/) and one line for each attempt (results.jsonl).
It is private. The same command again goes on after a crash or Ctrl-C: finished trials are kept, attempts that were killed stay on
record as killed and are made again under the next number. Another agent or another benchmark is refused; -trials may grow.

An attempt is made again, at most -retries times for each trial, only if the recorder itself failed and the journal shows it: it is open or
abandoned, or notifications are left. Never because a score was bad, and not for what an agent can cause: lost events, a grading that
failed. The reason stands in results.jsonl.

With -key and -sign, or -sign alone if the benchmark publishes its key, each attempt is attested at once. Otherwise cleanrun submit does it later.

With -log each attempt is registered in a transparency log before it starts, under -sign, and its receipt gets the log's proofs, as "run -log" and
"attest -log" do. An attempt that was killed stays open in the log, and the next one is registered under the next number. A log in a folder is opened by
the eval itself.

Exit code 0 if all trials are finished, whatever their verdicts; 3 if some are missing or could not be attested; 130 after Ctrl-C.`,
	Flags: func(f *cli.Flags) {
		v := &evalFlags
		f.String(&v.benchmark, "benchmark", "sealed benchmark `file`, b.sealed")
		f.String(&v.sealed, "sealed", "the same as -benchmark: sealed benchmark `file`")
		f.Required(&v.data, "data", "`benchmark.yaml` that was sealed")
		f.Required(&v.out, "o", "`folder` of the eval, new or to go on with")
		f.String(&v.agent, "agent", "`command` of the agent, with placeholders")
		f.String(&v.modelStdin, "model-stdin", "`command` outside the sandbox that answers on the agent's stdin, with placeholders")
		f.String(&v.agentName, "agent-name", "`name` of the agent (asserted)")
		f.String(&v.modelName, "model", "`name` of the model (asserted)")
		f.Strings(&v.tasks, "task", "only this task `id`; may be given several times")
		f.Uint(&v.trials, "trials", "`number` of trials of each task")
		f.Uint(&v.jobs, "jobs", "`number` of attempts at a time")
		f.String(&v.retryText, "retries", fmt.Sprintf("`number` of further attempts of a trial after failures of the machinery; without it %d", eval.DefaultRetries))
		f.Bool(&v.observe, "observe", "show the host read-only and record what is out of scope")
		f.String(&v.timeout, "timeout", "`time` after which the agent is killed, like 90s, 20m or 2h")
		f.String(&v.setupTime, "setup-timeout", "`time` after which the setup is killed")
		f.String(&v.gradeTime, "grade-timeout", "`time` after which the grading is killed")
		f.String(&v.memory, "limit-memory", "`bytes` of memory for each attempt, like 512M or 4G")
		f.String(&v.disk, "limit-disk", "`bytes` that each attempt may add to its workspace and private places")
		f.String(&v.processes, "limit-processes", "`number` of processes and threads of each attempt at one time")
		f.Strings(&v.env, "env", "pass this variable although its `name` looks like a secret; EVALDIR keeps its value")
		v.keep.flags(f)
		f.String(&v.key, "key", "audit or benchmark key `file`, to attest each attempt at once")
		f.String(&v.sign, "sign", "runner's signing key `file`, to attest each attempt at once")
		f.String(&v.identity, "identity", identityUsage+", with -sign")
		v.log.flags(f, "attempts are registered in, with -sign")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		return doEval(e, evalFlags)
	},
}

// usage2 gives a wrong flag that run shares with eval its usual exit code: here no
// command's code can be meant.
func usage2(err error) error {
	var own *cli.Error
	if errors.As(err, &own) {
		return &cli.Error{Code: cli.ExitUsage, Err: own.Err, Hint: own.Hint}
	}
	return err
}

func doEval(e *cli.Env, v evalOptions) error {
	if v.benchmark != "" && v.sealed != "" {
		return cli.Failf(cli.ExitUsage, "", "-benchmark and -sealed are the same: give one of them")
	}
	if v.benchmark = cmp.Or(v.benchmark, v.sealed); v.benchmark == "" {
		return cli.Failf(cli.ExitUsage, "", "flag -benchmark is missing")
	}
	if v.retryText != "" {
		n, err := strconv.ParseUint(v.retryText, 10, 32)
		if err != nil || n >= eval.MaxAttempts {
			return cli.Failf(cli.ExitUsage, "", "-retries: got %q, want a number from 0 to %d", v.retryText, eval.MaxAttempts-1)
		}
		v.retries = uint32(n)
	}
	b, err := openBenchmark(v.benchmark, v.data, v.tasks)
	if err != nil {
		return err
	}
	plan, err := planEval(e, v, b)
	if err != nil {
		return err
	}
	if err := v.checkKeys(b); err != nil {
		return err
	}
	log, closeLog, err := openEvalLog(v)
	if err != nil {
		return err
	}
	defer closeLog()
	if log != nil {
		plan.Log = log.key
	}
	if v.out, err = filepath.Abs(v.out); err != nil {
		return err
	}
	for _, t := range b.tasks {
		if err := outside(v.out, t.workspace); err != nil {
			return usage2(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	d, err := openEval(v.out, plan)
	if err != nil {
		return err
	}
	rep, err := runEval(ctx, e, d, b, v, log)
	if closed := d.Close(); err == nil {
		err = closed
	}
	if rep != nil && (err == nil || ctx.Err() != nil) {
		if err := rep.print(e); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		if !e.JSON {
			done := ""
			if rep != nil {
				done = fmt.Sprintf(" with %d of %d trials finished", len(rep.Table.Trials)-rep.Missing, len(rep.Table.Trials))
			}
			fmt.Fprintf(e.Stderr, "cleanrun: stopped%s; the same command goes on, and -o %s keeps what is done\n", done, v.out)
		}
		return cli.Exit(exitInterrupted)
	case err != nil:
		return err
	case rep.Missing > 0 || rep.Unattested > 0:
		return cli.Exit(cli.ExitInconclusive)
	}
	return nil
}

func openEval(dir string, plan eval.Plan) (*eval.Dir, error) {
	d, err := eval.Open(dir, plan)
	var changed *eval.Changed
	switch {
	case errors.Is(err, eval.ErrLocked):
		return nil, cli.Failf(cli.ExitUsage, "cleanrun watch "+dir+" looks at it", "%s: %w", dir, err)
	case errors.As(err, &changed):
		return nil, cli.Failf(cli.ExitUsage, "name a new folder with -o, or give the same command; only -trials may grow", "%s: %w", dir, err)
	case err != nil:
		return nil, err
	}
	return d, nil
}

// runEval puts on record what an earlier eval left, and makes what is due.
func runEval(ctx context.Context, e *cli.Env, d *eval.Dir, b *evalBenchmark, v evalOptions, log *attemptLog) (*evalReport, error) {
	if d.Torn > 0 {
		e.Warn("%s: cut %s of a torn last line; that attempt is looked at again", d.Path(eval.ResultsFile), several(d.Torn, "byte", "bytes"))
	}
	g := &grid{dir: d, tasks: map[string]*evalTask{}, flags: v, tools: toolDirs()(), log: log, warn: e.Warn, warned: map[string]bool{}}
	for i := range b.tasks {
		g.tasks[b.tasks[i].id] = &b.tasks[i]
	}
	if err := errors.Join(g.prepare(), g.tidy(), g.checkResults()); err != nil {
		return nil, err
	}
	show := newEvalProgress(e, d, v)
	defer show.done()
	killed, err := g.recover(ctx, show.recovering)
	if err != nil {
		return nil, err
	}
	if killed > 0 {
		show.say("%d attempts that were killed are on record as killed; they are made again", killed)
	}
	show.begin()
	sum, err := eval.Run(ctx, d, eval.Config{Jobs: int(v.jobs), Retries: v.retries, Attempt: g.attempt, Event: show.event})
	show.done()
	rep := newEvalReport(d.Snapshot(), v, sum)
	if errors.Is(err, eval.ErrHopeless) {
		return rep, cli.Failf(cli.ExitInconclusive, "cleanrun run -sealed ... -- AGENT tries one; cleanrun doctor tries the recorder", "%w", err)
	}
	return rep, err
}

// An evalReport is the product of eval: the table, with what this run of it did.
type evalReport struct {
	Dir        string      `json:"dir"`
	Benchmark  string      `json:"benchmark"`
	Agent      string      `json:"agent"`
	Model      string      `json:"model"`
	Made       int         `json:"made"`   // attempts of this run
	Errors     int         `json:"errors"` // that could not be made
	WallNs     int64       `json:"wallNs"` // of this run
	Missing    int         `json:"missing"`
	Unattested int         `json:"unattested"` // 0 without -sign
	Table      *eval.Table `json:"table"`
	part       bool        // not of all tasks
	log        string      // that attempts were registered in
}

func newEvalReport(s *eval.State, v evalOptions, sum eval.Summary) *evalReport {
	t := eval.Tabulate(s, v.retries)
	r := &evalReport{Dir: s.Dir, Benchmark: s.Plan.Benchmark, Agent: s.Plan.AgentName, Model: s.Plan.ModelName, Made: sum.Made, Errors: sum.Errors,
		WallNs: int64(sum.Wall), Missing: t.States[eval.Missing], Table: t}
	r.part, r.log = len(v.tasks) > 0, v.log.log
	if v.sign != "" {
		r.Unattested = t.States[eval.Unattested]
	}
	return r
}

func (r *evalReport) print(e *cli.Env) error {
	if e.JSON {
		return e.PrintJSON(r)
	}
	next := "cleanrun submit"
	if r.part { // of the benchmark's tasks
		next += " -partial"
	}
	switch {
	case isURL(r.log):
		next += " -log " + r.log + " -log-policy policy.txt"
	case r.log != "":
		next += " -log " + r.log + " -log-key log.key -log-policy policy.txt"
	}
	next += " -sign runner.key -o SUBMISSION " + r.Dir
	if r.Missing > 0 {
		next = "the same command makes what is missing"
	}
	_, err := io.WriteString(e.Stdout, r.Table.Text()+fmt.Sprintf(" next       %s\n", next))
	return err
}
