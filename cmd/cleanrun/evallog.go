package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// openEvalLog opens the log of an eval, nil without one. Attempts are processes of their
// own, and a log in a folder is one process's: then the eval serves it to them, on
// loopback.
func openEvalLog(v evalOptions) (*attemptLog, func() error, error) {
	none := func() error { return nil }
	if v.log.log != "" && v.sign == "" {
		return nil, none, cli.Failf(cli.ExitUsage, "give -sign, and -key unless the benchmark publishes its key", "-log without -sign: attempts are registered under the runner's key")
	}
	l, err := v.log.open(context.Background())
	if err != nil || l == nil {
		return nil, none, err
	}
	out := &attemptLog{URL: v.log.log, Where: l.where, Wait: v.log.wait, key: l.Key().String()}
	if v.log.policy != "" {
		if out.Policy, err = filepath.Abs(v.log.policy); err != nil {
			return nil, none, errors.Join(err, l.Close())
		}
	}
	s, ok := l.Registry.(*registry.Service)
	if !ok {
		return out, l.Close, nil
	}
	handler, closeHandler, err := registry.Handler(s, registry.HandlerOptions{Dir: l.where})
	if err != nil {
		return nil, none, errors.Join(err, l.Close())
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, none, errors.Join(err, closeHandler(), l.Close())
	}
	out.URL = "http://" + at.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- registry.Serve(ctx, at, handler) }()
	return out, func() error {
		stop()
		return errors.Join(<-served, closeHandler(), l.Close())
	}, nil
}
