package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// logged puts the SEAL over a signed set or head into the log. What was sealed is
// written already: an error says how to log it later.
func (o *sealOptions) logged(e *cli.Env, owner receipt.Signer, of receipt.Kind, subject string, signed []byte) error {
	statement, err := entry.SignSeal(owner, entry.Seal{Subject: subject, Of: of, Digest: sha256.Sum256(signed)})
	if err != nil {
		return err
	}
	logged, err := o.log.Add(context.Background(), statement)
	if err != nil {
		return cli.Failf(cli.ExitUsage, "log it later: cleanrun log add -key owner.key "+o.out, "%s is written, and not in the log %s: %w", o.out, o.log.where, err)
	}
	if !e.JSON {
		fmt.Fprintf(e.Stdout, "logged %s as entry %d of %s\n", subject, logged.Index, o.log.where)
	}
	return nil
}

// logTask logs the SEAL of a task that was sealed alone.
func (o *sealOptions) logTask(e *cli.Env) error {
	if o.log == nil {
		return nil
	}
	file, set, err := readSealed(o.out)
	if err != nil {
		return err
	}
	owner, err := keys.Load(o.sign)
	if err != nil {
		return err
	}
	return o.logged(e, owner, receipt.KindSealedSet, set.Benchmark+"/"+set.Task, file)
}

// transparentExt ends the name of what submit -log writes beside a submission's folder: the
// SUBMIT entry with the log's receipt (a transparent statement of RFC 9943).
const transparentExt = ".scitt"

// logSubmission puts the SUBMIT of a submission's folder into the log and returns it as a
// transparent statement.
func logSubmission(l *runnersLog, runner receipt.Signer, dir string) ([]byte, error) {
	file, err := readFile(filepath.Join(dir, audit.MemberCOSE), receipt.MaxSubmission)
	if err != nil {
		return nil, err
	}
	statement, err := entry.SignSubmit(runner, file)
	if err != nil {
		return nil, err
	}
	logged, err := l.Add(context.Background(), statement)
	if err != nil {
		return nil, logError(cli.ExitUsage, l.where, err)
	}
	transparent, err := receipt.Attach(statement, logged.Receipt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.where, err)
	}
	return transparent, nil
}
