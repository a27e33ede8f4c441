package objects

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agefile "filippo.io/age"

	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
)

const hidden = "a-value-that-nobody-may-store"

func remover(t testing.TB) *redact.Redactor {
	t.Helper()
	r, err := redact.New(redact.Config{Values: [][]byte{[]byte(hidden)}, Shapes: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keysFor(t testing.TB) *vault.Keys {
	t.Helper()
	id, err := agefile.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	k, _, err := vault.New([]agefile.Recipient{id.Recipient()})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// contains tells whether a file of the store, or its name, holds text.
func contains(t *testing.T, dir, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		found = found || bytes.Contains(b, []byte(text)) || strings.Contains(p, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func source(t *testing.T, dir string, k *vault.Keys) Source {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return Source{root, k}
}

// What is stored is what redact makes of the whole content, at every size and
// place, in clear and encrypted.
func TestSecretsAreNotStored(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		for _, n := range []int{100, chunk - 5, chunk + 1, 2*chunk + 12345} {
			s, dir := newStore(t)
			p := Protection{Remove: remover(t)}
			if encrypted {
				p.Keys = keysFor(t)
			}
			s.Protect(p)
			content := random(n)
			for _, at := range []int{0, n / 2, min(n-len(hidden), hashChunk-7), n - len(hidden)} {
				copy(content[max(at, 0):], hidden)
			}
			want := bytes.Clone(content)
			removed := remover(t).Bytes(want).Bytes
			f := write(t, filepath.Join(t.TempDir(), "f"), content)
			for range 2 { // the second time from the memo, or known
				got, err := s.Put(int(f.Fd()), false)
				if err != nil {
					t.Fatal(err)
				}
				if got.SHA256 != sha256.Sum256(want) || got.Raw != sha256.Sum256(content) || got.Size != uint64(n) || got.Removed != removed || got.Unstable {
					t.Errorf("%d bytes: got %+v, want %d removed", n, got, removed)
				}
				if b, err := source(t, dir, p.Keys).ReadAll(got.SHA256, int64(n)); err != nil || !bytes.Equal(b, want) {
					t.Errorf("%d bytes: read back %d, %v", n, len(b), err)
				}
				at, err := source(t, dir, p.Keys).OpenAt(got.SHA256)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(io.NewSectionReader(at, 0, int64(n))); err != nil || !bytes.Equal(b, want) {
					t.Errorf("%d bytes: read at offsets %d, %v", n, len(b), err)
				}
				at.Close()
			}
			if contains(t, dir, hidden) {
				t.Errorf("%d bytes, encrypted %v: the value is stored", n, encrypted)
			}
			if got, err := s.Digest(int(f.Fd())); err != nil || got != sha256.Sum256(content) {
				t.Errorf("Digest: got %x, %v, want that of the file as it is", got, err)
			}
		}
	}
}

// A file of a tool keeps what only looks like a key; a given one is never changed.
func TestToolsAndGivenContents(t *testing.T) {
	content := []byte("key AKIA" + "Z7EXAMPLEKEY2345 in test data, and " + hidden)
	f := write(t, filepath.Join(t.TempDir(), "f"), content)
	s, dir := newStore(t)
	s.Protect(Protection{Remove: remover(t)})
	got, err := s.PutTool(int(f.Fd()), true)
	if err != nil || got.Removed != len(hidden) {
		t.Errorf("tool: got %+v, %v, want only the value removed", got, err)
	}
	if !contains(t, dir, "Z7EXAMPLEKEY2345") || contains(t, dir, hidden) {
		t.Error("tool: the wrong things were removed")
	}
	if got, err := s.Put(int(f.Fd()), true); err != nil || got.Removed <= len(hidden) {
		t.Errorf("other file: got %+v, %v, want the key removed too", got, err)
	}
	s, dir = newStore(t)
	s.Protect(Protection{Remove: remover(t)})
	s.Given(map[Sum]uint64{sha256.Sum256(content): uint64(len(content))})
	if got, err := s.Put(int(f.Fd()), true); err != nil || got.Removed != 0 || got.SHA256 != sha256.Sum256(content) {
		t.Errorf("given: got %+v, %v, want the content's own digest", got, err)
	}
	if l := files(t, dir); len(l) != 0 {
		t.Errorf("given: stored %v", l)
	}
}

func TestEncryptedStore(t *testing.T) {
	s, dir := newStore(t)
	k := keysFor(t)
	s.Protect(Protection{Keys: k})
	content := []byte("a content that can be guessed")
	sum, err := s.PutBytes(content)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, Name(sum))); !os.IsNotExist(err) {
		t.Error("the name is the content's digest: anybody can test guesses")
	}
	if contains(t, dir, "guessed") {
		t.Error("stored in clear")
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	if b, err := source(t, dir, k).ReadAll(sum, 1000); err != nil || !bytes.Equal(b, content) {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := source(t, dir, keysFor(t)).Open(sum); err == nil {
		t.Error("another run's keys found it")
	}
	if _, err := source(t, dir, nil).Open(sum); err == nil {
		t.Error("found without keys")
	}
	// A changed object is noticed.
	name := filepath.Join(dir, Name(k.Name(sum)))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := source(t, dir, k).ReadAll(sum, 1000); err == nil {
		t.Error("a changed object was read")
	}
	other, err := k.EncryptBytes([]byte("another content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, other, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *ErrCorrupt
	if _, err := source(t, dir, k).ReadAll(sum, 1000); !errors.As(err, &corrupt) {
		t.Errorf("another content under the name: got %v", err)
	}
}

// The limit is on stored bytes: what is known costs nothing, and once it is
// reached nothing more is stored.
func TestLimit(t *testing.T) {
	s, dir := newStore(t)
	s.Protect(Protection{Max: 3 * chunk})
	large := write(t, filepath.Join(t.TempDir(), "f"), random(chunk+1))
	for range 5 {
		if _, err := s.Put(int(large.Fd()), true); err != nil {
			t.Fatalf("the same content again: %v", err)
		}
	}
	if _, err := s.PutBytes(random(chunk)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBytes(random(2 * chunk)); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the limit: got %v", err)
	}
	if _, err := s.PutBytes([]byte("small")); !errors.Is(err, ErrFull) {
		t.Errorf("after the limit: got %v, want nothing more to be stored", err)
	}
	if _, err := s.PutBytes(random(chunk)); err != nil {
		t.Errorf("a known content after the limit: %v", err)
	}
	if l := files(t, dir); len(l) != 2 {
		t.Errorf("got %d files, want 2", len(l))
	}
}

func BenchmarkPutWithRemoval(b *testing.B) {
	const size = 64 << 20
	f, err := os.CreateTemp(b.TempDir(), "f")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(random(size)); err != nil {
		b.Fatal(err)
	}
	for name, r := range map[string]*redact.Redactor{"none": nil, "values and shapes": remover(b)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				dir := b.TempDir()
				if err := os.Chmod(dir, 0o700); err != nil {
					b.Fatal(err)
				}
				d, err := os.Open(dir)
				if err != nil {
					b.Fatal(err)
				}
				s, err := New(int(d.Fd()))
				if err != nil {
					b.Fatal(err)
				}
				s.Protect(Protection{Remove: r})
				if _, err := s.Put(int(f.Fd()), true); err != nil {
					b.Fatal(err)
				}
				d.Close()
			}
		})
	}
}

func benchmarkPut(b *testing.B, size int, live bool) {
	dir := b.TempDir()
	name := filepath.Join(b.TempDir(), "f")
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(name, random(size), 0o600)); err != nil {
		b.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	s, err := New(int(d.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	age()
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := s.Put(int(f.Fd()), live); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutKnown(b *testing.B) { benchmarkPut(b, 4096, false) }
func BenchmarkPutLive(b *testing.B)  { benchmarkPut(b, 4096, true) }
func BenchmarkPutLarge(b *testing.B) { benchmarkPut(b, 64<<20, true) }

// Given contents are hashed and not stored by Put, small or large; anything else
// is, also what has the size of a given content, and what comes as bytes.
func TestGivenIsNotStored(t *testing.T) {
	s, dir := newStore(t)
	small, large := random(5000), random(3*chunk+17)
	s.Given(map[Sum]uint64{sha256.Sum256(small): uint64(len(small)), sha256.Sum256(large): uint64(len(large))})
	put := func(b []byte) {
		t.Helper()
		got, err := s.Put(int(write(t, filepath.Join(t.TempDir(), "f"), b).Fd()), false)
		if err != nil || got.SHA256 != sha256.Sum256(b) || got.Size != uint64(len(b)) {
			t.Errorf("%d bytes: got %+v, %v", len(b), got, err)
		}
	}
	put(small)
	put(large)
	if l := files(t, dir); len(l) != 0 {
		t.Errorf("got %v stored, want nothing", l)
	}
	other := bytes.Clone(large)
	other[len(other)-1] ^= 1
	put(other)
	put(small[1:])
	if _, err := s.PutBytes(small); err != nil {
		t.Fatal(err)
	}
	want := []string{Name(sha256.Sum256(other)), Name(sha256.Sum256(small[1:])), Name(sha256.Sum256(small))}
	got := files(t, dir)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v stored, want %v", got, want)
	}
}
