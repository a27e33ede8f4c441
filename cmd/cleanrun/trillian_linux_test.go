package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
)

// TestTrillianScript runs the real main on testdata/trillian, with a log on the
// real servers of Trillian.
func TestTrillianScript(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: Trillian is not built and started")
	}
	for _, c := range sandbox.Doctor() {
		if !c.OK {
			t.Skipf("the recorder does not work on this machine: %s: %s", c.ID, c.Got)
		}
	}
	s := trilliantest.Start(t)
	// In a group, so that the servers are there until all scripts have ended.
	t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir:                 "testdata/trillian",
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Setup: func(e *testscript.Env) error {
				e.Setenv("HOME", e.WorkDir)
				e.Setenv("PATH", os.Getenv("PATH"))
				e.Setenv("TMPDIR", filepath.Join(e.WorkDir, ".tmp"))
				return os.WriteFile(filepath.Join(e.WorkDir, "server"), []byte(s.Address+"\n"), 0o600)
			},
			Condition: func(cond string) (bool, error) {
				name, _ := strings.CutPrefix(cond, "have:")
				_, err := exec.LookPath(name)
				return err == nil, nil
			},
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
		})
	})
}
