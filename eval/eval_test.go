package eval

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
)

func plan(tasks ...string) Plan {
	return Plan{Version: Version, Benchmark: "bench", Seal: strings.Repeat("ab", 32), Agent: []string{"agent", "{prompt}"}, Trials: 2, Tasks: tasks}
}

func result(c Cell, verdict string) Result {
	return Result{Cell: c, Run: strings.Repeat("0", 32), Root: strings.Repeat("1", 64), Outcome: Completed, Verdict: verdict, Wall: 1e9}
}

func private(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "eval")
}

func open(t *testing.T, dir string, p Plan) *Dir {
	t.Helper()
	d, err := Open(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestPlanRoundTrip(t *testing.T) {
	p := plan("a", "b")
	text, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParsePlan(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Same(p); err != nil {
		t.Error(err)
	}
	if strings.Contains(string(text), "null") {
		t.Errorf("a list is null:\n%s", text)
	}
	for name, bad := range map[string]string{
		"unknown key":   strings.Replace(string(text), `"period"`, `"periods"`, 1),
		"key twice":     strings.Replace(string(text), `"period": "",`, `"period": "", "period": "",`, 1),
		"white space":   string(text) + " ",
		"second object": string(text) + string(text),
		"cut":           string(text[:len(text)-3]),
		"empty":         "",
		"version":       strings.Replace(string(text), "eval/v1", "eval/v2", 1),
		"tasks order":   strings.Replace(strings.Replace(string(text), `"a"`, `"c"`, 1), `"b"`, `"a"`, 1),
		"null list":     strings.Replace(string(text), `"env": []`, `"env": null`, 1),
	} {
		if _, err := ParsePlan([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPlanCheck(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"benchmark":  func(p *Plan) { p.Benchmark = "" },
		"seal":       func(p *Plan) { p.Seal = "AB" },
		"agent":      func(p *Plan) { p.Agent = nil },
		"agent NUL":  func(p *Plan) { p.Agent = []string{"a", "\x00"} },
		"trials":     func(p *Plan) { p.Trials = 0 },
		"trials max": func(p *Plan) { p.Trials = MaxTrials + 1 },
		"tasks":      func(p *Plan) { p.Tasks = nil },
		"task twice": func(p *Plan) { p.Tasks = []string{"a", "a"} },
		"task case":  func(p *Plan) { p.Tasks = []string{"A", "a"} },
		"task line":  func(p *Plan) { p.Tasks = []string{"a\nb"} },
		"timeout":    func(p *Plan) { p.Timeout = -1 },
		"env":        func(p *Plan) { p.Env = []string{"b", "a"} },
	} {
		p := plan("a", "b")
		if change(&p); p.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Each field of a plan is bound: a resumed eval with another one is refused, and
// named.
func TestPlanSame(t *testing.T) {
	old := plan("a", "b")
	for field, change := range map[string]func(*Plan){
		"benchmark":    func(p *Plan) { p.Benchmark = "other" },
		"period":       func(p *Plan) { p.Period = "2" },
		"seal":         func(p *Plan) { p.Seal = strings.Repeat("cd", 32) },
		"agent":        func(p *Plan) { p.Agent = []string{"other"} },
		"modelStdin":   func(p *Plan) { p.ModelStdin = []string{"x"} },
		"agentName":    func(p *Plan) { p.AgentName = "x" },
		"modelName":    func(p *Plan) { p.ModelName = "x" },
		"trials":       func(p *Plan) { p.Trials = 1 },
		"observe":      func(p *Plan) { p.Observe = true },
		"timeoutNs":    func(p *Plan) { p.Timeout = 5 },
		"gradeTimeout": func(p *Plan) { p.GradeTimeout = 5 },
		"setupTimeout": func(p *Plan) { p.SetupTimeout = 5 },
		"limits":       func(p *Plan) { p.Limits.Memory = 5 },
		"env":          func(p *Plan) { p.Env = []string{"X"} },
		"secrets":      func(p *Plan) { p.Secrets = []string{"X"} },
		"patterns":     func(p *Plan) { p.Patterns = []string{"X"} },
		"recipients":   func(p *Plan) { p.Recipients = []string{"X"} },
		"tasks":        func(p *Plan) { p.Tasks = []string{"a"} },
	} {
		p := plan("a", "b")
		change(&p)
		err := p.Same(old)
		var c *Changed
		if !errors.As(err, &c) || !strings.HasPrefix(c.Field, field) {
			t.Errorf("%s: got %v, want a Changed error that names it", field, err)
		}
	}
	more := plan("a", "b")
	more.Trials, more.Env = 7, []string{}
	if err := more.Same(old); err != nil {
		t.Errorf("more trials: %v", err)
	}
}

func TestSlug(t *testing.T) {
	for id, want := range map[string]string{"django__django-11099": "django__django-11099", "a.b": "a.b", "X1": "X1"} {
		if got := Slug(id); got != want {
			t.Errorf("%q: got %q, want it unchanged", id, got)
		}
	}
	seen := map[string]string{}
	for _, id := range []string{"a/b", "a_b", "../x", ".hidden", "-flag", "ü", "ö", strings.Repeat("x", 101), strings.Repeat("x", 102), "", " ", "a b", "a\\b"} {
		s := Slug(id)
		if s == "" || s[0] == '.' || s[0] == '-' || strings.ContainsAny(s, "/\\ ") || len(s) > 100 || !filepath.IsLocal(s) {
			t.Errorf("%q: got %q, want a plain name", id, s)
		}
		if other, ok := seen[s]; ok {
			t.Errorf("%q and %q have the same folder %q", id, other, s)
		}
		seen[s] = id
	}
}

func TestResultsFile(t *testing.T) {
	a1, a2, b1 := Cell{"a", 1, 1}, Cell{"a", 1, 2}, Cell{"b", 1, 1}
	first := result(a1, "")
	first.Retry, first.Outcome, first.Root = "journal-open", Killed, ""
	line := func(r Result) string {
		t.Helper()
		b, err := r.Line()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	attested := first.Attested("INCONCLUSIVE", []string{"journal-open"}, nil)
	good := line(first) + line(result(a2, "CLEAN")) + line(attested) + line(result(b1, "DIRTY"))
	list, torn, err := ParseResults([]byte(good))
	if err != nil || torn != 0 || len(list) != 3 || list[0].Verdict != "INCONCLUSIVE" || list[2].Verdict != "DIRTY" {
		t.Fatalf("got %+v, %d, %v", list, torn, err)
	}
	// A torn last line is no result, and its length is told.
	for n := 1; n < len(line(result(b1, "DIRTY"))); n++ {
		list, torn, err := ParseResults([]byte(good[:len(good)-n]))
		if err != nil || len(list) != 2 || torn != len(line(result(b1, "DIRTY")))-n {
			t.Fatalf("cut by %d: got %d results, %d torn, %v", n, len(list), torn, err)
		}
	}
	other := attested
	other.Code = 7
	again := attested
	for name, bad := range map[string]string{
		"gap":               line(result(a2, "CLEAN")),
		"twice":             line(result(a1, "CLEAN")) + line(result(a1, "CLEAN")),
		"verdict changed":   line(result(a1, "CLEAN")) + line(result(a1, "DIRTY")),
		"later not same":    line(first) + line(other),
		"attested twice":    line(first) + line(again) + line(again),
		"broken in between": line(first) + "{}\n" + line(result(b1, "CLEAN")),
		"empty line":        line(first) + "\n",
		"spaces":            strings.Replace(line(first), `,"run"`, `, "run"`, 1),
		"key order":         strings.Replace(line(first), `"trial":1,"attempt":1`, `"attempt":1,"trial":1`, 1),
		"unknown key":       strings.Replace(line(first), `"note":""`, `"note":"","more":1`, 1),
	} {
		if _, _, err := ParseResults([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestResultCheck(t *testing.T) {
	for name, change := range map[string]func(*Result){
		"run":              func(r *Result) { r.Run = "x" },
		"killed with root": func(r *Result) { r.Outcome = Killed },
		"no root":          func(r *Result) { r.Root = "" },
		"outcome":          func(r *Result) { r.Outcome = "open" },
		"verdict":          func(r *Result) { r.Verdict = "GOOD" },
		"clean reasons":    func(r *Result) { r.Reasons = []string{"trace"} },
		"retry":            func(r *Result) { r.Retry = "bad score!" },
		"note":             func(r *Result) { r.Note = "a\nb" },
		"score source":     func(r *Result) { r.Score = &Score{"1", "claimed"} },
		"score value":      func(r *Result) { r.Score = &Score{"1e9", "observed"} },
		"attempt 0":        func(r *Result) { r.Attempt = 0 },
		"cost":             func(r *Result) { r.Cost.Close = -1 },
	} {
		r := result(Cell{"a", 1, 1}, "CLEAN")
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if change(&r); r.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Only what a run cannot cause calls for another attempt.
func TestFailures(t *testing.T) {
	f := &journal.Final{Outcome: journal.Completed}
	s := &journal.Summary{Final: f, Lost: 1, Killed: 1, Unreadable: 1, Unstable: 1}
	if got := failures(s); len(got) != 0 {
		t.Errorf("got %q of what a run can cause", got)
	}
	if got := failures(&journal.Summary{}); !slices.Equal(got, []string{"journal-open"}) {
		t.Errorf("got %q", got)
	}
	f.Outcome, f.Received = journal.Abandoned, 3
	if got := failures(s); !slices.Equal(got, []string{"abandoned", "notifications-left"}) {
		t.Errorf("got %q", got)
	}
}

func FuzzParseResult(f *testing.F) {
	line, _ := result(Cell{"a", 1, 1}, "CLEAN").Line()
	f.Add(bytes.TrimSpace(line))
	f.Add([]byte(`{"task":"a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseResult(data)
		if err != nil {
			return
		}
		again, err := r.Line()
		if err != nil || !bytes.Equal(again, append(slices.Clone(data), '\n')) {
			t.Errorf("%q is read and written as %q, %v", data, again, err)
		}
	})
}

func FuzzParsePlan(f *testing.F) {
	text, _ := plan("a", "b").Marshal()
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePlan(data)
		if err != nil {
			return
		}
		if again, err := p.Marshal(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q is read and written as %q, %v", data, again, err)
		}
	})
}

func TestOpenAgain(t *testing.T) {
	dir := private(t)
	d, err := Open(dir, plan("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, plan("a", "b")); !errors.Is(err, ErrLocked) {
		t.Errorf("a second eval: got %v, want ErrLocked", err)
	}
	if on, err := Running(dir); err != nil || !on {
		t.Errorf("Running: %v, %v, want true", on, err)
	}
	if err := d.Append(result(Cell{"a", 1, 1}, "CLEAN")); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if on, err := Running(dir); err != nil || on {
		t.Errorf("Running after the end: %v, %v, want false", on, err)
	}
	// A crash in the middle of a line, and hidden tests left behind.
	f, err := os.OpenFile(filepath.Join(dir, ResultsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(`{"task":"b"`)
		err = errors.Join(err, f.Close(), os.MkdirAll(filepath.Join(dir, StagedDir, "x"), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	more := plan("a", "b")
	more.Trials = 5
	d = open(t, dir, more)
	if d.Torn != 11 || len(d.Results) != 1 {
		t.Errorf("torn %d, %d results, want 11 and 1", d.Torn, len(d.Results))
	}
	if left, err := os.ReadDir(filepath.Join(dir, StagedDir)); err != nil || len(left) > 0 {
		t.Errorf("%v %v, want the hidden tests gone", left, err)
	}
	if err := d.Append(result(Cell{"b", 5, 1}, "DIRTY")); err != nil {
		t.Fatal(err)
	}
	s, err := Read(dir)
	if err != nil || len(s.Results) != 2 || s.Torn != 0 || s.Plan.Trials != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	d.Close()
	fewer := plan("a", "b")
	var c *Changed
	if _, err := Open(dir, fewer); !errors.As(err, &c) || c.Field != "trials" {
		t.Errorf("fewer trials: got %v", err)
	}
	if on, err := Running(dir); err != nil || on {
		t.Errorf("Running after a refusal: %v, %v, want false", on, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := private(t)
	os.Mkdir(dir, 0o700)
	os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600)
	if _, err := Open(dir, plan("a")); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("a folder with other things: got %v", err)
	}
	public := private(t)
	os.Mkdir(public, 0o755)
	if _, err := Open(public, plan("a")); err == nil || !strings.Contains(err.Error(), "0755") {
		t.Errorf("a folder that others can read: got %v", err)
	}
	dir = private(t)
	open(t, dir, plan("a")).Close()
	os.WriteFile(filepath.Join(dir, ResultsFile), []byte("junk\n"), 0o600)
	if _, err := Open(dir, plan("a")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("junk results: got %v", err)
	}
}

func TestLoose(t *testing.T) {
	d := open(t, private(t), plan("a", "b"))
	for _, c := range []Cell{{"a", 1, 1}, {"a", 1, 2}, {"b", 2, 1}} {
		if err := os.MkdirAll(d.Path(c.RunDir()), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Append(result(Cell{"a", 1, 1}, "CLEAN")); err != nil {
		t.Fatal(err)
	}
	got, err := d.Snapshot().Loose()
	if want := []Cell{{"a", 1, 2}, {"b", 2, 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, name := range []string{"t01-a1", "t1-a", "x", "t0-a1", "t3-a1"} {
		at := d.Path(AttemptsDir, "a", name)
		os.Mkdir(at, 0o700)
		if _, err := d.Snapshot().Loose(); err == nil {
			t.Errorf("%s: taken for a run folder", name)
		}
		os.Remove(at)
	}
}
