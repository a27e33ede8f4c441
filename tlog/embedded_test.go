//go:build unix

package tlog_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

func newLog(t *testing.T) (dir, key string, s receipt.Signer) {
	t.Helper()
	dir, key = filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "log.key")
	if _, err := keys.Generate(key, "log.example/2026", receipt.Ed25519); err != nil {
		t.Fatal(err)
	}
	s, err := keys.Load(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.Init(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	return dir, key, s
}

func openLog(t *testing.T, dir string, s receipt.Signer) *tlog.Embedded {
	t.Helper()
	l, err := tlog.Open(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tesseraCheck asks the fsck of Tessera about a folder.
func tesseraCheck(t *testing.T, dir string, s receipt.Signer) {
	t.Helper()
	v, err := note.NewVerifier(s.Public().String())
	if err != nil {
		t.Fatal(err)
	}
	hash := func(bundle []byte) ([][]byte, error) {
		var b api.EntryBundle
		if err := b.UnmarshalText(bundle); err != nil {
			return nil, err
		}
		var hashes [][]byte
		for _, e := range b.Entries {
			hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(e))
		}
		return hashes, nil
	}
	if err := fsck.New(v.Name(), v, client.FileFetcher{Root: dir}, hash, fsck.Opts{N: 2}).Check(t.Context()); err != nil {
		t.Errorf("Tessera's fsck: %v", err)
	}
}

// root is the Merkle tree hash of RFC 9162, section 2.1.1, written down as it
// stands there.
func root(entries [][]byte) []byte {
	switch n := len(entries); n {
	case 0:
		h := sha256.Sum256(nil)
		return h[:]
	case 1:
		h := sha256.Sum256(append([]byte{0}, entries[0]...))
		return h[:]
	default:
		k := 1
		for k*2 < n {
			k *= 2
		}
		h := sha256.Sum256(bytes.Join([][]byte{{1}, root(entries[:k]), root(entries[k:])}, nil))
		return h[:]
	}
}

// checkpoint opens a signed note with x/mod alone.
func checkpoint(t *testing.T, signed []byte, s receipt.Signer) string {
	t.Helper()
	v, err := note.NewVerifier(s.Public().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		t.Fatal(err)
	}
	return n.Text
}

// slices turns hashes into what transparency-dev/merkle takes.
func slices(path [][32]byte) [][]byte {
	out := make([][]byte, len(path))
	for i := range path {
		out[i] = path[i][:]
	}
	return out
}

func TestEmptyLog(t *testing.T) {
	dir, _, s := newLog(t)
	signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	want := "log.example/2026\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
	if got := checkpoint(t, signed, s); got != want {
		t.Errorf("got checkpoint %q, want %q", got, want)
	}
	if n, err := tlog.Check(t.Context(), dir, s.Public()); n != 0 || err != nil {
		t.Errorf("Check: got %d, %v, want 0, nil", n, err)
	}
}

// Entries of many adders are there once each, in the order of their indexes, under
// the root that the definition gives.
func TestAddAndProve(t *testing.T) {
	dir, _, s := newLog(t)
	before := runtime.NumGoroutine()
	l := openLog(t, dir, s)
	const adders, each = 10, 60
	added := make([][]byte, adders*each)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range adders {
		wg.Go(func() {
			for i := range each {
				e := bytes.Repeat([]byte{byte(w + 1)}, 1+i*7)
				n, err := l.Add(t.Context(), e)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if n >= adders*each || added[n] != nil {
					t.Errorf("got index %d, want a new one below %d", n, adders*each)
				} else {
					added[n] = e
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	_, last, err := tlog.Prove(t.Context(), l, adders*each-1)
	if err != nil {
		t.Fatal(err)
	}
	rt := root(added)
	text := checkpoint(t, last.Checkpoint, s)
	if want := fmt.Sprintf("log.example/2026\n%d\n", len(added)); !strings.HasPrefix(text, want) {
		t.Fatalf("got checkpoint %q, want %q and a root", text, want)
	}
	for i, e := range added {
		if i%37 != 0 && i != 255 && i != 256 {
			continue
		}
		got, p, err := tlog.Prove(t.Context(), l, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, e) {
			t.Errorf("entry %d: got %x, want %x", i, got, e)
		}
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(i), uint64(len(added)), rfc6962.DefaultHasher.HashLeaf(e), slices(p.Path), rt); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	for _, first := range []uint64{0, 1, 255, 256, 300, 599, 600} {
		next := first
		if err := l.Entries(t.Context(), first, func(i uint64, e []byte) error {
			if i != next || !bytes.Equal(e, added[i]) {
				return fmt.Errorf("got entry %d = %x, want entry %d = %x", i, e, next, added[next])
			}
			next++
			return nil
		}); err != nil || next != uint64(len(added)) {
			t.Errorf("entries from %d: got up to %d, %v, want %d", first, next, err, len(added))
		}
	}
	if _, _, err := tlog.Prove(t.Context(), l, uint64(len(added))); !errors.Is(err, tlog.ErrNoEntry) {
		t.Errorf("got %v, want ErrNoEntry", err)
	}
	for _, e := range [][]byte{nil, make([]byte, tlog.MaxEntry+1)} {
		if _, err := l.Add(t.Context(), e); !errors.Is(err, tlog.ErrEntrySize) {
			t.Errorf("%d bytes: got %v, want ErrEntrySize", len(e), err)
		}
	}
	if _, err := l.Add(t.Context(), make([]byte, tlog.MaxEntry)); err != nil {
		t.Errorf("%d bytes: %v", tlog.MaxEntry, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(t.Context(), []byte("late")); err == nil {
		t.Error("a closed log took an entry")
	}
	if n, err := tlog.Check(t.Context(), dir, s.Public()); n != adders*each+1 || err != nil {
		t.Errorf("Check: got %d, %v, want %d", n, err, adders*each+1)
	}
	tesseraCheck(t, dir, s)
	// Goroutines end soon after Close; a minute is for a loaded machine.
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("goroutines left after Close:\n%s", b[:runtime.Stack(b, true)])
		}
	}
}

func TestRefusals(t *testing.T) {
	dir, _, s := newLog(t)
	_, _, other := newLog(t)
	if err := tlog.Init(t.Context(), dir, s); !errors.Is(err, tlog.ErrExists) {
		t.Errorf("second Init: got %v, want ErrExists", err)
	}
	if _, err := tlog.Open(t.Context(), t.TempDir(), s); !errors.Is(err, tlog.ErrNoLog) {
		t.Errorf("Open of an empty folder: got %v, want ErrNoLog", err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	// Same name, other key: the log would have two keys from then on.
	if _, err := tlog.Open(t.Context(), dir, other); err == nil || !strings.Contains(err.Error(), "not signed by") {
		t.Errorf("Open with another key: got %v, want a refusal", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "checkpoint")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the refusal changed the checkpoint: %v", err)
	}
	l := openLog(t, dir, s)
	if _, err := tlog.Open(t.Context(), dir, s); !errors.Is(err, tlog.ErrInUse) {
		t.Errorf("second Open: got %v, want ErrInUse", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openLog(t, dir, s).Close(); err != nil {
		t.Errorf("Open after Close: %v", err)
	}
}

// One byte is changed in each kind of file of a log that was in order.
func TestCheckFindsFaults(t *testing.T) {
	dir, _, s := newLog(t)
	l := openLog(t, dir, s)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			if _, err := l.Add(t.Context(), fmt.Appendf(nil, "entry %d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	vkey := s.Public()
	if n, err := tlog.Check(t.Context(), dir, vkey); n != 300 || err != nil {
		t.Fatalf("control: got %d, %v, want 300", n, err)
	}
	for name, want := range map[string]string{
		"checkpoint": "checkpoint: ", "tile/0/000": "tile/0/000: hash ", "tile/0/001.p/44": "tile/0/001.p/44: hash ", "tile/1/000.p/1": "tile/1/000.p/1: hash ",
		"tile/entries/000": "tile/", "tile/entries/001.p/44": "tile/", // the change may be in a length or in a content
	} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 1
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := tlog.Check(t.Context(), dir, vkey); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want a fault of %s", name, err, want)
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, _, other := newLog(t)
	if _, err := tlog.Check(t.Context(), dir, other.Public()); err == nil {
		t.Error("another key of the same name was accepted")
	}
}
