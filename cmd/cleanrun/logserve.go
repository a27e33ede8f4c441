package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

// listenFlags are those of a server.
type listenFlags struct{ listen, url string }

func (v *listenFlags) flags(f *cli.Flags) {
	f.Required(&v.listen, "listen", "`ADDR` to take requests at, such as 127.0.0.1:8421; port 0 takes a free one")
	f.String(&v.url, "url", "`file` to write the server's URL to once it takes requests")
}

// serve answers requests until the process is told to stop, and says where it does.
func (v *listenFlags) serve(ctx context.Context, e *cli.Env, what string, h http.Handler) error {
	l, err := net.Listen("tcp", v.listen)
	if err != nil {
		return cli.Failf(cli.ExitUsage, "name another address with -listen; port 0 takes a free one", "%w", err)
	}
	url := "http://" + l.Addr().String()
	if v.url != "" {
		if err := durable.WriteFile(v.url, []byte(url+"\n"), 0o644); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	if e.JSON {
		err = e.PrintJSON(struct {
			URL string `json:"url"`
		}{url})
	} else {
		_, err = fmt.Fprintf(e.Stdout, "%s at %s\n", what, url)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return registry.Serve(ctx, l, h)
}

func untilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

var logServeFlags struct {
	listenFlags
	dir, key, policy string
	also             []string
	rate, inFlight   uint32
}

var logServeCommand = &cli.Command{
	Name:  "log serve",
	Short: "serve a log over HTTP: take entries, prove them, publish tiles",
	Long: `Serves a log that log init made (spec/log.md, "HTTP"): it takes entries by SCRAPI (POST /entries), answers with COSE receipts,
publishes checkpoints and tiles (c2sp.org/tlog-tiles), and refuses what contradicts the log, each with its own error.

The policy file says whom it admits: owner lines may add a SEAL, runner lines all else. Keep the lines of keys that have entries in the
log. If it has a quorum line that is not none, the witnesses that it names by URL are asked to cosign each checkpoint, and an entry is
acknowledged when the quorum has.

It speaks plain HTTP: put a server with TLS before it where others can reach it. On SIGTERM it answers what it has taken, and ends.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logServeFlags
		f.Required(&v.dir, "dir", "`folder` of the log")
		f.Required(&v.key, "key", "the log's signing key `file`")
		f.Strings(&v.also, "also", "a further key `file` of the log, as log init was given it")
		f.Required(&v.policy, "policy", "policy `file`: the keys that may add entries, and the witnesses")
		v.listenFlags.flags(f)
		f.Uint(&v.rate, "rate", "requests a second that one address may make; no limit without it (`number`)")
		f.Uint(&v.inFlight, "in-flight", "requests that are answered at a time; 512 without it (`number`)")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logServeFlags
		ctx, stop := untilStopped()
		defer stop()
		key, err := keys.Load(v.key)
		if err != nil {
			return err
		}
		also, err := cosigners(v.also)
		if err != nil {
			return err
		}
		p, err := readPolicy(v.policy)
		if err != nil {
			return err
		}
		if p.Log != nil {
			if l, ok := p.Log.FindLog(key.Public().Name()); !ok || l.Key != key.Public() {
				return cli.Failf(cli.ExitUsage, "add the line that cleanrun log init printed", "%s: it names other logs than %s", v.policy, key.Public())
			}
		}
		s, err := registry.OpenDir(ctx, v.dir, key, registry.DirOptions{Admit: registry.Admit(p.Owners, p.Runners), Witnesses: p.Log, Also: also})
		if err != nil {
			return logError(cli.ExitUsage, v.dir, err)
		}
		faults, n := s.Faults()
		for _, f := range faults {
			e.Warn("entry %d: %v", f.Index, f.Err)
		}
		if n > 0 {
			e.Warn("the log has %s that should not be there, without effect; cleanrun log monitor shows all", several(n, "entry", "entries"))
		}
		o := registry.HandlerOptions{Dir: v.dir, InFlight: int(min(v.inFlight, 1<<16)), PerSecond: int(min(v.rate, 1<<20))}
		if trillian.Is(v.dir) {
			o.Dir = ""
		}
		h, done, err := registry.Handler(s, o)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		err = v.serve(ctx, e, "log "+key.Public().Name(), h)
		return errors.Join(err, s.Close(), done())
	},
}

var logWitnessFlags struct {
	listenFlags
	dir  string
	keys []string
	logs []string
}

var logWitnessCommand = &cli.Command{
	Name:  "log witness",
	Short: "run a witness, which cosigns the checkpoints of logs that only grow",
	Long: `Runs a witness (c2sp.org/tlog-witness): it cosigns a checkpoint of a log that it knows if the tree of the last one that it cosigned is
how the new one begins. What it cosigned last is in its folder, on the disk before a cosignature leaves. A witness that lost the folder, or
runs from an old copy, has forgotten what it signed and must get a new key.

Two checkpoints of a log that cannot be of one tree are written to stderr.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logWitnessFlags
		f.Strings(&v.keys, "key", "a cosigning key `file`, made with keygen -role witness")
		f.Required(&v.dir, "dir", "`folder` of what was cosigned last")
		f.Strings(&v.logs, "log", "the `vkey` of a log, as its policy line has it")
		v.listenFlags.flags(f)
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logWitnessFlags
		if len(v.keys) == 0 || len(v.logs) == 0 {
			return cli.Failf(cli.ExitUsage, "cleanrun help log witness", "-key or -log is missing")
		}
		ctx, stop := untilStopped()
		defer stop()
		o := witness.Options{Dir: v.dir, Conflict: func(a, b []byte) {
			e.Warn("split view: the log has signed two checkpoints that cannot be of one tree\n%s\n%s", a, b)
		}}
		var err error
		if o.Keys, err = cosigners(v.keys); err != nil {
			return err
		}
		for _, text := range v.logs {
			k, err := receipt.ParseVKey(text)
			if err != nil {
				return cli.Failf(cli.ExitUsage, "copy the vkey from the line that cleanrun log init printed", "-log: %w", err)
			}
			o.Logs = append(o.Logs, k)
		}
		s, err := witness.NewServer(o)
		if err != nil {
			return err
		}
		return errors.Join(v.serve(ctx, e, "witness "+o.Keys[0].Key().Name(), s), s.Close())
	},
}
