package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/runlog"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// logFlags name the transparency log that a command puts something into.
type logFlags struct{ log, key, policy, wait string }

// logPatience is how long a log that is not available is tried again.
const logPatience = 30 * time.Second

// stopWithin bounds how long a CHECKPOINT that is under way may still take when its run
// has ended.
const stopWithin = 10 * time.Second

func (v *logFlags) flags(f *cli.Flags, what string) {
	f.String(&v.log, "log", "`URL or folder` of the transparency log that "+what)
	f.String(&v.key, "log-key", "with -log of a folder: the log's own signing key `file`")
	f.String(&v.policy, "log-policy", "with -log: policy `file` that names the log, whom it admits, and the witnesses whose cosignatures are needed")
	f.String(&v.wait, "log-wait", "with -log: `time` for which a log that does not answer is asked again, 30s without it")
}

// A runnersLog is the log that a command works with.
type runnersLog struct {
	registry.Registry
	where    string // URL, or absolute path of the folder
	policy   *proof.Policy
	patience time.Duration
}

// isURL tells a log on a server from one in a folder.
func isURL(log string) bool {
	return strings.HasPrefix(log, "http://") || strings.HasPrefix(log, "https://")
}

// check refuses flags that would be ignored or that cannot go together.
func (v *logFlags) check() error {
	switch {
	case v.log == "" && *v != logFlags{}:
		return cli.Failf(cli.ExitUsage, "give -log too", "-log-key, -log-policy and -log-wait without -log mean nothing")
	case v.log == "":
	case isURL(v.log) && v.key != "":
		return cli.Failf(cli.ExitUsage, "leave out -log-key", "-log-key: the log %s signs by itself", v.log)
	case !isURL(v.log) && (v.key == "" || v.policy == ""):
		return cli.Failf(cli.ExitUsage, "a log in a folder needs -log-key, its signing key, and -log-policy, which says whose entries it takes; a log on a server is a URL",
			"-log %s: -log-key or -log-policy is missing", v.log)
	}
	return nil
}

// open opens the log, nil if there is none.
func (v *logFlags) open(ctx context.Context) (*runnersLog, error) {
	if err := v.check(); err != nil || v.log == "" {
		return nil, err
	}
	l := &runnersLog{where: v.log, patience: logPatience}
	if v.wait != "" {
		d, err := time.ParseDuration(v.wait)
		if err != nil || d < 0 {
			return nil, cli.Failf(cli.ExitUsage, "", "-log-wait: got %q, want a time like 10s or 2m", v.wait)
		}
		l.patience = d
	}
	var admits func(entry.Role, [32]byte) (receipt.PublicKey, bool)
	if v.policy != "" {
		p, err := readPolicy(v.policy)
		if err != nil {
			return nil, err
		}
		if p.Log == nil || len(p.Log.Logs) == 0 {
			return nil, cli.Failf(cli.ExitUsage, "add the log's line, which cleanrun log init printed, and a quorum line", "-log-policy %s: it names no log", v.policy)
		}
		l.policy, admits = p.Log, registry.Admit(p.Owners, p.Runners)
	}
	var err error
	if isURL(v.log) {
		l.Registry, err = dialLog(ctx, v.log, l.policy)
	} else {
		if l.where, err = filepath.Abs(v.log); err != nil {
			return nil, err
		}
		l.Registry, err = openLogFolder(ctx, l.where, v.key, l.policy, admits)
	}
	if err != nil {
		return nil, logError(cli.ExitUsage, l.where, err)
	}
	return l, nil
}

// dialLog asks a server, and pins its key if the policy names one log.
func dialLog(ctx context.Context, url string, p *proof.Policy) (registry.Registry, error) {
	var o registry.DialOptions
	if p != nil && len(p.Logs) == 1 {
		o.Key = p.Logs[0].Key
	}
	c, err := registry.Dial(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if p != nil {
		if l, ok := p.FindLog(c.Key().Name()); !ok || l.Key != c.Key() {
			return nil, fmt.Errorf("got the log %s, want one that the policy names", c.Key())
		}
	}
	return c, nil
}

// openLogFolder opens a log in a folder as its own operator.
func openLogFolder(ctx context.Context, dir, key string, p *proof.Policy, admits func(entry.Role, [32]byte) (receipt.PublicKey, bool)) (registry.Registry, error) {
	signer, err := keys.Load(key)
	if err != nil {
		return nil, err
	}
	return registry.OpenDir(ctx, dir, signer, registry.DirOptions{Admit: admits, Witnesses: p})
}

// config is what logs one run.
func (l *runnersLog) config(signer receipt.Signer, dir string) runlog.Config {
	return runlog.Config{Registry: l, Signer: signer, Where: l.where, Dir: dir, Policy: l.policy, Patience: l.patience}
}

// logError gives an error of a log its hint.
func logError(code int, where string, err error) error {
	var own *cli.Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	hint := ""
	var seal *runlog.NoSealError
	var refused *entry.Refusal
	switch {
	case errors.As(err, &seal):
		hint = "the owner of the benchmark logs it: cleanrun log add -key owner.key, or cleanrun seal -log"
	case errors.As(err, &refused):
		if hint = refused.Hint; refused.ID == entry.RegisterAgain {
			hint = "each attempt is registered once, also if it was killed: give the next number with -attempt"
		}
	case errors.Is(err, registry.ErrUnavailable):
		hint = "cleanrun log serve must be running there and its witnesses must answer; try again"
	case errors.Is(err, registry.ErrChanged):
		hint = "cleanrun log check names the first fault; restore the folder from a copy that it finds good"
	case errors.Is(err, tlog.ErrInUse):
		hint = "one process has the folder at a time: let cleanrun log serve have it, and name its URL"
	case errors.Is(err, tlog.ErrNoLog):
		hint = "cleanrun log init makes a log"
	}
	if !strings.HasPrefix(err.Error(), where+": ") { // the place is said once
		err = fmt.Errorf("%s: %w", where, err)
	}
	return &cli.Error{Code: code, Err: err, Hint: hint}
}
