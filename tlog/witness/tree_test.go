package witness_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

const origin = "log.example/2026"

func newKey(t testing.TB, name string) receipt.Signer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if _, err := keys.Generate(file, name, receipt.Ed25519); err != nil {
		t.Fatal(err)
	}
	s, err := keys.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCosigner(t testing.TB, name string) *proof.Cosigner {
	t.Helper()
	c, err := proof.NewEd25519Cosigner(newKey(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// root and subproof are RFC 9162, sections 2.1.1 and 2.1.4.1, written down as they
// stand there.
func root(entries []string) [32]byte {
	switch n := len(entries); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256([]byte("\x00" + entries[0]))
	default:
		k := half(n)
		left, right := root(entries[:k]), root(entries[k:])
		return sha256.Sum256(bytes.Join([][]byte{{1}, left[:], right[:]}, nil))
	}
}

func half(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func subproof(m int, entries []string, complete bool) [][32]byte {
	n := len(entries)
	if m == n {
		if complete {
			return nil
		}
		return [][32]byte{root(entries)}
	}
	k := half(n)
	if m <= k {
		return append(subproof(m, entries[:k], complete), root(entries[k:]))
	}
	return append(subproof(m-k, entries[k:], false), root(entries[:k]))
}

// tree is a log in memory, whose every size is published at once.
type tree struct {
	key receipt.Signer

	mu      sync.Mutex
	entries []string
	closed  bool
}

func newTree(t testing.TB, n int) *tree {
	t.Helper()
	l := &tree{key: newKey(t, origin)}
	l.grow(n)
	return l
}

// fork is a log with the same key and other entries from a size on.
func (l *tree) fork(from, to int) *tree {
	f := &tree{key: l.key, entries: append([]string(nil), l.entries[:from]...)}
	for i := from; i < to; i++ {
		f.entries = append(f.entries, fmt.Sprintf("other %d", i))
	}
	return f
}

func (l *tree) grow(to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.entries); i < to; i++ {
		l.entries = append(l.entries, fmt.Sprintf("entry %d", i))
	}
}

func (l *tree) note(t testing.TB, size int) []byte {
	t.Helper()
	n, err := proof.SignCheckpoint(l.key, proof.Checkpoint{Origin: l.key.Public().Name(), Size: uint64(size), Root: root(l.entries[:size])})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (l *tree) Add(_ context.Context, e []byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, string(e))
	return uint64(len(l.entries) - 1), nil
}

func (l *tree) Wait(ctx context.Context, index uint64) ([]byte, error) {
	l.mu.Lock()
	n := len(l.entries)
	l.mu.Unlock()
	if index >= uint64(n) {
		return nil, tlog.ErrNoEntry
	}
	return l.Checkpoint(ctx)
}

func (l *tree) Inclusion(context.Context, uint64, uint64) ([][32]byte, error) {
	return nil, fmt.Errorf("no test needs it")
}

func (l *tree) Consistency(_ context.Context, older, newer uint64) ([][32]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if older > newer || newer > uint64(len(l.entries)) {
		return nil, tlog.ErrNoSize
	}
	if older == 0 {
		return nil, nil
	}
	return subproof(int(older), l.entries[:newer], true), nil
}

func (l *tree) Checkpoint(context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return proof.SignCheckpoint(l.key, proof.Checkpoint{Origin: l.key.Public().Name(), Size: uint64(len(l.entries)), Root: root(l.entries)})
}

func (l *tree) Entries(context.Context, uint64, func(uint64, []byte) error) error {
	return fmt.Errorf("no test needs it")
}

func (l *tree) Key() receipt.PublicKey { return l.key.Public() }

func (l *tree) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}
