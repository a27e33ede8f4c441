package registry_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// signer is a key made from its name.
type signer struct {
	public  receipt.PublicKey
	private ed25519.PrivateKey
}

func newSigner(t testing.TB, name string) *signer {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	k := ed25519.NewKeyFromSeed(seed[:])
	p, err := receipt.NewPublicKey(name, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	return &signer{p, k}
}

func (s *signer) Public() receipt.PublicKey     { return s.public }
func (s *signer) Sign(b []byte) ([]byte, error) { return ed25519.Sign(s.private, b), nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sum(text string) [32]byte { return sha256.Sum256([]byte(text)) }

// cast is who takes part in a test.
type cast struct{ log, owner, runner, other *signer }

func newCast(t testing.TB) cast {
	return cast{newSigner(t, "log.example/1"), newSigner(t, "owner.example"), newSigner(t, "runner.example"), newSigner(t, "other.example")}
}

func (c cast) admit() func(entry.Role, [32]byte) (receipt.PublicKey, bool) {
	return registry.Admit([]receipt.PublicKey{c.owner.public}, []receipt.PublicKey{c.runner.public})
}

func (c cast) seal(text string) []byte {
	return must(entry.SignSeal(c.owner, entry.Seal{Subject: "bench", Of: receipt.KindBenchmark, Digest: sum(text)}))
}

func runID(n int) (run [16]byte) {
	s := sha256.Sum256(fmt.Appendf(nil, "run %d", n))
	return [16]byte(s[:16])
}

// register is attempt 1 of trial n, with a run id of its own.
func (c cast) register(n int, change ...func(*entry.Register)) []byte {
	r := entry.Register{Run: runID(n), Benchmark: "bench", Task: "task", Trial: uint32(n + 1), Attempt: 1, Seal: sum("part"), Sealed: sum("head"),
		Baseline: sum("baseline"), Scope: sum("scope"), Agent: sum("agent"), Model: sum("model"), Recorder: "0.4.0", Start: sum("start")}
	for _, f := range change {
		f(&r)
	}
	return must(entry.SignRegister(c.runner, r))
}

func head(n int, size uint64) journal.Head {
	return journal.Head{Run: runID(n), Size: size, Root: sum(fmt.Sprintf("root %d %d", n, size))}
}

func (c cast) checkpoint(n int, size uint64) []byte {
	return must(entry.SignCheckpoint(c.runner, head(n, size)))
}

func (c cast) final(n int, size, checkpoints uint64) []byte {
	return must(entry.SignFinal(c.runner, entry.Final{Head: head(n, size), Outcome: journal.Completed, Checkpoints: checkpoints,
		Counts: []journal.OpCount{{Phase: journal.PhaseSetup, Op: journal.OpStart, N: 1}, {Phase: journal.PhaseAgent, Op: journal.OpOpen, N: size - 2}}}))
}

// folder makes a log in a new folder.
func (c cast) folder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	if err := tlog.Init(t.Context(), dir, c.log); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (c cast) openLog(t testing.TB, dir string) tlog.Log {
	t.Helper()
	l, err := tlog.Open(t.Context(), dir, c.log)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c cast) open(t testing.TB, l tlog.Log) *registry.Service {
	t.Helper()
	s, err := registry.Open(t.Context(), registry.Options{Log: l, Key: c.log, Admit: c.admit()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t testing.TB, r registry.Registry, statement []byte) registry.Logged {
	t.Helper()
	l, err := r.Add(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refused asserts that an Add ended with a refusal of this id.
func refused(t testing.TB, r registry.Registry, id entry.ID, statement []byte) {
	t.Helper()
	_, err := r.Add(t.Context(), statement)
	if got, ok := errors.AsType[*entry.Refusal](err); !ok || got.ID != id {
		t.Errorf("got %v, want %s", err, id)
	}
}

// checkLogged verifies a receipt with the log's key alone.
func checkLogged(t testing.TB, c cast, l registry.Logged, statement []byte) {
	t.Helper()
	u, err := receipt.ParseLogReceipt(l.Receipt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := u.VerifyInclusion(c.log.public, statement)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Inclusion().Index; got != l.Index {
		t.Errorf("got a receipt of entry %d, want %d", got, l.Index)
	}
}

// checkProofs asks for proofs of statements and verifies them.
func checkProofs(t testing.TB, c cast, r registry.Registry, statements map[uint64][]byte, from ...uint64) proof.Checkpoint {
	t.Helper()
	var indexes []uint64
	for i := range statements {
		indexes = append(indexes, i)
	}
	p, err := r.Proofs(t.Context(), indexes, from)
	if err != nil {
		t.Fatal(err)
	}
	v, err := must(proof.ParseCheckpoint(p.Checkpoint)).Verify(c.log.public)
	if err != nil {
		t.Fatal(err)
	}
	cp := v.Checkpoint()
	for n, i := range indexes {
		if err := proof.Inclusion(i, cp.Size, receipt.LeafHash(statements[i]), p.Inclusion[n], cp.Root); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if n := len(indexes) - 1; n >= 0 {
		in, err := must(receipt.ParseLogReceipt(p.Receipt)).VerifyInclusion(c.log.public, statements[indexes[n]])
		if err != nil || in.Size() != cp.Size || in.Root() != cp.Root {
			t.Errorf("the receipt of the last: %v, size %d, want that of checkpoint %d", err, in.Size(), cp.Size)
		}
	}
	return cp
}

// A run's entries in their order, then what contradicts them.
func TestAdd(t *testing.T) {
	c := newCast(t)
	before := runtime.NumGoroutine()
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	statements := map[uint64][]byte{}
	for i, e := range [][]byte{c.seal("head"), c.register(1), c.checkpoint(1, 10), c.checkpoint(1, 20), c.final(1, 30, 2), c.register(2)} {
		l := add(t, s, e)
		if l.Index != uint64(i) {
			t.Errorf("got index %d, want %d", l.Index, i)
		}
		checkLogged(t, c, l, e)
		statements[l.Index] = e
	}
	cp := checkProofs(t, c, s, statements)
	again := add(t, s, statements[1])
	if again.Index != 1 {
		t.Errorf("equal bytes: got index %d, want 1", again.Index)
	}
	checkLogged(t, c, again, statements[1])
	if i, err := s.Seal(t.Context(), sum("head")); i != 0 || err != nil {
		t.Errorf("Seal: got %d, %v", i, err)
	}
	if _, err := s.Seal(t.Context(), sum("nothing")); !errors.Is(err, registry.ErrNoSeal) {
		t.Errorf("Seal: got %v, want ErrNoSeal", err)
	}
	if b, err := s.Entry(t.Context(), 3); err != nil || !bytes.Equal(b, statements[3]) {
		t.Errorf("Entry: got %x, %v", b, err)
	}
	if _, err := s.Entry(t.Context(), 6); !errors.Is(err, registry.ErrNoEntry) {
		t.Errorf("Entry: got %v, want ErrNoEntry", err)
	}
	if _, err := s.Proofs(t.Context(), []uint64{6}, nil); !errors.Is(err, registry.ErrNoEntry) {
		t.Errorf("Proofs: got %v, want ErrNoEntry", err)
	}
	for _, from := range []uint64{0, 7} {
		if _, err := s.Proofs(t.Context(), nil, []uint64{from}); !errors.Is(err, registry.ErrNoEntry) {
			t.Errorf("Proofs from %d: got %v, want ErrNoEntry", from, err)
		}
	}
	contradictions := func(s registry.Registry) {
		t.Helper()
		sameAttempt := func(r *entry.Register) { r.Run = runID(77) }
		refused(t, s, entry.RegisterAgain, c.register(1, sameAttempt))
		refused(t, s, entry.SealMissing, c.register(3, func(r *entry.Register) { r.Sealed = sum("unsealed") }))
		refused(t, s, entry.AfterFinal, c.checkpoint(1, 40))
		refused(t, s, entry.FinalAgain, c.final(1, 31, 2))
		refused(t, s, entry.CheckpointUnregistered, c.checkpoint(5, 10))
		refused(t, s, entry.NotAnEntry, []byte("no entry"))
		stranger := c
		stranger.runner = c.other
		refused(t, s, entry.UnknownIssuer, stranger.register(4))
		stranger.owner = c.runner // a runner who seals
		refused(t, s, entry.UnknownIssuer, stranger.seal("mine"))
		bad := bytes.Clone(c.register(6))
		bad[len(bad)-1] ^= 1
		refused(t, s, entry.BadSignature, bad)
	}
	contradictions(s)
	if got := checkProofs(t, c, s, statements, cp.Size); got != cp {
		t.Errorf("refused entries changed the log: %v, want %v", got, cp)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(t.Context(), c.register(9)); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("after Close: got %v, want ErrUnavailable", err)
	}

	// What was logged is known to who opens the log again.
	s = c.open(t, c.openLog(t, dir))
	if f, n := s.Faults(); n != 0 {
		t.Errorf("got faults %v", f)
	}
	contradictions(s)
	checkProofs(t, c, s, statements)
	checkLogged(t, c, add(t, s, c.final(2, 5, 0)), c.final(2, 5, 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	noneLeft(t, before)
}

// noneLeft waits for goroutines to end; a minute is for a loaded machine.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("goroutines left:\n%s", b[:runtime.Stack(b, true)])
		}
	}
}

// Of many that contradict each other and are added at once, one is logged.
func TestOneOfManyWins(t *testing.T) {
	c := newCast(t)
	l := c.openLog(t, c.folder(t))
	s := c.open(t, l)
	add(t, s, c.seal("head"))
	var wg sync.WaitGroup
	var won, lost atomic.Int32
	for i := range 40 {
		wg.Go(func() {
			_, err := s.Add(t.Context(), c.register(1, func(r *entry.Register) { r.Run = runID(100 + i) }))
			if r, ok := errors.AsType[*entry.Refusal](err); ok && r.ID == entry.RegisterAgain {
				lost.Add(1)
			} else if err == nil {
				won.Add(1)
			} else {
				t.Error(err)
			}
		})
		// Equal bytes at the same time get one index.
		wg.Go(func() {
			if l, err := s.Add(t.Context(), c.seal("second")); err != nil || l.Index > 2 {
				t.Errorf("got %d, %v, want one index", l.Index, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 39 {
		t.Errorf("%d were logged, %d refused, want 1 and 39", won.Load(), lost.Load())
	}
	if n := size(t, l); n != 3 {
		t.Errorf("got %d entries, want 3", n)
	}
}

func size(t testing.TB, l tlog.Log) uint64 {
	t.Helper()
	return must(proof.ParseCheckpoint(must(l.Checkpoint(t.Context())))).Checkpoint().Size
}

// failing is a log whose Add fails, before or after the entry is in it.
type failing struct {
	tlog.Log
	mode atomic.Int32
}

const (
	works = iota
	failsBefore
	failsAfter
	unpublished
)

func (f *failing) Wait(ctx context.Context, index uint64) ([]byte, error) {
	if f.mode.Load() == unpublished {
		return nil, tlog.ErrUnpublished
	}
	return f.Log.Wait(ctx, index)
}

func (f *failing) Add(ctx context.Context, b []byte) (uint64, error) {
	switch f.mode.Load() {
	case failsBefore:
		return 0, fmt.Errorf("test: %w", tlog.ErrFull)
	case failsAfter:
		i, err := f.Log.Add(ctx, b)
		if err == nil {
			_, err = f.Log.Wait(ctx, i)
		}
		return 0, errors.Join(errors.New("test: the answer was lost"), err)
	}
	return f.Log.Add(ctx, b)
}

// An entry of which nobody knows whether it is in the log keeps out what contradicts
// it, until the log has said so.
func TestDoubt(t *testing.T) {
	c := newCast(t)
	contradiction := c.register(1, func(r *entry.Register) { r.Run = runID(50) })
	for _, mode := range []int32{failsBefore, failsAfter} {
		dir := c.folder(t)
		l := &failing{Log: c.openLog(t, dir)}
		s := c.open(t, l)
		add(t, s, c.seal("head"))
		l.mode.Store(mode)
		if _, err := s.Add(t.Context(), c.register(1)); !errors.Is(err, registry.ErrUnavailable) {
			t.Fatalf("mode %d: got %v, want ErrUnavailable", mode, err)
		}
		if mode == failsBefore {
			if err := s.Health(t.Context()); !errors.Is(err, tlog.ErrFull) {
				t.Errorf("health: got %v, want ErrFull", err)
			}
			if _, err := s.Add(t.Context(), contradiction); !errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("a contradiction of a doubtful entry: got %v, want ErrUnavailable", err)
			}
		}
		l.mode.Store(works)
		refused(t, s, entry.RegisterAgain, contradiction)
		if err := s.Health(t.Context()); err != nil {
			t.Errorf("health: %v", err)
		}
		if got := add(t, s, c.register(1)); got.Index != 1 {
			t.Errorf("mode %d: the same bytes again: got index %d, want 1", mode, got.Index)
		}
		if n := size(t, l); n != 2 {
			t.Errorf("mode %d: got %d entries, want 2", mode, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := tlogCheck(t, dir, c); n != 2 {
			t.Errorf("mode %d: log check: got %d entries, want 2", mode, n)
		}
	}
}

func tlogCheck(t testing.TB, dir string, c cast) uint64 {
	t.Helper()
	n, err := tlog.Check(t.Context(), dir, c.log.public)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A full log is tried again by who asks for its health, and not more than so many
// entries are kept for it.
func TestHealthHeals(t *testing.T) {
	c := newCast(t)
	dir := c.folder(t)
	l := &failing{Log: c.openLog(t, dir)}
	s := c.open(t, l)
	add(t, s, c.seal("head"))
	l.mode.Store(failsBefore)
	for i := range 100 {
		if _, err := s.Add(t.Context(), c.register(i)); !errors.Is(err, registry.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
	}
	if err := s.Health(t.Context()); !errors.Is(err, tlog.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	l.mode.Store(works)
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("got %v, want a log that has recovered", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := tlogCheck(t, dir, c); n != 65 {
		t.Errorf("got %d entries, want the SEAL and the 64 that were kept", n)
	}
}

// An entry that is in the log and in no checkpoint is not acknowledged; it is when it
// is sent again, at the same index.
func TestUnpublished(t *testing.T) {
	c := newCast(t)
	l := &failing{Log: c.openLog(t, c.folder(t))}
	s := c.open(t, l)
	l.mode.Store(unpublished)
	if got, err := s.Add(t.Context(), c.seal("head")); !errors.Is(err, registry.ErrUnavailable) || got.Receipt != nil {
		t.Errorf("got %v, %v, want ErrUnavailable", got, err)
	}
	if err := s.Health(t.Context()); !errors.Is(err, tlog.ErrUnpublished) {
		t.Errorf("health: got %v, want ErrUnpublished", err)
	}
	l.mode.Store(works)
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("health: %v", err)
	}
	if got := add(t, s, c.seal("head")); got.Index != 0 {
		t.Errorf("got index %d, want 0", got.Index)
	}
}

// What somebody else adds to a shared log is read before the next entry is
// acknowledged; one that it contradicts is not.
func TestSharedLog(t *testing.T) {
	c := newCast(t)
	l := c.openLog(t, c.folder(t))
	s := c.open(t, l)
	add(t, s, c.seal("head"))
	foreign := func(b []byte) {
		t.Helper()
		if _, err := l.Add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	foreign(c.register(1))
	foreign([]byte("no entry at all"))
	if got := add(t, s, c.register(2)); got.Index != 3 {
		t.Errorf("got index %d, want 3", got.Index)
	}
	refused(t, s, entry.RegisterAgain, c.register(1, func(r *entry.Register) { r.Run = runID(60) }))
	if got := add(t, s, c.register(1)); got.Index != 1 {
		t.Errorf("got index %d, want that of the other's entry, 1", got.Index)
	}
	foreign(c.register(3))
	// In the log when the contradiction is seen: a fault, and no receipt.
	refused(t, s, entry.RegisterAgain, c.register(3, func(r *entry.Register) { r.Run = runID(61) }))
	faults, n := s.Faults()
	if n != 2 || faults[0].Index != 2 || faults[1].Index != 5 || !strings.Contains(faults[0].Err.Error(), "not-an-entry") {
		t.Errorf("got faults %v, want entries 2 and 5", faults)
	}
}
