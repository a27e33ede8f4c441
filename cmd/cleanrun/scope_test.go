package main

import (
	"errors"
	"os"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// The exit codes: what CMD says goes first, then that there was no last look, then the gate.
func TestScopeExit(t *testing.T) {
	for _, c := range []struct {
		code    int
		err     string
		gate    bool
		outcome footprint.Outcome
		want    int
	}{
		{0, "", true, footprint.Within, 0},
		{0, "", true, footprint.Outside, 4},
		{0, "", true, footprint.Inconclusive, 3},
		{0, "", false, footprint.Outside, 0},
		{0, "", false, footprint.Inconclusive, 0},
		{7, "", true, footprint.Outside, 7},
		{7, "no last look", true, footprint.Inconclusive, 7},
		{0, "no last look", true, footprint.Outside, 125},
		{0, "no last look", false, footprint.Inconclusive, 125},
	} {
		r := scopeReport{Code: c.code, Error: c.err, Gate: c.gate, Outcome: c.outcome}
		err, got := r.exit(), 0
		var code cli.Exit
		var own *cli.Error
		if errors.As(err, &code) {
			got = int(code)
		} else if errors.As(err, &own) {
			got = own.Code
		}
		if got != c.want {
			t.Errorf("%+v: got %d (%v), want %d", c, got, err, c.want)
		}
	}
}

// A last look that fails twice is an error of the report, and nothing is within.
func TestScopeLastLookFails(t *testing.T) {
	ws := t.TempDir()
	if err := os.WriteFile(ws+"/f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := take(ws, false)
	if err != nil {
		t.Fatal(err)
	}
	s := &finalState{workspace: ws, first: first}
	if s.look(t.TempDir()); s.err == nil {
		t.Fatal("got no error without an upper layer")
	}
	p, err := footprint.NewPolicy([]string{"**"})
	if err != nil {
		t.Fatal(err)
	}
	r := newScopeReport(p, false)
	r.judge(p, s, t.TempDir())
	if r.conclude(); r.Error == "" || r.Outcome != footprint.Inconclusive {
		t.Errorf("got %+v, want an error and nothing concluded", r)
	}
}
