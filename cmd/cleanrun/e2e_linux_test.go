package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// needRecorder leaves a test out where the recorder does not work, and says why.
func needRecorder(t *testing.T) {
	t.Helper()
	for _, c := range sandbox.Doctor() {
		if !c.OK {
			t.Skipf("the recorder does not work here: %s: %s", c.ID, c.Got)
		}
	}
}

// need leaves a test out where a program is missing, and says which.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// A lab is one sealed task with its keys.
type lab struct {
	t       *testing.T
	dir     string
	n       int
	backend string // of its runs, "" chooses
}

func newLab(t *testing.T) *lab {
	t.Helper()
	needRecorder(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir}
	l.ok(newAuditKey(l.at("audit.key")))
	owner, err := newSigningKey(l.at("owner.key"), "owner", "lab-owner", "")
	l.ok(err)
	runner, err := newSigningKey(l.at("runner.key"), "runner", "lab-runner", "p256")
	l.ok(err)
	l.write("policy.txt", owner+"\n"+runner+"\n")
	l.write("task/prompt.md", "Solve it.\n")
	l.ok(os.MkdirAll(l.at("task/workspace"), 0o755))
	return l
}

func (l *lab) at(name string) string { return filepath.Join(l.dir, name) }
func (l *lab) ok(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}
func (l *lab) write(name, text string) {
	l.t.Helper()
	l.ok(os.MkdirAll(filepath.Dir(l.at(name)), 0o755))
	l.ok(os.WriteFile(l.at(name), []byte(text), 0o644))
}

// seal seals the task with more task.yaml lines and wants at least shingles
// novel fragments.
func (l *lab) seal(yaml string, shingles int) {
	l.t.Helper()
	l.write("task/task.yaml", "benchmark: lab\ntask: t\nprompt: {file: prompt.md}\nworkspace: workspace\n"+yaml)
	sum, err := doSeal(l.at("task/task.yaml"), l.at("audit.key"), l.at("owner.key"), l.at("task.sealed"), "")
	l.ok(err)
	n := 0
	for _, g := range sum.Groups {
		if className(g.Class) == "fragment" {
			n += g.Items
		}
	}
	if n < shingles {
		l.t.Fatalf("sealed %d fragments, want at least %d: the task is too small to test with", n, shingles)
	}
}

type result struct {
	report *verify.Report
	code   int
	out    string
	run    string
	bundle string
}

// run records, attests and verifies one command.
func (l *lab) run(observe bool, stdin string, command ...string) result {
	l.t.Helper()
	l.n++
	r := result{run: l.at(fmt.Sprintf("run%d", l.n)), bundle: l.at(fmt.Sprintf("run%d.cleanrun", l.n))}
	var out bytes.Buffer
	var in io.Reader
	if stdin != "" {
		in = strings.NewReader(stdin)
	}
	quiet := cli.NewProgress(io.Discard, "")
	res, _, err := doRun(runOptions{sealed: l.at("task.sealed"), workspace: l.at("task/workspace"), prompt: l.at("task/prompt.md"), out: r.run, backend: l.backend,
		agent: "test", trial: 1, attempt: 1, observe: observe, command: command, stdin: in, stdout: &out, stderr: &out}, quiet, nil)
	l.ok(err)
	r.code, r.out = res.Code, out.String()
	_, _, err = doAttest(attestOptions{key: l.at("audit.key"), sign: l.at("runner.key"), sealed: l.at("task.sealed"), out: r.bundle, dir: r.run}, quiet, nil)
	l.ok(err)
	r.report, err = verifyFile(r.bundle, l.at("policy.txt"))
	l.ok(err)
	return r
}

// want asserts the verdict, its exit code and one reason id ("" for none).
func (r result) want(t *testing.T, verdict attest.Verdict, reason string) {
	t.Helper()
	exit := map[attest.Verdict]int{attest.Clean: 0, attest.Dirty: 4, attest.Inconclusive: 3}[verdict]
	has := reason == "" || slices.ContainsFunc(r.report.Why, func(w verify.Why) bool { return w.Reason == reason })
	if r.report.Verdict != string(verdict) || r.report.Exit != exit || !has {
		t.Errorf("want %s, exit %d, reason %q; got exit %d and\n%s\nthe command said (code %d):\n%s", verdict, exit, reason, r.report.Exit, r.report.Text(r.bundle), r.code, r.out)
	}
}

// prose makes text with nothing in common with anything: n random words.
func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for i := range n {
		for range 3 + r.IntN(7) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(" \n"[btoi(i%9 == 8)])
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestObservedAttacks runs real programs that get at a hidden test in many ways.
// Each row has its positive control in TestObservedHonest, which does the same
// with a file of its own.
func TestObservedAttacks(t *testing.T) { observedAttacks(t, "namespaces") }

// TestPlainAttacks does the same without namespaces.
func TestPlainAttacks(t *testing.T) { observedAttacks(t, "plain") }

func observedAttacks(t *testing.T, backend string) {
	need(t, "gzip", "base64", "fold", "tr", "dd", "ln")
	l := newLab(t)
	l.backend = backend
	hidden, reference := prose(1, 1200), prose(2, 1200)
	l.write("task/hidden/test.txt", hidden)
	l.write("task/hidden/ref.txt", reference)
	l.write("task/hidden/packed.txt", encode(t, hidden))
	l.write("task/hidden/wrapped.txt", wrap(hidden, 17))
	l.write("task/hidden/upper.txt", strings.ToUpper(hidden))
	// One name for the hidden file inside the workspace, as a careless image has it.
	l.write("task/workspace/readme.txt", "nothing here\n")
	l.write("task/workspace2/test.txt", hidden)
	l.seal("reference: [{path: hidden/ref.txt}]\ntests: [{path: hidden/test.txt}]\nchannels: {stdin: model}\n", 200)

	h, near, root, cwd := "../hidden/", "../workspace2/", "/proc/self/root/$PWD/../hidden/", "cat /proc/self/cwd/../hidden/"
	if backend == "plain" { // its workspace is a copy that lies elsewhere
		h, near = l.at("task/hidden")+"/", l.at("task/workspace2")+"/"
		root, cwd = "/proc/self/root"+h, "cd "+h+"; cat /proc/self/cwd/"
	}
	for _, a := range []struct{ name, script, reason string }{
		{"RT37_read", `cat ` + h + `test.txt`, attest.ReasonObject},
		{"RT45_copy", `cat ` + h + `test.txt > copy && cat copy`, attest.ReasonObject},
		{"RT52_symlink", `ln -s ` + h + `test.txt link && cat link`, attest.ReasonObject},
		{"RT54_proc_self_root", `cat ` + root + `test.txt`, attest.ReasonObject},
		{"RT54_proc_self_cwd", cwd + `test.txt`, attest.ReasonObject},
		{"RT54_dev_fd", `exec 7< ` + h + `test.txt; cat /dev/fd/7`, attest.ReasonObject},
		{"RT39_40_bytes", `dd if=` + h + `test.txt of=part bs=40 count=1 skip=3; i=0; while [ $i -lt 20 ]; do dd if=` + h + `test.txt bs=40 count=1 skip=$i 2>/dev/null >> part; i=$((i+1)); done`, attest.ReasonObject},
		{"RT37_rewrapped", `cat ` + h + `wrapped.txt`, attest.ReasonFragments},
		{"RT37_upper", `cat ` + h + `upper.txt`, attest.ReasonFragments},
		{"RT38_base64_of_gzip", `cat ` + h + `packed.txt`, attest.ReasonFragments},
		{"RT43_exec", `sh ` + h + `test.txt`, attest.ReasonObject},
		{"RT55_workspace2", `cat ` + near + `test.txt`, attest.ReasonOutOfScope},
		{"probe", `test -e x; exec 3< ` + h + `test.txt`, attest.ReasonOutOfScope},
	} {
		t.Run(a.name, func(t *testing.T) {
			l.t = t
			l.run(true, "", "sh", "-c", a.script).want(t, attest.Dirty, a.reason)
		})
	}
	t.Run("RT54_hard_link", func(t *testing.T) {
		l.t = t
		// A hard link that stands in the allowed tree from outside: made on the host,
		// where the run's workspace is only a lower layer.
		if err := os.Link(l.at("task/hidden/test.txt"), l.at("task/workspace/hard")); err != nil {
			t.Skipf("no hard links here: %v", err)
		}
		defer os.Remove(l.at("task/workspace/hard"))
		_, err := doSeal(l.at("task/task.yaml"), l.at("audit.key"), l.at("owner.key"), l.at("again.sealed"), "")
		if err == nil || !strings.Contains(err.Error(), "hard") {
			t.Errorf("got %v, want seal to refuse and to name the file hard", err)
		}
	})
	t.Run("hidden_without_observe", func(t *testing.T) {
		l.t = t
		l.run(false, "", "sh", "-c", `cat `+h+`test.txt || true`).want(t, attest.Dirty, attest.ReasonOutOfScope)
	})
	t.Run("RT44_model_channel", func(t *testing.T) {
		l.t = t
		l.run(true, reference, "sh", "-c", `cat > answer.txt && cat answer.txt && ln -s answer.txt l && cat l`).want(t, attest.Clean, "")
	})
	t.Run("RT44d_argv", func(t *testing.T) {
		l.t = t
		l.run(true, "", "sh", "-c", "echo '"+reference[:4000]+"' > /dev/null").want(t, attest.Dirty, attest.ReasonFragments)
	})
	t.Run("RT48_excerpt", func(t *testing.T) {
		l.t = t
		l.write("task/other/excerpt.txt", hidden[1000:1200])
		r := l.run(true, "", "sh", "-c", "cat "+l.at("task/other/excerpt.txt")+"; true")
		r.want(t, attest.Dirty, attest.ReasonOutOfScope) // where it lay
		if r.report.Verdict == "CLEAN" {
			t.Error("an excerpt is CLEAN")
		}
	})
	t.Run("no_new_privileges", func(t *testing.T) {
		l.t = t
		r := l.run(false, "", "sh", "-c", "grep -x 'NoNewPrivs:.1' /proc/self/status && grep -x 'Seccomp:.2' /proc/self/status")
		if r.code != 0 {
			t.Errorf("exit %d: %s", r.code, r.out)
		}
	})
	t.Run("absent_probe_is_clean", func(t *testing.T) {
		l.t = t
		l.run(true, "", "sh", "-c", "cat /nonexistent/file ../nothing || true; cat /run/x /var/y || true; echo done > out").want(t, attest.Clean, "")
	})
}

// TestRT92_NoPlaintext looks for ground truth in everything that is printed: the
// reports of a DIRTY run, what explain says of its bundle, and refusals.
func TestRT92_NoPlaintext(t *testing.T) {
	l := newLab(t)
	hidden := prose(11, 900)
	l.write("task/hidden/nameofthetest.txt", hidden)
	l.seal("tests: [{path: hidden/nameofthetest.txt}]\n", 100)
	r := l.run(true, "", "sh", "-c", "cat ../hidden/nameofthetest.txt > copy")
	r.want(t, attest.Dirty, attest.ReasonObject)
	said := map[string]string{"report": r.report.Text(r.bundle)}
	for _, args := range [][]string{{"verify", "-json", "-policy", l.at("policy.txt"), r.bundle}, {"explain", r.bundle}, {"explain", "-json", r.bundle},
		{"inspect", "-events", r.bundle}, {"attest", "-key", l.at("owner.key"), "-sign", l.at("runner.key"), "-sealed", l.at("task.sealed"), "-o", l.at("x"), r.run}} {
		var out bytes.Buffer
		table.Main(args, os.Stdin, &out, &out)
		said[strings.Join(args[:2], " ")] = out.String()
	}
	l.write("task/workspace/leak.txt", hidden)
	_, err := doSeal(l.at("task/task.yaml"), l.at("audit.key"), l.at("owner.key"), l.at("leak.sealed"), "")
	if err == nil {
		t.Fatal("sealed a task whose workspace holds the answer")
	}
	said["refusal of seal"] = err.Error()
	words := strings.Fields(hidden)
	for where, text := range said {
		if where != "refusal of seal" && strings.Contains(text, "nameofthetest") {
			t.Errorf("%s names a hidden file:\n%s", where, text)
		}
		for _, w := range words {
			if len(w) >= 7 && strings.Contains(text, w) {
				t.Errorf("%s shows the hidden word %q:\n%s", where, w, text)
				break
			}
		}
	}
	// The positive control: with the run folder, explain does name the file.
	var out bytes.Buffer
	table.Main([]string{"explain", "-detail", r.run, r.bundle}, os.Stdin, &out, io.Discard)
	if !strings.Contains(out.String(), "nameofthetest") {
		t.Errorf("explain -detail does not name the file:\n%s", out.String())
	}
}

// TestManyOpens counts: a program that opens a file 20,000 times leaves as many
// rows.
func TestManyOpens(t *testing.T) {
	for _, backend := range []string{"namespaces", "plain"} {
		t.Run(backend, func(t *testing.T) { manyOpens(t, backend) })
	}
}

func manyOpens(t *testing.T, backend string) {
	l := newLab(t)
	l.backend = backend
	l.write("task/hidden/t.txt", prose(12, 600))
	l.write("task/workspace/f", "x")
	l.seal("tests: [{path: hidden/t.txt}]\n", 50)
	r := l.run(false, "", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do : < f; i=$((i+1)); done")
	r.want(t, attest.Clean, "")
	for _, path := range []string{r.run, r.bundle} {
		var out bytes.Buffer
		if code := table.Main([]string{"inspect", "-json", path}, os.Stdin, &out, io.Discard); code != 0 {
			t.Fatalf("inspect: exit %d", code)
		}
		var got inspected
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for _, k := range got.Kinds {
			if k.Op == "open" && k.Phase == "agent" {
				n += k.N
			}
		}
		if n < 20000 {
			t.Errorf("%s: got %d open rows, want at least 20,000", path, n)
		}
	}
}

func encode(t *testing.T, s string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "gzip -9 | base64")
	cmd.Stdin = strings.NewReader(s)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func wrap(s string, n int) string {
	s = strings.Join(strings.Fields(s), "")
	var b strings.Builder
	for len(s) > n {
		b.WriteString(s[:n] + "\n  ")
		s = s[n:]
	}
	return b.String() + s + "\n"
}
