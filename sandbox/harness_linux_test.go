package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// The test binary is its own sandbox stage, and plays the programs of the attack
// tests inside.
const (
	roleVar = "CLEANRUN_SANDBOX_ROLE"
	userVar = "CLEANRUN_SANDBOX_USER" // set in the second run, as an ordinary user
	baseVar = "CLEANRUN_SANDBOX_BASE"
	backVar = "CLEANRUN_SANDBOX_BACKEND" // backend of runs that name none
)

func TestMain(m *testing.M) {
	sandbox.Stage()
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(roles[role](os.Args[1:]))
	}
	code := m.Run()
	if warm.dir != "" {
		os.RemoveAll(warm.dir)
	}
	os.Exit(code)
}

// entry is one row with its opened detail.
type entry struct {
	journal.Row
	D journal.Detail
}

func (e entry) String() string {
	return fmt.Sprintf("%d %v proc %d result %d flags %#x %s %s %s", e.Seq, e.Op, e.Proc, e.Result, uint32(e.Flags), e.D.Path, e.D.Path2, e.D.Syscall)
}

// recorded is one finished run.
type recorded struct {
	*sandbox.Result
	stdout, stderr string
	rows           []entry
	dir            string
}

// base is a folder that no private mount of the sandbox covers, so that files in
// it are visible under Observe.
func base(t *testing.T) string {
	t.Helper()
	for _, d := range []string{os.Getenv(baseVar), "/srv", "/var/lib", "/mnt"} {
		if d == "" {
			continue
		}
		if tmp, err := os.MkdirTemp(d, "cleanrun-test-"); err == nil {
			t.Cleanup(func() {
				exec.Command("chmod", "-R", "u+rwX", tmp).Run()
				os.RemoveAll(tmp)
			})
			return tmp
		}
	}
	t.Skip("no writable folder outside /tmp and the home folder")
	return ""
}

func environment(home string) []string {
	return []string{"PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8", "TZ=UTC"}
}

// runDir makes an empty RUNDIR.
func runDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run records a command and skips the test where the sandbox does not exist.
func run(t *testing.T, c sandbox.Config) *recorded {
	t.Helper()
	var out, errs bytes.Buffer
	if c.RunDir == "" {
		c.RunDir = runDir(t)
	}
	if c.Env == nil {
		home := filepath.Join(t.TempDir(), "home")
		if err := os.Mkdir(home, 0o755); err != nil {
			t.Fatal(err)
		}
		c.Env = environment(home)
	}
	c.Stdout, c.Stderr = &out, &errs
	if c.Backend == "" {
		c.Backend = os.Getenv(backVar)
	}
	if c.Backend == sandbox.PlainBackend {
		c = inRunDir(c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	res, err := sandbox.Run(ctx, c)
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skipf("%v (%s)", err, un.Hint)
	}
	if err != nil {
		t.Fatalf("Run: %v\nstdout %q\nstderr %q", err, out.String(), errs.String())
	}
	r := &recorded{Result: res, stdout: out.String(), stderr: errs.String(), dir: c.RunDir}
	r.rows = readRows(t, c.RunDir)
	if c.Backend == sandbox.PlainBackend { // the tests name what is outside
		for i := range r.rows {
			d := &r.rows[i].D
			d.Path, d.Path2 = sourceOf(c, d.Path), sourceOf(c, d.Path2)
			if d.Path == filepath.Join(c.RunDir, "control", "control.txt") {
				d.Path = sandbox.ControlPath
			}
		}
	}
	return r
}

// inRunDir has the scripts of a test name the places of tests and reward where they are
// without namespaces.
func inRunDir(c sandbox.Config) sandbox.Config {
	places := strings.NewReplacer(sandbox.TestsPath, filepath.Join(c.RunDir, "tests"), sandbox.RewardPath, filepath.Join(c.RunDir, "reward"))
	argv := func(l []string) (out []string) {
		for _, a := range l {
			out = append(out, places.Replace(a))
		}
		return out
	}
	c.Command, c.Setup, c.Grade = argv(c.Command), argv(c.Setup), argv(c.Grade)
	if p := c.Start.Phases; p != nil {
		own := *p
		own.Setup, own.Grade = argv(p.Setup), argv(p.Grade)
		c.Start.Phases = &own
	}
	return c
}

// sourceOf is the place, as a test names it, that a path in the run folder stands for.
func sourceOf(c sandbox.Config, p string) string {
	for _, at := range []string{sandbox.TestsPath, sandbox.RewardPath} {
		if rest, ok := strings.CutPrefix(p, filepath.Join(c.RunDir, filepath.Base(at))); ok && (rest == "" || rest[0] == '/') {
			return at + rest
		}
	}
	if rest, ok := strings.CutPrefix(p, filepath.Join(c.RunDir, "workspace")); ok && (rest == "" || rest[0] == '/') {
		return c.Workspace + rest
	}
	return p
}

// readRows checks a journal by its rules, and that every detail opens its row.
func readRows(t *testing.T, dir string) []entry {
	t.Helper()
	rows, err := os.Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	details, err := os.Open(filepath.Join(dir, "detail"))
	if err != nil {
		t.Fatal(err)
	}
	defer details.Close()
	raw, err := os.ReadFile(filepath.Join(dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	secret := journal.Secret(raw)
	var all []journal.Detail
	var encoded [][]byte
	for b, err := range journal.Details(details) {
		if err != nil {
			t.Fatal(err)
		}
		d, err := journal.ParseDetail(b)
		if err != nil {
			t.Fatal(err)
		}
		all, encoded = append(all, d), append(encoded, bytes.Clone(b))
	}
	check := journal.NewChecker()
	var out []entry
	for line, err := range journal.Rows(rows) {
		if err != nil {
			t.Fatal(err)
		}
		row, err := check.Add(line.Raw)
		if err != nil {
			t.Fatalf("row %d: %v", len(out), err)
		}
		if row.Seq >= uint64(len(all)) {
			t.Fatalf("row %d has no detail", row.Seq)
		}
		if !row.Opens(secret.Salt(row.Seq), encoded[row.Seq]) {
			t.Fatalf("row %d: its detail is not the one it is bound to", row.Seq)
		}
		out = append(out, entry{row, all[row.Seq]})
	}
	return out
}

// find returns the rows that f accepts.
func (r *recorded) find(f func(entry) bool) (out []entry) {
	for _, e := range r.rows {
		if f(e) {
			out = append(out, e)
		}
	}
	return out
}

// opens are the successful opens of a path.
func (r *recorded) opens(path string) []entry {
	return r.find(func(e entry) bool { return e.Op == journal.OpOpen && e.Result == 0 && e.D.Path == path })
}

func (r *recorded) has(t *testing.T, what string, f func(entry) bool) entry {
	t.Helper()
	l := r.find(f)
	if len(l) == 0 {
		t.Errorf("no row: %s", what)
		return entry{}
	}
	return l[0]
}

// closed checks the accounts of a run that ended by itself.
func (r *recorded) closed(t *testing.T) {
	t.Helper()
	f := r.Final
	if f.Received != f.Answered+f.Void || f.Born != f.Ended || f.Lost != 0 || f.Delta.Unexplained != 0 {
		t.Errorf("accounts are not closed: %+v", f)
		for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpLost }) {
			t.Errorf("lost: %s", e.D.Note)
		}
		if f.Delta.Unexplained != 0 {
			t.Errorf("final detail: %+v", r.rows[len(r.rows)-1].D)
		}
	}
	for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpKilled }) {
		t.Errorf("killed: %v %s", e, e.D.Note)
	}
	last := r.rows[len(r.rows)-1]
	if last.Op != journal.OpFinal {
		t.Errorf("last row is %v, want final", last.Op)
	}
}

// made waits for a file that the run makes. It returns false if the test ends first.
func made(t *testing.T, path string) bool {
	for {
		if _, err := os.Stat(path); err == nil {
			return true
		}
		select {
		case <-t.Context().Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// needs skips a test whose programs are missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		found := false
		for _, d := range strings.Split(strings.TrimPrefix(environment("")[0], "PATH="), ":") {
			if _, err := os.Stat(filepath.Join(d, p)); err == nil {
				found = true
			}
		}
		if !found {
			t.Skipf("%s is not installed", p)
		}
	}
}

// self puts a copy of this test binary at path, so that it exists inside.
func self(t *testing.T, path string) string {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// long asks for the whole of what is run a second time (make long).
var long = os.Getenv("CLEANRUN_LONG") != ""

// TestAsOrdinaryUser runs the whole file set again without any privilege.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("already an ordinary user")
	}
	if testing.Short() {
		t.Skip("the second run, as an ordinary user, is left out with -short")
	}
	needs(t, "setpriv")
	dir, err := os.MkdirTemp("/srv", "cleanrun-user-")
	if err != nil {
		t.Skipf("no world-accessible folder: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(tmp, 0o755), os.Chown(tmp, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	bin := self(t, filepath.Join(dir, "sandbox.test"))
	const user = "12345"
	args := []string{"--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", bin,
		"-test.run=^Test(Workload|RT|Sandbox|Incident)", "-test.v", "-test.timeout=10m"}
	if !long { // root has built it already
		args = append(args, "-test.skip=^TestWorkload$/^go$|^TestIncident20_Killed|^TestIncident15_GoTest")
	}
	cmd := exec.Command("setpriv", args...)
	cmd.Dir = tmp
	cmd.Env = []string{environment("")[0], "HOME=" + tmp, "TMPDIR=" + tmp, baseVar + "=" + tmp, userVar + "=1"}
	out, err := cmd.CombinedOutput()
	passed := len(regexp.MustCompile(`(?m)^\s*--- PASS`).FindAll(out, -1))
	if err != nil || passed < 10 {
		t.Errorf("as user %s: %v, %d passed, want at least 10\n%s", user, err, passed, out)
	}
	for _, l := range bytes.Split(out, []byte("\n")) {
		if bytes.Contains(l, []byte("SKIP")) {
			t.Logf("as user: %s", l)
		}
	}
	t.Logf("as user %s: %d tests passed", user, passed)
}
