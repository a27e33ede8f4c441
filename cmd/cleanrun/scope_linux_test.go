package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// gated runs a script under scope -gate in a new workspace and gives the exit code and what
// it said.
func gated(t *testing.T, files map[string]string, script string, allow ...string) (int, string) {
	t.Helper()
	ws := t.TempDir()
	for name, text := range files {
		p := filepath.Join(ws, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"scope", "-workspace", ws, "-gate"}
	for _, a := range allow {
		args = append(args, "-allow", a)
	}
	var said bytes.Buffer
	cmd := program(append(args, "--", "sh", "-c", script)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), said.String()
}

func recorderWorks(t *testing.T) {
	t.Helper()
	if sandbox.Works(sandbox.Doctor()) == "" {
		t.Skip("the recorder does not work on this machine")
	}
}

// caught runs the honest script, which must pass, and the attack, which must fail and be
// named with the kind and the path.
func caught(t *testing.T, files map[string]string, honest, attack, kind, path string, allow ...string) {
	t.Helper()
	if code, said := gated(t, files, honest, allow...); code != 0 || !strings.Contains(said, "footprint WITHIN") {
		t.Errorf("the control: got exit code %d, want 0 and within:\n%s", code, said)
	}
	code, said := gated(t, files, honest+"; "+attack, allow...)
	if code != 4 || !strings.Contains(said, "footprint OUTSIDE") {
		t.Errorf("got exit code %d, want 4 and outside:\n%s", code, said)
	}
	named(t, said, kind, path)
}

// named asserts that scope named a finding.
func named(t *testing.T, said, kind, path string) {
	t.Helper()
	for line := range strings.Lines(said) {
		if strings.Contains(line, "outside      "+kind) && strings.Contains(line, "/"+path+"  ") {
			return
		}
	}
	t.Errorf("want %s %s named:\n%s", kind, path, said)
}

var scored = map[string]string{"src/add.py": "def add(a, b): return a - b\n", "harness/parser.py": "def parse(log): return log\n",
	"tests/test_add.py": "import unittest\n"}

const repair = "echo 'def add(a, b): return a + b' > src/add.py"

// TestRT53_WriteThroughASwappedLink: the name that is written is allowed, and the link at
// that name is swapped all the time by another process. What was really written is named,
// with the write that explains it. In the control the link is swapped between two allowed
// files.
func TestRT53_WriteThroughASwappedLink(t *testing.T) {
	recorderWorks(t)
	swapped := func(other string) string {
		return `(i=0; while [ $i -lt 12 ]; do ln -s own out/n; mv -T out/n out/link; ln -s ` + other + ` out/n; mv -T out/n out/link; i=$((i+1)); done; : > out/done) &
			while [ ! -e out/done ]; do echo x > out/link; done; wait; echo last > out/link`
	}
	files := map[string]string{"keys/key": "SECRET\n", "out/own": "", "out/second": ""}
	code, said := gated(t, files, swapped("second"), "out/**")
	if code != 0 || !strings.Contains(said, "footprint WITHIN") {
		t.Errorf("the control: got exit code %d, want 0 and within:\n%s", code, said)
	}
	code, said = gated(t, files, swapped("../keys/key"), "out/**")
	if code != 4 || !strings.Contains(said, "footprint OUTSIDE: 1 path out of it") || strings.Contains(said, "unexplained") {
		t.Errorf("got exit code %d, want 4 and one path, explained:\n%s", code, said)
	}
	named(t, said, "modified", "keys/key")
	if !strings.Contains(said, ", open by p1") {
		t.Errorf("want the shell's open named:\n%s", said)
	}
}

// TestIncident10_ParserOverwritten: the file that reads the tests' output is overwritten.
func TestIncident10_ParserOverwritten(t *testing.T) {
	recorderWorks(t)
	caught(t, scored, repair, "echo 'def parse(log): return \"passed\"' > harness/parser.py", "modified", "harness/parser.py", "src/**")
	// A module of the workspace that stands before the standard library's.
	caught(t, scored, repair, "echo 'def main(): pass' > unittest.py", "added", "unittest.py", "src/**")
}

// TestIncident11_TrojanOnPath: a program that the grader would find first, and one that
// was there for a moment only.
func TestIncident11_TrojanOnPath(t *testing.T) {
	recorderWorks(t)
	caught(t, scored, repair, "mkdir bin; printf '#!/bin/sh\nexit 0\n' > bin/pytest; chmod 755 bin/pytest", "added", "bin/pytest", "src/**")
	caught(t, scored, repair, "printf '#!/bin/sh\nexit 0\n' > curl; rm curl", "transient", "curl", "src/**")
}

// TestIncident21_TestsEdited: tests are edited, deleted, or moved away for a while.
func TestIncident21_TestsEdited(t *testing.T) {
	recorderWorks(t)
	caught(t, scored, repair, "echo pass > tests/test_add.py", "modified", "tests/test_add.py", "src/**")
	caught(t, scored, repair, "rm -r tests", "deleted", "tests/test_add.py", "src/**")
	caught(t, scored, repair, "mv tests away; mv away tests", "restored", "tests", "src/**")
}

// A file that a run leaves unreadable to its own user, who is not root, is compared and
// copied into the workspace all the same.
func TestScopeLeftUnreadable(t *testing.T) {
	recorderWorks(t)
	dir, err := os.MkdirTemp("/tmp", "cleanrun-unreadable-")
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(dir, "ws")
	t.Cleanup(func() {
		os.Chmod(filepath.Join(ws, "d"), 0o700)
		os.RemoveAll(dir)
	})
	if err := errors.Join(os.Mkdir(ws, 0o755), os.WriteFile(filepath.Join(ws, "b"), []byte("b\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) *exec.Cmd {
		cmd := program(args...)
		cmd.Dir = dir
		if os.Getuid() == 0 {
			cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
		}
		return cmd
	}
	if os.Getuid() == 0 {
		for _, p := range []string{dir, ws, filepath.Join(ws, "b")} {
			if err := os.Chown(p, 54321, 54321); err != nil {
				t.Skipf("root here cannot give a file away: %v", err)
			}
		}
	}
	// Without namespaces the owner's bits stay, so that the recorder can go on.
	if out, err := as("scope", "-workspace", ws, "-backend", "namespaces", "--", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces for an ordinary user here: %v\n%s", err, out)
	}
	script := "echo x > new; chmod 000 new b; mkdir d; echo y > d/z; chmod 000 d"
	run := func(want int, allow ...string) string {
		t.Helper()
		args := []string{"scope", "-workspace", ws, "-backend", "namespaces", "-gate", "-allow", "new", "-allow", "d/**"}
		for _, a := range allow {
			args = append(args, "-allow", a)
		}
		out, err := as(append(args, "--", "sh", "-c", script)...).CombinedOutput()
		var exit *exec.ExitError
		if code := 0; err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		} else if exit != nil {
			if code = exit.ExitCode(); code != want {
				t.Fatalf("got %d, want %d:\n%s", code, want, out)
			}
		} else if want != 0 {
			t.Fatalf("got 0, want %d:\n%s", want, out)
		}
		return string(out)
	}
	said := run(4)
	named(t, said, "modified", "ws/b")
	if !strings.Contains(said, "1 path out of it") || !strings.Contains(said, "(mode)") {
		t.Errorf("got %s, want b named for its mode alone", said)
	}
	for name, mode := range map[string]os.FileMode{"new": 0, "b": 0, "d": os.ModeDir} {
		if st, err := os.Lstat(filepath.Join(ws, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: got %v (%v), want %v", name, st, err, mode)
		}
	}
	// The control: it is allowed. What is unreadable before the run is seen neither then nor after.
	for _, name := range []string{"b", "new", "d"} {
		if err := os.Chmod(filepath.Join(ws, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(ws, "d")); err != nil {
		t.Fatal(err)
	}
	run(0, "b")
	script = "true"
	if said := run(3); !strings.Contains(said, "/ws/d  before and after: unreadable") {
		t.Errorf("got %s, want d named as not seen", said)
	}
}
