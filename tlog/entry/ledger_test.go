package entry

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// ledgerOf applies entries, none of which may be refused, from index 0.
func ledgerOf(t testing.TB, entries ...*Entry) *Ledger {
	t.Helper()
	l := NewLedger()
	for i, e := range entries {
		if err := l.Check(e); err != nil {
			t.Fatalf("entry %d, a %v: %v", i, e.Kind(), err)
		}
		l.Apply(e, uint64(i))
	}
	return l
}

func withRegister(n byte, change func(*Register)) Register {
	r := register(n)
	change(&r)
	return r
}

func withRoot(h journal.Head, root string) journal.Head {
	h.Root = sum(root)
	return h
}

// Each refusal has a neighbour that differs in one thing and is taken.
func TestLedgerRefuses(t *testing.T) {
	sealing := sealed(t, owner, seal())
	reg := registered(t, runner, register(1))
	cp := checkpointed(t, runner, head(1, 7))
	fin := finished(t, runner, final(1, 9))
	other := withRegister(1, func(r *Register) { r.Run = runID(2) }) // the same attempt
	finalAt7 := func(root string) Final {
		f := final(1, 7)
		f.Head = withRoot(f.Head, root)
		return f
	}
	atCheckpoint := final(1, 7)
	for _, c := range []struct {
		name      string
		id        ID
		part      string
		before    []*Entry
		bad, good *Entry
	}{
		{"RT19 no SEAL yet", SealMissing, "no SEAL of this log", []*Entry{sealed(t, owner, Seal{"bench", receipt.KindBenchmark, sum("another head")})},
			reg, registered(t, runner, withRegister(1, func(r *Register) { r.Sealed = sum("another head") }))},
		{"the SEAL of the part, not of the head", SealMissing, "no SEAL of this log", []*Entry{sealing},
			registered(t, runner, withRegister(1, func(r *Register) { r.Sealed, r.Seal = r.Seal, r.Sealed })), reg},
		{"RT82 an attempt twice", RegisterAgain, "trial 1, attempt 1, want", []*Entry{sealing, reg},
			registered(t, runner, other), registered(t, runner, withRegister(2, func(r *Register) { r.Attempt = 2 }))},
		{"RT81 a run id for two tasks", RegisterAgain, "is entry 1", []*Entry{sealing, reg},
			registered(t, runner, withRegister(1, func(r *Register) { r.Task = "task 2" })), registered(t, runner, withRegister(2, func(r *Register) { r.Task = "task 2" }))},
		{"a checkpoint before the run", CheckpointUnregistered, "not registered", []*Entry{sealing, reg},
			checkpointed(t, runner, head(2, 7)), cp},
		{"a checkpoint of fewer rows", CheckpointBack, "more than the 7", []*Entry{sealing, reg, cp},
			checkpointed(t, runner, head(1, 6)), checkpointed(t, runner, head(1, 8))},
		{"a second checkpoint of as many rows", CheckpointBack, "is entry 2", []*Entry{sealing, reg, cp},
			checkpointed(t, runner, withRoot(head(1, 7), "other")), checkpointed(t, runner, withRoot(head(1, 8), "other"))},
		{"the end of no run", FinalUnregistered, "not registered", []*Entry{sealing, reg},
			finished(t, runner, final(2, 9)), fin},
		{"RT3 rows dropped after a checkpoint", FinalShort, "at least the 7", []*Entry{sealing, reg, cp},
			finished(t, runner, final(1, 6)), finished(t, runner, atCheckpoint)},
		{"RT3 rows exchanged before a checkpoint", FinalHead, "that of its CHECKPOINT", []*Entry{sealing, reg, cp},
			finished(t, runner, finalAt7("other")), finished(t, runner, atCheckpoint)},
		{"RT9 a second end", FinalAgain, "is entry 3", []*Entry{sealing, reg, cp, fin},
			finished(t, runner, final(1, 10)), attested(t, runner, head(1, 9))},
		{"RT15 rows after the end", AfterFinal, "is entry 3", []*Entry{sealing, reg, cp, fin},
			checkpointed(t, runner, head(1, 10)), attested(t, runner, head(1, 9))},
		{"RT8 a receipt of a run that goes on", AttestUnfinished, "no FINAL", []*Entry{sealing, reg, cp},
			attested(t, runner, head(1, 7)), finished(t, runner, final(1, 7))},
		{"a receipt of no run", AttestUnfinished, "not registered", []*Entry{sealing, reg, cp, fin},
			attested(t, runner, head(2, 9)), attested(t, runner, head(1, 9))},
		{"RT2 a receipt over fewer rows", AttestHead, "as its FINAL says", []*Entry{sealing, reg, cp, fin},
			attested(t, runner, head(1, 7)), attested(t, runner, head(1, 9))},
		{"RT7 a receipt over other rows", AttestHead, "is entry 3", []*Entry{sealing, reg, cp, fin},
			attested(t, runner, withRoot(head(1, 9), "other")), attested(t, runner, head(1, 9))},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledgerOf(t, c.before...)
			wantRefusal(t, "bad", l.Check(c.bad), c.id, c.part)
			// Checking, and applying what is refused, change nothing.
			l.Apply(c.bad, 99)
			if want := ledgerOf(t, c.before...); !reflect.DeepEqual(l, want) {
				t.Errorf("got a changed ledger")
			}
			if err := l.Check(c.good); err != nil {
				t.Errorf("the neighbour: got %v", err)
			}
		})
	}
}

// The same bytes again are no second statement, whatever came after them.
func TestSameBytesAgain(t *testing.T) {
	list := []*Entry{sealed(t, owner, seal()), registered(t, runner, register(1)), checkpointed(t, runner, head(1, 7)), checkpointed(t, runner, head(1, 8)),
		finished(t, runner, final(1, 9)), attested(t, runner, head(1, 9)), open(t, runner, signSubmission(runner, 1), nil)}
	l := ledgerOf(t, list...)
	want := ledgerOf(t, list...)
	for i, e := range list {
		if err := l.Check(e); err != nil {
			t.Errorf("%v: got %v", e.Kind(), err)
		}
		l.Apply(e, 50)
		if at, ok := l.Index(e.Leaf()); !ok || at != uint64(i) {
			t.Errorf("%v: got index %d, %v, want %d", e.Kind(), at, ok, i)
		}
	}
	if !reflect.DeepEqual(l, want) {
		t.Error("got a changed ledger")
	}
	if _, ok := l.Index(sum("no leaf")); ok {
		t.Error("found an entry that is not there")
	}
	wantRefusal(t, "control: the same checkpoint of another spelling is another statement", l.Check(checkpointed(t, runner, withRoot(head(1, 8), "other"))), AfterFinal, "")
}

// A run id is public once it is registered. Who takes it, or an attempt of it,
// stops nobody, and speaks for nobody.
func TestOtherIssuersRun(t *testing.T) {
	l := ledgerOf(t, sealed(t, owner, seal()),
		registered(t, attacker, register(1)), checkpointed(t, attacker, head(1, 100)), finished(t, attacker, final(1, 100)), // first of all
		registered(t, runner, register(1)))
	wantRefusal(t, "the receipt of an honest run by another key", l.Check(attested(t, attacker, head(1, 9))), AttestHead, "100 rows")
	for i, e := range []*Entry{checkpointed(t, runner, head(1, 7)), finished(t, runner, final(1, 9)), attested(t, runner, head(1, 9))} {
		if err := l.Check(e); err != nil {
			t.Fatalf("the honest run: %v: got %v", e.Kind(), err)
		}
		l.Apply(e, uint64(5+i))
	}
	third := newKey("third.example/key")
	wantRefusal(t, "CHECKPOINT by a key without runs", l.Check(checkpointed(t, third, head(1, 200))), CheckpointUnregistered, "third.example/key has not")
	wantRefusal(t, "FINAL", l.Check(finished(t, third, final(1, 200))), FinalUnregistered, "third.example/key has not")
	wantRefusal(t, "ATTEST", l.Check(attested(t, third, head(1, 9))), AttestUnfinished, "third.example/key has not")
}

// Every part of an attempt tells it from others.
func TestAttemptIdentity(t *testing.T) {
	l := ledgerOf(t, sealed(t, owner, seal()), sealed(t, owner, Seal{"bench", receipt.KindBenchmark, sum("head 2")}), registered(t, runner, register(1)))
	for name, c := range map[string]struct {
		key    key
		change func(*Register)
		same   bool
	}{
		"nothing":             {runner, func(r *Register) {}, true},
		"seal of the part":    {runner, func(r *Register) { r.Seal = sum("other") }, true},
		"baseline":            {runner, func(r *Register) { r.Baseline = sum("other") }, true},
		"scope":               {runner, func(r *Register) { r.Scope = sum("other") }, true},
		"recorder":            {runner, func(r *Register) { r.Recorder = "other" }, true},
		"start":               {runner, func(r *Register) { r.Start = sum("other") }, true},
		"issuer":              {attacker, func(r *Register) {}, false},
		"benchmark":           {runner, func(r *Register) { r.Benchmark = "bench 2" }, false},
		"task":                {runner, func(r *Register) { r.Task = "täsk 2" }, false},
		"task, decomposed":    {runner, func(r *Register) { r.Task = "ta\u0308sk 1" }, false},
		"border of the names": {runner, func(r *Register) { r.Benchmark, r.Task = "benchtäsk", " 1" }, false},
		"sealed":              {runner, func(r *Register) { r.Sealed = sum("head 2") }, false},
		"agent":               {runner, func(r *Register) { r.Agent = sum("other") }, false},
		"model":               {runner, func(r *Register) { r.Model = sum("other") }, false},
		"agent and model":     {runner, func(r *Register) { r.Agent, r.Model = r.Model, r.Agent }, false},
		"trial":               {runner, func(r *Register) { r.Trial = 2 }, false},
		"attempt":             {runner, func(r *Register) { r.Attempt = 2 }, false},
		"trial and attempt":   {runner, func(r *Register) { r.Trial, r.Attempt = 257, 1<<24 }, false},
	} {
		err := l.Check(registered(t, c.key, withRegister(1, func(r *Register) { r.Run = runID(2); c.change(r) })))
		if c.same {
			wantRefusal(t, name, err, RegisterAgain, "is entry 2")
		} else if err != nil {
			t.Errorf("%s: got %v, want another attempt", name, err)
		}
	}
}

// An owner who seals what another owner sealed first hides nothing.
func TestSealsOfOwners(t *testing.T) {
	l := ledgerOf(t, sealed(t, owner2, seal()), sealed(t, owner, seal()), sealed(t, owner, Seal{"bench 2", receipt.KindBenchmark, sum("head")}),
		sealed(t, owner, Seal{"bench/t", receipt.KindSealedSet, sum("set")}))
	thumb := func(k key) [32]byte { return k.public.Thumbprint() }
	for _, c := range []struct {
		digest, by [32]byte
		any, own   int // -1: none
	}{
		{sum("head"), thumb(owner), 0, 1},
		{sum("head"), thumb(owner2), 0, 0},
		{sum("head"), thumb(runner), 0, -1},
		{sum("set"), thumb(owner2), 3, -1},
		{sum("set"), thumb(owner), 3, 3},
		{sum("none"), thumb(owner), -1, -1},
	} {
		if index, ok := l.Seal(c.digest); ok != (c.any >= 0) || ok && index != uint64(c.any) {
			t.Errorf("%x: got %d, %v, want %d", c.digest[:2], index, ok, c.any)
		}
		if index, ok := l.SealBy(c.digest, c.by); ok != (c.own >= 0) || ok && index != uint64(c.own) {
			t.Errorf("%x by %x: got %d, %v, want %d", c.digest[:2], c.by[:2], index, ok, c.own)
		}
	}
}

func TestOpenAndMissing(t *testing.T) {
	reg := func(n, attempt byte) *Entry {
		return registered(t, runner, withRegister(n, func(r *Register) { r.Attempt = uint32(attempt) }))
	}
	l := ledgerOf(t, sealed(t, owner, seal()), reg(1, 1), reg(3, 3), reg(2, 2), reg(4, 4), registered(t, attacker, register(2)),
		checkpointed(t, runner, head(3, 7)), checkpointed(t, runner, head(3, 9)), finished(t, runner, final(2, 9)))
	thumb, other := runner.public.Thumbprint(), attacker.public.Thumbprint()
	if got, want := l.AttemptsMissing(), []Missing{{thumb, runID(3), 3, 2}, {other, runID(2), 2, 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("missing: got %v, want %v", got, want)
	}
	want := []Run{{thumb, runID(1), 1, 1, journal.Head{Run: runID(1)}, 0}, {thumb, runID(3), 2, 7, head(3, 9), 2},
		{thumb, runID(4), 4, 4, journal.Head{Run: runID(4)}, 0}, {other, runID(2), 5, 5, journal.Head{Run: runID(2)}, 0}}
	if got := l.Open(); !reflect.DeepEqual(got, want) {
		t.Errorf("open: got %v, want %v", got, want)
	}
}

// Heads of two journals under one registration, of which one is shown: the log has
// more CHECKPOINTs than the FINAL names.
func TestRT3_CheckpointsHidden(t *testing.T) {
	named := func(n byte, checkpoints uint64) *Entry {
		f := final(n, 9)
		f.Checkpoints = checkpoints
		return finished(t, runner, f)
	}
	l := ledgerOf(t, sealed(t, owner, seal()),
		registered(t, runner, register(1)), checkpointed(t, runner, head(1, 5)), checkpointed(t, runner, withRoot(head(1, 6), "the other")), checkpointed(t, runner, head(1, 7)), named(1, 2),
		registered(t, runner, register(2)), checkpointed(t, runner, head(2, 5)), named(2, 1), // all named
		registered(t, runner, register(3)), named(3, 1), // more than there are
		registered(t, runner, register(4)), checkpointed(t, runner, head(4, 5))) // goes on
	thumb := runner.public.Thumbprint()
	if got, want := l.CheckpointsHidden(), []Hidden{{thumb, runID(1), 2, 3, 5}, {thumb, runID(3), 1, 0, 10}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Two entries that contradict each other share a key, so that they are never on
// their way at once; runs of two attempts share none.
func TestConflicts(t *testing.T) {
	a := []*Entry{registered(t, runner, register(1)), checkpointed(t, runner, head(1, 7)), finished(t, runner, final(1, 9)), attested(t, runner, head(1, 9))}
	share := func(x, y *Entry) bool {
		for _, k := range x.Conflicts() {
			for _, l := range y.Conflicts() {
				if k == l {
					return true
				}
			}
		}
		return false
	}
	for i, x := range a {
		for j, y := range a {
			if !share(x, y) {
				t.Errorf("entries %d and %d of a run share no key", i, j)
			}
		}
	}
	retry := registered(t, runner, register(2)) // attempt 2 of the trial
	elsewhere := registered(t, runner, withRegister(3, func(r *Register) { r.Trial = 2 }))
	if !share(a[0], retry) || share(a[1], retry) || share(a[0], elsewhere) {
		t.Errorf("got %v %v %v, want only the first", share(a[0], retry), share(a[1], retry), share(a[0], elsewhere))
	}
	if s := sealed(t, owner, seal()); !share(s, sealed(t, owner2, seal())) || share(s, a[0]) {
		t.Error("SEALs: want those of one digest to share a key, and no other")
	}
	if share(a[1], checkpointed(t, attacker, head(1, 7))) {
		t.Error("runs of two issuers share a key")
	}
}

// bare is an entry as Verify would give it, without the signature.
func bare(k key, kind Kind, b body, n int) *Entry {
	return &Entry{kind: kind, key: k.public, subject: "x", leaf: sum(fmt.Sprint("leaf ", n)), body: b}
}

// fill applies a number of runs: REGISTER, two CHECKPOINTs, FINAL and ATTEST each.
func fill(l *Ledger, runs int) (entries int) {
	add := func(kind Kind, b body) {
		l.Apply(bare(runner, kind, b, entries), uint64(entries))
		entries++
	}
	add(KindSeal, body{seal: seal()})
	for i := range runs {
		run := [16]byte{1, byte(i), byte(i >> 8), byte(i >> 16)}
		r := register(1)
		r.Run, r.Trial = run, uint32(i+1)
		add(KindRegister, body{register: r})
		h := journal.Head{Run: run, Size: 5, Root: sum("x")}
		add(KindCheckpoint, body{head: h})
		h.Size++
		add(KindCheckpoint, body{head: h})
		add(KindFinal, body{final: Final{Head: h}})
		add(KindAttest, body{attest: Attest{Head: h}})
	}
	return entries
}

// A log of 100,000 entries has a ledger of a few megabytes.
func TestLedgerIsSmall(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	l := NewLedger()
	const runs = 20_000
	entries := fill(l, runs)
	used := int64(heap()) - int64(before)
	t.Logf("%d entries: %d bytes, %d a run", entries, used, used/runs)
	if len(l.states) != runs || len(l.entries) != entries {
		t.Fatalf("got %d runs, %d entries", len(l.states), len(l.entries))
	}
	if used > 20<<20 {
		t.Errorf("got %d bytes for %d entries, want at most 20 MiB", used, entries)
	}
	runtime.KeepAlive(l)
}
