//go:build unix

package trillian_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
)

func newKey(t *testing.T) receipt.Signer {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log.key")
	if _, err := keys.Generate(name, "log.example/2026", receipt.Ed25519); err != nil {
		t.Fatal(err)
	}
	s, err := keys.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newLog makes a log with a tree of its own and opens it.
func newLog(t *testing.T, address string) (*trillian.Log, string, receipt.Signer) {
	t.Helper()
	dir, s := filepath.Join(t.TempDir(), "log"), newKey(t)
	if err := trillian.Init(t.Context(), dir, address, 0, s); err != nil {
		t.Fatal(err)
	}
	l, err := trillian.Open(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return l, dir, s
}

// root is the Merkle tree hash of RFC 9162, section 2.1.1, written down as it
// stands there.
func root(entries [][]byte) [32]byte {
	switch n := len(entries); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, entries[0]...))
	default:
		k := 1
		for k*2 < n {
			k *= 2
		}
		left, right := root(entries[:k]), root(entries[k:])
		return sha256.Sum256(bytes.Join([][]byte{{1}, left[:], right[:]}, nil))
	}
}

// checkpoint opens a note with x/mod alone, and with ours.
func checkpoint(t *testing.T, signed []byte, key receipt.PublicKey) proof.Checkpoint {
	t.Helper()
	v, err := note.NewVerifier(key.String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		t.Fatal(err)
	}
	u, err := proof.ParseCheckpoint(signed)
	if err != nil {
		t.Fatal(err)
	}
	if cp := u.Checkpoint(); n.Text != cp.Text() {
		t.Fatalf("got text %q, want %q", n.Text, cp.Text())
	}
	return u.Checkpoint()
}

// all returns the entries in order.
func all(t *testing.T, l tlog.Log) [][]byte {
	t.Helper()
	var got [][]byte
	if err := l.Entries(t.Context(), 0, func(i uint64, e []byte) error {
		if i != uint64(len(got)) {
			return fmt.Errorf("got entry %d, want %d", i, len(got))
		}
		got = append(got, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// The real servers of Trillian on a real PostgreSQL, started once.
func TestTrillian(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: Trillian is not built and started")
	}
	s := trilliantest.Start(t)
	t.Run("AddProveConsistency", func(t *testing.T) { addProveConsistency(t, s) })
	t.Run("Refusals", func(t *testing.T) { refusals(t, s) })
	t.Run("DatabaseRestart", func(t *testing.T) { databaseRestart(t, s) })
	t.Run("DatabaseRolledBack", func(t *testing.T) { rolledBack(t, s) })
}

func addProveConsistency(t *testing.T, s *trilliantest.Servers) {
	l, dir, key := newLog(t, s.Address)
	if got := checkpoint(t, must(l.Checkpoint(t.Context())), key.Public()); got != (proof.Checkpoint{Origin: "log.example/2026", Root: sha256.Sum256(nil)}) {
		t.Fatalf("got %+v, want the empty tree", got)
	}
	const adders, each = 8, 40
	index := make([]map[string]uint64, adders)
	var wg sync.WaitGroup
	for w := range adders {
		index[w] = map[string]uint64{}
		wg.Go(func() {
			for i := range each {
				e := fmt.Sprintf("entry %d of adder %d", i, w)
				if i%8 == 0 {
					e = fmt.Sprintf("entry %d of all", i) // equal bytes at the same time
				}
				n, err := l.Add(t.Context(), []byte(e))
				if err != nil {
					t.Errorf("%s: %v", e, err)
					return
				}
				index[w][e] = n
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	entries := all(t, l)
	if want := adders*each - (adders-1)*each/8; len(entries) != want {
		t.Errorf("got %d entries, want %d: equal ones are kept once", len(entries), want)
	}
	for _, added := range index {
		for e, n := range added {
			if n >= uint64(len(entries)) || string(entries[n]) != e {
				t.Errorf("got index %d for %q, want its place", n, e)
			}
		}
	}
	// One that was added before has its index again.
	for e, n := range index[0] {
		if again, err := l.Add(t.Context(), []byte(e)); again != n || err != nil {
			t.Errorf("%q again: got %d, %v, want %d", e, again, err, n)
		}
		break
	}
	cp := checkpoint(t, must(l.Wait(t.Context(), uint64(len(entries)-1))), key.Public())
	if want := root(entries); cp.Root != want || cp.Size != uint64(len(entries)) {
		t.Fatalf("got size %d, root %x, want %d, %x", cp.Size, cp.Root, len(entries), want)
	}
	for i := range entries {
		if i%29 != 0 && i != len(entries)-1 {
			continue
		}
		e, p, err := tlog.Prove(t.Context(), l, uint64(i))
		if err != nil || !bytes.Equal(e, entries[i]) || p.Index != uint64(i) {
			t.Errorf("entry %d: got %q, %+v, %v", i, e, p, err)
		}
		// In an older tree too.
		path, err := l.Inclusion(t.Context(), uint64(i), uint64(i+1))
		if err == nil {
			err = proof.Inclusion(uint64(i), uint64(i+1), sha256.Sum256(append([]byte{0}, entries[i]...)), path, root(entries[:i+1]))
		}
		if err != nil {
			t.Errorf("entry %d in the tree of size %d: %v", i, i+1, err)
		}
	}
	for _, older := range []int{1, 2, 7, 64, 100, len(entries) - 1} {
		path, err := l.Consistency(t.Context(), uint64(older), cp.Size)
		if err == nil {
			err = proof.Consistency(uint64(older), cp.Size, path, root(entries[:older]), cp.Root)
		}
		if err != nil {
			t.Errorf("from size %d: %v", older, err)
		}
	}
	for _, older := range []uint64{0, cp.Size} {
		if path, err := l.Consistency(t.Context(), older, cp.Size); len(path) != 0 || err != nil {
			t.Errorf("from size %d: got %x, %v, want no hash", older, path, err)
		}
	}
	if n, err := l.Add(t.Context(), bytes.Repeat([]byte{7}, tlog.MaxEntry)); n != cp.Size || err != nil {
		t.Errorf("the largest entry: got %d, %v, want %d", n, err, cp.Size)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(t.Context(), []byte("late")); !errors.Is(err, tlog.ErrClosed) {
		t.Errorf("a closed log: got %v, want ErrClosed", err)
	}
	l, err := trillian.Open(t.Context(), dir, key)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := len(all(t, l)); got != len(entries)+1 {
		t.Errorf("opened again: got %d entries, want %d", got, len(entries)+1)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func refusals(t *testing.T, s *trilliantest.Servers) {
	l, dir, key := newLog(t, s.Address)
	defer l.Close()
	if _, err := trillian.Open(t.Context(), dir, key); !errors.Is(err, tlog.ErrInUse) {
		t.Errorf("second Open: got %v, want ErrInUse", err)
	}
	if err := trillian.Init(t.Context(), dir, s.Address, 0, key); !errors.Is(err, tlog.ErrExists) {
		t.Errorf("second Init: got %v, want ErrExists", err)
	}
	if _, err := l.Add(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	for _, e := range [][]byte{nil, make([]byte, tlog.MaxEntry+1)} {
		if _, err := l.Add(t.Context(), e); !errors.Is(err, tlog.ErrEntrySize) {
			t.Errorf("%d bytes: got %v, want ErrEntrySize", len(e), err)
		}
	}
	if _, err := l.Wait(t.Context(), 1); !errors.Is(err, tlog.ErrNoEntry) {
		t.Errorf("Wait: got %v, want ErrNoEntry", err)
	}
	if _, err := l.Inclusion(t.Context(), 1, 1); !errors.Is(err, tlog.ErrNoEntry) {
		t.Errorf("Inclusion: got %v, want ErrNoEntry", err)
	}
	if _, err := l.Inclusion(t.Context(), 0, 2); !errors.Is(err, tlog.ErrNoSize) {
		t.Errorf("Inclusion: got %v, want ErrNoSize", err)
	}
	if _, err := l.Consistency(t.Context(), 1, 2); !errors.Is(err, tlog.ErrNoSize) {
		t.Errorf("Consistency: got %v, want ErrNoSize", err)
	}
	l.Close()
	if _, err := trillian.Open(t.Context(), dir, newKey(t)); err == nil {
		t.Error("a log was opened with another key")
	}
}

// PostgreSQL is stopped and started again while entries are added: each that was
// acknowledged, before and after, is there and proved.
func databaseRestart(t *testing.T, s *trilliantest.Servers) {
	l, _, _ := newLog(t, s.Address)
	defer l.Close()
	var mu sync.Mutex
	acknowledged := map[uint64]string{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	failures := 0
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				e := fmt.Sprintf("entry %d of adder %d", i, w)
				for ctx.Err() == nil {
					n, err := l.Add(ctx, []byte(e)) // the same bytes until they are in
					mu.Lock()
					if err == nil {
						if was, ok := acknowledged[n]; ok && was != e {
							t.Errorf("index %d: got %q and %q", n, was, e)
						}
						acknowledged[n] = e
					} else {
						failures++
					}
					mu.Unlock()
					if err == nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	reach := func(want int) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); count() < want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("got %d entries acknowledged, want %d", count(), want)
			}
		}
	}
	for range 2 {
		reach(count() + 40)
		s.StopDatabase(t)
		time.Sleep(500 * time.Millisecond) // adders meet a database that is gone
		s.StartDatabase(t)
		reach(count() + 40)
	}
	stop()
	wg.Wait()
	if failures == 0 {
		t.Error("no add failed: the database was not missed")
	}
	// The checkpoint first: entries that nobody waits for any more may still come.
	cp := checkpoint(t, must(l.Checkpoint(t.Context())), l.Key())
	entries := all(t, l)
	if uint64(len(entries)) < cp.Size {
		t.Fatalf("got %d entries, want at least %d", len(entries), cp.Size)
	}
	if want := root(entries[:cp.Size]); cp.Root != want {
		t.Errorf("got root %x at size %d, want %x", cp.Root, cp.Size, want)
	}
	for n, e := range acknowledged {
		if got, _, err := tlog.Prove(t.Context(), l, n); err != nil || string(got) != e {
			t.Errorf("entry %d: got %q, %v, want %q", n, got, err, e)
		}
	}
	t.Logf("%d entries acknowledged, %d adds failed", len(acknowledged), failures)
}
