package runlog

import (
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

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
