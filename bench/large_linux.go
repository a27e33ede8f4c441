package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

func init() {
	rates = append(rates, rate{"attest and verify of many rows", "memory that does not grow with the rows", largeRate})
}

// largeRows are the sizes of the journals that are attested.
func largeRows() []int {
	if os.Getenv("CLEANRUN_BENCH_LARGE") != "" {
		return []int{100_000, 1_000_000, 10_000_000}
	}
	return []int{100_000, 1_000_000}
}

// largeRate attests and verifies synthetic runs with the real command and tells
// the most memory that each took. The rows read a thousand files again and
// again, so that it is the rows that count and not their contents.
func largeRate(tmp string, _ int) (Measure, error) {
	m := Measure{Unit: "MB at most, without mapped files", Values: map[string]float64{}}
	dir, err := os.MkdirTemp(tmp, "large-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "cleanrun")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/cleanrun-dev/cleanrun/cmd/cleanrun").CombinedOutput(); err != nil {
		return m, fmt.Errorf("go build: %w: %s", err, out)
	}
	first, err := largeTask(bin, dir)
	if err != nil {
		return m, err
	}
	for _, n := range largeRows() {
		if err := fillLarge(dir, first, n); err != nil {
			return m, err
		}
		out := filepath.Join(dir, strconv.Itoa(n)+".cleanrun")
		for _, args := range [][]string{
			{"attest", "-key", "audit.key", "-sign", "runner.key", "-sealed", "task.sealed", "-o", out, "run"},
			{"verify", "-policy", "policy.txt", out},
		} {
			rss, took, err := peak(dir, bin, args...)
			if err != nil {
				return m, err
			}
			m.Values[fmt.Sprintf("%d rows, %s (%.0f s)", n, args[0], took.Seconds())] = rss
		}
		if err := os.Remove(out); err != nil {
			return m, err
		}
	}
	return m, nil
}

// peak runs the command and returns the most memory of its own, in MB: without
// mapped files, of which the kernel keeps as much as there is room for. It looks
// a hundred times a second.
func peak(dir, bin string, args ...string) (float64, time.Duration, error) {
	cmd := exec.Command(bin, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	most := 0.0
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case err := <-ended:
			if err != nil {
				return 0, 0, fmt.Errorf("cleanrun %s: %w: %s", strings.Join(args, " "), err, out.String())
			}
			return most, time.Since(began), nil
		case <-tick.C:
			most = max(most, anonymous(cmd.Process.Pid))
		}
	}
}

// anonymous is the resident memory of a process that no file backs, in MB; 0 if
// it has ended.
func anonymous(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	kb, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		return 0
	}
	return kb / 1e3
}

// largeTask seals a small task, records a run of it that does nothing, and
// returns its start row.
func largeTask(bin, dir string) (journal.Start, error) {
	none := journal.Start{}
	files := map[string]string{
		"task/task.yaml":       "benchmark: bench\ntask: large\nprompt: Do nothing.\nworkspace: workspace\ntests: [{path: hidden.txt}]\n",
		"task/hidden.txt":      string(novelText(8 << 10)),
		"task/workspace/a.txt": "nothing\n",
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			return none, err
		}
	}
	script := `keygen -audit -o audit.key
keygen -role owner -name bench.example -o owner.key
keygen -role runner -name runner -o runner.key
seal -key audit.key -sign owner.key -o task.sealed task/task.yaml
run -task task/task.yaml -sealed task.sealed -o run -- /bin/true`
	var policy []byte
	for _, line := range strings.Split(script, "\n") {
		cmd := exec.Command(bin, strings.Fields(line)...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return none, fmt.Errorf("cleanrun %s: %w", line, err)
		}
		if strings.HasPrefix(line, "keygen -role") {
			policy = append(policy, out...)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.txt"), policy, 0o644); err != nil {
		return none, err
	}
	f, err := os.Open(filepath.Join(dir, "run", journal.RowsFile))
	if err != nil {
		return none, err
	}
	defer f.Close()
	for line, err := range journal.Rows(f) {
		if err != nil {
			return none, err
		}
		row, err := journal.ParseRow(line.Raw)
		if err != nil {
			return none, err
		}
		return *row.Start, nil
	}
	return none, errors.New("the run has no rows")
}

// fillLarge replaces the journal in dir/run by one of n rows.
func fillLarge(dir string, start journal.Start, n int) error {
	run := filepath.Join(dir, "run")
	sealed, err := os.ReadFile(filepath.Join(dir, "task.sealed"))
	if err != nil {
		return err
	}
	parsed, err := receipt.ParseSealed(sealed)
	if err != nil {
		return err
	}
	set, err := contraband.ParseSet(parsed.Set())
	if err != nil {
		return err
	}
	for _, name := range []string{journal.RowsFile, journal.DetailsFile, journal.HeadFile, journal.SecretFile} {
		if err := os.Remove(filepath.Join(run, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	w, err := journal.Create(run, journal.Secret{1}, start)
	if err != nil {
		return err
	}
	if err := w.Append(&journal.Row{Op: journal.OpFork, Child: 1}, &journal.Detail{}); err != nil {
		return err
	}
	read := func(path string, object uint32, content []byte, more journal.Flags, phase journal.Phase) error {
		sum := sha256.Sum256(content)
		return w.Append(&journal.Row{Phase: phase, Proc: 1, Op: journal.OpOpen, Dir: journal.DirIn, Origin: journal.OriginInput,
			Flags: journal.FlagRead | more, Object: object, Size: uint64(len(content))}, &journal.Detail{Path: path, SHA256: sum[:]})
	}
	if err := read("/cleanrun/control.txt", 1, []byte(set.Control), journal.FlagControl, journal.PhaseSetup); err != nil {
		return err
	}
	const files = 1000
	for i := range n {
		content := fmt.Appendf(nil, "file %d of a synthetic run, with a line of text that is its own\n", i%files)
		if i < files {
			sum := sha256.Sum256(content)
			name := filepath.Join(run, "objects", filepath.FromSlash(objects.Name(sum)))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, content, 0o600)); err != nil {
				return err
			}
		}
		path := start.Workspace + "/dir" + strconv.Itoa(i%30) + "/file" + strconv.Itoa(i%files)
		if err := read(path, uint32(i%files)+2, content, 0, journal.PhaseAgent); err != nil {
			return err
		}
	}
	if err := w.Append(&journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpExit}, &journal.Detail{}); err != nil {
		return err
	}
	_, err = w.Final(journal.Final{Outcome: journal.Completed, Born: 1, Ended: 1}, nil)
	return errors.Join(err, w.Close())
}
