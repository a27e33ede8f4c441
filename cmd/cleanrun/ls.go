package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

var lsCommand = &cli.Command{
	Name:  "ls",
	Args:  "[DIR]",
	Short: "list evals, runs, receipts and seals in a folder",
	Long: `Lists what cleanrun wrote into DIR, by default the current folder, one line each: evals, run folders, receipts, submissions and seals,
with what they say of themselves. If DIR is an eval, its attempts are listed. Other files and folders are left out.

Nothing here is verified. A receipt that says CLEAN may be anybody's: cleanrun verify checks it.`,
	JSON: true,
	Run: func(e *cli.Env, args []string) error {
		dir := "."
		if len(args) > 0 {
			var err error
			if dir, err = oneArg(args, "the folder"); err != nil {
				return err
			}
		}
		list, err := listed(dir)
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Verified bool      `json:"verified"` // always false
				Entries  []lsEntry `json:"entries"`
			}{false, list})
		}
		kinds, names := 0, 0
		for _, l := range list {
			kinds, names = max(kinds, len(l.Kind)), max(names, len([]rune(printable(l.Name))))
		}
		for _, l := range list {
			name := printable(l.Name)
			name += strings.Repeat(" ", names-len([]rune(name)))
			if _, err := fmt.Fprintf(e.Stdout, "%-*s  %s  %s\n", kinds, l.Kind, name, printable(l.Says)); err != nil {
				return err
			}
		}
		return nil
	},
}

// An lsEntry is one thing that cleanrun wrote.
type lsEntry struct {
	Kind string `json:"kind"` // eval, attempt, run, receipt, submission, benchmark, task
	Name string `json:"name"`
	Says string `json:"says"` // of itself
	OK   bool   `json:"ok"`   // it could be read
}

// listed lists a folder, or the attempts of one that is an eval.
func listed(dir string) ([]lsEntry, error) {
	if _, err := os.Lstat(filepath.Join(dir, eval.PlanFile)); err == nil {
		return listAttempts(dir)
	}
	if l, ok := lsFolder(dir); ok {
		l.Name = dir
		return []lsEntry{l}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	list := []lsEntry{}
	for _, d := range entries {
		at := filepath.Join(dir, d.Name())
		var l lsEntry
		ok := false
		switch {
		case d.IsDir():
			l, ok = lsFolder(at)
		case d.Type().IsRegular():
			l, ok = lsFile(at)
		}
		if ok {
			l.Name = d.Name()
			list = append(list, l)
		}
	}
	return list, nil
}

// listAttempts are the attempts of an eval that are on record, and those that are
// not: they run, or were killed.
func listAttempts(dir string) ([]lsEntry, error) {
	s, err := eval.Read(dir)
	if err != nil {
		return nil, err
	}
	list := []lsEntry{}
	for _, r := range s.Results {
		list = append(list, lsEntry{"attempt", r.RunDir(), resultLine(r), true})
	}
	loose, err := s.Loose()
	if err != nil {
		return nil, err
	}
	on, err := eval.Running(dir)
	if err != nil {
		return nil, err
	}
	for _, c := range loose {
		says := "not on record: the eval was killed; the same command goes on"
		if on {
			says = "running"
		}
		list = append(list, lsEntry{"attempt", c.RunDir(), says, true})
	}
	slices.SortFunc(list, func(a, b lsEntry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func broken(kind string, err error) (lsEntry, bool) {
	return lsEntry{Kind: kind, Says: "cannot be read: " + oneLine(err.Error())}, true
}

// lsFolder says what a folder is, false if it is none of ours.
func lsFolder(dir string) (lsEntry, bool) {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case has(eval.PlanFile):
		s, err := eval.Read(dir)
		if err != nil {
			return broken("eval", err)
		}
		return lsEntry{Kind: "eval", Says: evalLine(s), OK: true}, true
	case has("submission.cose"):
		bundles, err := filepath.Glob(filepath.Join(dir, "*.cleanrun"))
		if err != nil {
			return broken("submission", err)
		}
		return lsEntry{Kind: "submission", Says: fmt.Sprintf("%d receipts", len(bundles)), OK: true}, true
	case has(journal.RowsFile) && has(journal.SecretFile):
		f, err := follow(dir)
		if err == nil {
			defer f.close()
			_, err = f.poll()
		}
		if err != nil {
			return broken("run", err)
		}
		return lsEntry{Kind: "run", Says: f.says(), OK: true}, true
	}
	return lsEntry{}, false
}

// evalLine says in one line how far an eval is.
func evalLine(s *eval.State) string {
	t := eval.Tabulate(s, eval.DefaultRetries)
	out := fmt.Sprintf("%s, %s, %s", s.Plan.Benchmark, counted(len(s.Plan.Tasks), "task"), counted(len(t.Trials), "trial"))
	if s.Plan.AgentName != "" {
		out += ", agent " + s.Plan.AgentName
	}
	out += ": " + t.Counts()
	if t.Mean != "" {
		out += ", score " + t.Mean
	}
	if on, err := eval.Running(s.Dir); err == nil && on {
		out += ", running"
	}
	return out
}

// lsFile says what a file is, by how it begins.
func lsFile(name string) (lsEntry, bool) {
	if strings.HasSuffix(name, ".cleanrun") {
		return lsReceipt(name)
	}
	if !strings.HasSuffix(name, ".sealed") {
		return lsEntry{}, false
	}
	start, err := readStart(name)
	if err != nil {
		return broken("task", err)
	}
	if benchmark.IsSealed(start) {
		s, err := benchmark.OpenSealed(name)
		if err != nil {
			return broken("benchmark", err)
		}
		defer s.Close()
		h := s.Head()
		tasks := fmt.Sprintf("%d sealed tasks", h.Tasks)
		if h.Tasks == 1 {
			tasks = "1 sealed task"
		}
		return lsEntry{Kind: "benchmark", Says: h.Benchmark + ", " + tasks, OK: true}, true
	}
	data, err := readFile(name, receipt.MaxSealedSet)
	if err != nil {
		return broken("task", err)
	}
	file, err := receipt.ParseSealed(data)
	if err != nil {
		return broken("task", err)
	}
	set, err := contraband.ParseSet(file.Set())
	if err != nil {
		return broken("task", err)
	}
	kind := "sealed alone"
	if file.Part != nil {
		kind = "part of a benchmark's seal"
	}
	if f := set.Footprint; f != nil && f.Gate {
		kind += ", a change outside its footprint is DIRTY"
	} else if f != nil {
		kind += ", a change outside its footprint is reported"
	}
	if set.Expect != nil {
		kind += ", names " + set.Expect.Read
	}
	return lsEntry{Kind: "task", Says: fmt.Sprintf("%s/%s, %s", set.Benchmark, set.Task, kind), OK: true}, true
}

func lsReceipt(name string) (lsEntry, bool) {
	data, err := readFile(name, maxBundle)
	if err != nil {
		return broken("receipt", err)
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return broken("receipt", err)
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		return broken("receipt", err)
	}
	s, err := attest.ParseStatement(u.Unauthenticated().Payload)
	if err != nil {
		return broken("receipt", err)
	}
	p := s.Predicate
	says := fmt.Sprintf("says %s, %s/%s trial %d, attempt %d", p.Verdict, p.Run.Benchmark, p.Run.Task, p.Run.Trial, p.Run.Attempt)
	if p.Asserted.Agent != "" {
		says += ", agent " + p.Asserted.Agent
	}
	if p.Score != nil {
		says += fmt.Sprintf(", score %s %s", p.Score.Value, p.Score.Source)
	}
	if p.Footprint != nil {
		says += ", footprint " + p.Footprint.Outcome
	}
	if p.Expect != nil {
		says += ", named path " + string(p.Expect.Outcome)
	}
	return lsEntry{Kind: "receipt", Says: says, OK: true}, true
}

func readStart(name string) ([]byte, error) {
	f, err := regular.At(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 16)
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:n], err
}
