package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

var logProveFlags struct {
	logFlags
	index, out string
}

var logProveCommand = &cli.Command{
	Name:  "log prove",
	Short: "prove an entry in the newest checkpoint of a log",
	Long: `Fetches an entry and its proof in the newest checkpoint, checks them, and writes what the name of -o asks for:

  x.tlog-proof   proof file of c2sp.org/tlog-proof, with the checkpoint and its
                 cosignatures
  x.scitt        transparent statement (RFC 9943): the entry with the log's
                 COSE receipt
  x.cose         the COSE receipt alone (RFC 9942)
  x.entry        the entry as it was signed

Without -o it says what the entry is. Without -log-policy, which pins the log's key, the server's word for its key is taken.

Exit codes: 0 proved; 1 the proof does not hold; 2 there is no such entry; 3 the log does not answer.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logProveFlags
		v.flags(f, "has the entry")
		f.Required(&v.index, "index", "`number` of the entry, from 0")
		f.String(&v.out, "o", "`file` to write; its name says which form")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logProveFlags
		if v.log == "" {
			return cli.Failf(cli.ExitUsage, "cleanrun help log prove", "flag -log is missing")
		}
		var index uint64
		if _, err := fmt.Sscanf(v.index, "%d", &index); err != nil || fmt.Sprint(index) != v.index {
			return cli.Failf(cli.ExitUsage, "", "-index: got %q, want a decimal number", v.index)
		}
		ext := filepath.Ext(v.out)
		if v.out != "" && !strings.Contains(" .tlog-proof .scitt .cose .entry ", " "+ext+" ") {
			return cli.Failf(cli.ExitUsage, "", "-o: got a name that ends in %q, want .tlog-proof, .scitt, .cose or .entry", ext)
		}
		l, err := v.open(context.Background())
		if err != nil {
			return unanswered(err)
		}
		defer l.Close()
		p, err := proveEntry(context.Background(), l, index)
		if errors.Is(err, registry.ErrNoEntry) {
			return cli.Failf(cli.ExitUsage, "", "%s: %w", l.where, err)
		}
		if err != nil {
			return unanswered(logError(cli.ExitInvalid, l.where, err))
		}
		if v.policy == "" {
			e.Warn("without -log-policy the log's key is the one that the server names: %s", l.Key())
		}
		switch ext {
		case ".tlog-proof":
			err = durable.CreateNew(v.out, proof.FormatLogProof(&p.proof), 0o644)
		case ".scitt":
			var t []byte
			if t, err = receipt.Attach(p.statement, p.receipt); err == nil {
				err = durable.CreateNew(v.out, t, 0o644)
			}
		case ".cose":
			err = durable.CreateNew(v.out, p.receipt, 0o644)
		case ".entry":
			err = durable.CreateNew(v.out, p.statement, 0o644)
		}
		if err != nil {
			return err
		}
		return p.print(e)
	},
}

// A proved entry is one whose place in a log's newest checkpoint was checked.
type proved struct {
	index      uint64
	statement  []byte
	entry      *entry.Unverified
	proof      proof.LogProof
	receipt    []byte
	checkpoint proof.Checkpoint
}

func proveEntry(ctx context.Context, l *runnersLog, index uint64) (*proved, error) {
	statement, err := l.Entry(ctx, index)
	if err != nil {
		return nil, err
	}
	ps, err := l.Proofs(ctx, []uint64{index}, nil)
	if err != nil {
		return nil, err
	}
	note, err := proof.ParseCheckpoint(ps.Checkpoint)
	if err != nil {
		return nil, err
	}
	v, err := note.Verify(l.Key())
	if err != nil {
		return nil, err
	}
	cp := v.Checkpoint()
	if err := proof.Inclusion(index, cp.Size, receipt.LeafHash(statement), ps.Inclusion[0], cp.Root); err != nil {
		return nil, err
	}
	u, err := receipt.ParseLogReceipt(ps.Receipt)
	if err != nil {
		return nil, err
	}
	r, err := u.VerifyInclusion(l.Key(), statement)
	if err != nil {
		return nil, err
	}
	if r.Root() != cp.Root {
		return nil, fmt.Errorf("got a receipt with root %x, want that of the checkpoint, %x", r.Root(), cp.Root)
	}
	e, err := entry.Parse(statement)
	if err != nil {
		return nil, fmt.Errorf("entry %d is in the log, and is none that it should have: %w", index, err)
	}
	return &proved{index, statement, e, proof.LogProof{Index: index, Path: ps.Inclusion[0], Checkpoint: ps.Checkpoint}, ps.Receipt, cp}, nil
}

func (p *proved) print(e *cli.Env) error {
	issuer, leaf := p.entry.Issuer(), receipt.LeafHash(p.statement)
	if e.JSON {
		return e.PrintJSON(struct {
			Index   uint64 `json:"index"`
			Kind    string `json:"kind"`
			Subject string `json:"subject"`
			Issuer  string `json:"issuer"` // thumbprint
			Name    string `json:"issuerName"`
			Leaf    string `json:"leaf"`
			Origin  string `json:"origin"`
			Size    uint64 `json:"size"`
			Root    string `json:"root"`
		}{p.index, p.entry.Kind().String(), p.entry.Subject(), fmt.Sprintf("%x", issuer), p.entry.IssuerName(), fmt.Sprintf("%x", leaf),
			p.checkpoint.Origin, p.checkpoint.Size, fmt.Sprintf("%x", p.checkpoint.Root)})
	}
	fmt.Fprintf(e.Stdout, "entry       %d of %d in %s\nkind        %v\nsubject     %q\nissuer      %q, %s (signature not checked)\nleaf        %x\nroot        %x\n",
		p.index, p.checkpoint.Size, p.checkpoint.Origin, p.entry.Kind(), p.entry.Subject(), p.entry.IssuerName(), receipt.Fingerprint(issuer), leaf, p.checkpoint.Root)
	return nil
}
