package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/runlog"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// runLogging says where a run is logged.
type runLogging struct {
	log      *runnersLog // nil for a run that is not logged
	signer   receipt.Signer
	optional bool // a log that is not available stops nothing
	before   *unstarted
}

// An unstarted run was registered and then killed before its first row. No other can be
// registered as the same attempt, but it can still start.
type unstarted struct {
	run      [16]byte
	secret   journal.Secret
	register []byte
}

// readUnstarted reads what is left of a run that never started, nil if the folder holds
// none, or one that cannot start any more: an encrypted folder does not give its secret.
func readUnstarted(dir string) *unstarted {
	if st, err := os.Stat(filepath.Join(dir, journal.RowsFile)); err == nil && st.Size() > 0 {
		return nil
	}
	s, err := runlog.Read(dir)
	if err != nil {
		return nil
	}
	secret, err := regular.Read(filepath.Join(dir, journal.SecretFile), 64)
	run, failed := hex.DecodeString(s.Run())
	if err != nil || failed != nil || len(secret) != len(journal.Secret{}) {
		return nil
	}
	return &unstarted{[16]byte(run), journal.Secret(secret), s.Register.Statement}
}

// A loggedRun logs one run. All methods do nothing for nil.
type loggedRun struct {
	runLogging
	dir        string
	run        *runlog.Run
	registered bool
	warn       func(string, ...any)
}

// of prepares a sandbox's run in c.RunDir to be logged.
func (v runLogging) of(c *sandbox.Config, sealed []byte, warn func(string, ...any)) (*loggedRun, error) {
	if v.log == nil {
		return nil, nil
	}
	if warn == nil {
		warn = func(string, ...any) {}
	}
	r := &loggedRun{runLogging: v, dir: c.RunDir, warn: warn}
	config := v.log.config(v.signer, c.RunDir)
	if b := v.before; b != nil {
		config.Before, c.Start.Run, c.Secret = b.register, b.run, &b.secret
	}
	var err error
	if r.run, err = runlog.New(config, sealed); err != nil {
		return nil, err
	}
	c.Register, c.Head = r.register, r.run.Head
	return r, nil
}

func (r *loggedRun) register(ctx context.Context, start *journal.Start) error {
	err := r.run.Register(ctx, start)
	if r.registered = err == nil; r.registered {
		return nil
	}
	if r.optional && ctx.Err() == nil && errors.Is(err, registry.ErrUnavailable) {
		r.warn(unlogged, logError(cli.ExitRunner, r.log.where, err))
		return nil
	}
	return err
}

// failed explains why a run did not start.
func (r *loggedRun) failed(err error) error {
	var not *sandbox.NotRegistered
	if r == nil || !errors.As(err, &not) {
		return err
	}
	return withoutLog(logError(cli.ExitRunner, r.log.where, not))
}

// unlogged is the warning of a run that goes on without its log.
const unlogged = "the run is not in the log and cannot have assurance L1: %v"

// withoutLog says of an unavailable log that a run can do without.
func withoutLog(err error) error {
	var own *cli.Error
	if errors.Is(err, registry.ErrUnavailable) && errors.As(err, &own) {
		return &cli.Error{Code: own.Code, Err: own.Err, Hint: own.Hint + "; -log-optional runs without it"}
	}
	return err
}

// sent tells whether the run may be in the log: then its folder says so, and stays.
func (r *loggedRun) sent(err error) bool {
	if r == nil {
		return false
	}
	if r.registered {
		return true
	}
	var refused *entry.Refusal
	if errors.As(err, &refused) {
		return false
	}
	_, err = runlog.Read(r.dir)
	return err == nil
}

// end logs the end of a run that has ended, if its journal is closed.
func (r *loggedRun) end() {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	logged, failed, why := r.run.Stop(ctx)
	if !r.registered {
		return
	}
	if failed > 0 {
		r.warn("%d CHECKPOINTs of the run are in the log; another was not taken %d times: %v", logged, failed, why)
	}
	c := r.log.config(r.signer, r.dir)
	err := c.Finish(context.Background())
	switch {
	case err == nil:
	case errors.Is(err, runlog.ErrOpen):
		r.warn("the run stays open in the log %s: %v", r.log.where, err)
	default:
		r.warn("the end of the run is not in the log yet: %v; cleanrun attest -log %s logs it", err, r.log.where)
	}
}

// logReceipt logs what attest signed, and the end of the run if that is missing, and
// gives the bundle its proofs. A run that was killed can be attested, but not logged.
func logReceipt(l *runnersLog, signer receipt.Signer, dir string, b *receipt.Bundle, warn func(string, ...any)) error {
	c := l.config(signer, dir)
	ctx := context.Background()
	err := c.Finish(ctx)
	switch {
	case errors.Is(err, runlog.ErrNotRegistered):
		return cli.Failf(cli.ExitUsage, "leave out -log, or run it again with run -log", "%s: %w", dir, err)
	case errors.Is(err, runlog.ErrOpen):
		if s, bad := runlog.Read(dir); bad == nil && s.Final != nil {
			return cli.Failf(cli.ExitInvalid, "restore the journal as it was when the run ended", "%s: %w; but the run ended, and its end was sent to the log %s: rows were dropped since", dir, err, s.Log)
		}
		if warn != nil {
			warn("%s: %v; its registration stays open in the log, and the receipt is written without a proof", dir, err)
		}
		return nil
	case err != nil:
		return logError(cli.ExitUsage, fmt.Sprintf("%s, log %s", dir, l.where), err)
	}
	c.Compact = b.Evidence == nil
	b.LogProof, b.Log, err = c.Members(ctx, b.Receipt)
	return logError(cli.ExitUsage, fmt.Sprintf("%s, log %s", dir, l.where), err)
}

// registeredIn says which log a run was registered in, "" for none that is known.
func registeredIn(dir string) string {
	s, err := runlog.Read(dir)
	if err != nil {
		return ""
	}
	return s.Log
}
