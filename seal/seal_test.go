package seal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/views"
)

var prose = fixture.Prose

// folder writes files below a new folder and returns it.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const taskHead = `benchmark: bench-1
task: repair-parser-77
title: Repair the parser so that nested lists survive a round trip
prompt: |
  The parser drops nested lists. Repair it and run the tests.
workspace: workspace
`

const canary = "cleanrun-canary-5b1f0e7ac94d4e0f8a63"

// sampleFiles are a task with a solution, a repaired file, a hidden test, a
// canary, a token and phrases.
func sampleFiles() map[string]string {
	app := prose(1, 60)
	return map[string]string{
		"task.yaml": taskHead + `reference:
  - path: solution/**/*.py
    root: solution
tests:
  - path: hidden/test_*.py
canaries:
  - ` + canary + `
tokens:
  - q7x9-k2m4-p8w3-z5t1
signals:
  - all nested lists survived the round trip
commands:
  - python3 -m unittest --verbose hidden.test_nested_lists hidden.test_flat_lists
`,
		"workspace/app.py":        app,
		"workspace/README.md":     prose(2, 30),
		"solution/app.py":         strings.Replace(app, "\n", "\n"+prose(3, 12), 1),
		"solution/pkg/extra.py":   prose(4, 80),
		"hidden/test_nested.py":   prose(5, 120) + "# " + canary + "\n",
		"hidden/unlisted_file.py": prose(6, 10),
	}
}

var testControl = func() string {
	c, err := NewControl(bytes.NewReader([]byte(prose(1000, 400))))
	if err != nil {
		panic(err)
	}
	return c
}()

func auditKey(t testing.TB) contraband.AuditKey {
	t.Helper()
	k, err := contraband.NewAuditKey([]byte("0123456789abcdefghijklmnopqrstuv"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func load(t testing.TB, files map[string]string) *Material {
	t.Helper()
	m, err := Load(filepath.Join(folder(t, files), "task.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A sealed task and the matching that a verifier does.
type sealed struct {
	set *contraband.Set
	sum *Summary
	key contraband.TaskKey
}

func build(t testing.TB, files map[string]string) sealed {
	t.Helper()
	set, sum, err := Build(load(t, files), auditKey(t), testControl)
	if err != nil {
		t.Fatal(err)
	}
	key, err := auditKey(t).TaskFor(set)
	if err != nil {
		t.Fatal(err)
	}
	return sealed{set, sum, key}
}

// match returns the classes whose threshold some group reaches, and how many
// distinct items were met at all.
func (s sealed) match(t testing.TB, content []byte, text bool) (reached map[contraband.Class]bool, met int) {
	t.Helper()
	seen := map[[32]byte]bool{}
	emit := func(_ contraband.Class, d [32]byte) { seen[d] = true }
	f := canon.New(s.key, s.set.Filter)
	f.Object(content, text, emit)
	views.Each(content, func(v views.View) { f.Object(v.Content, text, emit) })
	reached = map[contraband.Class]bool{}
	for _, g := range s.set.Groups {
		n := uint32(0)
		for i := 0; i < len(g.Items); i += 32 {
			if seen[[32]byte(g.Items[i:])] {
				n++
			}
		}
		if met += int(n); n >= g.Threshold {
			reached[g.Class] = true
		}
	}
	return reached, met
}

func (s sealed) group(t testing.TB, source string, class contraband.Class) GroupSummary {
	t.Helper()
	for _, g := range s.sum.Groups {
		if g.Source == source && g.Class == class {
			return g
		}
	}
	t.Fatalf("no group of class %d for %s", class, source)
	return GroupSummary{}
}

func TestSealAndMatch(t *testing.T) {
	files := sampleFiles()
	s := build(t, files)
	if s.set.TooSmall() || s.set.Kept != 10 || len(s.sum.Warnings) != 0 {
		t.Errorf("got too small %v, kept %d, warnings %q, want none", s.set.TooSmall(), s.set.Kept, s.sum.Warnings)
	}
	want := func(what, content string, text bool, classes ...contraband.Class) {
		t.Helper()
		reached, met := s.match(t, []byte(content), text)
		for _, c := range classes {
			if !reached[c] {
				t.Errorf("%s: class %d is not reached (%d items met)", what, c, met)
			}
		}
		if len(classes) == 0 && met > 0 {
			t.Errorf("%s: got %d items, want none", what, met)
		}
	}
	want("hidden test", files["hidden/test_nested.py"], false, contraband.ClassRaw, contraband.ClassCanonical, contraband.ClassShingle, contraband.ClassCanary)
	want("half of it", files["hidden/test_nested.py"][:4000], false, contraband.ClassShingle)
	want("repaired file", files["solution/app.py"], false, contraband.ClassRaw, contraband.ClassShingle)
	want("its new lines", prose(3, 12), false, contraband.ClassShingle)
	want("a canary in a sentence", "see "+strings.ToUpper(canary)+"!", false, contraband.ClassCanary)
	want("the token glued to other text", "xxQ7X9-K2M4-P8W3-Z5T1", false)
	want("the token", "answer = 'Q7X9-K2M4-P8W3-Z5T1'", false, contraband.ClassAtom)
	want("command", "$ python3 -m unittest --verbose hidden.test_nested_lists hidden.test_flat_lists\n", false, contraband.ClassLine)
	if _, met := s.match(t, []byte("sh -c python3 -m unittest --verbose hidden.test_nested_lists hidden.test_flat_lists and more"), true); met == 0 {
		t.Error("command in an argument vector: no item met")
	}
	want("workspace file", files["workspace/app.py"], true)
	want("unlisted file", files["hidden/unlisted_file.py"], true)
	want("other text", prose(77, 3000), true)
	want("one shared line", "x\n"+strings.Split(files["hidden/test_nested.py"], "\n")[7]+"\ny\n", false)
}

// Only what is new of a repaired file is sealed: RT45b's reverse, a repair task
// must not collide with its own workspace.
func TestRepairTaskSealsOnlyTheNewLines(t *testing.T) {
	s := build(t, sampleFiles())
	whole := len(canon.Canonical([]byte(sampleFiles()["solution/app.py"])))
	repaired := s.group(t, "solution/app.py", contraband.ClassShingle).Items
	if added := len(canon.Canonical([]byte(prose(3, 12)))); repaired > added/15 || repaired < added/40 {
		t.Errorf("got %d shingles for %d new canonical bytes of %d, want about one in 25", repaired, added, whole)
	}
}

func TestPatch(t *testing.T) {
	files := sampleFiles()
	var diff strings.Builder
	added := strings.SplitAfter(strings.TrimSuffix(prose(9, 20), "\n"), "\n")
	first := strings.SplitN(files["workspace/app.py"], "\n", 3)
	fmt.Fprintf(&diff, "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,%d @@ def f():\n %s\n", 2+len(added), first[0])
	for _, l := range added {
		diff.WriteString("+" + strings.TrimSuffix(l, "\n") + "\n")
	}
	diff.WriteString(" " + first[1] + "\n")
	files["fix.diff"] = diff.String()
	files["task.yaml"] = taskHead + "reference:\n  - patch: fix.diff\n"
	s := build(t, files)
	if reached, _ := s.match(t, []byte(prose(9, 20)), false); !reached[contraband.ClassShingle] {
		t.Error("the added lines are not matched")
	}
	if _, met := s.match(t, []byte(files["workspace/app.py"]), false); met > 0 {
		t.Errorf("the workspace file: got %d items, want none", met)
	}
	for name, bad := range map[string]string{"no hunk": "hello\n", "cut": diff.String()[:200], "counts": strings.Replace(diff.String(), "-1,2", "-1,1", 1)} {
		files["fix.diff"] = bad
		if _, _, err := Build(load(t, files), auditKey(t), testControl); err == nil || !strings.Contains(err.Error(), "task.yaml:8: reference[0].patch: fix.diff: ") {
			t.Errorf("%s: got %v, want it refused with its place", name, err)
		}
	}
}

func TestSealIsDeterministic(t *testing.T) {
	var first []byte
	for i := range 4 {
		data, err := build(t, sampleFiles()).set.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = data
		} else if !bytes.Equal(data, first) {
			t.Fatal("the same task, key and control text give other bytes")
		}
	}
	if _, err := contraband.ParseSet(first); err != nil {
		t.Errorf("what seal made does not parse: %v", err)
	}
}

func TestControls(t *testing.T) {
	s := build(t, sampleFiles())
	n := len(s.set.Controls) / 32
	found := map[[32]byte]bool{}
	canon.New(s.key, s.set.Filter).Object([]byte(s.set.Control), false, func(c contraband.Class, d [32]byte) {
		if c == contraband.ClassShingle {
			found[contraband.Control(d)] = true
		}
	})
	for i := range n {
		if !found[[32]byte(s.set.Controls[32*i:])] {
			t.Errorf("control %d is not met by reading the control text", i)
		}
	}
	if n < 64 || len(found) != n {
		t.Errorf("got %d controls, %d met, want the same, at least 64", n, len(found))
	}
	// RT28: another key meets none.
	other := testKeyOther(t)
	canon.New(other, s.set.Filter).Object([]byte(s.set.Control), false, func(c contraband.Class, d [32]byte) {
		if found[contraband.Control(d)] {
			t.Fatal("another key meets a control")
		}
	})
	if _, _, err := Build(load(t, sampleFiles()), auditKey(t), "a short control text"); err == nil || !strings.Contains(err.Error(), "want at least 64") {
		t.Errorf("got %v, want a short control text refused", err)
	}
	if _, err := NewControl(bytes.NewReader(nil)); err == nil {
		t.Error("a control text was drawn from nothing")
	}
}

func testKeyOther(t testing.TB) contraband.TaskKey {
	t.Helper()
	return auditKey(t).Task("other", "", "other", [32]byte{}, [32]byte{})
}

func TestBitsOf(t *testing.T) {
	for token, strong := range map[string]bool{
		"q7x9k2m4p8w3z5t1": true, "4f9c2d1e8b7a": true, "1234567890123": true, // 13 digits are 43 bits
		"transaction": false, "thisisaverylongsentence": true, "12345678": false, "a1a1a1a1a1a1a1a1a1a1": false, "a1b2c3d": false,
	} {
		if bits := bitsOf([]byte(token)); bits >= minBits != strong {
			t.Errorf("%s: got %.1f bits, want strong %v", token, bits, strong)
		}
	}
}

// A repair task on real source: 60 files of the Go standard library as the
// workspace, one of them repaired. Sealing the whole file would make the honest
// reader of the workspace match; sealing what is new must not.
func TestRepairTaskOnRealSource(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(runtime.GOROOT(), "src", "net", "http", "*.go"))
	if err != nil || len(names) < 60 {
		t.Skipf("the Go source tree has %d files of net/http here, %v; 60 are needed", len(names), err)
	}
	files := map[string]string{"task.yaml": taskHead + "reference:\n  - path: solution/server.go\n    root: solution\ntests:\n  - path: hidden/new_test.go\n"}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files["workspace/"+filepath.Base(name)] = string(data)
	}
	server := files["workspace/server.go"]
	files["solution/server.go"] = strings.Replace(server, "\nimport (", "\n// "+strings.ReplaceAll(strings.TrimSpace(prose(70, 3)), "\n", "\n// ")+"\nimport (", 1)
	files["hidden/new_test.go"] = prose(71, 300)
	if files["solution/server.go"] == server {
		t.Fatal("the repair did not apply")
	}
	s := build(t, files)
	if n := s.group(t, "hidden/new_test.go", contraband.ClassShingle).Items; n < 200 {
		t.Errorf("got %d shingles, want at least 200", n)
	}
	if s.set.Kept != 10 {
		t.Errorf("got kept %d, want 10", s.set.Kept)
	}
	for name, content := range files {
		if _, met := s.match(t, []byte(content), true); met > 0 && strings.HasPrefix(name, "workspace/") {
			t.Errorf("%s: got %d items of an honest run's reading", name, met)
		}
	}
	if reached, _ := s.match(t, []byte(files["solution/server.go"]), false); !reached[contraband.ClassRaw] || !reached[contraband.ClassShingle] && !reached[contraband.ClassLine] {
		t.Errorf("the repaired file: got %v, want the object and its new lines", reached)
	}
	// Control: without its pre-image the same file gives the workspace away.
	files["task.yaml"] = taskHead + "reference:\n  - path: solution/server.go\n    root: .\n"
	var leak *LeakError
	if _, _, err := Build(load(t, files), auditKey(t), testControl); !errors.As(err, &leak) || leak.Object != "server.go" {
		t.Errorf("control: got %v, want server.go refused", err)
	}
}
