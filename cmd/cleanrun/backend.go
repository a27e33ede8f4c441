package main

import (
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// backendOf reads the value of -backend.
func backendOf(name string) (string, error) {
	switch name {
	case "":
		return "", nil
	case "namespaces":
		return sandbox.Backend, nil
	case "plain":
		return sandbox.PlainBackend, nil
	}
	return "", cli.Failf(cli.ExitRunner, "leave -backend out to have it chosen", "-backend: got %q, want namespaces or plain", name)
}
