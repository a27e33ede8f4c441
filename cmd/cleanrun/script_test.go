package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/rogpeppe/go-internal/testscript"
)

// stageTest is the name under which a test starts this program as cleanrun.
const stageTest = "cleanrun: test"

// commands of the scripts. Tests of one system add theirs.
var commands = map[string]func(){"cleanrun": main}

func TestMain(m *testing.M) {
	sandbox.Stage()
	attemptStage()
	if os.Args[0] == stageTest {
		main()
	}
	testscript.Main(m, commands)
}

// TestScript runs the real main on testdata/script.
func TestScript(t *testing.T) {
	works := true
	for _, c := range sandbox.Doctor() {
		if !c.OK {
			works = false
			t.Logf("scripts that need the recorder are left out: %s: %s", c.ID, c.Got)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", os.Getenv("PATH"))
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, ".tmp"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "recorder" {
				return works, nil
			}
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			if name, ok := strings.CutPrefix(cond, "have:"); ok {
				_, err := exec.LookPath(name)
				return err == nil, nil
			}
			return false, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"await": await,
		},
	})
}

// exits N CMD ARG... runs a command and asserts its exit code. stdout and stderr
// are left in the files out and err.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD ARG...")
	}
	cmd := exec.Command(args[1], args[2:]...)
	if p, err := exec.LookPath(args[1]); err == nil {
		cmd.Path = p
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, args[1]); commands[args[1]] != nil {
			if _, err := os.Stat(p); err == nil {
				cmd.Path, cmd.Err = p, nil
				break
			}
		}
	}
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "TMPDIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := os.Create(ts.MkAbs("out"))
	ts.Check(err)
	defer out.Close()
	errs, err := os.Create(ts.MkAbs("err"))
	ts.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	err = cmd.Run()
	if cmd.ProcessState == nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if got := cmd.ProcessState.ExitCode(); !equal(got, args[0]) {
		text, _ := os.ReadFile(ts.MkAbs("err"))
		ts.Fatalf("got exit code %d, want %s\n%s", got, args[0], text)
	}
}

// await FILE... waits until files exist, as those of a server that starts.
func await(ts *testscript.TestScript, neg bool, args []string) {
	end := time.Now().Add(3 * time.Minute)
	for _, name := range args {
		for {
			if _, err := os.Stat(ts.MkAbs(name)); err == nil {
				break
			}
			if neg || time.Now().After(end) {
				ts.Fatalf("%s: not there", name)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func equal(code int, want string) bool {
	n := 0
	for _, c := range want {
		n = n*10 + int(c-'0')
	}
	return n == code
}
