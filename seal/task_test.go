package seal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

const fullTask = taskHead + `period: "2026-1"
reference:
  - path: solution/**/*.py
    root: solution
  - path: other/parser.py
    replaces: src/parser.py
  - patch: fix.diff
tests:
  - path: hidden/test_*.py
canaries: [one, two]
tokens:
  - three
scope:
  workspace: read
  grants:
    - path: /opt/data
      mode: read-one
    - path: /opt/cache
      mode: write
channels:
  stdin: model
`

func TestParseTask(t *testing.T) {
	task, err := ParseTask("task.yaml", []byte(fullTask))
	if err != nil {
		t.Fatal(err)
	}
	if task.Benchmark != "bench-1" || task.ID != "repair-parser-77" || task.Period != "2026-1" ||
		!strings.HasPrefix(task.Prompt.Inline, "The parser") || task.Workspace.Value != "workspace" {
		t.Errorf("got %+v", task)
	}
	if len(task.Reference) != 3 || task.Reference[1].Replaces != "src/parser.py" || !task.Reference[2].Patch || task.Reference[0].Root != "solution" {
		t.Errorf("got reference %+v", task.Reference)
	}
	if p := task.Reference[2].Pattern; p.Line != 13 || p.Item != "reference[2].patch" {
		t.Errorf("got the patch at line %d, item %s, want 13, reference[2].patch", p.Line, p.Item)
	}
	want := contraband.Scope{Workspace: 0, Grants: []contraband.Grant{{Path: "/opt/cache", Mode: 1}, {Path: "/opt/data", Mode: 2}}}
	if task.Scope.Workspace != want.Workspace || !slices.Equal(task.Scope.Grants, want.Grants) {
		t.Errorf("got scope %+v, want %+v", task.Scope, want)
	}
	if !slices.Equal(task.Channels, []contraband.Channel{{Name: "stdin", Role: "model"}}) {
		t.Errorf("got channels %+v", task.Channels)
	}
}

// The example of the specification is a task file.
func TestSpecExample(t *testing.T) {
	spec, err := os.ReadFile("../spec/task.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(spec), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	task, err := ParseTask("task.yaml", []byte(example))
	if err != nil || len(task.Reference) != 3 || len(task.Commands) != 1 || len(task.Scope.Grants) != 2 {
		t.Fatalf("got %+v, %v", task, err)
	}
	if f := task.Footprint; f == nil || !f.Gate || !slices.Equal(f.Allowed, []string{"answer.txt", "src/**"}) {
		t.Errorf("got footprint %v", f)
	}
	if e := task.Expect; e == nil || e.want.Read != "/srv/skills/health/SKILL.md" || e.Plant.Value != "SKILL.md" || e.want.File != "answer.txt" || e.want.Line == "" {
		t.Errorf("got expect %+v", e)
	}
}

// Each case has one fault; the error names its line and item.
func TestParseTaskRefuses(t *testing.T) {
	if _, err := ParseTask("task.yaml", []byte(taskHead)); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, c := range []struct {
		name, text string
		line       int
		item, part string
	}{
		{"grade without a command", taskHead + "grade: {reward: stdout}\n", 7, "grade", "want command"},
		{"unknown reward", taskHead + "grade:\n  command: x\n  reward: guess\n", 9, "grade.reward", "want one of exit-code, stdout, file"},
		{"reward folder without a file", taskHead + "grade:\n  command: x\n  reward_dir: /r\n", 7, "grade", "want one exactly for rule file"},
		{"tests at a relative path", taskHead + "grade:\n  command: x\n  tests: tests\n", 7, "grade", "want a clean absolute path"},
		{"guard outside", taskHead + "grade:\n  command: x\n  guard: [../a]\n", 7, "grade", "a clean path"},
		{"empty command", taskHead + "setup: []\n", 7, "setup", "empty list"},
		{"unknown key", taskHead + "refrence: []\n", 7, "refrence", "unknown key; did you mean reference?"},
		{"unknown inner key", taskHead + "tests:\n  - path: a\n    glob: b\n", 9, "tests[0].glob", "unknown key, want one of path, patch, root, replaces"},
		{"key twice", taskHead + "task: again\n", 7, "", ""},
		{"inner key twice", taskHead + "tests:\n  - path: a\n    path: b\n", 9, "", ""},
		{"no benchmark", strings.Replace(taskHead, "benchmark: bench-1\n", "", 1), 0, "benchmark", "missing"},
		{"no prompt", "benchmark: b\ntask: t\nworkspace: w\n", 0, "prompt", "missing"},
		{"number", strings.Replace(taskHead, "task: repair-parser-77", "task: 77", 1), 2, "task", "put it in quotes"},
		{"nothing", strings.Replace(taskHead, "task: repair-parser-77", "task:", 1), 2, "task", "want a string"},
		{"boolean", taskHead + "signals: [true]\n", 7, "signals[0]", "put it in quotes"},
		{"empty string", taskHead + "signals: ['']\n", 7, "signals[0]", "empty"},
		{"empty list", taskHead + "signals: []\n", 7, "signals", "empty list"},
		{"string for a list", taskHead + "signals: done\n", 7, "signals", "want a list"},
		{"entry twice", taskHead + "signals:\n  - done\n  - done\n", 9, "signals[1]", "of line 8 again"},
		{"path and patch", taskHead + "tests:\n  - path: a\n    patch: b\n", 9, "tests[0].patch", "both path and patch"},
		{"neither", taskHead + "tests:\n  - root: a\n", 8, "tests[0]", "neither path nor patch"},
		{"patch with root", taskHead + "tests:\n  - patch: a\n    root: b\n", 8, "tests[0]", "beside patch"},
		{"replaces outside", taskHead + "tests:\n  - path: a\n    replaces: ../b\n", 9, "tests[0].replaces", "relative to the workspace"},
		{"workspace mode", taskHead + "scope:\n  workspace: all\n", 8, "scope.workspace", "want one of read, write"},
		{"relative grant", taskHead + "scope:\n  grants:\n    - path: data\n      mode: read\n", 9, "scope.grants[0].path", "absolute"},
		{"grant without mode", taskHead + "scope:\n  grants:\n    - path: /data\n", 9, "scope.grants[0]", "want path and mode"},
		{"grant twice", taskHead + "scope:\n  grants:\n    - {path: /d, mode: read}\n    - {path: /d, mode: write}\n", 10, "scope.grants[1]", "again"},
		{"unknown channel", taskHead + "channels:\n  stderr: model\n", 8, "channels.stderr", "unknown key"},
		{"unknown role", taskHead + "channels:\n  stdin: user\n", 8, "channels.stdin", "want one of model, driver"},
		{"anchor", taskHead + "signals: &a [x]\n", 7, "signals", "anchor"},
		{"alias", taskHead + "signals: [x]\ncommands: *a\n", 8, "", ""},
		{"tag", taskHead + "signals: !mine [x]\n", 7, "signals", "tag"},
		{"merge", taskHead + "scope:\n  <<: {workspace: read}\n", 8, "", ""},
		{"byte order mark", "\xef\xbb\xbf" + taskHead, 0, "", "byte order mark"},
		{"not UTF-8", taskHead + "# \xff\n", 0, "", "not UTF-8"},
		{"control character", taskHead + "# \x00\n", 7, "", "control character"},
		{"two documents", taskHead + "---\n" + taskHead, 0, "", "2 YAML documents"},
		{"empty", "", 0, "", ""},
		{"a list", "- a\n", 1, "", "want a mapping"},
		{"no YAML", "a: [\n", 0, "", ""},
		{"line break in a name", strings.Replace(taskHead, "task: repair-parser-77", `task: "a\nb"`, 1), 2, "task", "one line"},
	} {
		_, err := ParseTask("task.yaml", []byte(c.text))
		var bad *TaskError
		if !errors.As(err, &bad) || bad.File != "task.yaml" || c.line > 0 && bad.Line != c.line || c.item != "" && bad.Item != c.item || !strings.Contains(bad.Problem, c.part) {
			t.Errorf("%s: got %v, want line %d, item %q, %q", c.name, err, c.line, c.item, c.part)
		}
	}
}

// TestKeys: what is offered in place of an unknown key is a key.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		under string
		keys  []string
	}{
		{"%s: 1", taskKeys}, {"scope: {%s: 1}", []string{"workspace", "grants"}}, {"scope: {grants: [{%s: 1}]}", []string{"path", "mode"}},
		{"prompt: {%s: 1}", []string{"file"}}, {"tests: [{%s: x}]", []string{"path", "patch", "root", "replaces"}}, {"channels: {%s: 1}", streams},
		{"grade: {%s: 1}", []string{"command", "tests", "reward", "reward_dir", "guard"}}, {"footprint: {%s: 1}", []string{"allow", "outside"}},
		{"expect: {%s: 1}", []string{"read", "plant", "line", "reply"}}, {"expect: {reply: {%s: 1}}", []string{"file", "transcript"}},
		{"expect: {reply: {transcript: {%s: 1}}}", []string{"file", "agent", "channel"}},
	} {
		_, err := ParseTask("task.yaml", fmt.Appendf(nil, c.under, "frobnication"))
		if want := "unknown key, want one of " + strings.Join(c.keys, ", "); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", c.under, err, want)
		}
		for _, key := range c.keys {
			if _, err := ParseTask("task.yaml", fmt.Appendf(nil, c.under, key)); err != nil && strings.Contains(err.Error(), "unknown key") {
				t.Errorf(c.under+": %v", key, err)
			}
		}
	}
}

// What is declared and cannot be read, or is found twice, is refused by name.
func TestLoadRefuses(t *testing.T) {
	load(t, sampleFiles())
	for _, c := range []struct {
		name, tail string
		line       int
		item, part string
	}{
		{"empty glob", "tests:\n  - path: hidden/*.rb\n", 8, "tests[0].path", "no file"},
		{"missing file", "tests:\n  - path: hidden/absent.py\n", 8, "tests[0].path", "no file"},
		{"a folder", "tests:\n  - path: hidden\n", 8, "tests[0].path", "no file"},
		{"bad pattern", "tests:\n  - path: 'hidden/[a'\n", 8, "tests[0].path", "pattern"},
		{"file twice", "reference:\n  - path: hidden/test_nested.py\ntests:\n  - path: hidden/test_*.py\n", 10, "tests[0].path", "first by reference[0].path on line 8"},
		{"missing pre-image", "reference:\n  - path: solution/app.py\n    replaces: gone.py\n", 8, "reference[0].path", "pre-image"},
		{"two files for a pre-image", "reference:\n  - path: solution/**/*.py\n    replaces: app.py\n", 8, "reference[0].path", "2 files for one pre-image"},
		{"outside its root", "reference:\n  - path: hidden/test_nested.py\n    root: solution\n", 8, "reference[0].path", "not below the root"},
		{"short canary", "canaries: [abc]\n", 7, "canaries[0]", "at least 24"},
		{"dull canary", "canaries: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n", 7, "canaries[0]", "8 kinds"},
	} {
		files := sampleFiles()
		files["task.yaml"] = taskHead + c.tail
		m, err := Load(filepath.Join(folder(t, files), "task.yaml"))
		if err == nil {
			_, _, err = Build(m, auditKey(t), testControl)
		}
		var bad *TaskError
		if !errors.As(err, &bad) || bad.Line != c.line || bad.Item != c.item || !strings.Contains(bad.Problem, c.part) {
			t.Errorf("%s: got %v, want line %d, item %q, %q", c.name, err, c.line, c.item, c.part)
		}
	}
	for name, edit := range map[string]func(files map[string]string){
		"no workspace": func(f map[string]string) {
			f["task.yaml"] = strings.Replace(taskHead, "workspace: workspace", "workspace: nowhere", 1)
		},
		"no prompt file": func(f map[string]string) { setPrompt(f, ""); delete(f, "prompt.md") },
	} {
		files := sampleFiles()
		edit(files)
		var bad *TaskError
		if _, err := Load(filepath.Join(folder(t, files), "task.yaml")); !errors.As(err, &bad) || bad.Line == 0 {
			t.Errorf("%s: got %v, want it refused with its line", name, err)
		}
	}
}

func TestUnreadableFileIsRefused(t *testing.T) {
	dir := folder(t, sampleFiles())
	name := filepath.Join(dir, "hidden/test_nested.py")
	if err := os.Chmod(name, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(name); err == nil {
		f.Close()
		// Root reads everything: a link to nowhere cannot be read by anybody.
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", name); err != nil {
			t.Fatal(err)
		}
	}
	var bad *TaskError
	if _, err := Load(filepath.Join(dir, "task.yaml")); !errors.As(err, &bad) || bad.Item != "tests[0].path" {
		t.Errorf("got %v, want the unreadable test refused by name", err)
	}
}

func TestHidden(t *testing.T) {
	dir, err := filepath.EvalSymlinks(folder(t, sampleFiles()))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(filepath.Join(dir, "task.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Task.Hidden()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "task.yaml", "hidden", "hidden/test_nested.py", "solution", "solution/app.py", "solution/pkg/extra.py"} {
		if !slices.Contains(got, filepath.Join(dir, name)) {
			t.Errorf("%q is not among the hidden paths", name)
		}
	}
	if slices.Contains(got, filepath.Join(dir, "workspace")) {
		t.Error("the workspace is among the hidden paths")
	}
	// On a runner's machine without the ground truth, what is there is listed.
	if err := os.RemoveAll(filepath.Join(dir, "solution")); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Task.Hidden(); err != nil || slices.Contains(got, filepath.Join(dir, "solution")) || !slices.Contains(got, filepath.Join(dir, "hidden")) {
		t.Errorf("got %q, %v, want what is there", got, err)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add([]byte(fullTask))
	f.Add([]byte(taskHead + "signals: &a [x]\ncommands: *a\n"))
	f.Add([]byte("a: {b: [c, d], <<: *x}\n"))
	f.Add([]byte(taskHead + expectKeys + "footprint: {allow: ['**', /srv/*], outside: dirty}\n"))
	f.Add([]byte(taskHead + "expect: {read: /a, plant: b, reply: {transcript: {file: t, agent: a, channel: c}}}\nfootprint: {allow: []}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		task, err := ParseTask("task.yaml", data)
		var bad *TaskError
		if err != nil {
			if task != nil || !errors.As(err, &bad) || bad.Problem == "" {
				t.Errorf("got %v with %v, want a TaskError alone", task, err)
			}
			return
		}
		if !contraband.CheckName(task.Benchmark) || !contraband.CheckName(task.ID) || task.Workspace.Value == "" || task.Prompt == (Prompt{}) {
			t.Errorf("accepted an incomplete task: %+v", task)
		}
	})
}

// The lines of a diff's runs are forms of lines that it adds, and a run is as a
// reader of the whole sees it.
func FuzzPatch(f *testing.F) {
	f.Add([]byte("--- a\n+++ b\n@@ -1,2 +1,3 @@\n a\n+b\n c\n"))
	f.Add([]byte("@@ -0,0 +1,3 @@\n+cafe\u0301 \xe2\n+\u0301x\r\n+\ufdfa\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := patchRuns(data)
		if err != nil {
			return
		}
		added := map[string]bool{}
		for _, line := range strings.Split(string(data), "\n") {
			if rest, ok := strings.CutPrefix(line, "+"); ok {
				added[string(canon.Canonical([]byte(rest)))] = true
			}
		}
		n := 0
		for _, r := range runs {
			for _, form := range r.lines {
				if n++; !added[string(form)] {
					t.Errorf("got the line %q, which the diff does not add", form)
				}
			}
			if joined := bytes.Join(r.lines, nil); !bytes.Equal(joined, r.form) {
				t.Errorf("got the run %q, want its lines %q", r.form, joined)
			}
		}
		if n > strings.Count(string(data), "+") {
			t.Errorf("got %d lines, more than the diff adds", n)
		}
	})
}

// The form of lines, joined, is the form of the text: what sealing cuts is what
// a scanner meets.
func FuzzFormOfLines(f *testing.F) {
	f.Add([]byte("cafe\u0301\n\u0301x\n\xe2\n\x82\xac\r\n\ufdfa\nA\u030a"))
	f.Add([]byte(strings.Repeat("\u0300", 40) + "\n" + strings.Repeat("\u0301", 40)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(runner)
		for _, line := range splitLines(data) {
			r.add(line, nil)
		}
		r.end()
		var got []byte
		for _, run := range r.runs {
			got = append(got, run.form...)
		}
		if want := canon.Canonical(data); !bytes.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What a data file gives is a diff, or else a file; what is almost a diff is
// refused.
func TestGive(t *testing.T) {
	diff := "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"
	task := NewRow("d.jsonl", t.TempDir(), []byte("row"))
	for _, c := range []struct {
		text  string
		patch bool
		want  string // of the error
	}{
		{diff, true, ""},
		{"plain text\n+ with a sign\n", false, ""},
		{"--- a/x\n+++ b/x\n@@ -1,2 +1,9 @@\n x\n", false, "d.jsonl:3: patch: got what looks like a unified diff and is none"},
	} {
		n := len(task.given)
		err := task.Give(contraband.KindReference, Text{Value: c.text, Item: "patch", Line: 3})
		switch {
		case c.want != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || len(task.given) != n {
				t.Errorf("%q: got %v, want %s", c.text, err, c.want)
			}
		case err != nil || len(task.given) != n+1 || task.given[n].patch != c.patch:
			t.Errorf("%q: got %v, want patch %v", c.text, err, c.patch)
		}
	}
}
