package registry

import (
	"context"
	"errors"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

// DirOptions of OpenDir.
type DirOptions struct {
	// Admit is that of Options.
	Admit func(role entry.Role, kid [32]byte) (receipt.PublicKey, bool)
	// Witnesses is the policy whose witnesses are asked to cosign each checkpoint.
	// One that its quorum has not cosigned is not published. nil asks nobody.
	Witnesses *proof.Policy
	// Also are further keys of the log, as of tlog.Open.
	Also []*proof.Cosigner
}

// OpenDir opens the log of a folder with its key, and makes a Service of it: one that
// lies there, or one on Trillian (tlog/trillian) whose state lies there. One
// process has a folder open at a time: tlog.ErrInUse.
func OpenDir(ctx context.Context, dir string, key receipt.Signer, o DirOptions) (*Service, error) {
	l, err := openLog(ctx, dir, key, o.Also)
	if err != nil {
		return nil, err
	}
	return openCosigned(ctx, l, key, o)
}

// openLog opens a log that lies in a folder, or on Trillian.
func openLog(ctx context.Context, dir string, key receipt.Signer, also []*proof.Cosigner) (tlog.Log, error) {
	if trillian.Is(dir) {
		return trillian.Open(ctx, dir, key, also...)
	}
	return tlog.Open(ctx, dir, key, also...)
}

// openCosigned closes the log if it fails.
func openCosigned(ctx context.Context, l tlog.Log, key receipt.Signer, o DirOptions) (*Service, error) {
	if o.Witnesses != nil {
		c, err := witness.NewClient(o.Witnesses, key.Public(), nil)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l = witness.NewCosigned(l, c)
	}
	s, err := Open(ctx, Options{Log: l, Key: key, Admit: o.Admit})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}
