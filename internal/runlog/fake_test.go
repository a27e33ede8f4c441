package runlog

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
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
