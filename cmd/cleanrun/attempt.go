package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// stageAttempt is the name under which eval starts this program again for one
// attempt: a crash of one takes no other along. The job comes on stdin, the reply
// goes to stdout.
const stageAttempt = "cleanrun: attempt"

// attemptStage does one attempt's work and does not return, if this process was
// started for that. It must be called first in main, after sandbox.Stage.
func attemptStage() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case stageModel:
		os.Exit(keepModel(os.Args[1:]))
	case stageAttempt:
	default:
		return
	}
	var j attemptJob
	d := json.NewDecoder(os.Stdin)
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		fmt.Fprintf(os.Stderr, "cleanrun: error: %q is a name of eval's own processes\n", os.Args[0])
		os.Exit(cli.ExitUsage)
	}
	if err := json.NewEncoder(os.Stdout).Encode(j.do()); err != nil {
		os.Exit(cli.ExitUsage)
	}
	os.Exit(0)
}

// An attemptJob is what one attempt's process is told. Paths are absolute.
type attemptJob struct {
	Cell    eval.Cell
	RunDir  string
	Sealed  string
	Run     *attemptRun // nil if the run is there already
	Key     string      // "" if the seal publishes it
	Sign    string      // attest, if not ""
	Receipt string
	// Identity opens an encrypted recording, "" for none.
	Identity string
	Procs    int         // processors to use
	Log      *attemptLog // nil for none
}

// An attemptLog is the log that attempts are registered in, and that their receipts go
// to. The eval has opened a log in a folder and serves it.
type attemptLog struct {
	URL, Where string // where it is, and what to call it
	Policy     string // file
	Wait       string
	key        string // a vkey
}

// open opens the log of an attempt, nil if there is none.
func (j attemptJob) open() (*runnersLog, error) {
	if j.Log == nil {
		return nil, nil
	}
	l, err := (&logFlags{log: j.Log.URL, policy: j.Log.Policy, wait: j.Log.Wait}).open(context.Background())
	if l != nil {
		l.where = j.Log.Where
	}
	return l, err
}

// An attemptRun says what to run.
type attemptRun struct {
	Workspace  string
	Prompt     string // file
	PromptFile bool   // show it inside
	Tests      string // staged folder, "" for none
	Hidden     []string
	Command    []string
	Model      []string // command that answers on stdin
	AgentName  string
	ModelName  string
	Observe    bool
	Env        []string // names
	Tools      []string // folders

	Timeout, SetupTimeout, GradeTimeout time.Duration
	Limits                              eval.Limits

	Secrets, Patterns, Recipients []string
}

// An attemptReply is how it went. Result is what the journal shows, with the
// verdict if it was attested.
type attemptReply struct {
	Result   *eval.Result // nil if nothing was recorded
	Error    string       // of the run or of attesting
	Hint     string
	Warnings []string
	// Used says that the log holds this attempt already, of a run that left nothing here.
	Used bool
}

func (j attemptJob) do() (rep attemptReply) {
	runtime.GOMAXPROCS(max(1, j.Procs))
	warn := func(format string, args ...any) { rep.Warnings = append(rep.Warnings, fmt.Sprintf(format, args...)) }
	fail := func(err error) {
		rep.Error = err.Error()
		var refused *entry.Refusal
		rep.Used = errors.As(err, &refused) && refused.ID == entry.RegisterAgain
		var own *cli.Error
		if errors.As(usage125(err), &own) {
			rep.Hint = own.Hint
		}
	}
	var cost eval.Cost
	log, err := j.open()
	if err != nil {
		fail(err)
		return rep
	}
	if log != nil {
		defer log.Close()
	}
	begin := time.Now()
	if j.Run != nil {
		res, err := j.run(log, warn)
		if err != nil {
			fail(err)
		}
		if res != nil {
			cost = eval.Cost{Setup: int64(res.Cost.Setup), Answer: int64(res.Cost.Answer), Close: int64(res.Cost.Close)}
		}
	}
	wall := time.Since(begin)
	r, err := eval.Inspect(j.RunDir, j.Cell)
	if err != nil {
		if !errors.Is(err, eval.ErrNothing) || rep.Error == "" {
			fail(err)
		}
		return rep
	}
	if j.Run != nil {
		r.Wall, r.Cost = int64(wall), cost
	}
	if j.Sign != "" {
		begin := time.Now()
		if r, err = j.attest(log, r, warn); err != nil {
			fail(fmt.Errorf("not attested: %w", err))
		}
		r.Cost.Attest = int64(time.Since(begin))
	}
	rep.Result = &r
	return rep
}

func (j attemptJob) run(log *runnersLog, warn func(string, ...any)) (*sandbox.Result, error) {
	logging := runLogging{log: log}
	if log != nil {
		var err error
		if logging.signer, err = keys.Load(j.Sign); err != nil {
			return nil, err
		}
		if logging.before = readUnstarted(j.RunDir); logging.before != nil {
			if err := os.RemoveAll(j.RunDir); err != nil {
				return nil, err
			}
		}
	}
	in, out, stop, err := startModel(j.Run.Model)
	if err != nil {
		return nil, err
	}
	o := runOptions{
		sealed: j.Sealed, workspace: j.Run.Workspace, prompt: j.Run.Prompt, out: j.RunDir, agent: j.Run.AgentName, model: j.Run.ModelName,
		trial: j.Cell.Trial, attempt: j.Cell.Attempt, observe: j.Run.Observe, env: j.Run.Env, command: j.Run.Command,
		stdin: in, stdout: out, stderr: io.Discard, hidden: j.Run.Hidden, promptFile: j.Run.PromptFile, tools: func() []string { return j.Run.Tools },
		phases: phaseOptions{tests: j.Run.Tests, timeout: j.Run.Timeout, setupTimeout: j.Run.SetupTimeout, gradeTimeout: j.Run.GradeTimeout,
			limits: sandbox.Limits{Memory: j.Run.Limits.Memory, Disk: j.Run.Limits.Disk, Processes: j.Run.Limits.Processes}},
		logging: logging,
		keep:    keepFlags{secrets: j.Run.Secrets, patterns: j.Run.Patterns, encrypt: j.Run.Recipients},
	}
	if n := j.Run.Limits.Store; n > 0 {
		o.keep.storeMost = strconv.FormatUint(n, 10)
	}
	res, _, err := doRun(o, nil, warn)
	err = errors.Join(err, stop())
	if res == nil {
		return nil, err
	}
	return res.Result, err
}

// attest derives and signs, and adds the verdict to r.
func (j attemptJob) attest(log *runnersLog, r eval.Result, warn func(string, ...any)) (eval.Result, error) {
	a, _, err := doAttest(attestOptions{key: j.Key, sign: j.Sign, sealed: j.Sealed, out: j.Receipt, dir: j.RunDir, identity: j.Identity, log: log}, nil, warn)
	if err != nil {
		return r, err
	}
	var reasons []string
	for _, why := range a.Derivation.Reasons {
		reasons = append(reasons, why.ID)
	}
	var score *eval.Score
	if s := a.Statement.Predicate.Score; s != nil {
		score = &eval.Score{Value: s.Value, Source: s.Source}
	}
	return r.Attested(string(a.Derivation.Verdict), reasons, score), nil
}
