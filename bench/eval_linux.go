package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func init() {
	rates = append(rates, rate{"16 attempts of an eval at a time", "1.2 times the overhead of 16 in a row", evalRate})
}

const evalAttempts = 16

// evalAgent starts some hundred programs that read a file each.
const evalAgent = `i=0; while [ $i -lt 200 ]; do cat data.txt > /dev/null; i=$((i+1)); done`

// evalRate runs the real command with one and with 16 attempts at a time. The
// overhead is the processor time beyond what the same agents take bare, as many at
// a time: wall time says little where 16 attempts share two processors.
func evalRate(tmp string, repeat int) (Measure, error) {
	m := Measure{Unit: "ms, of all processors", Values: map[string]float64{}}
	dir, err := os.MkdirTemp(tmp, "eval-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "cleanrun")
	at := func(name string) string { return filepath.Join(dir, name) }
	steps := []func() error{
		func() error {
			return command(nil, "go", "build", "-o", bin, "github.com/cleanrun-dev/cleanrun/cmd/cleanrun")
		},
		func() error { return evalTasks(dir) },
		func() error { return command(nil, bin, "keygen", "-audit", "-o", at("audit.key")) },
		func() error {
			return command(nil, bin, "keygen", "-role", "owner", "-name", "o", "-o", at("owner.key"))
		},
		func() error {
			return command(nil, bin, "seal", "-key", at("audit.key"), "-sign", at("owner.key"), "-o", at("b.sealed"), at("benchmark.yaml"))
		},
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return m, err
		}
	}
	eval := func(jobs int, out string) error {
		return command(nil, bin, "eval", "-benchmark", at("b.sealed"), "-data", at("benchmark.yaml"), "-o", at(out), "-jobs", fmt.Sprint(jobs), "--", "sh", "-c", evalAgent)
	}
	if err := eval(evalAttempts, "warm"); err != nil {
		return m, err
	}
	used := map[string][]float64{}
	for range max(1, min(repeat, 3)) {
		for name, run := range map[string]func() error{
			"bare in a row":  func() error { return evalBare(dir, 1) },
			"bare at a time": func() error { return evalBare(dir, evalAttempts) },
			"eval in a row":  func() error { return errors.Join(os.RemoveAll(at("e")), eval(1, "e")) },
			"eval at a time": func() error { return errors.Join(os.RemoveAll(at("e")), eval(evalAttempts, "e")) },
		} {
			cpu, began := cpuSeconds(), time.Now()
			if err := run(); err != nil {
				return m, err
			}
			used[name] = append(used[name], 1000*(cpuSeconds()-cpu))
			used[name+", wall"] = append(used[name+", wall"], 1000*time.Since(began).Seconds())
		}
	}
	for name, l := range used {
		m.Values[name] = median(l)
	}
	row := m.Values["eval in a row"] - m.Values["bare in a row"]
	par := m.Values["eval at a time"] - m.Values["bare at a time"]
	m.Values["overhead in a row"], m.Values["overhead at a time"] = row, par
	if row > 0 {
		m.Ratio = map[string]float64{"overhead": par / row}
		m.Values[fmt.Sprintf("overhead at a time (%.2fx)", par/row)] = par
		delete(m.Values, "overhead at a time")
	}
	return m, nil
}

// evalBare runs the agents without a sandbox, so many at a time.
func evalBare(dir string, jobs int) error {
	var group sync.WaitGroup
	errs := make([]error, evalAttempts)
	free := make(chan struct{}, jobs)
	for i := range evalAttempts {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			cmd := exec.Command("sh", "-c", evalAgent)
			cmd.Dir = filepath.Join(dir, fmt.Sprintf("tasks/t%02d/ws", i))
			errs[i] = cmd.Run()
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// evalTasks writes a benchmark of small tasks.
func evalTasks(dir string) error {
	var errs []error
	write := func(name, text string) {
		p := filepath.Join(dir, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644))
	}
	write("benchmark.yaml", "benchmark: bench\ntasks: [{folder: tasks}]\n")
	for i := range evalAttempts {
		task := fmt.Sprintf("tasks/t%02d/", i)
		var answer strings.Builder
		for j := range 40 {
			fmt.Fprintf(&answer, "answer %d of task %d is the number %d and the word %x\n", j, i, (i+3)*(j+7)*7919, (i+1)*(j+1)*104729)
		}
		write(task+"answer.txt", answer.String())
		write(task+"ws/data.txt", strings.Repeat(fmt.Sprintf("data of task %d\n", i), 300))
		write(task+"task.yaml", fmt.Sprintf("benchmark: bench\ntask: t%02d\nprompt: read\nworkspace: ws\nreference: [{path: answer.txt}]\n", i))
	}
	return errors.Join(errs...)
}

// command runs a program and shows what it printed if it fails.
func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
