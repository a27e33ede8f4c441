package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/runlog"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// A collector takes the receipts of an eval into a submission's folder. It
// verifies each one and refuses what does not belong to the eval.
type collector struct {
	e       *cli.Env
	o       submitOptions
	signer  receipt.Signer
	state   *eval.State
	temp    string // folder that becomes the submission
	session *verify.Session

	head       *verify.Seal // of the first receipt
	unattested []string     // attempts without a receipt, and why
}

func newCollector(e *cli.Env, o submitOptions, signer receipt.Signer, state *eval.State, temp string) *collector {
	// The receipts must be the signer's own. Who sealed is for others to judge.
	own := &verify.Policy{Runners: []receipt.PublicKey{signer.Public()}}
	return &collector{e: e, o: o, signer: signer, state: state, temp: temp, session: verify.NewSession(own, time.Now())}
}

// collect fills the attempts and the benchmark of in.
func (c *collector) collect(in *submission.Input) error {
	var cells []eval.Cell
	for _, r := range c.state.Results {
		cells = append(cells, r.Cell)
	}
	// A killed eval leaves attempts that no line names. They were made.
	loose, err := c.state.Loose()
	if err != nil {
		return err
	}
	for _, cell := range loose {
		if _, err := os.Stat(filepath.Join(c.state.Dir, cell.Receipt())); err != nil {
			if _, err := inspectFree(filepath.Join(c.state.Dir, cell.RunDir()), cell); errors.Is(err, eval.ErrNothing) {
				continue // no program was started
			}
		}
		cells = append(cells, cell)
	}
	p := cli.NewProgress(c.e.Stderr, "collecting receipts")
	defer p.Done()
	for i, cell := range cells {
		p.Update(uint64(i), uint64(len(cells)), "attempts")
		a, err := c.take(cell)
		if err != nil {
			return err
		}
		in.Attempts = append(in.Attempts, a)
	}
	if c.head == nil {
		return c.refuseUnattested(cli.Failf(cli.ExitUsage, "run cleanrun eval first", "%s: no attempt has a receipt", c.o.dir))
	}
	claims := c.head.Claims
	in.Benchmark = submission.Benchmark{Head: fmt.Sprintf("%x", c.head.Head), Name: claims.Benchmark, Root: fmt.Sprintf("%x", claims.Root), Tasks: claims.Tasks, Weak: claims.Weak}
	return nil
}

// take brings one attempt's bundle into the folder.
func (c *collector) take(cell eval.Cell) (submission.Attempt, error) {
	failed := submission.Attempt{Cell: submission.Cell{Task: cell.Task, Trial: cell.Trial, Attempt: cell.Attempt, State: submission.Failed, Reasons: []string{}}}
	path := filepath.Join(c.state.Dir, cell.Receipt())
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return failed, fmt.Errorf("%s: got %v, want a regular file", path, st.Mode())
	} else if errors.Is(err, fs.ErrNotExist) {
		if c.o.key == "" {
			c.unattested = append(c.unattested, cell.String())
			return failed, nil
		}
		path = filepath.Join(c.temp, "attesting")
		run := filepath.Join(c.state.Dir, cell.RunDir())
		_, _, err := doAttest(attestOptions{key: c.o.key, sign: c.o.sign, sealed: filepath.Join(run, "task.sealed"), out: path, dir: run, identity: c.o.identity, log: c.logOf(run)}, nil, c.e.Warn)
		if err != nil {
			c.unattested = append(c.unattested, fmt.Sprintf("%s: %v", cell, err))
			return failed, nil
		}
		defer os.Remove(path)
	}
	data, err := readFile(path, audit.MaxBundle)
	if err != nil {
		return failed, err
	}
	r := c.session.Check(data)
	if r.Failed != nil {
		return failed, cli.Failf(cli.ExitInvalid, "cleanrun verify says more; attest the attempt again", "%s: the receipt of %s does not verify: %s: %s", path, cell, r.Failed.ID, r.Failed.Detail)
	}
	if err := c.belongs(cell, r); err != nil {
		return failed, fmt.Errorf("%s: %w", path, err)
	}
	sum, name := sumOf(data)
	if err := durable.CreateNew(filepath.Join(c.temp, name+audit.BundleExt), data, 0o644); err != nil {
		return failed, err
	}
	return submission.FromReceipt(r.Statement, sum, r.Receipt), nil
}

// logOf is the log for attesting a run: that of -log, if the run was registered.
func (c *collector) logOf(run string) *runnersLog {
	if _, err := runlog.Read(run); c.o.log == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c.o.log
}

// belongs holds a verified receipt to the cell and the plan of the eval.
func (c *collector) belongs(cell eval.Cell, r *verify.Result) error {
	if r.Statement == nil {
		return errors.New("got a receipt without evidence, want one from which the verdict can be derived")
	}
	p := &r.Statement.Predicate
	for _, f := range []struct{ what, got, want string }{
		{"attempt", eval.Cell{Task: p.Run.Task, Trial: p.Run.Trial, Attempt: p.Run.Attempt}.String(), cell.String()},
		{"benchmark", p.Run.Benchmark, c.state.Plan.Benchmark},
		{"agent", p.Asserted.Agent, c.state.Plan.AgentName},
		{"model", p.Asserted.Model, c.state.Plan.ModelName},
	} {
		if f.got != f.want {
			return fmt.Errorf("%s: got %q, want %q, as the eval planned", f.what, f.got, f.want)
		}
	}
	if r.Seal.Claims == nil {
		return cli.Failf(cli.ExitUsage, "seal the benchmark as a whole: cleanrun seal -o b.sealed benchmark.yaml", "the task was sealed by itself, want a part of a benchmark's seal")
	}
	if c.head == nil {
		c.head = &r.Seal
	}
	if r.Seal.Head != c.head.Head {
		return fmt.Errorf("got a part of the seal %x, want %x, as the other attempts", r.Seal.Head[:8], c.head.Head[:8])
	}
	return nil
}

// shown bounds how many attempts or trials an error names.
const shown = 10

// complete refuses a grid with holes, unless the user wants to publish it so.
func (c *collector) complete(s *submission.Statement) error {
	if err := c.refuseUnattested(nil); err != nil {
		return err
	}
	var missing []string
	p := &s.Predicate
	for i := range p.Grid {
		if p.Grid[i].State == submission.Missing {
			missing = append(missing, p.Grid[i].Name())
		}
	}
	tasks := uint64(len(c.state.Plan.Tasks))
	switch {
	case len(missing) > 0 && !c.o.partial:
		return cli.Failf(cli.ExitUsage, "run cleanrun eval again to make them, or publish them as missing with -partial", "%s: no attempt of %s: %s", c.o.dir, several(len(missing), "trial", "trials"), some(missing))
	case tasks < p.Benchmark.Tasks && !c.o.partial:
		return cli.Failf(cli.ExitUsage, "run the eval over all tasks, or publish the part with -partial", "%s: the eval has %d of the benchmark's %d tasks", c.o.dir, tasks, p.Benchmark.Tasks)
	}
	if len(missing) > 0 {
		c.e.Warn("%s published as missing: %s", several(len(missing), "trial", "trials"), some(missing))
	}
	if tasks < p.Benchmark.Tasks {
		c.e.Warn("the grid has %d of the benchmark's %d tasks", tasks, p.Benchmark.Tasks)
	}
	return nil
}

// refuseUnattested refuses or warns of attempts without a receipt. without is
// returned if there are none.
func (c *collector) refuseUnattested(without error) error {
	if len(c.unattested) == 0 {
		return without
	}
	slices.Sort(c.unattested)
	if !c.o.partial || without != nil {
		hint := "attest them with -key, or publish them as error with -partial"
		if c.o.key != "" {
			hint = "look into the run folders, or publish them as error with -partial"
		}
		return cli.Failf(cli.ExitUsage, hint, "%s: attempts without a receipt: %d: %s", c.o.dir, len(c.unattested), some(c.unattested))
	}
	c.e.Warn("%d attempts are published as error, without a receipt: %s", len(c.unattested), some(c.unattested))
	return nil
}

func some(list []string) string {
	if len(list) > shown {
		return strings.Join(list[:shown], "; ") + fmt.Sprintf("; and %d more", len(list)-shown)
	}
	return strings.Join(list, "; ")
}
