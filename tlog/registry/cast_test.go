package registry_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

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
