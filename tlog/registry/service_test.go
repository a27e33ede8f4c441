package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

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
