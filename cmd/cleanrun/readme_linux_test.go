package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// TestReadmeQuickstart holds the sample in README.md to what quickstart prints:
// the same lines in the same order, apart from numbers and what "..." leaves out.
func TestReadmeQuickstart(t *testing.T) {
	needRecorder(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, ok := strings.Cut(string(readme), "without the key:\n\n")
	if !ok {
		t.Fatal("README.md has no sample")
	}
	sample, _, _ = strings.Cut(sample, "\n    make test\n")
	dir := t.TempDir() + "/q"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, _, err := quickstart(dir, &out, &cli.Env{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if lines := shows(t, sample, strings.ReplaceAll(out.String(), dir, "cleanrun-quickstart")); lines < 20 {
		t.Errorf("the sample has %d lines, want the whole run", lines)
	}
}

// shows holds a sample of README.md to what was printed: the same lines in the
// same order, apart from numbers and what "..." leaves out. It returns how many
// lines the sample has.
func shows(t *testing.T, sample, printed string) (lines int) {
	t.Helper()
	number := regexp.MustCompile(`[0-9][0-9,.]*`)
	shape := func(line string) string {
		return number.ReplaceAllString(strings.Join(strings.Fields(line), " "), "N")
	}
	rest := strings.Split(printed, "\n")
	for _, want := range strings.Split(sample, "\n") {
		want, cut := strings.CutSuffix(shape(want), "...")
		if want == "" {
			continue
		}
		lines++
		at := slices.IndexFunc(rest, func(got string) bool {
			got = shape(got)
			return got == strings.TrimSpace(want) || cut && strings.HasPrefix(got, want)
		})
		if at < 0 {
			t.Fatalf("README.md shows %q; this was printed:\n%s", want, printed)
		}
		rest = rest[at+1:]
	}
	return lines
}

// TestReadmeByHand types what README.md says under "The same by hand", and then under
// "What it changed".
func TestReadmeByHand(t *testing.T) {
	needRecorder(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "## The same by hand\n\n")
	block, _, end := strings.Cut(after, "\n\nThe command starts")
	_, lines, built := strings.Cut(block, "go build -o cleanrun ./cmd/cleanrun\n")
	if !found || !end || !built || strings.Count(lines, "./cleanrun ") < 7 {
		t.Fatalf("README.md has no flow by hand:\n%s", block)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "cleanrun")); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-ec", "./cleanrun quickstart >/dev/null\n"+lines)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nCLEAN  quickstart/word-codes  trial 1, attempt 1\n run by      acme-evals ") {
		t.Fatalf("%v\n%s", err, out)
	}

	_, after, found = strings.Cut(string(readme), "## What it changed\n")
	_, after, begins := strings.Cut(after, "With the keys from above:\n\n")
	lines, after, end = strings.Cut(after, "\n\n`verify` exits with 4")
	_, sample, shown := strings.Cut(after, "had been read before:\n\n")
	sample, after, ends := strings.Cut(sample, "\n\nWith `outside: report`")
	_, bare, alone := strings.Cut(after, "cannot be told:\n\n")
	bare, _, done := strings.Cut(bare, "\n\nWhat it does then")
	const dirty, gated = "verify -policy policy.txt run3.cleanrun", "rm key'"
	if !found || !begins || !end || !shown || !ends || !alone || !done || !strings.Contains(lines, dirty) || !strings.Contains(bare, gated) {
		t.Fatalf("README.md has no flow of a footprint:\n%s", lines)
	}
	// Both end with 4, and nothing else does.
	lines = strings.Replace(lines, dirty, dirty+" || test $? = 4", 1)
	bare = strings.Replace(bare, gated, gated+" || test $? = 4", 1)
	c = exec.Command("sh", "-ec", "T=cleanrun-quickstart/task\n"+lines+"\n"+bare)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	var errs bytes.Buffer
	c.Stderr = &errs
	if out, err = c.Output(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	if n := shows(t, sample, string(out)); n < 10 {
		t.Errorf("the sample has %d lines, want what verify and explain say", n)
	}
	_, rest, _ := strings.Cut(string(out), "site/key  was deleted\n")
	if !strings.Contains(rest, "unlink") || !strings.Contains(rest, "site/key  7 bytes  by ") {
		t.Errorf("explain of the report does not say who deleted the key, or that it had been read:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "site/key")); err == nil {
		t.Error("site/key is still there")
	}
}

// TestReadmeLog types what README.md says under "In a log", after what stands
// before it, on free ports.
func TestReadmeLog(t *testing.T) {
	needRecorder(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "go build -o cleanrun ./cmd/cleanrun\n")
	before, after, first := strings.Cut(after, "\n\nThe command starts")
	_, after, second := strings.Cut(after, "## In a log\n")
	_, after, begins := strings.Cut(after, "should run:\n\n")
	lines, after, ends := strings.Cut(after, "\n\nThe receipt now says what was known when:\n\n")
	sample, _, shown := strings.Cut(after, "\n\nThe log is a folder")
	if !found || !first || !second || !begins || !ends || !shown || strings.Count(lines, "./cleanrun ") != 9 {
		t.Fatalf("README.md has no flow of a log:\n%s", lines)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "cleanrun")); err != nil {
		t.Fatal(err)
	}
	var servers []string
	for _, port := range []string{"8421", "8422"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, free, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		servers = append(servers, l.Addr().String())
		lines = strings.ReplaceAll(lines, ":"+port, ":"+free)
	}
	// The servers are up when they answer; a second is not enough on every machine.
	if !strings.Contains(lines, "    sleep 1\n") {
		t.Fatalf("README.md does not wait for the servers:\n%s", lines)
	}
	lines = strings.Replace(lines, "sleep 1\n", "until [ -e up ]; do sleep 0.05; done\n", 1)
	go func() {
		for _, at := range servers {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if c, err := net.Dial("tcp", at); err == nil {
					c.Close()
					break
				}
			}
		}
		os.WriteFile(filepath.Join(dir, "up"), nil, 0o600)
	}()
	c := exec.Command("sh", "-ec", "./cleanrun quickstart >/dev/null\n"+before+"\n"+lines)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the servers are of this group, and outlive sh
	printed, err := os.Create(filepath.Join(dir, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	c.Stdout, c.Stderr = printed, printed
	err = c.Start()
	if err == nil {
		defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		err = c.Wait()
	}
	out, _ := os.ReadFile(printed.Name())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := shows(t, sample, string(out)); n != 2 {
		t.Errorf("the sample has %d lines, want 2", n)
	}
}

// TestReadmeBenchmark types what README.md says under "A whole benchmark", on
// three of the tasks with one trial of each. One of them is in Go, which compiles its
// part of the standard library each time it is graded, in make long only.
func TestReadmeBenchmark(t *testing.T) {
	needRecorder(t)
	need(t, "python3")
	first := "go-load"
	if long {
		need(t, "go")
	} else {
		first = "py-meter"
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "## A whole benchmark\n")
	block, after, ends := strings.Cut(after, "\n\nGrading starts")
	_, lines, begins := strings.Cut(block, "from above:\n\n")
	_, sample, shown := strings.Cut(after, "against each other:\n\n")
	sample, _, _ = strings.Cut(sample, "\n\nThe cheat copied")
	sample = strings.ReplaceAll(sample, " x 3 trials", " x 1 trial")
	if !long {
		sample = strings.ReplaceAll(sample, "go-load-freight-barges", "py-meter-sliding-quotas")
	}
	if !found || !ends || !begins || !shown || strings.Count(lines, "./cleanrun ") != 4 {
		t.Fatalf("README.md has no flow of a whole benchmark:\n%s", block)
	}
	if lines = strings.Replace(lines, " -trials 3 ", " -trials 1 ", 1); !strings.Contains(lines, " -trials 1 ") {
		t.Fatal("README.md's eval has no three trials")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "examples/bench"), os.DirFS("../../examples/bench")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "cleanrun")); err != nil {
		t.Fatal(err)
	}
	before := `chmod +x examples/bench/agent/*.sh
for t in examples/bench/tasks/*; do
  case $t in */` + first + `-*|*/py-expand-*|*/sh-prune-*) ;; *) rm -r $t ;; esac
done
./cleanrun keygen -audit -o audit.key
./cleanrun keygen -role owner -name tbench.example -o owner.key >policy.txt
./cleanrun keygen -role runner -name acme-evals -o runner.key >>policy.txt
`
	c := exec.Command("sh", "-ec", before+lines)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, _ := c.Output()
	if code := c.ProcessState.ExitCode(); code != 4 {
		t.Fatalf("got exit code %d, want 4, of audit:\n%s%s", code, out, errs.String())
	}
	if n := shows(t, sample, string(out)); n < 12 {
		t.Errorf("the sample has %d lines, want what audit says of both agents", n)
	}
}
