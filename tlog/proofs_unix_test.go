//go:build unix

package tlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Proofs between any two sizes hold for the roots that the definition gives.
func TestProofs(t *testing.T) {
	dir, _, s := newLog(t)
	l := openLog(t, dir, s)
	defer l.Close()
	const size = 520
	entries := make([][]byte, size)
	done := make(chan error, size)
	for i := range size {
		go func() {
			e := fmt.Appendf(nil, "entry %d", i)
			n, err := l.Add(t.Context(), e)
			if err == nil {
				entries[n] = e
			}
			done <- err
		}()
	}
	for range size {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Wait(t.Context(), size-1); err != nil {
		t.Fatal(err)
	}
	roots := map[int][32]byte{}
	rootAt := func(n int) [32]byte {
		if r, ok := roots[n]; ok {
			return r
		}
		roots[n] = [32]byte(root(entries[:n]))
		return roots[n]
	}
	pick := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 2, 3, 255, 256, 257, 511, 512, 513, size}
	for range 40 {
		sizes = append(sizes, 1+pick.IntN(size))
	}
	for _, n := range sizes {
		i := pick.IntN(n)
		path, err := l.Inclusion(t.Context(), uint64(i), uint64(n))
		if err == nil {
			err = proof.Inclusion(uint64(i), uint64(n), [32]byte(root(entries[i:i+1])), path, rootAt(n))
		}
		if err != nil {
			t.Errorf("entry %d of %d: %v", i, n, err)
		}
		older := 1 + pick.IntN(n)
		path, err = l.Consistency(t.Context(), uint64(older), uint64(n))
		if err == nil {
			err = proof.Consistency(uint64(older), uint64(n), path, rootAt(older), rootAt(n))
		}
		if err != nil {
			t.Errorf("from %d to %d: %v", older, n, err)
		}
	}
	for _, older := range []uint64{0, size} {
		if path, err := l.Consistency(t.Context(), older, size); len(path) != 0 || err != nil {
			t.Errorf("from %d: got %x, %v, want no hash", older, path, err)
		}
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"inclusion beyond the log", second(l.Inclusion(t.Context(), 0, size+1)), tlog.ErrNoSize},
		{"inclusion beyond the tree", second(l.Inclusion(t.Context(), 7, 7)), tlog.ErrNoEntry},
		{"consistency beyond the log", second(l.Consistency(t.Context(), 1, size+1)), tlog.ErrNoSize},
		{"consistency backwards", second(l.Consistency(t.Context(), 8, 7)), tlog.ErrNoSize},
		{"wait beyond the log", second(l.Wait(t.Context(), size)), tlog.ErrNoEntry},
		{"entry beyond the log", second(tlog.Entry(t.Context(), l, size)), tlog.ErrNoEntry},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The log's own ML-DSA-44 cosignature stands beside its Ed25519 signature, and
// formats verifies it.
func TestMLDSACosignature(t *testing.T) {
	_, _, s := newLog(t) // for its key
	dir := filepath.Join(t.TempDir(), "log")
	also, err := proof.NewMLDSA44Cosigner(s.Public().Name(), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.Init(t.Context(), dir, s, also); err != nil {
		t.Fatal(err)
	}
	l, err := tlog.Open(t.Context(), dir, s, also)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := fnote.NewMLDSAVerifier(also.Key().String())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		n, err := l.Add(t.Context(), fmt.Appendf(nil, "entry %d", i))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := l.Wait(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := note.Open(signed, note.VerifierList(theirs)); err != nil || len(got.Sigs) != 1 {
			t.Errorf("formats: %v", err)
		}
		u, err := proof.ParseCheckpoint(signed)
		if err != nil {
			t.Fatal(err)
		}
		v, err := u.Verify(s.Public())
		if err != nil {
			t.Fatal(err)
		}
		if at, ok, err := also.Key().Verify(v); at == 0 || !ok || err != nil {
			t.Errorf("got time %d, %v, %v, want a cosignature", at, ok, err)
		}
		checkpoint(t, signed, s) // Ed25519, as before
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Without the second key the log goes on with one signature.
	if l, err = tlog.Open(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tesseraCheck(t, dir, s)
	for name, wrong := range map[string]*proof.Cosigner{"another name": must(proof.NewMLDSA44Cosigner("other.example/log", make([]byte, 32))), "Ed25519": must(proof.NewEd25519Cosigner(s))} {
		if err := tlog.Init(t.Context(), filepath.Join(t.TempDir(), "log"), s, wrong); err == nil || !strings.Contains(err.Error(), "second key") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What Tessera and klog have to say does not get to stderr, which is the command's.
func TestQuiet(t *testing.T) {
	const env = "TLOG_TEST_QUIET"
	if dir := os.Getenv(env); dir != "" {
		_, _, s := newLog(t)
		if err := tlog.Init(t.Context(), filepath.Join(dir, "log"), s); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, filepath.Join(dir, "log"), s)
		n, err := l.Add(t.Context(), []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Wait(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestQuiet$")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "PASS") {
		t.Errorf("got %q, %v, want PASS alone", out, err)
	}
}
