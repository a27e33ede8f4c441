package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
)

type sealOptions struct {
	key, sign, out, export, check, policy, taskID, store string
	public, skipWeak                                     bool
	log                                                  *runnersLog // nil logs nothing
}

// readBenchmarkKey reads an audit key or a benchmark key.
func readBenchmarkKey(path, benchmark, period string) (contraband.BenchmarkKey, error) {
	raw, err := readSecret(path)
	if err != nil {
		return contraband.BenchmarkKey{}, err
	}
	if key, err := contraband.ParseBenchmarkKey(raw); err == nil {
		return key, nil
	}
	audit, err := contraband.ParseAuditKey(raw)
	if err != nil {
		return contraband.BenchmarkKey{}, fmt.Errorf("%s: %w", path, err)
	}
	return audit.Benchmark(benchmark, period), nil
}

// sealBenchmark seals all tasks of a benchmark.yaml.
func sealBenchmark(e *cli.Env, path string, o sealOptions) error {
	signer, err := keys.Load(o.sign)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(o.out); err == nil {
		return cli.Failf(cli.ExitUsage, "name a new file", "-o %s exists", o.out) // before hours of work, not after
	}
	b, err := benchmark.Load(path)
	if err != nil {
		return err
	}
	defer b.Close()
	if o.taskID != "" {
		if _, err := b.Task(o.taskID); err != nil {
			return fmt.Errorf("-task-id: %w", err)
		}
	}
	key, err := readBenchmarkKey(o.key, b.Name, b.Period)
	if err != nil {
		return err
	}
	// Each task leaves much behind; what stays is small.
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	p := cli.NewProgress(e.Stderr, "sealing")
	built, err := b.Seal(benchmark.Options{Key: key, Public: o.public, SkipWeak: o.skipWeak, Random: rand.Reader, Dir: filepath.Dir(o.out),
		Progress: func(done, total uint64) { p.Update(done, total, "steps") }})
	p.Done()
	if err != nil {
		return badTasks(e, err)
	}
	defer built.Close()
	payload, err := built.Head.Marshal()
	if err != nil {
		return err
	}
	signed, err := receipt.Sign1(receipt.KindBenchmark, signer, b.Name, payload)
	if err != nil {
		return err
	}
	if err := durable.CreateFrom(o.out, 0o644, func(w io.Writer) error { return built.Write(w, signed) }); err != nil {
		return err
	}
	if o.export != "" {
		if err := exportKey(o, key); err != nil {
			return err
		}
	}
	if o.log != nil {
		if err := o.logged(e, signer, receipt.KindBenchmark, b.Name, signed); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(builtJSON(o.out, built))
	}
	for _, w := range built.Warnings {
		e.Warn("%s", w)
	}
	return builtText(e.Stdout, o.out, built)
}

// exportKey writes the benchmark's key, or that of one task that was sealed.
func exportKey(o sealOptions, key contraband.BenchmarkKey) error {
	data := key.Format()
	if o.taskID != "" {
		s, err := benchmark.OpenSealed(o.out)
		if err != nil {
			return err
		}
		defer s.Close()
		set, _, err := s.Set(o.taskID)
		if err != nil {
			return fmt.Errorf("-task-id: %w", err)
		}
		task, err := key.TaskFor(set)
		if err != nil {
			return err
		}
		data = task.Format()
	}
	return durable.CreateNew(o.export, data, 0o600)
}

// A benchmarkTask is what a run of one task of a sealed benchmark needs.
type benchmarkTask struct {
	Sealed []byte // the task's part of the seal: task.sealed
	Set    *contraband.Set
	Task   *seal.Task // StageTests lays the hidden tests out
	Prompt []byte
	Hidden []string // host paths that a run must not find
}

// openBenchmarkTask cuts one task's part out of a benchmark's seal and finds its
// prompt and workspace in the data. It reads no ground truth, but for a row of a
// data file, which holds both. The signature is not checked: verify does.
func openBenchmarkTask(sealed, data, id string) (*benchmarkTask, error) {
	s, err := benchmark.OpenSealed(sealed)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := benchmark.Load(data)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	t := new(benchmarkTask)
	if t.Sealed, t.Set, err = s.Part(id); err != nil {
		return nil, fmt.Errorf("%s: %w", sealed, err)
	}
	if t.Task, err = b.Task(id); err != nil {
		return nil, err
	}
	if b.Name != s.Head().Benchmark || b.Period != s.Head().Period {
		return nil, cli.Failf(cli.ExitUsage, "", "%s seals %s, and %s is %s", sealed, s.Head().Benchmark, data, b.Name)
	}
	if t.Prompt, err = t.Task.PromptText(); err != nil {
		return nil, err
	}
	t.Hidden, err = t.Task.Hidden()
	return t, err
}
