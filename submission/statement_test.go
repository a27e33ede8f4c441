package submission

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/cleanrun-dev/cleanrun/attest"
)

func hexOf(c byte, n int) string { return strings.Repeat(string(c), 2*n) }

// attested is an attempt with digests made from c.
func attested(task string, trial, attempt uint32, state State, c byte, score string, reasons ...string) Attempt {
	a := Attempt{Cell: Cell{Task: task, Trial: trial, Attempt: attempt, State: state, Reasons: []string{},
		Bundle: hexOf(c, 32), Receipt: hexOf(c, 32), Root: hexOf(c, 32), Run: hexOf(c, 16)}, Leaf: LeafOf([]byte{c})}
	a.Reasons = append(a.Reasons, reasons...)
	if score != "" {
		a.Score = &attest.Score{Value: score, Source: attest.ScoreObserved}
	}
	return a
}

func input() Input {
	return Input{
		Benchmark: Benchmark{Head: hexOf('a', 32), Name: "bench", Root: hexOf('b', 32), Tasks: 3, Weak: 1},
		Agent:     Named{Name: "agent", Files: []File{{"b.py", hexOf('2', 32)}, {"a.py", hexOf('1', 32)}}}, Model: Named{Name: "model"},
		Tasks: []string{"t2", "t1", "t3"}, Trials: 2, Rule: Mean(), Headline: Plain,
		Attempts: []Attempt{
			attested("t2", 1, 2, Clean, 'c', "1"),
			attested("t1", 1, 1, Dirty, 'd', "1", "whole-object"),
			attested("t2", 1, 1, Inconclusive, 'e', "", "journal-open"),
			{Cell: Cell{Task: "t1", Trial: 2, Attempt: 1, State: Failed, Reasons: []string{}}},
			attested("t3", 2, 1, Inconclusive, 'f', "0.5", "trace"),
		},
	}
}

func build(t testing.TB, in Input) (*Statement, []byte) {
	t.Helper()
	s, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	data, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return s, data
}

// The order in which Build is given things does not matter, and neither does the
// machine: attack 95.
func TestRT95_BuildIsDeterministic(t *testing.T) {
	s, data := build(t, input())
	in := input()
	slices.Reverse(in.Attempts)
	slices.Reverse(in.Tasks)
	slices.Reverse(in.Agent.Files)
	if _, again := build(t, in); !bytes.Equal(again, data) {
		t.Errorf("got\n%s\nwant\n%s", again, data)
	}
	if again, err := jcs.Transform(data); err != nil || !bytes.Equal(again, data) {
		t.Errorf("not JCS: %v", err)
	}
	var cells []string
	for _, c := range s.Predicate.Grid {
		cells = append(cells, c.Name()+" "+string(c.State))
	}
	want := []string{"t1, trial 1, attempt 1 DIRTY", "t1, trial 2, attempt 1 error", "t2, trial 1, attempt 1 INCONCLUSIVE", "t2, trial 1, attempt 2 CLEAN",
		"t2, trial 2 missing", "t3, trial 1 missing", "t3, trial 2, attempt 1 INCONCLUSIVE"}
	if !slices.Equal(cells, want) {
		t.Errorf("got %q, want %q", cells, want)
	}
	plain, ruled := s.Predicate.Score.Plain, s.Predicate.Score.Ruled
	if plain.Value != "0.833333" || plain.Scored != 3 || plain.Missing != 3 || plain.Unscored != 0 {
		t.Errorf("plain: got %+v", plain)
	}
	if ruled.Value != "0.500000" || ruled.Scored != 2 || ruled.Missing != 3 || ruled.Unscored != 1 {
		t.Errorf("ruled: got %+v", ruled)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, do := range map[string]func(*Input){
		"no tasks":             func(in *Input) { in.Tasks = nil },
		"a task twice":         func(in *Input) { in.Tasks = append(in.Tasks, "t1") },
		"an attempt elsewhere": func(in *Input) { in.Tasks = in.Tasks[:2] },
		"an attempt twice":     func(in *Input) { in.Attempts = append(in.Attempts, in.Attempts[0]) },
		"a trial too many":     func(in *Input) { in.Trials = 1 },
		"no trials":            func(in *Input) { in.Trials = 0 },
		"no rule":              func(in *Input) { in.Rule = Rule{} },
		"no headline":          func(in *Input) { in.Headline = "" },
		"no benchmark":         func(in *Input) { in.Benchmark = Benchmark{} },
		"a file twice":         func(in *Input) { in.Agent.Files[0].Name = "a.py" },
		"a name with a break":  func(in *Input) { in.Model.Name = "a\nb" },
		"a missing attempt of a trial that has one": func(in *Input) {
			in.Attempts = append(in.Attempts, Attempt{Cell: Cell{Task: "t3", Trial: 2, State: Missing, Reasons: []string{}}})
		},
	} {
		in := input()
		do(&in)
		var e *Error
		if s, err := Build(in); !errors.As(err, &e) || s != nil {
			t.Errorf("%s: got %v, %v, want a refusal", name, s, err)
		}
	}
}

// One change each makes a statement malformed.
func TestParseRefuses(t *testing.T) {
	_, good := build(t, input())
	if _, err := ParseStatement(good); err != nil {
		t.Fatal(err)
	}
	text := string(good)
	for name, c := range map[string]struct{ from, to string }{
		"another type":           {`"_type":"https://in-toto.io/Statement/v1"`, `"_type":"https://in-toto.io/Statement/v0.1"`},
		"another predicate":      {`submission/v1"`, `submission/v2"`},
		"a receipt's predicate":  {`attestation/submission/v1"`, `attestation/clean-run/v1"`},
		"another subject name":   {`"name":"cleanrun.dev/submission/`, `"name":"cleanrun.dev/submission/0`},
		"an unknown field":       {`"trials":2`, `"trials":2,"unit":"s"`},
		"a repeated field":       {`"trials":2`, `"trials":2,"trials":2`},
		"white space":            {`"trials":2`, `"trials": 2`},
		"a float":                {`"trials":2`, `"trials":2.0`},
		"an exponent":            {`"trials":2`, `"trials":2e0`},
		"a text for a number":    {`"trials":2`, `"trials":"2"`},
		"trials of no sense":     {`"trials":2`, `"trials":0`},
		"a null list":            {`"files":[]`, `"files":null`},
		"upper-case hex":         {`"run":"cc`, `"run":"CC`},
		"a short digest":         {`"run":"cc`, `"run":"c`},
		"another state":          {`"state":"CLEAN"`, `"state":"clean"`},
		"CLEAN with reasons":     {`"state":"DIRTY"`, `"state":"CLEAN"`},
		"DIRTY without":          {`"reasons":["whole-object"]`, `"reasons":[]`},
		"a score of a float":     {`"value":"0.5"`, `"value":"0.50e1"`},
		"a score with a plus":    {`"value":"0.5"`, `"value":"+0.5"`},
		"a fraction":             {`"value":"0.5"`, `"value":"1/2"`},
		"a score from nowhere":   {`"source":"observed","value":"0.5"`, `"source":"guessed","value":"0.5"`},
		"digests without state":  {`"state":"INCONCLUSIVE","task":"t3"`, `"state":"error","task":"t3"`},
		"an attempt 0":           {`"attempt":2`, `"attempt":0`},
		"another rule":           {`"rule":"mean"`, `"rule":"median"`},
		"k with the mean":        {`"k":0`, `"k":1`},
		"another headline":       {`"headline":"plain"`, `"headline":"best"`},
		"another method":         {`"method":"clustered-normal-95"`, `"method":"guess"`},
		"a value of five digits": {`"value":"0.833333"`, `"value":"0.83333"`},
		"a value without bounds": {`"method":"clustered-normal-95"`, `"method":"none"`},
		"a benchmark of nothing": {`"tasks":3,"weak"`, `"tasks":0,"weak"`},
		"files out of order":     {`"name":"a.py"`, `"name":"c.py"`},
		"cells out of order":     {`"task":"t2","trial":1`, `"task":"t9","trial":1`},
	} {
		if !strings.Contains(text, c.from) {
			t.Fatalf("%s: the statement holds no %s", name, c.from)
		}
		changed := strings.Replace(text, c.from, c.to, 1)
		if s, err := ParseStatement([]byte(changed)); err == nil || s != nil {
			t.Errorf("%s: got %+v, want an error", name, s)
		}
	}
	for name, data := range map[string][]byte{
		"empty": nil, "cut": good[:len(good)-1], "more": append(slices.Clone(good), ' '), "BOM": append([]byte("\ufeff"), good...),
		"twice": append(slices.Clone(good), good...), "null": []byte("null"), "deep": bytes.Repeat([]byte("["), 1<<20),
		"too long": append(slices.Clone(good), bytes.Repeat([]byte(" "), MaxStatement)...),
	} {
		if s, err := ParseStatement(data); err == nil || s != nil {
			t.Errorf("%s: got %+v, want an error", name, s)
		}
	}
}

func FuzzParseStatement(f *testing.F) {
	_, good := build(f, input())
	f.Add(good)
	f.Add([]byte(`{"_type":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseStatement(data)
		if (s == nil) == (err == nil) {
			t.Fatalf("got %v and %v", s, err)
		}
		if s == nil {
			return
		}
		again, err := s.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("got %s, %v, want %s", again, err, data)
		}
		rule, err := s.Rule()
		if err != nil {
			t.Fatal(err)
		}
		p := &s.Predicate
		if _, _, err := Totals(rule, p.Benchmark.Tasks, p.Trials, p.Grid); err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
		}
	})
}

// What a run can cause is no evidence for making it again.
func TestInfrastructure(t *testing.T) {
	for _, c := range []struct {
		reasons []string
		want    string
	}{
		{nil, ""},
		{[]string{"trace"}, ""},
		{[]string{"journal-open"}, "journal-open"},
		{[]string{"abandoned"}, "abandoned"},
		{[]string{"notifications-left"}, "notifications-left"},
		{[]string{"events-lost"}, ""}, // a run that fills the store
		{[]string{"unreadable"}, ""},
		{[]string{"unstable"}, ""},
		{[]string{"killed"}, ""},
		{[]string{"processes-left"}, ""},
		{[]string{"grade-failed", "reward-missing"}, ""},
		{[]string{"events-lost", "abandoned"}, "abandoned"},
		{[]string{"trace", "abandoned"}, ""}, // it would hide the trace
		{[]string{"authored", "journal-open"}, ""},
		{[]string{"reward-conflict", "abandoned"}, ""},
		{[]string{"controls-missing", "journal-open", "no-activity", "reward-missing"}, "journal-open"},
		{[]string{"controls-missing", "abandoned"}, ""},
		{[]string{"set-too-small"}, ""},
	} {
		if got := Infrastructure(Inconclusive, c.reasons); got != c.want {
			t.Errorf("%v: got %q, want %q", c.reasons, got, c.want)
		}
	}
	for _, s := range []State{Clean, Dirty, Failed, Missing} {
		if got := Infrastructure(s, []string{attest.ReasonAbandoned}); got != "" {
			t.Errorf("%s may be replaced for %s", s, got)
		}
	}
}
