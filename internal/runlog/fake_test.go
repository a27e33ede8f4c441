package runlog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// fake is a registry in memory. fail, if set, is asked before each request, and after
// an Add that was logged: then the answer is lost.
type fake struct {
	key  fixture.Key
	keys []receipt.PublicKey

	mu      sync.Mutex
	ledger  *entry.Ledger
	tree    journal.Tree
	entries [][]byte
	fail    func(what string) error
	lie     func(*registry.Proofs)
}

func newFake(keys ...fixture.Key) *fake {
	f := &fake{key: fixture.NewKey("log.example/test"), ledger: entry.NewLedger()}
	for _, k := range keys {
		f.keys = append(f.keys, k.Public())
	}
	return f
}

func (f *fake) asked(what string) error {
	if f.fail == nil {
		return nil
	}
	return f.fail(what)
}

func (f *fake) Add(ctx context.Context, statement []byte) (registry.Logged, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked("add"); err != nil {
		return registry.Logged{}, err
	}
	u, err := entry.Parse(statement)
	if err != nil {
		return registry.Logged{}, err
	}
	i := slices.IndexFunc(f.keys, func(k receipt.PublicKey) bool { return k.Thumbprint() == u.Issuer() })
	if i < 0 {
		return registry.Logged{}, entry.Unknown(u)
	}
	e, err := u.Verify(f.keys[i])
	if err != nil {
		return registry.Logged{}, err
	}
	index, ok := f.ledger.Index(e.Leaf())
	if !ok {
		if err := f.ledger.Check(e); err != nil {
			return registry.Logged{}, err
		}
		index = uint64(len(f.entries))
		f.ledger.Apply(e, index)
		f.entries = append(f.entries, slices.Clone(statement))
		f.tree.Append(statement)
	}
	if err := f.asked("answer"); err != nil {
		return registry.Logged{}, err
	}
	return registry.Logged{Index: index}, nil
}

func (f *fake) Proofs(_ context.Context, indexes, from []uint64) (*registry.Proofs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked("proofs"); err != nil {
		return nil, err
	}
	size := f.tree.Size()
	root, err := f.tree.Root(size)
	if err != nil {
		return nil, err
	}
	p := new(registry.Proofs)
	if p.Checkpoint, err = proof.SignCheckpoint(f.key, proof.Checkpoint{Origin: f.key.Public().Name(), Size: size, Root: root}); err != nil {
		return nil, err
	}
	for _, i := range indexes {
		path, err := f.tree.Inclusion(i, size)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", registry.ErrNoEntry, err)
		}
		p.Inclusion = append(p.Inclusion, path)
		u, err := entry.Parse(f.entries[i])
		if err != nil {
			return nil, err
		}
		if p.Receipt, err = receipt.SignInclusion(f.key, u.Subject(), receipt.Inclusion{Size: size, Index: i, Path: path}, root); err != nil {
			return nil, err
		}
	}
	for _, older := range from {
		c := receipt.Consistency{Older: older, Newer: size}
		if older < size {
			if c.Path, err = f.tree.Consistency(older, size); err != nil {
				return nil, err
			}
		}
		r, err := receipt.SignConsistency(f.key, c, root)
		if err != nil {
			return nil, err
		}
		p.Consistency = append(p.Consistency, r)
	}
	if f.lie != nil {
		f.lie(p)
	}
	return p, nil
}

func (f *fake) Entry(_ context.Context, index uint64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index >= uint64(len(f.entries)) {
		return nil, registry.ErrNoEntry
	}
	return f.entries[index], nil
}

func (f *fake) Seal(_ context.Context, digest [32]byte) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asked("seal"); err != nil {
		return 0, err
	}
	if i, ok := f.ledger.Seal(digest); ok {
		return i, nil
	}
	return 0, registry.ErrNoSeal
}

func (f *fake) Key() receipt.PublicKey { return f.key.Public() }
func (f *fake) Close() error           { return nil }

// kinds are those of the entries in the log.
func (f *fake) kinds() (out []entry.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		u, err := entry.Parse(e)
		if err != nil {
			panic(err)
		}
		out = append(out, u.Kind())
	}
	return out
}

// receiptOf is a receipt of a run whose journal has this head.
func receiptOf(head journal.Head) ([]byte, error) {
	run := fmt.Sprintf("%x", head.Run)
	root := fmt.Sprintf("%x", head.Root)
	s := attest.Statement{Type: attest.StatementType, PredicateType: attest.PredicateType, Subject: make([]attest.Subject, 1)}
	s.Subject[0].Name, s.Subject[0].Digest.SHA256 = journal.OriginPrefix+run, root
	s.Predicate.Run.ID, s.Predicate.Journal.Size, s.Predicate.Journal.Root = run, head.Size, root
	data, err := jcs.Marshal(&s)
	if err != nil {
		return nil, err
	}
	return receipt.Sign1(receipt.KindReceipt, runner, run, data)
}

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
