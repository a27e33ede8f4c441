//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
)

// A run is sealed, registered, recorded, attested and verified on a log that a real
// Trillian on PostgreSQL keeps, with a witness. It waits for the servers to be built.
func TestLogOnTrillian(t *testing.T) {
	t.Parallel() // after the tests that are not: another package builds the servers meanwhile
	if testing.Short() {
		t.Skip("-short: Trillian is not built and started")
	}
	for _, c := range sandbox.Doctor() {
		if !c.OK {
			t.Skipf("the recorder does not work here: %s: %s", c.ID, c.Got)
		}
	}
	s := trilliantest.Start(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{stageTest}, args...)
		cmd.Dir = dir
		return cmd
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	// start starts a server and returns its URL.
	start := func(args ...string) (string, *exec.Cmd) {
		t.Helper()
		url := path(args[1] + ".url")
		os.Remove(url)
		cmd := command(append(args, "-listen", "127.0.0.1:0", "-url", url)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if b, err := os.ReadFile(url); err == nil {
				return strings.TrimSpace(string(b)), cmd
			}
		}
		t.Fatalf("%v does not start", args)
		return "", nil
	}
	text, err := os.ReadFile("testdata/script/plain.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+string(text), "\n-- ")[1:] { // the task of a script
		name, content, _ := strings.Cut(part, " --\n")
		write(name, content+"\n")
	}
	run("keygen", "-audit", "-o", "audit.key")
	policy := run("keygen", "-role", "owner", "-name", "owner.example", "-o", "owner.key") + run("keygen", "-role", "runner", "-name", "runner.example", "-o", "runner.key")
	run("keygen", "-role", "log", "-name", "log.example/1", "-o", "log.key")
	witness := strings.TrimSpace(run("keygen", "-role", "witness", "-name", "w.example", "-o", "w.key"))
	line := run("log", "init", "-dir", "log", "-key", "log.key", "-trillian", s.Address)
	at, _ := start("log", "witness", "-key", "w.key", "-dir", "w", "-log", strings.Fields(line)[1])
	write("policy", policy+line+witness+" "+at+"\nquorum w.example\n")
	url, serving := start("log", "serve", "-dir", "log", "-key", "log.key", "-policy", "policy")

	run("seal", "-key", "audit.key", "-sign", "owner.key", "-o", "task.sealed", "-log", url, "-log-policy", "policy", "task/task.yaml")
	run("run", "-task", "task/task.yaml", "-sealed", "task.sealed", "-o", "one", "-log", url, "-log-policy", "policy", "-key", "runner.key", "--", "cat", "greeting.txt")
	run("attest", "-key", "audit.key", "-sign", "runner.key", "-sealed", "task.sealed", "-log", url, "-log-policy", "policy", "-o", "one.cleanrun", "one")
	if out := run("verify", "-policy", "policy", "one.cleanrun"); !strings.Contains(out, "L1") {
		t.Errorf("verify: got no L1 in\n%s", out)
	}
	if out := run("log", "monitor", "-log", url, "-policy", "policy", "-once"); out != "read 4 entries\n" {
		t.Errorf("monitor: got %q, want 4 entries and nothing found", out)
	}
	// Another server goes on with the same log, and knows what is in it.
	serving.Process.Signal(syscall.SIGTERM)
	if err := serving.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
	url, _ = start("log", "serve", "-dir", "log", "-key", "log.key", "-policy", "policy")
	out, err := command("run", "-task", "task/task.yaml", "-sealed", "task.sealed", "-o", "again", "-log", url, "-log-policy", "policy", "-key", "runner.key", "--", "cat", "greeting.txt").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "register-again") {
		t.Errorf("a second registration of the attempt: got %v\n%s", err, out)
	}
	run("log", "prove", "-log", url, "-index", "3", "-o", "x.scitt")
}
