package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// An evalTask is one task of the sealed benchmark with what its runs need.
type evalTask struct {
	id        string
	sealed    []byte // the task's own part of the seal, with its proof
	prompt    []byte
	workspace string                 // absolute
	hidden    []string               // paths that a run must not find
	model     bool                   // stdin is the model's
	setup     bool                   // the task says what prepares its workspace
	grade     bool                   // and what grades it
	stage     func(dir string) error // lays the hidden tests out, nil if none are shown
}

// An evalBenchmark is a sealed benchmark with its data.
type evalBenchmark struct {
	name, period string
	seal         string // hex SHA-256 of the sealed file
	tasks        []evalTask
}

// A grid makes the attempts of one eval.
type grid struct {
	dir   *eval.Dir
	tasks map[string]*evalTask
	flags evalOptions
	tools []string
	log   *attemptLog // nil for none
	warn  func(string, ...any)

	mu     sync.Mutex
	warned map[string]bool
}

// prepare writes what the runs of each task are started with, or checks that it is
// still the same.
func (g *grid) prepare() error {
	for id, t := range g.tasks {
		dir := g.dir.Path(eval.TasksDir, eval.Slug(id))
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for name, data := range map[string][]byte{"task.sealed": t.sealed, "prompt": t.prompt} {
			at := filepath.Join(dir, name)
			err := durable.CreateNew(at, data, 0o600)
			if errors.Is(err, fs.ErrExist) {
				var old []byte
				if old, err = os.ReadFile(at); err == nil && !bytes.Equal(old, data) {
					err = fmt.Errorf("%s: the eval began with other content (SHA-256 %.12x, now %.12x)", at, sha256.Sum256(old), sha256.Sum256(data))
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy removes what a kill left half done: it is no result.
func (g *grid) tidy() error {
	left, err := filepath.Glob(g.dir.Path(eval.ReceiptsDir, ".*"))
	if err != nil {
		return err
	}
	for _, p := range left {
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

// job is what an attempt's process is told, for running and attesting alike.
func (g *grid) job(c eval.Cell) attemptJob {
	j := attemptJob{
		Cell: c, RunDir: g.dir.Path(c.RunDir()), Sealed: g.dir.Path(eval.TasksDir, eval.Slug(c.Task), "task.sealed"),
		Log:   g.log,
		Procs: max(2, runtime.GOMAXPROCS(0)/max(1, int(g.flags.jobs))),
	}
	if g.flags.sign != "" {
		j.Key, j.Sign, j.Receipt, j.Identity = g.flags.key, g.flags.sign, g.dir.Path(c.Receipt()), g.flags.identity
	}
	return j
}

// attempt makes one attempt: eval.Config.Attempt.
func (g *grid) attempt(ctx context.Context, c eval.Cell) (eval.Result, error) {
	t := g.tasks[c.Task]
	plan := g.dir.Plan
	j := g.job(c)
	if err := os.MkdirAll(filepath.Dir(j.RunDir), 0o700); err != nil {
		return eval.Result{}, err
	}
	values := eval.Values{Prompt: string(t.prompt), Task: t.id, Trial: c.Trial}
	run := &attemptRun{
		Workspace: t.workspace, Prompt: g.dir.Path(eval.TasksDir, eval.Slug(c.Task), "prompt"), Hidden: append(slices.Clone(t.hidden), g.dir.Dir),
		AgentName: plan.AgentName, ModelName: plan.ModelName, Observe: plan.Observe, Env: plan.Env, Tools: g.tools,
		Timeout: time.Duration(plan.Timeout), Limits: plan.Limits,
		Secrets: plan.Secrets, Patterns: plan.Patterns, Recipients: plan.Recipients,
	}
	if t.setup {
		run.SetupTimeout = time.Duration(plan.SetupTimeout)
	}
	if t.grade {
		run.GradeTimeout = time.Duration(plan.GradeTimeout)
	}
	values.PromptFile, run.PromptFile = sandbox.PromptPath, eval.Uses(plan.Agent, eval.PromptFile)
	var err error
	if run.Command, err = values.Expand(plan.Agent); err != nil {
		return eval.Result{}, fmt.Errorf("-agent: %w", err)
	}
	if t.model && len(plan.ModelStdin) > 0 {
		values.PromptFile = run.Prompt // outside the sandbox
		if run.Model, err = values.Expand(plan.ModelStdin); err != nil {
			return eval.Result{}, fmt.Errorf("-model-stdin: %w", err)
		}
	}
	staged := g.dir.Path(eval.StagedDir, strings.TrimSuffix(filepath.Base(c.Receipt()), ".cleanrun"))
	defer os.RemoveAll(staged)
	if t.stage != nil {
		if err := os.Mkdir(staged, 0o700); err != nil {
			return eval.Result{}, err
		}
		if err := t.stage(staged); err != nil {
			return eval.Result{}, err
		}
		run.Tests = staged
	}
	j.Run = run
	begin := time.Now()
	rep, err := spawnAttempt(ctx, j)
	g.tell(rep.Warnings)
	if err == nil && rep.Result != nil {
		rep.Result.Note = oneLine(rep.Error)
		if _, err := g.dir.Share(c); err != nil { // a saving alone: the recording is whole
			g.tell([]string{fmt.Sprintf("%s keeps its contents for itself: %v", c, err)})
		}
		return *rep.Result, nil
	}
	if err == nil && rep.Used {
		return usedUp(c, rep.Error), nil
	}
	if err == nil && rep.Error != "" {
		err = errors.New(rep.Error)
		if rep.Hint != "" {
			err = fmt.Errorf("%w; %s", err, rep.Hint)
		}
	}
	return g.salvage(ctx, c, time.Since(begin), ctx.Err() != nil, err)
}

// usedUp puts an attempt on record that the log knows and this folder does not: the run
// was killed before its first row, or its folder was removed. No other run can have its number.
func usedUp(c eval.Cell, why string) eval.Result {
	return eval.Result{Cell: c, Run: strings.Repeat("0", 32), Outcome: eval.Killed, Retry: attest.ReasonOpen, Note: oneLine("registered, and nothing is left of it: " + why)}
}

// salvage puts an attempt on record whose process gave no result. Where nothing
// was recorded, nothing ran: the folder goes and the error is cause. Only a run that is
// registered already keeps its folder: it is the one that starts when the attempt is made again.
func (g *grid) salvage(ctx context.Context, c eval.Cell, wall time.Duration, interrupted bool, cause error) (eval.Result, error) {
	j := g.job(c)
	r, err := inspectFree(j.RunDir, c)
	if errors.Is(err, eval.ErrNothing) {
		if readUnstarted(j.RunDir) == nil {
			if err := os.RemoveAll(j.RunDir); err != nil {
				return eval.Result{}, err
			}
		}
		if cause == nil {
			cause = err
		}
		return eval.Result{}, cause
	}
	if err != nil {
		return eval.Result{}, errors.Join(cause, err)
	}
	r.Wall = int64(wall)
	if r.Outcome == eval.Killed {
		r.Interrupted = interrupted
		if cause != nil {
			r.Note = oneLine(cause.Error())
		}
	}
	if j.Sign == "" || ctx.Err() != nil {
		return r, nil
	}
	return g.attest(ctx, r), nil
}

// attest derives the verdict of a run that is on disk. If that fails the result
// stays without a verdict and says why.
func (g *grid) attest(ctx context.Context, r eval.Result) eval.Result {
	j := g.job(r.Cell)
	// What is not on record was left by a kill: the receipt, and parts of it.
	_ = os.Remove(j.Receipt)
	if left, err := filepath.Glob(filepath.Join(j.RunDir, ".evidence-*")); err == nil {
		for _, p := range left {
			_ = os.Remove(p)
		}
	}
	rep, err := spawnAttempt(ctx, j)
	g.tell(rep.Warnings)
	switch {
	case err != nil:
		r.Note = oneLine(strings.TrimPrefix(r.Note+"; not attested: "+err.Error(), "; "))
	case rep.Error != "":
		r.Note = oneLine(strings.TrimPrefix(r.Note+"; "+rep.Error, "; "))
	case rep.Result != nil:
		r.Verdict, r.Reasons, r.Score, r.Retry = rep.Result.Verdict, rep.Result.Reasons, rep.Result.Score, rep.Result.Retry
		r.Cost.Attest = rep.Result.Cost.Attest
	}
	return r
}

// recover puts on record what a kill of the eval left: runs without a line. Then,
// with a key, it attests what has no verdict yet. each is told of every step.
func (g *grid) recover(ctx context.Context, each func(done, total int)) (killed int, err error) {
	s := g.dir.Snapshot()
	loose, err := s.Loose()
	if err != nil {
		return 0, err
	}
	var old []eval.Result
	if g.flags.sign != "" {
		for _, r := range s.Results {
			if r.Verdict == "" {
				old = append(old, r)
			}
		}
	}
	total := len(loose) + len(old)
	var done int
	err = g.each(ctx, total, func(i int) error {
		var r eval.Result
		if i < len(loose) {
			var err error
			r, err = g.salvage(ctx, loose[i], 0, true, nil)
			if errors.Is(err, eval.ErrNothing) {
				return nil
			}
			if err != nil {
				return err
			}
		} else {
			was := old[i-len(loose)]
			if r = g.attest(ctx, was); r.Verdict == "" {
				g.tell([]string{fmt.Sprintf("%v: %s", r.Cell, r.Note)})
				return nil
			}
			r.Note = was.Note
		}
		if ctx.Err() != nil && r.Verdict == "" && g.flags.sign != "" {
			return nil // the next time
		}
		if err := g.dir.Append(r); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if i < len(loose) && r.Outcome == eval.Killed {
			killed++
		}
		done++
		each(done, total)
		return nil
	})
	return killed, err
}

// each calls fn for 0 to n-1, some at a time, and stops at the first error.
func (g *grid) each(ctx context.Context, n int, fn func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var group sync.WaitGroup
	for range min(n, max(1, int(g.flags.jobs))) {
		group.Go(func() {
			for i := range next {
				if err := fn(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

// tell passes on each warning once.
func (g *grid) tell(warnings []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range warnings {
		if !g.warned[w] {
			g.warned[w] = true
			g.warn("%s", w)
		}
	}
}

// inspectFree is eval.Inspect after the last process of a killed run has let go of
// its journal.
func inspectFree(dir string, c eval.Cell) (eval.Result, error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := eval.Inspect(dir, c)
		if !errors.Is(err, journal.ErrLocked) || time.Now().After(end) {
			return r, err
		}
	}
}

// oneLine makes a note of an error.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), 2000)], "?")
}
