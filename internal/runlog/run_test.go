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
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

func init() { pauseMin, pauseMax = time.Millisecond, 2*time.Millisecond }

var owner, runner = fixture.NewKey("owner.example/1"), fixture.NewKey("runner.example/1")

// bench is a run folder with a log.
type bench struct {
	t      testing.TB
	log    *fake
	c      Config
	sealed []byte
	start  journal.Start
	writer *journal.Writer
}

// newBench logs the SEAL and prepares a run of its task.
func newBench(t testing.TB) *bench {
	t.Helper()
	sealed, err := receipt.Sign1(receipt.KindSealedSet, owner, "bench/task", []byte{0xa0})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, log: newFake(owner, runner), sealed: sealed}
	seal, err := entry.SignSeal(owner, entry.Seal{Subject: "bench/task", Of: receipt.KindSealedSet, Digest: sha256.Sum256(sealed)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.Add(t.Context(), seal); err != nil {
		t.Fatal(err)
	}
	b.c = Config{Registry: b.log, Signer: runner, Where: "/srv/log", Dir: t.TempDir()}
	b.start = journal.Start{
		Version: journal.Version, Run: [16]byte{1}, Benchmark: "bench", Task: "task", Trial: 1, Attempt: 1, Commitment: [32]byte{1},
		Seal: sha256.Sum256(sealed), Baseline: [32]byte{3}, Roots: []scope.Root{{Path: "/", Mode: scope.ReadOne, Class: scope.System}, {Path: "/work", Mode: scope.WriteTree, Class: scope.Workspace}},
		Workspace: "/work", Recorder: "test", Backend: "none", Agent: "agent", Model: "model",
	}
	scope.SortRoots(secret.PathKey(), b.start.Roots)
	return b
}

var secret = journal.Secret{1}

func (b *bench) run() *Run {
	b.t.Helper()
	r, err := New(b.c, b.sealed)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// register registers the run and writes its start row.
func (b *bench) register(r *Run) {
	b.t.Helper()
	if err := r.Register(b.t.Context(), &b.start); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

func (b *bench) open() {
	b.t.Helper()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(b.c.Dir, name))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { f.Close() })
		return f
	}
	var clock uint64
	w, err := journal.NewWriter(journal.Config{
		Rows: create(journal.RowsFile), Details: create(journal.DetailsFile), SaveHead: func([]byte) error { return nil },
		Clock: func() uint64 { clock++; return clock }, Secret: secret, Start: b.start,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.writer = w
}

// rows adds rows and returns the head that is on the disk.
func (b *bench) rows(n int) journal.Head {
	b.t.Helper()
	for range n {
		if err := b.writer.Append(&journal.Row{Op: journal.OpLost}, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	h, err := b.writer.Checkpoint()
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

func (b *bench) end() {
	b.t.Helper()
	if _, err := b.writer.Final(journal.Final{Outcome: journal.Failed, Code: 3}, nil); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) state() *State {
	b.t.Helper()
	s, err := Read(b.c.Dir)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// attest makes a receipt of the run.
func (b *bench) attest() []byte {
	b.t.Helper()
	_, _, head, err := readJournal(b.c.Dir)
	if err != nil {
		b.t.Fatal(err)
	}
	cose, err := receiptOf(head)
	if err != nil {
		b.t.Fatal(err)
	}
	return cose
}

// wait until the log has so many entries.
func (b *bench) wait(n int) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); len(b.log.kinds()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("got %v, want %d entries", b.log.kinds(), n)
		}
	}
}

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

// What stops a run from being logged, each with its reason.
func TestRefused(t *testing.T) {
	t.Run("no SEAL", func(t *testing.T) {
		b := newBench(t)
		b.log.ledger = entry.NewLedger()
		var no *NoSealError
		if err := b.run().Register(t.Context(), &b.start); !errors.As(err, &no) || b.start.Registration != nil {
			t.Errorf("got %v, want NoSealError", err)
		}
	})
	t.Run("SEAL of another owner", func(t *testing.T) {
		b := newBench(t)
		b.sealed, _ = receipt.Sign1(receipt.KindSealedSet, fixture.NewKey("other.example/1"), "bench/task", []byte{0xa0})
		seal, err := entry.SignSeal(owner, entry.Seal{Subject: "bench/task", Of: receipt.KindSealedSet, Digest: sha256.Sum256(b.sealed)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.log.Add(t.Context(), seal); err != nil {
			t.Fatal(err)
		}
		b.start.Seal = sha256.Sum256(b.sealed)
		var no *NoSealError
		if err := b.run().Register(t.Context(), &b.start); !errors.As(err, &no) {
			t.Errorf("got %v, want NoSealError", err)
		}
	})
	t.Run("attempt again", func(t *testing.T) {
		b := newBench(t)
		first := b.start
		r := b.run()
		if err := r.Register(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		r.Stop(t.Context())
		b.start.Run = [16]byte{2}
		var refused *entry.Refusal
		if err := b.run().Register(t.Context(), &b.start); !errors.As(err, &refused) || refused.ID != entry.RegisterAgain || b.start.Registration != nil {
			t.Errorf("got %v, want register-again", err)
		}
	})
	t.Run("no quorum", func(t *testing.T) {
		b := newBench(t)
		p := new(proof.Policy)
		w, err := proof.NewEd25519Cosigner(fixture.NewKey("witness.example/1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range [][]string{{"log", b.log.Key().String()}, {"witness", "w", w.Key().String()}, {"quorum", "w"}} {
			if err := p.Line(l); err != nil {
				t.Fatal(err)
			}
		}
		b.c.Policy = p
		if err := b.run().Register(t.Context(), &b.start); !errors.Is(err, registry.ErrUnavailable) || b.start.Registration != nil {
			t.Errorf("got %v, want that the quorum is missing", err)
		}
	})
	t.Run("not registered", func(t *testing.T) {
		b := newBench(t)
		b.open()
		b.end()
		if err := b.c.Finish(t.Context()); !errors.Is(err, ErrNotRegistered) {
			t.Errorf("got %v, want ErrNotRegistered", err)
		}
	})
	t.Run("open", func(t *testing.T) {
		b := newBench(t)
		r := b.run()
		b.register(r)
		r.Stop(t.Context())
		if err := b.c.Finish(t.Context()); !errors.Is(err, ErrOpen) {
			t.Errorf("got %v, want ErrOpen", err)
		}
	})
	t.Run("another log", func(t *testing.T) {
		b := newBench(t)
		r := b.run()
		b.register(r)
		b.end()
		r.Stop(t.Context())
		b.log.key = fixture.NewKey("log.example/other")
		if err := b.c.Finish(t.Context()); err == nil {
			t.Error("a run was finished in another log")
		}
	})
	t.Run("another runner", func(t *testing.T) {
		b := newBench(t)
		r := b.run()
		b.register(r)
		b.end()
		r.Stop(t.Context())
		b.c.Signer = owner
		if err := b.c.Finish(t.Context()); err == nil {
			t.Error("a run was finished with another key")
		}
	})
}

// A log that answers with proofs that do not hold is not believed.
func TestLies(t *testing.T) {
	for name, lie := range map[string]func(b *bench, p *registry.Proofs){
		"receipt of another entry": func(b *bench, p *registry.Proofs) {
			path, _ := b.log.tree.Inclusion(0, b.log.tree.Size())
			root, _ := b.log.tree.Root(b.log.tree.Size())
			p.Receipt, _ = receipt.SignInclusion(b.log.key, "bench/task", receipt.Inclusion{Size: b.log.tree.Size(), Path: path}, root)
		},
		"checkpoint of another key": func(b *bench, p *registry.Proofs) {
			other := fixture.NewKey("log.example/other")
			p.Checkpoint, _ = proof.SignCheckpoint(other, proof.Checkpoint{Origin: "log.example/other", Size: b.log.tree.Size()})
		},
		"checkpoint of another root": func(b *bench, p *registry.Proofs) {
			p.Checkpoint, _ = proof.SignCheckpoint(b.log.key, proof.Checkpoint{Origin: b.log.Key().Name(), Size: b.log.tree.Size(), Root: [32]byte{1}})
		},
		"no receipt": func(_ *bench, p *registry.Proofs) { p.Receipt = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.log.lie = func(p *registry.Proofs) { lie(b, p) }
			if err := b.run().Register(t.Context(), &b.start); err == nil || b.start.Registration != nil {
				t.Errorf("got %v, want the answer refused", err)
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

// hanging never answers for a CHECKPOINT.
type hanging struct {
	*fake
	hung chan struct{}
}

func (h hanging) Add(ctx context.Context, statement []byte) (registry.Logged, error) {
	if u, err := entry.Parse(statement); err == nil && u.Kind() == entry.KindCheckpoint {
		close(h.hung)
		<-ctx.Done()
		return registry.Logged{}, fmt.Errorf("%w: %w", registry.ErrUnavailable, ctx.Err())
	}
	return h.fake.Add(ctx, statement)
}
