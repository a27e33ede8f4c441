package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// checkResults holds every line with a verdict to its receipt before an eval goes on:
// the table is made of the lines, and whoever edits one should not be believed there.
// Whether a receipt is right is for submit and verify; here its signature is checked
// if the runner's key is at hand. Lines without a verdict are marked unattested.
func (g *grid) checkResults() error {
	var key *receipt.PublicKey
	if g.flags.sign != "" {
		signer, err := keys.Load(g.flags.sign)
		if err != nil {
			return err
		}
		public := signer.Public()
		key = &public
	}
	for _, r := range g.dir.Results {
		if r.Verdict == "" {
			continue
		}
		path := g.dir.Path(r.Cell.Receipt())
		s, err := statedIn(path, key)
		if errors.Is(err, fs.ErrNotExist) {
			return cli.Failf(cli.ExitUsage, "put the receipt back, or begin a new eval with another -o", "%s says %s of %s, and its receipt %s is not there",
				g.dir.Path(eval.ResultsFile), r.Verdict, r.Cell, path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if what, got, want := differs(r, s); what != "" {
			return cli.Failf(cli.ExitInvalid, "put results.jsonl back as eval wrote it, or begin a new eval with another -o: it was changed",
				"%s, line of %s: %s: got %s, want %s, as its receipt says", g.dir.Path(eval.ResultsFile), r.Cell, what, got, want)
		}
	}
	return nil
}

// statedIn is the statement of a bundle, signed by key if that is not nil. Nothing
// else of it is checked.
func statedIn(path string, key *receipt.PublicKey) (*attest.Statement, error) {
	data, err := regular.Read(path, maxBundle)
	if err != nil {
		return nil, err
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return nil, err
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		return nil, err
	}
	if key != nil {
		if _, err := u.Verify(*key); err != nil {
			return nil, err
		}
	}
	return attest.ParseStatement(u.Unauthenticated().Payload)
}

// differs names the first thing in which a line is not what its receipt says.
func differs(r eval.Result, s *attest.Statement) (what, got, want string) {
	p := &s.Predicate
	var reasons []string
	for _, why := range p.Reasons {
		reasons = append(reasons, why.ID)
	}
	score := ""
	if p.Score != nil {
		score = p.Score.Value + " " + p.Score.Source
	}
	said := ""
	if r.Score != nil {
		said = r.Score.Value + " " + r.Score.Source
	}
	root := p.Journal.Root
	if r.Outcome == eval.Killed {
		root = "" // a line names the root of a closed journal alone
	}
	for _, f := range []struct{ what, got, want string }{
		{"attempt", r.Cell.String(), eval.Cell{Task: p.Run.Task, Trial: p.Run.Trial, Attempt: p.Run.Attempt}.String()},
		{"run", r.Run, p.Run.ID},
		{"root", r.Root, root},
		{"verdict", r.Verdict, string(p.Verdict)},
		{"score", said, score},
		{"retry", r.Retry, submission.Infrastructure(submission.State(p.Verdict), reasons)},
	} {
		if f.got != f.want {
			return f.what, orEmpty(f.got), orEmpty(f.want)
		}
	}
	if !slices.Equal(r.Reasons, reasons) && len(r.Reasons)+len(reasons) > 0 {
		return "reasons", fmt.Sprint(r.Reasons), fmt.Sprint(reasons)
	}
	return "", "", ""
}

func orEmpty(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
