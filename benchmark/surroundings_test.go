package benchmark

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// widened is a data file of which the rows' column may says what each may change besides.
func widened(t testing.TB, may ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var rows strings.Builder
	for i, m := range may {
		sol, err := json.Marshal(prose(uint64(10+i), 40))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, `{"id":"row-%d","p":"Do it.","sol":%s,"ws":"ws%d","may":%s}`+"\n", i, sol, i, m)
		put(t, dir, map[string]string{fmt.Sprintf("ws%d/main.py", i): prose(uint64(100+i), 20)})
	}
	put(t, dir, map[string]string{
		"benchmark.yaml": rowsHead + "      reference: sol\n      footprint: may\n    workspaces: '{ws}'\nfootprint: {allow: [out/*], outside: dirty}\n",
		"d.jsonl":        rows.String(),
	})
	return dir
}

// What holds for all tasks, and what a row's own column adds, is in the sealed sets.
func TestRowsWidenTheFootprint(t *testing.T) {
	dir := widened(t, `null`, `{"allowed": ["tmp/**"]}`, `{"allowed": ["**", "out/*"]}`)
	b := loadBenchmark(t, dir)
	file, built := sealAll(t, b, nil)
	s := openSealed(t, file)
	for id, want := range map[string][]string{"row-0": {"out/*"}, "row-1": {"out/*", "tmp/**"}, "row-2": {"out/*", "**"}} {
		set, _, err := s.Set(id)
		if err != nil {
			t.Fatal(err)
		}
		if f := set.Footprint; f == nil || !f.Gate || !slices.Equal(f.Allowed, want) {
			t.Errorf("%s: got %v, want %q and the gate", id, f, want)
		}
		i := slices.IndexFunc(built.Tasks, func(x TaskSeal) bool { return x.Task == id })
		if !reflect.DeepEqual(built.Tasks[i].Footprint, set.Footprint) {
			t.Errorf("%s: got %v in the report", id, built.Tasks[i].Footprint)
		}
	}
	// The column is named by a field, and bound; what a row allows may be too much.
	if len(built.Warnings) != 1 || !strings.HasPrefix(built.Warnings[0], "row-2: footprint: outside is dirty, and allow has every path") {
		t.Errorf("got %q", built.Warnings)
	}
	c, err := b.Check(s, benchKey(t, b), Options{})
	if err != nil || c.Tasks != 3 || len(c.Differences) != 0 {
		t.Errorf("got %+v, %v", c, err)
	}

	// Other data give other sets: by their line, and by the footprint for all.
	put(t, dir, map[string]string{"benchmark.yaml": rowsHead + "      reference: sol\n      footprint: may\n    workspaces: '{ws}'\nfootprint: {allow: [out/*]}\n"})
	if c, err = loadBenchmark(t, dir).Check(s, benchKey(t, b), Options{}); err != nil || len(c.Differences) != 3 {
		t.Fatalf("got %+v, %v", c, err)
	}
	if got, want := c.Differences[0].String(), `task row-0: footprint: got {allow: ["out/*"], outside: dirty}, want {allow: ["out/*"], outside: report}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What the commitment binds of a row without the field is what it was.
func TestFootprintColumnIsBound(t *testing.T) {
	f := func(yaml string) *rowSource {
		_, sources, err := parseBenchmark("benchmark.yaml", []byte(rowsHead+yaml+"    workspaces: '{ws}'\nfootprint: {allow: []}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return sources[0].(*rowSource)
	}
	const plain = "cleanrun/row/v1\x00\x00\x00\x04text\x00\x00\x00\x02id\x00\x00\x00\x02id\x00\x00\x00\x06prompt\x00\x00\x00\x01p"
	if got := f("").binding([]byte("text")); string(got) != plain {
		t.Errorf("got %q, want %q", got, plain)
	}
	if got, want := f("      footprint: may\n").binding([]byte("text")), plain+"\x00\x00\x00\x09footprint\x00\x00\x00\x03may"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Malformed metadata is an error that names the sample, and nothing is sealed.
func TestRowsMustNotWeakenTheFootprint(t *testing.T) {
	for may, want := range map[string]string{
		`{"allowed": ["a"], "outside": "report"}`: "beside allowed",
		`{"allowed": ["a"], "allowed": []}`:       "beside allowed",
		`{"allowed": "a"}`:                        "got no list of patterns",
		`{"allowed": ["a/../b"]}`:                 "want a clean path",
		`{"allowed": ["a\u001b"]}`:                "printable patterns",
		`["a"]`:                                   "got no object",
		`"{\"allowed\": [\"a\"]}"`:                "got no object",
		`""`:                                      "got no object",
		`false`:                                   "got no object",
	} {
		dir := widened(t, `null`, may)
		b, err := Load(filepath.Join(dir, "benchmark.yaml"))
		if err == nil {
			b.Close()
		}
		var bad *seal.TaskError
		if !errors.As(err, &bad) || bad.Line != 2 || bad.Item != "may" || !strings.Contains(bad.Problem, `sample "row-1": `) || !strings.Contains(bad.Problem, want) {
			t.Errorf("%s: got %v, want line 2, the sample named, %q", may, err, want)
		}
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"nothing to widen":      {rowsHead + "      footprint: ws\n    workspaces: '{ws}'\n", "fields: got the field footprint, which widens the footprint of all tasks, and there is none"},
		"two columns":           {rowsHead + "      footprint: [a, b]\n    workspaces: '{ws}'\nfootprint: {allow: []}\n", "got 2 columns, want one"},
		"no such column":        {rowsHead + "      footprint: may\n    workspaces: '{ws}'\nfootprint: {allow: []}\n", "d.jsonl:1: may: the row has no such column"},
		"malformed footprint":   {rowsHead + "    workspaces: '{ws}'\nfootprint: {allow: [a//b]}\n", "benchmark.yaml:8: footprint.allow[0]: pattern"},
		"expect for many tasks": {rowsHead + "    workspaces: '{ws}'\nexpect: {read: /a}\n", "benchmark.yaml:8: expect: got it for many tasks"},
		"expect of a source":    {rowsHead + "    workspaces: '{ws}'\n    expect: {read: /a}\n", "tasks[0].expect: got it for many tasks"},
	} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"benchmark.yaml": c.yaml, "d.jsonl": `{"id":"a","p":"do","ws":"ws"}` + "\n", "ws/a": "a"})
		b, err := Load(filepath.Join(dir, "benchmark.yaml"))
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// namedPath gives task n of folderOfTasks a named path.
func namedPath(t testing.TB, dir, task, text, more string) {
	t.Helper()
	put(t, dir, map[string]string{
		"tasks/t" + task + "/skill.md": text,
		"tasks/t" + task + "/task.yaml": "benchmark: bench-1\ntask: task-" + task + "\nprompt: Do it.\nworkspace: ws\nreference:\n  - path: solution/*\n" +
			"tests:\n  - path: hidden/*\n    root: hidden\nexpect: {read: /srv/skill.md, plant: skill.md, reply: stdout}\n" + more,
	})
}

// Folders of tasks state their own; the rest comes from benchmark.yaml, grants too.
func TestFoldersHaveSurroundings(t *testing.T) {
	dir := folderOfTasks(t, 3)
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: bench-1\nfootprint: {allow: ['**'], outside: dirty}\n" +
		"scope:\n  grants: [{path: /srv/skill.md, mode: read-one}]\ntasks:\n  - folder: tasks\n"})
	namedPath(t, dir, "b", "Report {{cleanrun.marker}}.\n", "footprint: {allow: []}\n")
	b := loadBenchmark(t, dir)
	file, built := sealAll(t, b, nil)
	s := openSealed(t, file)
	want := &contraband.Expect{Read: "/srv/skill.md", Template: "Report {{cleanrun.marker}}.\n", Reply: expect.Stdout}
	for id, own := range map[string]bool{"task-a": false, "task-b": true, "task-c": false} {
		set, _, err := s.Set(id)
		if err != nil {
			t.Fatal(err)
		}
		if f := set.Footprint; f == nil || f.Gate == own || (len(f.Allowed) == 0) != own {
			t.Errorf("%s: got footprint %v", id, f)
		}
		if own != reflect.DeepEqual(set.Expect, want) || !own && set.Expect != nil {
			t.Errorf("%s: got %v", id, set.Expect)
		}
	}
	// What two tasks share is said once.
	if len(built.Warnings) != 1 || !strings.Contains(built.Warnings[0], "every path of the workspace") || !strings.HasSuffix(built.Warnings[0], "(2 tasks, such as task-a)") {
		t.Errorf("got %q", built.Warnings)
	}
	first := newDataList(b)
	for _, id := range b.IDs() {
		task, err := b.Task(id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := task.Load()
		if err != nil {
			t.Fatal(err)
		}
		first.add(m)
	}
	if !slices.ContainsFunc(first.rows, func(r dataRow) bool { return r.name == "tasks/tb/skill.md" }) {
		t.Errorf("the data digest leaves the text to plant out: %v", first.rows)
	}
	// Another text is another set, which the check names.
	put(t, dir, map[string]string{"tasks/tb/skill.md": "Say {{cleanrun.marker}}.\n"})
	c, err := loadBenchmark(t, dir).Check(s, benchKey(t, b), Options{})
	if err != nil || c.Tasks != 2 || !slices.ContainsFunc(c.Differences, func(d Difference) bool {
		return d.Task == "task-b" && d.Field == "expect" && strings.Contains(d.Got, "plant: 28 bytes") && strings.Contains(d.Want, "plant: 25 bytes")
	}) {
		t.Errorf("got %+v, %v", c, err)
	}

	// A planted text must not give another task's answer away.
	namedPath(t, dir, "b", "Report {{cleanrun.marker}}.\n"+prose(2, 40), "")
	_, err = loadBenchmark(t, dir).Seal(Options{Key: benchKey(t, b), Random: sameControl{}, Dir: t.TempDir()})
	var bad *BadTasksError
	if !errors.As(err, &bad) || len(bad.Problems) != 1 || bad.Problems[0].Task != "task-b" || bad.Problems[0].Kind != "overlap" || !strings.Contains(bad.Problems[0].Reason, "the planted file") {
		t.Errorf("got %v, want the answer of task-a in what task-b plants", err)
	}
}
