package runlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

func init() { pauseMin, pauseMax = time.Millisecond, 2*time.Millisecond }

var owner, runner = fixture.NewKey("owner.example/1"), fixture.NewKey("runner.example/1")

var secret = journal.Secret{1}

// A whole run: what it leaves proves itself.
func TestRun(t *testing.T) {
	b := newBench(t)
	r := b.run()
	b.register(r)
	r.Head(b.rows(3))
	b.wait(3)
	r.Head(b.rows(3))
	b.wait(4)
	b.end()
	if n, failed, err := r.Stop(t.Context()); n != 2 || failed != 0 || err != nil {
		t.Errorf("Stop: got %d, %d, %v, want 2 CHECKPOINTs", n, failed, err)
	}
	for range 2 { // the second time nothing is left to do
		if err := b.c.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cose := b.attest()
	logProof, member, err := b.c.Members(t.Context(), cose)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry.Kind{entry.KindSeal, entry.KindRegister, entry.KindCheckpoint, entry.KindCheckpoint, entry.KindFinal, entry.KindAttest}
	if got := b.log.kinds(); !slices.Equal(got, want) {
		t.Errorf("got the log %v, want %v", got, want)
	}
	m, err := receipt.ParseLog(member)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proof.ParseLogProof(logProof)
	if err != nil {
		t.Fatal(err)
	}
	u, err := proof.ParseCheckpoint(p.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	newest := u.Checkpoint()
	if newest.Size != 6 || p.Index != 5 || proof.Inclusion(p.Index, newest.Size, receipt.LeafHash(cose), p.Path, newest.Root) != nil {
		t.Errorf("got log.tlog-proof for index %d of %d, want the receipt's at 5 of 6", p.Index, newest.Size)
	}
	for i, e := range slices.Concat([]receipt.LogEntry{m.Seal, m.Register}, m.Checkpoints, []receipt.LogEntry{m.Final}) {
		if e.Index != uint64(i) || proof.Inclusion(e.Index, newest.Size, receipt.LeafHash(e.Statement), e.Path, newest.Root) != nil {
			t.Errorf("entry %d: got index %d or a proof that does not hold", i, e.Index)
		}
	}
	e, err := entry.Parse(m.Final.Statement)
	if err != nil {
		t.Fatal(err)
	}
	final, err := e.Verify(runner.Public())
	if err != nil {
		t.Fatal(err)
	}
	if f := final.Final(); f.Checkpoints != 2 || f.Code != 3 || f.Outcome != journal.Failed || f.Head.Size != 8 {
		t.Errorf("got FINAL %+v, want 2 CHECKPOINTs, code 3, 8 rows", f)
	}
	again, member2, err := b.c.Members(t.Context(), cose)
	if err != nil || !bytes.Equal(again, logProof) || !bytes.Equal(member2, member) {
		t.Errorf("the log has not grown: got other members, %v, want the same", err)
	}
}

// The SEAL of a benchmark's part is that of the head.
func TestPart(t *testing.T) {
	b := newBench(t)
	head, err := receipt.Sign1(receipt.KindBenchmark, owner, "bench", []byte{0xa0})
	if err != nil {
		t.Fatal(err)
	}
	part, err := receipt.FormatPart(&receipt.Part{Head: head, Set: []byte{0xa0}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(b.c, part)
	if err != nil {
		t.Fatal(err)
	}
	if r.sealed != sha256.Sum256(head) {
		t.Errorf("got the SEAL %x, want the one over the head", r.sealed)
	}
}

// TestRT13_StartOlderThanRegistration is the producing half: the start row holds the
// registration, so none is written before the log has it, and a start row that was
// changed or written again is not the registered one.
func TestRT13_StartOlderThanRegistration(t *testing.T) {
	b := newBench(t)
	r := b.run()
	asked := 0
	b.log.fail = func(what string) error {
		if _, err := os.Stat(filepath.Join(b.c.Dir, journal.RowsFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a start row already", what)
		}
		asked++
		return nil
	}
	if err := r.Register(t.Context(), &b.start); err != nil || asked == 0 {
		t.Fatal(asked, err)
	}
	b.log.fail = nil
	s, err := proof.ParseCheckpoint(*b.start.Freshness)
	if err != nil {
		t.Fatal(err)
	}
	if at := *b.state().Register.Index; at >= s.Checkpoint().Size {
		t.Errorf("REGISTER has index %d, want less than the %d entries of the start row's checkpoint", at, s.Checkpoint().Size)
	}
	t.Run("positive control", func(t *testing.T) {
		b.t = t
		b.open()
		b.end()
		if err := b.c.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("another start row", func(t *testing.T) {
		other := newBench(t)
		o := other.run()
		if err := o.Register(t.Context(), &other.start); err != nil {
			t.Fatal(err)
		}
		other.start.Agent = "another"
		other.open()
		other.end()
		var d *entry.Difference
		if err := other.c.Finish(t.Context()); !errors.As(err, &d) || d.Field != "agent" {
			t.Errorf("got %v, want that the agent differs", err)
		}
	})
}

// TestRT14_CheckpointInterval is the producing half: a head that the log did not
// acknowledge is in no CHECKPOINT that FINAL counts, so the gap is there to be seen.
func TestRT14_CheckpointInterval(t *testing.T) {
	b := newBench(t)
	r := b.run()
	b.register(r)
	away := make(chan bool, 1)
	b.log.mu.Lock()
	b.log.fail = func(what string) error {
		if what != "add" {
			return nil
		}
		select {
		case away <- true:
		default:
		}
		return fmt.Errorf("%w: test", registry.ErrUnavailable)
	}
	b.log.mu.Unlock()
	r.Head(b.rows(1))
	<-away
	<-away // it is tried again
	b.log.mu.Lock()
	b.log.fail = nil
	b.log.mu.Unlock()
	newest := b.rows(1)
	r.Head(newest)
	b.wait(3)
	b.end()
	if n, failed, err := r.Stop(t.Context()); n == 0 || failed < 2 || !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("got %d logged, %d failed, %v, want both and why", n, failed, err)
	}
	if err := b.c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := b.state()
	u, err := entry.Parse(s.Final.Statement)
	if err != nil {
		t.Fatal(err)
	}
	e, err := u.Verify(runner.Public())
	if err != nil || e.Final().Checkpoints != uint64(len(s.Checkpoints)) {
		t.Errorf("FINAL counts %d CHECKPOINTs, %v, want the %d acknowledged", e.Final().Checkpoints, err, len(s.Checkpoints))
	}
}

// A lost answer is asked for again, and nothing is logged twice.
func TestLostAnswers(t *testing.T) {
	b := newBench(t)
	b.c.Patience = time.Minute
	lost := map[int]bool{}
	n := 0
	b.log.fail = func(what string) error {
		if what != "answer" && what != "proofs" {
			return nil
		}
		if n++; n%2 == 1 && n < 10 {
			lost[n] = true
			return fmt.Errorf("%w: lost", registry.ErrUnavailable)
		}
		return nil
	}
	r := b.run()
	b.register(r)
	b.end()
	r.Stop(t.Context())
	if err := b.c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.c.Members(t.Context(), b.attest()); err != nil {
		t.Fatal(err)
	}
	if got := b.log.kinds(); len(got) != 4 || len(lost) == 0 {
		t.Errorf("got %v, %d answers lost, want 4 entries", got, len(lost))
	}
}

// What killed the run left is finished later, from its folder alone.
func TestFinishLater(t *testing.T) {
	for _, step := range []string{"add", "answer", "proofs"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			r := b.run()
			b.register(r)
			r.Head(b.rows(1))
			b.wait(3)
			b.end()
			r.Stop(t.Context())
			b.log.fail = func(what string) error {
				if what == step {
					return fmt.Errorf("%w: test", registry.ErrUnavailable)
				}
				return nil
			}
			if err := b.c.Finish(t.Context()); !errors.Is(err, registry.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
			if s := b.state(); s.Final == nil || s.Closing != nil {
				t.Errorf("got %+v, want a FINAL and no closing checkpoint", s)
			}
			b.log.fail = nil
			if err := b.c.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.c.Members(t.Context(), b.attest()); err != nil {
				t.Error(err)
			}
			if got := b.log.kinds(); len(got) != 5 {
				t.Errorf("got %v, want 5 entries", got)
			}
		})
	}
}

// A request that hangs when the run has ended does not hold it for longer than told.
func TestStopIsBounded(t *testing.T) {
	b := newBench(t)
	hung := make(chan struct{})
	b.c.Registry = hanging{b.log, hung}
	r := b.run()
	b.register(r)
	r.Head(b.rows(1))
	<-hung
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if n, _, _ := r.Stop(ctx); n != 0 {
		t.Errorf("got %d CHECKPOINTs, want none", n)
	}
}
