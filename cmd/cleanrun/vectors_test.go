package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestVectorScripts runs the real main on bundles of testvectors/tamper. It needs
// no recorder.
func TestVectorScripts(t *testing.T) {
	vectors, err := filepath.Abs("../../testvectors/tamper")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/vectors",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", os.Getenv("PATH"))
			e.Setenv("VECTORS", vectors)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
	})
}
