package entry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// naive keeps all entries and looks everything up by going through them: the
// sentences of spec/log.md, one by one.
type naive struct {
	list    []*Entry
	indexes []uint64
}

// of are the entries of a kind and run by the issuer of e.
func (n *naive) of(kind Kind, e *Entry) (list []*Entry, indexes []uint64) {
	for i, x := range n.list {
		if x.kind == kind && x.key.Thumbprint() == e.key.Thumbprint() && x.Run() == e.Run() {
			list, indexes = append(list, x), append(indexes, n.indexes[i])
		}
	}
	return list, indexes
}

func (n *naive) index(leaf [32]byte) (uint64, bool) {
	for i, x := range n.list {
		if x.leaf == leaf {
			return n.indexes[i], true
		}
	}
	return 0, false
}

type attempt struct {
	thumb, sealed, agent, model [32]byte
	benchmark, task             string
	trial, attempt              uint32
}

func attemptOf(e *Entry) attempt {
	r := e.Register()
	return attempt{e.key.Thumbprint(), r.Sealed, r.Agent, r.Model, r.Benchmark, r.Task, r.Trial, r.Attempt}
}

// check gives the id of the refusal, "" for none.
func (n *naive) check(e *Entry) ID {
	if _, ok := n.index(e.leaf); ok {
		return ""
	}
	registers, _ := n.of(KindRegister, e)
	checkpoints, _ := n.of(KindCheckpoint, e)
	finals, _ := n.of(KindFinal, e)
	var last journal.Head
	if len(checkpoints) > 0 {
		last = checkpoints[len(checkpoints)-1].Checkpoint()
	}
	switch e.kind {
	case KindRegister:
		sealed := false
		for _, x := range n.list {
			sealed = sealed || x.kind == KindSeal && x.Seal().Digest == e.Register().Sealed
		}
		if !sealed {
			return SealMissing
		}
		for _, x := range n.list {
			if x.kind == KindRegister && attemptOf(x) == attemptOf(e) {
				return RegisterAgain
			}
		}
		if len(registers) > 0 {
			return RegisterAgain
		}
	case KindCheckpoint:
		if len(registers) == 0 {
			return CheckpointUnregistered
		}
		if len(finals) > 0 {
			return AfterFinal
		}
		if e.Checkpoint().Size <= last.Size {
			return CheckpointBack
		}
	case KindFinal:
		if len(registers) == 0 {
			return FinalUnregistered
		}
		if len(finals) > 0 {
			return FinalAgain
		}
		if e.Final().Head.Size < last.Size {
			return FinalShort
		}
		if e.Final().Head.Size == last.Size && e.Final().Head.Root != last.Root {
			return FinalHead
		}
	case KindAttest:
		if len(finals) == 0 {
			return AttestUnfinished
		}
		if finals[0].Final().Head != e.Attest().Head {
			return AttestHead
		}
	}
	return ""
}

func (n *naive) apply(e *Entry, index uint64) {
	if _, ok := n.index(e.leaf); !ok && n.check(e) == "" {
		n.list, n.indexes = append(n.list, e), append(n.indexes, index)
	}
}

func (n *naive) open() (list []Run) {
	for i, x := range n.list {
		if x.kind != KindRegister {
			continue
		}
		if finals, _ := n.of(KindFinal, x); len(finals) > 0 {
			continue
		}
		run := Run{x.key.Thumbprint(), x.Run(), n.indexes[i], n.indexes[i], journal.Head{Run: x.Run()}, 0}
		if checkpoints, at := n.of(KindCheckpoint, x); len(at) > 0 {
			run.Last, run.Head, run.Checkpoints = at[len(at)-1], checkpoints[len(at)-1].Checkpoint(), uint64(len(at))
		}
		list = append(list, run)
	}
	return list
}

func (n *naive) missing() (list []Missing) {
	for i, x := range n.list {
		if x.kind != KindRegister || x.Register().Attempt == 1 {
			continue
		}
		want, found := attemptOf(x), false
		want.attempt--
		for _, y := range n.list[:i] {
			found = found || y.kind == KindRegister && attemptOf(y) == want
		}
		if !found {
			list = append(list, Missing{x.key.Thumbprint(), x.Run(), x.Register().Attempt, n.indexes[i]})
		}
	}
	return list
}

func (n *naive) hidden() (list []Hidden) {
	for i, x := range n.list {
		if x.kind != KindFinal {
			continue
		}
		if checkpoints, _ := n.of(KindCheckpoint, x); uint64(len(checkpoints)) != x.Final().Checkpoints {
			list = append(list, Hidden{x.key.Thumbprint(), x.Run(), x.Final().Checkpoints, uint64(len(checkpoints)), n.indexes[i]})
		}
	}
	return list
}

func (n *naive) seal(digest [32]byte, by *[32]byte) (uint64, bool) {
	for i, x := range n.list {
		if x.kind == KindSeal && x.Seal().Digest == digest && (by == nil || x.key.Thumbprint() == *by) {
			return n.indexes[i], true
		}
	}
	return 0, false
}

// draw makes an entry out of few values, so that they meet.
func draw(rng *rand.Rand, n int) *Entry {
	pick := func(list ...string) [32]byte { return sum(list[rng.IntN(len(list))]) }
	kind := []Kind{KindSeal, KindRegister, KindRegister, KindCheckpoint, KindCheckpoint, KindCheckpoint, KindFinal, KindAttest, KindAttest, KindSubmit}[rng.IntN(10)]
	k := []key{runner, runner, attacker}[rng.IntN(3)]
	h := journal.Head{Run: runID(byte(rng.IntN(6))), Size: uint64(1 + rng.IntN(4)), Root: pick("a", "b")}
	var b body
	switch kind {
	case KindSeal:
		k = []key{owner, owner2}[rng.IntN(2)]
		b.seal = Seal{"bench", receipt.KindBenchmark, pick("head", "head 2", "head 3")}
	case KindRegister:
		b.register = register(1)
		b.register.Run, b.register.Sealed, b.register.Agent = h.Run, pick("head", "head 2", "head 3"), pick("agent", "agent", "agent 2")
		b.register.Trial, b.register.Attempt = uint32(1+rng.IntN(2)), uint32(1+rng.IntN(4))
	case KindCheckpoint:
		b.head = h
	case KindFinal:
		b.final.Head, b.final.Checkpoints = h, uint64(rng.IntN(3))
	case KindAttest:
		b.attest.Head = h
	}
	return bare(k, kind, b, n)
}

// The ledger answers as the naive one does, whatever comes.
func TestLedgerIsThatOfTheOracle(t *testing.T) {
	seen := map[ID]int{}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l, n := NewLedger(), &naive{}
		var past []*Entry
		for i := range 150 {
			e := draw(rng, i)
			if len(past) > 0 && rng.IntN(10) == 0 {
				e = past[rng.IntN(len(past))]
			}
			past = append(past, e)
			var got ID
			if err := l.Check(e); err != nil {
				var r *Refusal
				if !errors.As(err, &r) {
					t.Fatal(err)
				}
				got = r.ID
			}
			if want := n.check(e); got != want {
				t.Fatalf("seed %d, step %d, %v: got %q, want %q", seed, i, e.kind, got, want)
			}
			seen[got]++
			index := uint64(3 * i)
			l.Apply(e, index)
			n.apply(e, index)
			compareLedgers(t, fmt.Sprintf("seed %d, step %d", seed, i), l, n, e)
		}
	}
	for _, id := range append(IDs[:11:11], "") {
		if seen[id] < 20 {
			t.Errorf("%q came up %d times, want 20: the sequences are too tame", id, seen[id])
		}
	}
}

func compareLedgers(t *testing.T, at string, l *Ledger, n *naive, e *Entry) {
	t.Helper()
	if got, want := l.Open(), n.open(); !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: open: got %v, want %v", at, got, want)
	}
	if got, want := l.AttemptsMissing(), n.missing(); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: missing: got %v, want %v", at, got, want)
	}
	if got, want := l.CheckpointsHidden(), n.hidden(); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: hidden: got %v, want %v", at, got, want)
	}
	type place struct {
		index uint64
		ok    bool
	}
	a, b := place{}, place{}
	a.index, a.ok = l.Index(e.leaf)
	b.index, b.ok = n.index(e.leaf)
	if a != b {
		t.Fatalf("%s: index: got %v, want %v", at, a, b)
	}
	for _, name := range []string{"head", "head 2", "head 3"} {
		a.index, a.ok = l.Seal(sum(name))
		if b.index, b.ok = n.seal(sum(name), nil); a != b {
			t.Fatalf("%s: seal: got %v, want %v", at, a, b)
		}
		for _, k := range []key{owner, owner2, runner} {
			thumb := k.public.Thumbprint()
			a.index, a.ok = l.SealBy(sum(name), thumb)
			if b.index, b.ok = n.seal(sum(name), &thumb); a != b {
				t.Fatalf("%s: seal by %s: got %v, want %v", at, k.public.Name(), a, b)
			}
		}
	}
}
