package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// openBenchmark finds all that the runs of a sealed benchmark need.
func openBenchmark(sealed, data string, only []string) (*evalBenchmark, error) {
	s, err := benchmark.OpenSealed(sealed)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	sum, err := digestFile(sealed)
	if err != nil {
		return nil, err
	}
	b, err := benchmark.Load(data)
	if err != nil {
		return nil, err
	}
	head := s.Head()
	if b.Name != head.Benchmark || b.Period != head.Period {
		return nil, cli.Failf(cli.ExitUsage, "", "%s seals %s, and %s is %s", sealed, head.Benchmark, data, b.Name)
	}
	ids := s.Tasks()
	if len(only) > 0 {
		for _, id := range only {
			if !slices.Contains(ids, id) {
				return nil, cli.Failf(cli.ExitUsage, cli.DidYouMean(id, ids, ""), "-task %s: %s seals no such task", id, sealed)
			}
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(only, id) })
	}
	out := &evalBenchmark{name: head.Benchmark, period: head.Period, seal: sum}
	for _, id := range ids {
		t, err := openTask(s, b, id)
		if err != nil {
			return nil, err
		}
		out.tasks = append(out.tasks, t)
	}
	return out, nil
}

// openTask reads what the runs of one task are started with, and none of its
// ground truth.
func openTask(s *benchmark.Sealed, b *benchmark.Benchmark, id string) (evalTask, error) {
	file, set, err := s.Part(id)
	if err != nil {
		return evalTask{}, err
	}
	task, err := b.Task(id)
	if err != nil {
		return evalTask{}, err
	}
	t := evalTask{id: id, sealed: file, model: modelChannel(set)}
	if t.prompt, err = task.PromptText(); err != nil {
		return evalTask{}, err
	}
	if t.workspace, err = filepath.Abs(task.WorkspacePath()); err != nil {
		return evalTask{}, err
	}
	if t.hidden, err = task.Hidden(); err != nil {
		return evalTask{}, err
	}
	if p := set.Phases; p != nil {
		t.setup, t.grade = len(p.Setup) > 0, len(p.Grade) > 0
		if p.Tests != "" {
			t.stage = task.StageTests
		}
	}
	return t, nil
}

// modelChannel tells whether a set declares stdin as the model's.
func modelChannel(set *contraband.Set) bool {
	return slices.ContainsFunc(set.Channels, func(c contraband.Channel) bool { return c.Name == "stdin" && c.Role == "model" })
}

// digestFile is the hex SHA-256 of a file of any size.
func digestFile(name string) (string, error) {
	f, err := regular.Given(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// planEval turns flags into a plan, or says which of them is wrong.
func planEval(e *cli.Env, v evalOptions, b *evalBenchmark) (eval.Plan, error) {
	p := eval.Plan{Version: eval.Version, Benchmark: b.name, Period: b.period, Seal: b.seal, AgentName: v.agentName, ModelName: v.modelName,
		Trials: v.trials, Observe: v.observe, Env: slices.Sorted(slices.Values(v.env))}
	for _, t := range b.tasks {
		p.Tasks = append(p.Tasks, t.id)
	}
	wrong := func(flag string, err error) error { return cli.Failf(cli.ExitUsage, "", "-%s: %w", flag, err) }
	var err error
	switch {
	case v.agent != "" && e.Program != nil:
		return p, cli.Failf(cli.ExitUsage, "give -agent or the words after --", "two agents: -agent and what follows --")
	case v.agent != "":
		if p.Agent, err = eval.Split(v.agent); err != nil {
			return p, wrong("agent", err)
		}
	case e.Program != nil:
		p.Agent = e.Program
	default:
		return p, cli.Failf(cli.ExitUsage, "cleanrun eval -agent 'my-agent --task {prompt}' ...", "flag -agent is missing")
	}
	if v.modelStdin != "" {
		if p.ModelStdin, err = eval.Split(v.modelStdin); err != nil {
			return p, wrong("model-stdin", err)
		}
		if p.ModelStdin[0], err = exec.LookPath(p.ModelStdin[0]); err != nil {
			return p, wrong("model-stdin", err)
		}
		if !slices.ContainsFunc(b.tasks, func(t evalTask) bool { return t.model }) {
			return p, cli.Failf(cli.ExitUsage, "channels: {stdin: model} in a task file declares it", "-model-stdin: no task declares stdin as the model's")
		}
	}
	for _, d := range []struct {
		flag, text string
		to         *int64
	}{{"timeout", v.timeout, &p.Timeout}, {"setup-timeout", v.setupTime, &p.SetupTimeout}, {"grade-timeout", v.gradeTime, &p.GradeTimeout}} {
		if d.text == "" {
			continue
		}
		t, err := time.ParseDuration(d.text)
		if err != nil || t <= 0 {
			return p, wrong(d.flag, fmt.Errorf("got %q, want a time like 90s, 20m or 2h", d.text))
		}
		*d.to = int64(t)
	}
	// Wrong flags are found here, and the recipients' file is read once.
	var kept sandbox.Config
	if err := v.keep.apply(&kept, os.Environ()); err != nil {
		return p, usage2(err)
	}
	p.Secrets, p.Patterns, p.Recipients, p.Limits.Store = slices.Sorted(slices.Values(v.keep.secrets)), v.keep.patterns, kept.Recipients, kept.StoreMax
	var processes uint64
	for _, l := range []struct {
		flag, text string
		to         *uint64
	}{{"limit-memory", v.memory, &p.Limits.Memory}, {"limit-disk", v.disk, &p.Limits.Disk}, {"limit-processes", v.processes, &processes}} {
		if l.text == "" {
			continue
		}
		if *l.to, err = parseSize(l.text); err != nil {
			return p, wrong(l.flag, err)
		}
	}
	if p.Limits.Processes = uint32(processes); uint64(p.Limits.Processes) != processes {
		return p, wrong("limit-processes", fmt.Errorf("got %d, want at most %d", processes, uint32(1<<32-1)))
	}
	for flag, words := range map[string][]string{"agent": p.Agent, "model-stdin": p.ModelStdin} {
		if u := eval.Unknown(words); len(u) > 0 {
			e.Warn("-%s: %s is no placeholder and is passed as it is", flag, strings.Join(u, ", "))
		}
	}
	// Each prompt must fit: better now than after hours.
	warned := false
	for _, t := range b.tasks {
		w := eval.Values{Prompt: string(t.prompt), PromptFile: sandbox.PromptPath, Task: t.id, Trial: p.Trials}
		if _, err := w.Expand(p.Agent); err != nil {
			return p, cli.Failf(cli.ExitUsage, "", "task %s: -agent: %w", t.id, err)
		}
		if _, err := w.Expand(p.ModelStdin); err != nil {
			return p, cli.Failf(cli.ExitUsage, "", "task %s: -model-stdin: %w", t.id, err)
		}
		// It runs outside the sandbox, and the owner wrote prompt and id.
		if err := w.Misread(p.ModelStdin); err != nil {
			return p, cli.Failf(cli.ExitUsage, "", "task %s: -model-stdin: %w", t.id, err)
		}
		if err := w.Misread(p.Agent); err != nil && !warned {
			warned = true
			e.Warn("task %s: -agent: %v", t.id, err)
		}
	}
	if err := p.Check(); err != nil {
		return p, cli.Failf(cli.ExitUsage, "", "%w", err)
	}
	return p, nil
}

// checkKeys tries the keys before hours of runs.
func (v *evalOptions) checkKeys(b *evalBenchmark) error {
	if v.key != "" && v.sign == "" {
		return cli.Failf(cli.ExitUsage, "give both to attest at once, or none", "-key and -sign go together")
	}
	if v.sign == "" {
		if v.identity != "" {
			return cli.Failf(cli.ExitUsage, "give -key and -sign, or leave it out", "-identity without -sign means nothing")
		}
		return nil
	}
	for _, p := range []*string{&v.key, &v.sign, &v.identity} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if _, err := keys.Load(v.sign); err != nil {
		return err
	}
	set, err := parseSealed(b.tasks[0].sealed)
	if err != nil {
		return err
	}
	if v.key == "" {
		if _, err = publicKeyFor(b.tasks[0].sealed, set); err != nil {
			return cli.Failf(cli.ExitUsage, "give both to attest at once, or none", "-key and -sign go together, unless the benchmark publishes its key, which %s does not", v.benchmark)
		}
		return nil
	}
	_, err = readKeyFor(v.key, set)
	return err
}
