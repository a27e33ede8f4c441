package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/prune"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
)

var pruneFlags struct {
	receipt    string
	force, dry bool
}

var pruneCommand = &cli.Command{
	Name:  "prune",
	Args:  "RUNDIR|EVALDIR",
	Short: "remove the contents of a run folder and keep what proves its receipt",
	Long: `Removes from a run folder, or from each attempt of an eval's folder, the stored contents, what the run changed, hidden tests that a
killed eval left and what a derivation left behind. Journal, details, secret, checkpoint and sealed set stay: the receipt verifies as before and single events can be disclosed,
but the run cannot be attested again. So it refuses a run without a receipt: -receipt names it, an eval's are in its folder. -force
prunes all the same.

No symbolic link is followed. Doing it again does nothing.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &pruneFlags
		f.String(&v.receipt, "receipt", "`bundle` of the run")
		f.Bool(&v.force, "force", "prune runs that have no receipt too: nobody can ever attest them")
		f.Bool(&v.dry, "dry-run", "say what would be removed, and remove nothing")
	},
	Run: func(e *cli.Env, args []string) error {
		dir, err := oneArg(args, "the run folder")
		if err != nil {
			return err
		}
		v := pruneFlags
		if err := prunable(dir); err != nil {
			return err
		}
		runs := []prunedRun{{Dir: dir, receipt: v.receipt}}
		whole := false
		if _, err := os.Lstat(filepath.Join(dir, eval.PlanFile)); err == nil {
			if v.receipt != "" {
				return cli.Failf(cli.ExitUsage, "leave it out", "%s is an eval's folder, which holds its receipts: -receipt means nothing", dir)
			}
			if running, err := eval.Running(dir); err != nil {
				return err
			} else if running {
				return cli.Failf(cli.ExitUsage, "wait until it has ended", "%s: the eval still goes on", dir)
			}
			whole = true
			if runs, err = attemptsOf(dir); err != nil {
				return err
			}
		}
		// All receipts are looked at before anything is removed.
		for _, r := range runs {
			if err := r.attested(); err != nil && !v.force {
				return cli.Failf(cli.ExitUsage, "attest it first, and name its bundle with -receipt; -force removes its contents for good", "%s: %w", r.Dir, err)
			}
		}
		var bytes uint64
		for i := range runs {
			r := &runs[i]
			rep, err := prune.Run(r.Dir, v.dry)
			if errors.Is(err, journal.ErrLocked) {
				return cli.Failf(cli.ExitUsage, "wait until it has ended", "%s: the run still goes on", r.Dir)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return cli.Failf(cli.ExitUsage, "", "%s: no journal in this folder; want a folder that cleanrun run or eval wrote", r.Dir)
			}
			if err != nil {
				return err
			}
			r.Removed, r.Left, r.Bytes, r.Files = append([]string{}, rep.Removed...), append([]string{}, rep.Left...), rep.Bytes, rep.Files
			bytes += rep.Bytes
		}
		if whole { // hidden tests that a killed eval left
			rep, err := prune.Empty(dir, eval.StagedDir, v.dry)
			if err != nil {
				return err
			}
			bytes += rep.Bytes
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Runs  []prunedRun `json:"runs"`
				Bytes uint64      `json:"bytes"`
				Dry   bool        `json:"dry"`
			}{runs, bytes, v.dry})
		}
		for _, r := range runs {
			for _, name := range r.Left {
				e.Warn("%s: left %s: it is no recorder's", r.Dir, quotePath(name))
			}
		}
		word := "freed"
		if v.dry {
			word = "would free"
		}
		fmt.Fprintf(e.Stdout, "%s %s in %s\n", word, counted(int(bytes), "byte"), counted(len(runs), "run"))
		return nil
	},
}

type prunedRun struct {
	Dir     string   `json:"dir"`
	Removed []string `json:"removed"`
	Left    []string `json:"left"`
	Files   uint64   `json:"files"`
	Bytes   uint64   `json:"bytes"`
	receipt string
}

// prunable refuses what is neither a run's nor an eval's folder.
func prunable(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return cli.Failf(cli.ExitUsage, "", "%w", err)
	}
	for _, name := range []string{eval.PlanFile, journal.RowsFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return cli.Failf(cli.ExitUsage, "cleanrun ls shows what is where", "%s: no journal in this folder; want a folder that cleanrun run or eval wrote", dir)
}

// attemptsOf lists the run folders of an eval, with their receipts.
func attemptsOf(dir string) ([]prunedRun, error) {
	tasks, err := os.ReadDir(filepath.Join(dir, eval.AttemptsDir))
	if err != nil {
		return nil, err
	}
	var out []prunedRun
	for _, task := range tasks {
		if !task.IsDir() {
			continue
		}
		attempts, err := os.ReadDir(filepath.Join(dir, eval.AttemptsDir, task.Name()))
		if err != nil {
			return nil, err
		}
		for _, a := range attempts {
			run := filepath.Join(dir, eval.AttemptsDir, task.Name(), a.Name())
			if _, err := os.Lstat(filepath.Join(run, journal.RowsFile)); !a.IsDir() || errors.Is(err, fs.ErrNotExist) {
				continue // killed before it began
			}
			out = append(out, prunedRun{Dir: run, receipt: filepath.Join(dir, eval.ReceiptsDir, task.Name()+"-"+a.Name()+".cleanrun")})
		}
	}
	return out, nil
}

// attested tells whether the run has a receipt that verifies and is its own.
func (r *prunedRun) attested() error {
	if r.receipt == "" {
		return errors.New("no receipt was named, and without contents it can never be attested")
	}
	report, err := verifyFile(r.receipt, "")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no receipt: there is no %s", r.receipt)
	}
	if err != nil {
		return err
	}
	if c := report.FailedCheck(); c != nil {
		return fmt.Errorf("%s: %s: check %s failed: %s", r.receipt, report.Verdict, c.ID, c.Detail)
	}
	bundle, err := readEvents(r.receipt, "")
	if err != nil {
		return err
	}
	head, err := headOf(r.Dir)
	if err != nil {
		return err
	}
	if want := bundle.summary.Head; head != want {
		return fmt.Errorf("%s is the receipt of run %x with %d events, want that of run %x with %d", r.receipt, want.Run, want.Size, head.Run, head.Size)
	}
	return nil
}

// headOf is the head of a run folder's rows. Those after a torn one do not count.
func headOf(dir string) (journal.Head, error) {
	f, err := regular.At(filepath.Join(dir, journal.RowsFile), os.O_RDONLY)
	if err != nil {
		return journal.Head{}, err
	}
	defer f.Close()
	c := journal.NewChecker()
	for line, err := range journal.Rows(f) {
		if err == nil {
			_, err = c.Add(line.Raw)
		}
		var rule *journal.RuleError
		if errors.As(err, &rule) && rule.Rule == journal.RuleFrame {
			break
		}
		if err != nil {
			return journal.Head{}, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return c.Summary().Head, nil
}
