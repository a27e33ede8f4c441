package entry

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/scope"
)

func start() journal.Start {
	return journal.Start{Version: journal.Version, Run: runID(1), Benchmark: "bench", Task: "täsk 1", Trial: 2, Attempt: 3,
		Commitment: sum("commitment"), Seal: sum("part"), Baseline: sum("baseline"),
		Roots:     []scope.Root{{Path: "/w", Key: sum("path"), Mode: scope.WriteTree, Class: scope.Workspace}},
		Workspace: "/w", Channels: []journal.Channel{{Name: "stdin", Role: "model"}}, Recorder: "0.4.0", Backend: "namespaces", Blind: []string{"mmap"},
		Agent: "agent", Model: "model", Phases: &journal.Phases{}}
}

func wantDifference(t *testing.T, name string, err error, kind Kind, field string) {
	t.Helper()
	var d *Difference
	if !errors.As(err, &d) || d.Kind != kind || d.Field != field || d.Got == d.Want {
		t.Errorf("%s: got %v, want a difference of %v, %s", name, err, kind, field)
	}
}

func TestRegisterOf(t *testing.T) {
	s := start()
	r, err := RegisterOf(&s, sum("head"))
	if err != nil {
		t.Fatal(err)
	}
	// The fields by their definition, apart from start.
	want := Register{Run: s.Run, Benchmark: "bench", Task: "täsk 1", Trial: 2, Attempt: 3, Seal: sum("part"), Sealed: sum("head"), Baseline: sum("baseline"),
		Scope: sha256.Sum256(must(dcbor.Marshal(s.Roots))), Agent: sum("agent"), Model: sum("model"), Recorder: "0.4.0", Start: sha256.Sum256(must(dcbor.Marshal(&s)))}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if e := registered(t, runner, r); e.Register() != r {
		t.Errorf("got %+v back", e.Register())
	}
	// What the registration itself adds to the start row does not count.
	a, b := []byte("registration"), []byte("freshness")
	s.Registration, s.Freshness = &a, &b
	if again, err := RegisterOf(&s, sum("head")); err != nil || again != r {
		t.Errorf("after registration: got %+v, %v", again, err)
	}
	if s.Registration == nil || s.Freshness == nil {
		t.Error("RegisterOf changed its argument")
	}
	if err := CompareRegister(r, &s); err != nil {
		t.Error(err)
	}
	free := start()
	free.Task = ""
	if _, err := RegisterOf(&free, sum("head")); err == nil {
		t.Error("a run without a task: got no error")
	}
}

// Every field of a start row is bound: by its own name where REGISTER has it, by
// the hash of all of them else.
func TestRT13_RegisterAgainstAnotherStart(t *testing.T) {
	names := map[string]string{"Run": "run", "Benchmark": "benchmark", "Task": "task", "Trial": "trial", "Attempt": "attempt", "Seal": "seal",
		"Baseline": "baseline", "Roots": "scope", "Agent": "agent", "Model": "model", "Recorder": "recorder"}
	start := func() journal.Start { // of a run with a planted file
		s := start()
		marker := sum("marker")
		s.Marker = marker[:]
		return s
	}
	s := start()
	r := must(RegisterOf(&s, sum("head")))
	if err := CompareRegister(r, &s); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	fields := 0
	for i := range reflect.TypeOf(s).NumField() {
		name := reflect.TypeOf(s).Field(i).Name
		if name == "Registration" || name == "Freshness" {
			continue
		}
		other := start()
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Uint32:
			f.SetUint(f.Uint() + 1)
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Array:
			f.Index(0).SetUint(f.Index(0).Uint() ^ 1)
		case reflect.Slice, reflect.Pointer:
			f.SetZero()
		default:
			t.Fatalf("%s: got a field of kind %v", name, f.Kind())
		}
		want := "start"
		if n, ok := names[name]; ok {
			want = n
		}
		wantDifference(t, name, CompareRegister(r, &other), KindRegister, want)
		fields++
	}
	if fields != 20 {
		t.Errorf("looked at %d fields of the start row, want 20", fields)
	}
	root := start()
	root.Roots[0].Key = sum("another path")
	wantDifference(t, "the key of a root", CompareRegister(r, &root), KindRegister, "scope")
}

func TestRT18_SealOfAnotherSet(t *testing.T) {
	s := start()
	r := must(RegisterOf(&s, sum("head")))
	alone := r
	alone.Sealed = sum("set")
	for name, c := range map[string]struct {
		seal   Seal
		r      Register
		of     receipt.Kind
		digest [32]byte
		field  string // "" for none
	}{
		"a benchmark's":           {Seal{"bench", receipt.KindBenchmark, sum("head")}, r, receipt.KindBenchmark, sum("head"), ""},
		"a task's":                {Seal{"bench/täsk 1", receipt.KindSealedSet, sum("set")}, alone, receipt.KindSealedSet, sum("set"), ""},
		"another digest":          {Seal{"bench", receipt.KindBenchmark, sum("old head")}, r, receipt.KindBenchmark, sum("head"), "digest"},
		"another relied on":       {Seal{"bench", receipt.KindBenchmark, sum("head")}, alone, receipt.KindBenchmark, sum("head"), "digest"},
		"another benchmark":       {Seal{"bench 2", receipt.KindBenchmark, sum("head")}, r, receipt.KindBenchmark, sum("head"), "sub"},
		"another task":            {Seal{"bench/täsk 2", receipt.KindSealedSet, sum("set")}, alone, receipt.KindSealedSet, sum("set"), "sub"},
		"a task as its benchmark": {Seal{"bench", receipt.KindSealedSet, sum("set")}, alone, receipt.KindSealedSet, sum("set"), "sub"},
		"another type":            {Seal{"bench", receipt.KindBenchmark, sum("set")}, alone, receipt.KindSealedSet, sum("set"), "type of what was hashed"},
	} {
		err := CompareSeal(c.seal, c.r, c.of, c.digest)
		if c.field != "" {
			wantDifference(t, name, err, KindSeal, c.field)
		} else if err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestRT2_FinalOfOtherRows(t *testing.T) {
	f := final(1, 9)
	row := &journal.Final{Outcome: f.Outcome, Code: f.Code, Counts: f.Counts, Born: 1, Ended: 1}
	if made := FinalOf(row, f.Head, 1); !reflect.DeepEqual(made, f) {
		t.Errorf("got %+v, want %+v", made, f)
	}
	if err := CompareFinal(f, row, f.Head); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for want, change := range map[string]func(*journal.Final, *journal.Head){
		"run":       func(_ *journal.Final, h *journal.Head) { h.Run = runID(2) },
		"size":      func(_ *journal.Final, h *journal.Head) { h.Size = 10 },
		"root":      func(_ *journal.Final, h *journal.Head) { h.Root[31] ^= 1 },
		"outcome":   func(r *journal.Final, _ *journal.Head) { r.Outcome = journal.Cancelled },
		"exit code": func(r *journal.Final, _ *journal.Head) { r.Code = 4 },
		"counts": func(r *journal.Final, _ *journal.Head) {
			r.Counts = []journal.OpCount{r.Counts[0], {Phase: journal.PhaseSetup, Op: journal.OpOpen, N: r.Counts[1].N}}
		},
	} {
		other, h := *row, f.Head
		change(&other, &h)
		wantDifference(t, want, CompareFinal(f, &other, h), KindFinal, want)
	}
	less := *row
	less.Counts = row.Counts[:1]
	wantDifference(t, "a count less", CompareFinal(f, &less, f.Head), KindFinal, "counts")
}
