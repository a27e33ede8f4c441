package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/monitor"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// pinnedLog is the log that is meant: a vkey, or the one log of the policy.
func pinnedLog(vkey string, p *verify.Policy) (receipt.PublicKey, error) {
	if vkey != "" {
		k, err := receipt.ParseVKey(vkey)
		if err != nil {
			return k, cli.Failf(cli.ExitUsage, "copy the vkey from the line that cleanrun log init printed", "the log's key: %w", err)
		}
		return k, nil
	}
	if p == nil || p.Log == nil || len(p.Log.Logs) != 1 {
		return receipt.PublicKey{}, cli.Failf(cli.ExitUsage, "give the log's vkey, which keygen -role log wrote beside the key (.pub), or a policy with one log line", "whose signature the checkpoints must have is not said")
	}
	return p.Log.Logs[0].Key, nil
}

var logCheckFlags struct{ dir, log, policy string }

var logCheckCommand = &cli.Command{
	Name:  "log check",
	Short: "hash a whole log in a folder again, and check every entry",
	Long: `Reads every entry of a log in a folder, makes every tile and the root again, and compares them with the files and with what is signed.
Then each entry must be one that the log should have: its form, its signature under a key of the policy, and no contradiction with
the entries before it. The log may be open and growing.

Without -policy nobody's keys are known, and of the entries only the form is checked.

Exit codes: 0 all of it holds; 1 the first fault.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logCheckFlags
		f.Required(&v.dir, "dir", "`folder` of the log")
		f.String(&v.log, "log", "the log's `vkey`; not needed with a policy that names one log")
		f.String(&v.policy, "policy", "policy `file`: the keys that may have entries")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logCheckFlags
		if trillian.Is(v.dir) {
			return cli.Failf(cli.ExitUsage, "cleanrun log monitor -once reads all entries of its server", "%s: the entries are on Trillian", v.dir)
		}
		var p *verify.Policy
		if v.policy != "" {
			var err error
			if p, err = readPolicy(v.policy); err != nil {
				return err
			}
		}
		key, err := pinnedLog(v.log, p)
		if err != nil {
			return err
		}
		size, err := checkLog(v.dir, key, p)
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Size uint64 `json:"size"`
			}{size})
		}
		fmt.Fprintf(e.Stdout, "%s, all as signed by %s\n", several(size, "entry", "entries"), key.Name())
		if p == nil {
			e.Warn("without -policy the signatures of the entries and what they say are not checked")
		}
		return nil
	},
}

func checkLog(dir string, key receipt.PublicKey, p *verify.Policy) (uint64, error) {
	ctx := context.Background()
	size, err := tlog.Check(ctx, dir, key)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, cli.Failf(cli.ExitInvalid, "a log's folder has the files of c2sp.org/tlog-tiles", "%w", err)
	}
	if err != nil {
		return 0, cli.Failf(cli.ExitInvalid, "the folder is not what was written or signed: keep it as it is, and compare it with a mirror", "%w", err)
	}
	o := monitor.Options{Log: key, Wait: math.MaxInt64}
	if p != nil {
		o.Admit = registry.Admit(p.Owners, p.Runners)
	}
	m, err := monitor.New(monitor.Folder(dir), o)
	if err != nil {
		return 0, err
	}
	found, err := m.Step(ctx)
	for _, f := range found {
		if f.Contradiction() {
			return 0, cli.Failf(cli.ExitInvalid, "", "%s", findingText(f))
		}
	}
	if err != nil {
		return 0, err
	}
	return max(size, m.Newest().Checkpoint().Size), nil
}

// findingText is a finding in one line, without its evidence.
func findingText(f monitor.Finding) string {
	if f.Entry {
		return fmt.Sprintf("entry %d: %s: %s", f.Index, f.ID, f.Text)
	}
	return fmt.Sprintf("%s: %s", f.ID, f.Text)
}

var logMonitorFlags struct {
	log, key, policy, state, wait, every string
	seen                                 []string
	once                                 bool
}

var logMonitorCommand = &cli.Command{
	Name:  "log monitor",
	Short: "follow a log and report what contradicts itself",
	Long: `Reads all entries of a log, as anybody can, and reports: entries that the log should have refused (with the id of the refusal), runs
that were registered and have no FINAL (run-open), attempts that were left out (attempt-missing), a FINAL that names another number of
CHECKPOINTs than the log has (checkpoint-hidden), a checkpoint smaller than one seen before (rollback), and two signed checkpoints that cannot be of one tree (split-view). The last two are printed with both checkpoints: whoever
has the log's key can check them.

With -state it remembers between two calls what the log showed. -seen compares checkpoints from elsewhere, such as those of a bundle or of
another monitor, with what the log shows here: that is how a split view comes out.

Exit codes: 0 nothing found; 1 somebody contradicts himself; 3 something is missing (run-open, attempt-missing, checkpoint-hidden), or the
log does not answer.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logMonitorFlags
		f.Required(&v.log, "log", "`URL or folder` of the log")
		f.Required(&v.policy, "policy", "policy `file`: the log and the keys that may have entries")
		f.String(&v.key, "key", "the log's `vkey`; not needed with a policy that names one log")
		f.String(&v.state, "state", "`file` that keeps what was seen; made if it is absent")
		f.Strings(&v.seen, "seen", "a signed checkpoint of the log from elsewhere, a `file`")
		f.String(&v.wait, "wait", "`time` that a run may take from its REGISTER to its FINAL, such as 24h, which it is without the flag")
		f.String(&v.every, "every", "`time` between two looks, 10s without it")
		f.Bool(&v.once, "once", "look once and end")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logMonitorFlags
		if e.JSON && !v.once {
			return cli.Failf(cli.ExitUsage, "", "-json prints one object, and a monitor that follows has no end: add -once")
		}
		wait, err := duration("wait", v.wait, 24*time.Hour)
		if err != nil {
			return err
		}
		every, err := duration("every", v.every, 10*time.Second)
		if err != nil {
			return err
		}
		p, err := readPolicy(v.policy)
		if err != nil {
			return err
		}
		key, err := pinnedLog(v.key, p)
		if err != nil {
			return err
		}
		o := monitor.Options{Log: key, Admit: registry.Admit(p.Owners, p.Runners), Wait: wait}
		for _, path := range v.seen {
			b, err := readFile(path, 64<<10)
			if err != nil {
				return err
			}
			o.Seen = append(o.Seen, b)
		}
		if v.state != "" {
			b, err := readFile(v.state, monitor.MaxState)
			if err == nil {
				o.State, err = monitor.ParseState(b)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		source := monitor.Folder(v.log)
		if isURL(v.log) {
			if source, err = monitor.Server(v.log, nil); err != nil {
				return err
			}
		}
		m, err := monitor.New(source, o)
		if err != nil {
			return err
		}
		return watchLog(e, m, v.state, every, v.once)
	},
}

func duration(name, text string, without time.Duration) (time.Duration, error) {
	if text == "" {
		return without, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, cli.Failf(cli.ExitUsage, "", "-%s: got %q, want a time like 10s or 2h", name, text)
	}
	return d, nil
}

// watchLog looks until it is told to stop, or once.
func watchLog(e *cli.Env, m *monitor.Monitor, state string, every time.Duration, once bool) error {
	ctx, stop := untilStopped()
	defer stop()
	code, said := 0, ""
	var all []monitor.Finding
	// stopped is the code of a monitor that was told to end: a log that did not answer
	// at last is not one in which nothing was found.
	stopped := func(code int) int {
		if code == 0 && (said != "" || m.Newest() == nil) {
			return cli.ExitInconclusive
		}
		return code
	}
	for {
		found, err := m.Step(ctx)
		if once {
			all = found
		}
		for _, f := range found {
			if f.Contradiction() {
				code = cli.ExitInvalid
			} else if code == 0 {
				code = cli.ExitInconclusive
			}
			if !e.JSON {
				fmt.Fprintln(e.Stdout, findingText(f))
				for _, note := range f.Evidence {
					fmt.Fprintf(e.Stdout, "\n%s\n", note)
				}
			}
		}
		if state != "" {
			b, e := m.State().Format()
			if e == nil {
				e = durable.WriteFile(state, b, 0o644)
			}
			err = errors.Join(err, e)
		}
		switch {
		case errors.Is(err, monitor.ErrLost):
			return ended(e, m, all, cli.ExitInvalid)
		case ctx.Err() != nil:
			return ended(e, m, all, stopped(code))
		case err != nil && once:
			if code == 0 {
				code = cli.ExitInconclusive
			}
			return cli.Failf(code, "", "%w", err)
		case err != nil && err.Error() != said: // an outage is told once
			e.Warn("%v", err)
			said = err.Error()
		case err == nil && said != "":
			e.Warn("the log answers again: %s", several(m.Newest().Checkpoint().Size, "entry", "entries"))
			said = ""
		}
		if once {
			return ended(e, m, all, code)
		}
		select {
		case <-ctx.Done():
			return ended(e, m, all, stopped(code))
		case <-time.After(every):
		}
	}
}

// ended says how the log is, and ends with a code.
func ended(e *cli.Env, m *monitor.Monitor, found []monitor.Finding, code int) error {
	size, root := uint64(0), ""
	if v := m.Newest(); v != nil {
		size, root = v.Checkpoint().Size, fmt.Sprintf("%x", v.Checkpoint().Root)
	}
	if e.JSON {
		type finding struct {
			ID            string   `json:"id"`
			Contradiction bool     `json:"contradiction"`
			Index         *uint64  `json:"index,omitempty"`
			Text          string   `json:"text"`
			Evidence      []string `json:"evidence,omitempty"` // signed checkpoints
		}
		list := []finding{}
		for _, f := range found {
			j := finding{ID: string(f.ID), Contradiction: f.Contradiction(), Text: f.Text}
			if f.Entry {
				j.Index = &f.Index
			}
			for _, note := range f.Evidence {
				j.Evidence = append(j.Evidence, string(note))
			}
			list = append(list, j)
		}
		if err := e.PrintJSON(struct {
			Size     uint64    `json:"size"`
			Root     string    `json:"root"`
			Findings []finding `json:"findings"`
		}{size, root, list}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.Stdout, "read %s\n", several(size, "entry", "entries"))
	}
	if code != 0 {
		return cli.Exit(code)
	}
	return nil
}
