package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
)

type submitOptions struct {
	dir, out, key, sign, scoreRule, identity string
	ruled, partial                           bool
	agentFiles, modelFiles                   []string
	log                                      *runnersLog // nil logs nothing
}

var (
	submitFlags    = submitOptions{scoreRule: submission.Mean().String()}
	submitLogFlags logFlags
)

var submitCommand = &cli.Command{
	Name:  "submit",
	Args:  "EVALDIR",
	Short: "sign the grid and the score of an eval, and collect its receipts",
	Long: `Writes the submission of an eval: a folder with the signed statement (submission.cose, submission.dsse.json) and one bundle for
each attempt, named by its SHA-256. The statement holds the whole grid of tasks, trials and attempts, the score with a confidence
interval, and the Merkle root over the receipts. Every bundle is verified before anything is signed. Nothing in EVALDIR is changed.

-key attests the attempts that eval did not. Trials without an attempt, and attempts without a receipt, are refused unless -partial is
given: then they are listed as missing and error.

The score is counted in two ways, and the statement holds both: plain, which leaves every score as it was, and ruled, where a DIRTY
attempt counts 0 and an INCONCLUSIVE one is unscored. -rule makes the second one the headline. -score-rule is mean, pass@K or pass^K.

With -log the submission is put into a transparency log before the folder appears, and FOLDER.scitt is written beside it: the signed statement (or, if it is
too large for an entry, the signature over its digest) with the log's receipt. What -key attests is logged too, if its run was registered there.

The same eval and the same flags give the same bytes.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &submitFlags
		f.Required(&v.sign, "sign", "runner's signing key `file`, the one that signed the receipts")
		f.Required(&v.out, "o", "`folder` to write; it must not exist")
		f.String(&v.key, "key", "audit or benchmark key `file`, to attest what is not attested yet")
		f.String(&v.identity, "identity", identityUsage)
		f.String(&v.scoreRule, "score-rule", "`rule` of the score: mean, pass@K or pass^K")
		f.Bool(&v.ruled, "rule", "let the score in which DIRTY counts 0 and INCONCLUSIVE is unscored be the headline")
		f.Bool(&v.partial, "partial", "publish a grid with missing trials and attempts without a receipt")
		f.Strings(&v.agentFiles, "agent-file", "`file` that the agent is made of; its digest is published")
		submitLogFlags.flags(f, "the submission is put into")
		f.Strings(&v.modelFiles, "model-file", "`file` that the model is made of; its digest is published")
	},
	Run: func(e *cli.Env, args []string) error {
		v := submitFlags
		var err error
		if v.dir, err = oneArg(args, "the eval's folder"); err != nil {
			return err
		}
		if v.log, err = submitLogFlags.open(context.Background()); err != nil {
			return err
		}
		if v.log != nil {
			defer v.log.Close()
		}
		s, err := doSubmit(e, v)
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Folder string           `json:"folder"`
				ID     string           `json:"id"`
				Score  submission.Score `json:"score"`
				Cells  int              `json:"cells"`
			}{v.out, s.ID(), s.Predicate.Score, len(s.Predicate.Grid)})
		}
		printSubmission(e, v.out, s)
		return nil
	},
}

func printSubmission(e *cli.Env, dir string, s *submission.Statement) {
	p := &s.Predicate
	fmt.Fprintf(e.Stdout, "%s  submission %s\n", dir, s.ID())
	fmt.Fprintf(e.Stdout, " benchmark  %s, %s x %s\n", p.Benchmark.Name, counted(int(p.Benchmark.Tasks), "task"), counted(int(p.Trials), "trial"))
	counts := map[submission.State]int{}
	last := submission.Last(p.Grid)
	for _, i := range last {
		counts[p.Grid[i].State]++
	}
	if all := int(p.Benchmark.Tasks) * int(p.Trials); all > len(last) {
		counts[submission.Missing] += all - len(last) // of tasks that the eval left out
	}
	var list []string
	for _, state := range []submission.State{submission.Clean, submission.Dirty, submission.Inconclusive, submission.Failed, submission.Missing} {
		if n := counts[state]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, state))
		}
	}
	fmt.Fprintf(e.Stdout, " trials     %s\n", strings.Join(list, ", "))
	if n := len(p.Grid) - len(last); n > 0 {
		fmt.Fprintf(e.Stdout, " replaced   %d earlier attempts\n", n)
	}
	rule, _ := s.Rule()
	for _, by := range []submission.Counting{submission.Plain, submission.Ruled} {
		t := p.Score.Of(by)
		word := "or"
		if by == p.Score.Headline {
			word = "score"
		}
		value := t.Value
		if value == "" {
			value = "no value"
		}
		if t.Interval.Method != submission.MethodNone {
			value += fmt.Sprintf("  %s to %s", t.Interval.Low, t.Interval.High)
		}
		fmt.Fprintf(e.Stdout, " %-10s %s %s  (%s: %d scored, %d unscored, %d missing)\n", word, rule, value, by, t.Scored, t.Unscored, t.Missing)
	}
	if submitLogFlags.log != "" {
		fmt.Fprintf(e.Stdout, " logged     %s\n", filepath.Clean(dir)+transparentExt)
	}
	fmt.Fprintf(e.Stdout, " next       cleanrun audit -policy policy.txt %s\n", dir)
}

// doSubmit writes the submission of an eval.
func doSubmit(e *cli.Env, o submitOptions) (*submission.Statement, error) {
	rule, err := submission.ParseRule(o.scoreRule)
	if err != nil {
		return nil, cli.Failf(cli.ExitUsage, "", "-score-rule: %w", err)
	}
	signer, err := keys.Load(o.sign)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(o.out); err == nil {
		return nil, cli.Failf(cli.ExitUsage, "a submission is never overwritten: name a new folder", "%s exists", o.out)
	}
	beside := filepath.Clean(o.out) + transparentExt
	if _, err := os.Lstat(beside); err == nil && o.log != nil {
		return nil, cli.Failf(cli.ExitUsage, "it is never overwritten: name a new folder", "%s exists", beside)
	}
	state, err := eval.Read(o.dir)
	if err != nil {
		return nil, err
	}
	if running, err := eval.Running(o.dir); err != nil {
		return nil, err
	} else if running {
		return nil, cli.Failf(cli.ExitUsage, "wait until it has ended", "%s: the eval still runs", o.dir)
	}
	in := submission.Input{
		Agent: submission.Named{Name: state.Plan.AgentName}, Model: submission.Named{Name: state.Plan.ModelName},
		Tasks: state.Plan.Tasks, Trials: state.Plan.Trials, Rule: rule, Headline: submission.Plain,
	}
	if o.ruled {
		in.Headline = submission.Ruled
	}
	if in.Agent.Files, err = namedFiles(o.agentFiles); err != nil {
		return nil, err
	}
	if in.Model.Files, err = namedFiles(o.modelFiles); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(o.out)), "."+filepath.Base(o.out)+".*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	c := newCollector(e, o, signer, state, temp)
	if err := c.collect(&in); err != nil {
		return nil, err
	}
	s, err := submission.Build(in)
	if err != nil {
		return nil, err
	}
	if score := &s.Predicate.Score; score.K > 0 && score.Of(score.Headline).Tasks < uint64(len(in.Tasks)) {
		e.Warn("-score-rule %s: got a value for %d of %d tasks, the others have fewer than %d scored trials; an audit will not call this CLEAN",
			rule, score.Of(score.Headline).Tasks, len(in.Tasks), score.K)
	}
	if err := c.complete(s); err != nil {
		return nil, err
	}
	if err := signSubmission(temp, signer, s); err != nil {
		return nil, err
	}
	var transparent []byte
	if o.log != nil { // before the folder appears: the same command again gives the same entry
		if transparent, err = logSubmission(o.log, signer, temp); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return nil, err
	}
	err = durable.RenameNew(temp, o.out)
	if errors.Is(err, fs.ErrExist) {
		err = cli.Failf(cli.ExitUsage, "a submission is never overwritten: name a new folder", "%s exists", o.out)
	}
	if err == nil && transparent != nil {
		err = durable.CreateNew(beside, transparent, 0o644)
	}
	return s, err
}

// namedFiles are the digests of files, by their base names.
func namedFiles(paths []string) ([]submission.File, error) {
	var list []submission.File
	for _, p := range paths {
		sum, err := digestFile(p)
		if err != nil {
			return nil, err
		}
		list = append(list, submission.File{Name: filepath.Base(p), SHA256: sum})
	}
	return list, nil
}

// signSubmission writes the two signed files into dir.
func signSubmission(dir string, signer receipt.Signer, s *submission.Statement) error {
	data, err := s.Marshal()
	if err != nil {
		return err
	}
	cose, err := receipt.Sign1(receipt.KindSubmission, signer, s.ID(), data)
	if err != nil {
		return err
	}
	dsse, err := receipt.SignEnvelope(receipt.KindSubmission, signer, data)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		data []byte
	}{{audit.MemberCOSE, cose}, {audit.MemberDSSE, dsse}} {
		if err := durable.CreateNew(filepath.Join(dir, m.name), m.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sumOf is the hex SHA-256 of data.
func sumOf(data []byte) ([32]byte, string) {
	sum := sha256.Sum256(data)
	return sum, hex.EncodeToString(sum[:])
}
