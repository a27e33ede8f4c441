package benchmark

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/seal"
)

func TestRowsGiveTasks(t *testing.T) {
	dir, rows := rowsFolder(t, fixture.Rows{Tasks: 3, Lines: 20, Seed: 9})
	b := loadBenchmark(t, dir)
	if b.Name != "rows" || b.Revision != "1" || len(b.IDs()) != 3 {
		t.Fatalf("got %+v", b)
	}
	task, err := b.Task(rows[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := task.PromptText()
	if err != nil || string(prompt) != rows[1].Problem {
		t.Errorf("got prompt %q, %v", prompt, err)
	}
	if want := filepath.Join(dir, "repos", rows[1].ID); task.WorkspacePath() != want {
		t.Errorf("got workspace %q, want %q", task.WorkspacePath(), want)
	}
	p := task.Phases
	if p == nil || !slices.Equal(p.Grade, []string{"sh", "-c", `test "$(cat src/reward)" = ok`}) || p.Reward != "exit-code" || p.Tests != "/cleanrun/tests" {
		t.Errorf("got phases %+v", p)
	}
	hidden, err := task.Hidden()
	if err != nil || !slices.Contains(hidden, filepath.Join(dir, "tasks.jsonl")) || !slices.Contains(hidden, filepath.Join(dir, "benchmark.yaml")) {
		t.Errorf("got hidden %q, %v", hidden, err)
	}
	stage := t.TempDir()
	if err := task.StageTests(stage); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"test_patch.diff": rows[1].TestPatch, "FAIL_TO_PASS.txt": rows[1].FailPass} {
		if got, err := os.ReadFile(filepath.Join(stage, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if _, err := b.Task("invented__lib-0000"); err == nil || !strings.Contains(err.Error(), `such as "invented__lib-00000"`) {
		t.Errorf("got %v, want a name that is there", err)
	}
	m, err := task.Load()
	if err != nil {
		t.Fatal(err)
	}
	set, _, err := seal.Build(m, auditKey(t), prose(8, 120))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[contraband.Kind]uint32{}
	for _, c := range set.Sources {
		sources[c.Kind] = c.N
	}
	if sources[contraband.KindReference] != 2 || sources[contraband.KindTest] != 2 {
		t.Errorf("got sources %v, want two of reference and two of tests", sources)
	}
}

// Rows beyond what is held in memory are read again, and must be as they were.
func TestRowsAreReadAgain(t *testing.T) {
	dir, rows := rowsFolder(t, fixture.Rows{Tasks: 2, Lines: 20, Seed: 9})
	b, sources, err := parseBenchmark(filepath.Join(dir, "benchmark.yaml"), []byte(fixture.BenchmarkYAML))
	if err != nil {
		t.Fatal(err)
	}
	b.kept = maxKept
	if err := sources[0].list(b); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.index(); err != nil {
		t.Fatal(err)
	}
	task, err := b.Task(rows[1].ID)
	if err != nil || task.Prompt.Inline != rows[1].Problem {
		t.Fatalf("got %v, %v", task, err)
	}
	name := filepath.Join(dir, "tasks.jsonl")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), "Case 1", "Case 9", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Task(rows[1].ID); err == nil || !strings.Contains(err.Error(), "tasks.jsonl:2: the data file changed") {
		t.Errorf("got %v", err)
	}
}

const rowsHead = "benchmark: b\ntasks:\n  - jsonl: d.jsonl\n    fields:\n      id: id\n      prompt: p\n"

// Each data set has one fault, which is named with file, line and column.
func TestBenchmarkErrors(t *testing.T) {
	row := `{"id":"a","p":"do","sol":"x","ws":"ws"}` + "\n"
	for name, c := range map[string]struct{ yaml, rows, want string }{
		"no tasks":                    {"benchmark: b\n", row, "want benchmark, the name, and tasks"},
		"empty list":                  {"benchmark: b\ntasks: []\n", row, "tasks: got an empty list"},
		"unknown key":                 {"benchmark: b\ncolour: red\ntasks:\n  - folder: x\n", row, "benchmark.yaml:2: colour: unknown key, want one of setup, grade, scope, channels, footprint, benchmark, period, revision, overlap, tasks"},
		"misspelt key":                {"benchmark: b\nrevison: red\ntasks:\n  - folder: x\n", row, "benchmark.yaml:2: revison: unknown key; did you mean revision?"},
		"unknown key of a source":     {"benchmark: b\ntasks:\n  - folder: x\n    colour: red\n", row, "tasks[0].colour: unknown key"},
		"two kinds":                   {"benchmark: b\ntasks:\n  - folder: x\n    harbor: y\n", row, "got 2 of folder, jsonl and harbor, want one"},
		"no folder":                   {"benchmark: b\ntasks:\n  - folder: x\n", row, `cannot read the folder "x"`},
		"no task in the folder":       {"benchmark: b\ntasks:\n  - folder: .\n", row, "got no task.yaml in a folder of"},
		"no fields":                   {"benchmark: b\ntasks:\n  - jsonl: d.jsonl\n", row, "want fields"},
		"unknown field":               {rowsHead + "      answer: sol\n    workspaces: '{ws}'\n", row, "fields.answer: unknown key"},
		"two ids":                     {"benchmark: b\ntasks:\n  - jsonl: d.jsonl\n    fields:\n      id: [id, p]\n      prompt: p\n    workspaces: '{ws}'\n", row, "got 2 columns, want one"},
		"a column twice":              {rowsHead + "      reference: [sol]\n      hidden_tests: [sol]\n    workspaces: '{ws}'\n", row, `got the column "sol", which is reference already`},
		"no workspace":                {rowsHead, row, "want workspaces, a pattern"},
		"two workspaces":              {rowsHead + "      workspace: ws\n    workspaces: '{ws}'\n", row, "and not both"},
		"open brace":                  {rowsHead + "    workspaces: 'a{ws'\n", row, "want text and {column}"},
		"workspace outside":           {rowsHead + "    workspaces: '{ws}'\n", `{"id":"a","p":"do","ws":"../x"}` + "\n", "want a clean path that stays below"},
		"absolute workspace":          {rowsHead + "      workspace: ws\n", `{"id":"a","p":"do","ws":"/etc"}` + "\n", "d.jsonl:1: ws: got the workspace"},
		"missing column":              {rowsHead + "      reference: [patch]\n    workspaces: '{ws}'\n", row, "d.jsonl:1: patch: the row has no such column"},
		"missing in a pattern":        {rowsHead + "    workspaces: '{repo}'\n", row, "d.jsonl:1: repo: the row has no such column"},
		"no object":                   {rowsHead + "    workspaces: '{ws}'\n", row + "[1]\n", "d.jsonl:2: got no JSON object"},
		"an empty line":               {rowsHead + "    workspaces: '{ws}'\n", row + "\n" + row, "d.jsonl:2: got an empty line"},
		"cut short":                   {rowsHead + "    workspaces: '{ws}'\n", row + `{"id":"b","p"`, "d.jsonl:2: "},
		"two objects":                 {rowsHead + "    workspaces: '{ws}'\n", strings.TrimSpace(row) + row, "got more than one value on the line"},
		"a column again":              {rowsHead + "    workspaces: '{ws}'\n", `{"id":"a","p":"do","ws":"ws","p":"x"}` + "\n", "d.jsonl:1: p: got the column again"},
		"a number for a prompt":       {rowsHead + "    workspaces: '{ws}'\n", `{"id":"a","p":1.5,"ws":"ws"}` + "\n", `d.jsonl:1: p: got "1.5", want a text`},
		"an object as reference":      {rowsHead + "      reference: [sol]\n    workspaces: '{ws}'\n", `{"id":"a","p":"do","ws":"ws","sol":{"x":1}}` + "\n", "d.jsonl:1: sol: got"},
		"an empty id":                 {rowsHead + "    workspaces: '{ws}'\n", `{"id":" ","p":"do","ws":"ws"}` + "\n", "d.jsonl:1: id: got an empty text"},
		"an id of two lines":          {rowsHead + "    workspaces: '{ws}'\n", `{"id":"a\nb","p":"do","ws":"ws"}` + "\n", "d.jsonl:1: id: got the task name"},
		"one id twice":                {rowsHead + "    workspaces: '{ws}'\n", row + row, "d.jsonl:2: got the task \"a\" again, first at "},
		"half a surrogate":            {rowsHead + "    workspaces: '{ws}'\n", `{"id":"a","p":"do \ud83d now","ws":"ws"}` + "\n", "half of a surrogate pair"},
		"no UTF-8":                    {rowsHead + "    workspaces: '{ws}'\n", "{\"id\":\"a\",\"p\":\"\xff\",\"ws\":\"ws\"}\n", "d.jsonl:1: got bytes that are not UTF-8"},
		"a broken diff":               {rowsHead + "      reference: [sol]\n    workspaces: '{ws}'\n", `{"id":"a","p":"do","ws":"ws","sol":"--- a/x\n+++ b/x\n@@ -1,2 +1,9 @@\n x\n"}` + "\n", "d.jsonl:1: sol: got what looks like a unified diff and is none"},
		"a grader without a command":  {rowsHead + "    workspaces: '{ws}'\n    grade: {reward: stdout}\n", row, "tasks[0].grade: want command"},
		"a reward folder for nothing": {rowsHead + "    workspaces: '{ws}'\n    grade: {command: x, reward_dir: /r}\n", row, "want one exactly for rule file"},
		"all rows at once":            {rowsHead + "    workspaces: '{ws}'\n", "x\ny\n", "d.jsonl:2: got no JSON object"},
	} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"benchmark.yaml": c.yaml, "d.jsonl": c.rows, "ws/a": "a", "sub/x": ""})
		b, err := Load(filepath.Join(dir, "benchmark.yaml"))
		if err == nil {
			b.Close()
		}
		var bad *seal.TaskError
		if err == nil || !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	// The same data without a fault.
	dir := t.TempDir()
	put(t, dir, map[string]string{"benchmark.yaml": rowsHead + "      reference: sol\n    workspaces: '{ws}'\n", "d.jsonl": strings.TrimSuffix(row, "\n"), "ws/a": "a"})
	if b := loadBenchmark(t, dir); len(b.IDs()) != 1 {
		t.Errorf("got %q", b.IDs())
	}
}

// A row is bounded: what follows is not read.
func TestRowIsBounded(t *testing.T) {
	long := io.MultiReader(strings.NewReader("short\n"), strings.NewReader(strings.Repeat("x", MaxRow+10)))
	n := 0
	err := eachRow("d.jsonl", bufio.NewReaderSize(long, 1<<16), func(line int, offset int64, text []byte) {
		if n++; line != 1 || offset != 0 || string(text) != "short" {
			t.Errorf("got line %d at %d, %d bytes", line, offset, len(text))
		}
	})
	if err == nil || n != 1 || !strings.Contains(err.Error(), "d.jsonl:2: got a row of over") {
		t.Errorf("got %v after %d rows", err, n)
	}
}

// A whole number is an id, as it is spelled; \ud83d\ude00 is one character.
func TestRowValues(t *testing.T) {
	r, err := parseRow("f", 1, []byte(`{"id": 17, "e": "\ud83d\ude00 \\ud83d \ufffd", "l": ["a", "b"], "n": null, "z": "", "f": 1.5}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.single("id"); got != "17" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := r.single("e"); got != "😀 \\ud83d \ufffd" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := r.several("l"); fmt.Sprint(got) != "[{a l[0] 1} {b l[1] 1}]" || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, c := range []string{"n", "z"} {
		if got, err := r.several(c); got != nil || err != nil {
			t.Errorf("%s: got %v, %v", c, got, err)
		}
	}
	if _, err := r.single("f"); err == nil {
		t.Error("1.5 is no id")
	}
}

// Columns that sound like answers and are named by no field are said by name,
// and so are empty ones: nothing is left out silently.
func TestColumnsAreNotLeftOutSilently(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"benchmark.yaml": rowsHead + "      reference: [solution]\n    workspaces: '{ws}'\n", "ws/a": "a",
		"d.jsonl": `{"id":"a","p":"do","ws":"ws","solution":"x","hints_text":"h","test_patch":"t","created_at":"now","answerId":"7"}` + "\n" +
			`{"id":"b","p":"do","ws":"ws","solution":null,"hints_text":"h"}` + "\n",
	})
	got := loadBenchmark(t, dir).Warnings
	want := []string{
		`column "hints_text" sounds like an answer or a hint, and no field names it: it is not sealed (2 of 2 rows)`,
		`column "test_patch" sounds like an answer or a hint, and no field names it: it is not sealed (1 of 2 rows)`,
		`column "solution" is empty in 1 of 2 rows: nothing of it is sealed there`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestHarbor(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: h\ntasks:\n  - harbor: tasks\n"})
	for i := range 3 {
		put(t, filepath.Join(dir, "tasks", fmt.Sprintf("queue-%d", i)), harborTask(uint64(i)))
	}
	put(t, dir, map[string]string{"tasks/shared/readme.md": "no task"})
	b := loadBenchmark(t, dir)
	if !slices.Equal(b.IDs(), []string{"queue-0", "queue-1", "queue-2"}) || len(b.Warnings) != 1 || !strings.Contains(b.Warnings[0], "shared: no task.toml: not a task") {
		t.Fatalf("got %q, %q", b.IDs(), b.Warnings)
	}
	task, err := b.Task("queue-1")
	if err != nil {
		t.Fatal(err)
	}
	want := contraband.Phases{Grade: []string{"bash", "/tests/test.sh"}, Tests: "/tests", Reward: "file", RewardDir: "/logs/verifier"}
	if p := task.Phases; p == nil || fmt.Sprint(*p) != fmt.Sprint(want) {
		t.Errorf("got %+v", p)
	}
	stage := t.TempDir()
	if err := task.StageTests(stage); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(stage, "test.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("test.sh: %v, %v", info, err)
	}
	file, built := sealAll(t, b, nil)
	// The three share the script that starts their tests, which is said, and no
	// reason to refuse them.
	if built.Head.Tasks != 3 || !slices.ContainsFunc(built.Warnings, func(w string) bool { return strings.Contains(w, "2 tasks share tests or canaries") }) {
		t.Errorf("got %d tasks, %q", built.Head.Tasks, built.Warnings)
	}
	set, _, err := openSealed(t, file).Set("queue-1")
	if err != nil || set.Phases == nil || set.Phases.RewardDir != "/logs/verifier" {
		t.Errorf("got %+v, %v", set, err)
	}
	for name, c := range map[string]struct {
		file, content string
		want          string
	}{
		"TOML":           {"task.toml", "a = \n", "task.toml:1: "},
		"no instruction": {"instruction.md", "", "instruction.md: cannot read the prompt"},
		"no test":        {"tests/test.sh", "", "got no tests/test.sh"},
		"no environment": {"environment", "", "got no folder environment"},
	} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"benchmark.yaml": "benchmark: h\ntasks:\n  - harbor: tasks\n"})
		put(t, filepath.Join(dir, "tasks", "q"), harborTask(1))
		p := filepath.Join(dir, "tasks", "q", c.file)
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
		if c.content != "" {
			put(t, filepath.Join(dir, "tasks", "q"), map[string]string{c.file: c.content})
		}
		if _, err := Load(filepath.Join(dir, "benchmark.yaml")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// Keys of benchmark.yaml hold for tasks that do not state them.
func TestCommonKeys(t *testing.T) {
	dir := folderOfTasks(t, 2)
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: bench-1\nsetup: make\nscope: {workspace: read}\nchannels: {stdin: model}\ntasks:\n  - folder: tasks\n" +
		"    grade:\n      command: [sh, check.sh]\n      reward: stdout\n      guard: [z.txt, a/b]\n"})
	own, err := os.ReadFile(filepath.Join(dir, "tasks", "tb", "task.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"tasks/tb/task.yaml": string(own) + "grade:\n  command: true\n  tests: /t\nscope: {workspace: write}\n"})
	if _, err := Load(filepath.Join(dir, "benchmark.yaml")); err == nil || !strings.Contains(err.Error(), "grade.command: got true or false, want a string") {
		t.Errorf("got %v", err)
	}
	put(t, dir, map[string]string{"tasks/tb/task.yaml": string(own) + "grade:\n  command: 'true'\n  tests: /t\nscope: {workspace: write}\n"})
	b := loadBenchmark(t, dir)
	a, errA := b.Task("task-a")
	z, errB := b.Task("task-b")
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(*a.Phases, a.Scope.Workspace, a.Channels), "{{} [sh -c make] [sh check.sh] /cleanrun/tests stdout  [a/b z.txt]} 0 [{{} stdin model}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(*z.Phases, z.Scope.Workspace), "{{} [sh -c make] [sh -c true] /t exit-code  []} 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: another\ntasks:\n  - folder: tasks\n"})
	if _, err := Load(filepath.Join(dir, "benchmark.yaml")); err == nil || strings.Count(err.Error(), `got benchmark "bench-1"`) != 2 {
		t.Errorf("got %v, want both tasks named", err)
	}
}

// The example of the page is a benchmark.yaml.
func TestBenchmarkExample(t *testing.T) {
	page, err := os.ReadFile("../spec/benchmark.md")
	if err != nil {
		t.Fatal(err)
	}
	_, yaml, _ := strings.Cut(string(page), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	b, sources, err := parseBenchmark("benchmark.yaml", []byte(yaml))
	if err != nil || b.Name != "repair-500" || b.Period != "2026-1" || b.Revision != "6f21c3d" || b.Overlap != OverlapReport || len(sources) != 3 {
		t.Errorf("got %+v, %d sources, %v", b, len(sources), err)
	}
	if rows := sources[1].(*rowSource); !rows.common.HasFootprint() || rows.fields.kindOf["may_change"] != fieldFootprint {
		t.Errorf("got fields %v", rows.fields.kindOf)
	}
	for _, kind := range append(slices.Clone(singleFields), listFields...) {
		if !strings.Contains(string(page), "`"+kind+"`") {
			t.Errorf("the page lacks the field %s", kind)
		}
	}
}

func FuzzBenchmark(f *testing.F) {
	f.Add([]byte(fixture.BenchmarkYAML))
	f.Add([]byte("benchmark: b\nsetup: [a]\ngrade: {command: x, reward: file}\ntasks:\n  - harbor: x\n    workspaces: 'a/{id}'\n"))
	f.Add([]byte("benchmark: b\nfootprint: {allow: ['**'], outside: dirty}\ntasks:\n  - jsonl: d\n    fields: {id: i, prompt: p, footprint: f}\n    workspaces: '{i}'\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, sources, err := parseBenchmark("benchmark.yaml", data)
		var bad *seal.TaskError
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("got %T, want a *seal.TaskError", err)
		}
		if err == nil && (b.Name == "" || len(sources) == 0) {
			t.Fatal("accepted without name or tasks")
		}
	})
}

func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"id":"a","p":["x",null],"q":"\ud83d\ude00"}`))
	f.Add([]byte(`{"a":{"b":[1,2,{}]},"c":1e9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRow("f", 1, data)
		var bad *seal.TaskError
		if err != nil {
			if !errors.As(err, &bad) {
				t.Fatalf("got %T, want a *seal.TaskError", err)
			}
			return
		}
		for _, n := range r.names {
			s, err := r.single(n)
			if err == nil && strings.TrimSpace(s) == "" {
				t.Fatal("an empty text is accepted")
			}
			if _, err := r.several(n); err != nil && !errors.As(err, &bad) {
				t.Fatalf("got %T, want a *seal.TaskError", err)
			}
		}
	})
}
