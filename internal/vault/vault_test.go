package vault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/cleanrun-dev/cleanrun/journal"
)

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newKeys(t testing.TB, to ...age.Recipient) (*Keys, []byte) {
	t.Helper()
	k, file, err := New(to)
	if err != nil {
		t.Fatal(err)
	}
	return k, file
}

func TestOpen(t *testing.T) {
	a, b, c := identity(t), identity(t), identity(t)
	k, file := newKeys(t, a.Recipient(), b.Recipient())
	for _, id := range []age.Identity{a, b} {
		got, err := Open(file, "", []age.Identity{c, id})
		if err != nil || got.ForStage() != k.ForStage() {
			t.Errorf("got %v, want the run's keys", err)
		}
	}
	text := a.Recipient().String() + "\n" + b.Recipient().String() + "\n"
	for _, ids := range [][]age.Identity{{c}, nil} {
		_, err := Open(file, text, ids)
		var wrong *WrongIdentityError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), a.Recipient().String()) || !strings.Contains(err.Error(), b.Recipient().String()) || wrong.Hint() == "" {
			t.Errorf("another identity: got %v, want to be told whose it is", err)
		}
	}
	for name, bad := range map[string][]byte{"empty": {}, "cut": file[:len(file)-1], "changed": append(bytes.Clone(file[:len(file)-1]), file[len(file)-1]^1)} {
		if k, err := Open(bad, "", []age.Identity{a}); err == nil || k != nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if _, err := Parse("AGE-SECRET-KEY-1NONSENSE"); err == nil || strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("got %v, want an error that shows nothing of the key", err)
	}
	if _, _, err := New(nil); err == nil {
		t.Error("no recipient: got no error")
	}
}

func TestBytesAndNames(t *testing.T) {
	k, _ := newKeys(t, identity(t).Recipient())
	other, _ := newKeys(t, identity(t).Recipient())
	file, err := k.EncryptBytes([]byte("plain"))
	if err != nil || bytes.Contains(file, []byte("plain")) {
		t.Fatalf("%q %v", file, err)
	}
	if b, err := k.DecryptBytes(file, 5); err != nil || string(b) != "plain" {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := k.DecryptBytes(file, 4); err == nil {
		t.Error("larger than allowed: got no error")
	}
	if _, err := other.DecryptBytes(file, 5); err == nil {
		t.Error("another run's keys read it")
	}
	if k.Name([32]byte{1}) != k.Name([32]byte{1}) || k.Name([32]byte{1}) == k.Name([32]byte{2}) || k.Name([32]byte{1}) == other.Name([32]byte{1}) || k.Name([32]byte{1}) == ([32]byte{1}) {
		t.Error("names are not those of the run and content")
	}
	again, err := Parse(k.ForStage() + "\n")
	if err != nil || again.Name([32]byte{1}) != k.Name([32]byte{1}) {
		t.Errorf("the next stage has other keys: %v", err)
	}
}

type buffer struct{ bytes.Buffer }

func (*buffer) Sync() error { return nil }

func record(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func writeRecords(t testing.TB, k *Keys, writes ...[]byte) []byte {
	t.Helper()
	var b buffer
	w, err := k.Records(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range writes {
		if n, err := w.Write(p); err != nil || n != len(p) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	return b.Bytes()
}

func readRecords(k *Keys, file []byte) ([]byte, error) {
	r, err := k.OpenRecords(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestRecords(t *testing.T) {
	k, _ := newKeys(t, identity(t).Recipient())
	one, two, three := record("the first detail"), record("2"), record(strings.Repeat("three", 100000))
	file := writeRecords(t, k, one, append(bytes.Clone(two), three...))
	if bytes.Contains(file, []byte("detail")) {
		t.Error("stored in clear")
	}
	want := string(one) + string(two) + string(three)
	if got, err := readRecords(k, file); err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
	// The details reader sees the same records as without encryption.
	n := 0
	r, err := k.OpenRecords(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for raw, err := range journal.Details(r) {
		if err != nil || len(raw) == 0 {
			t.Errorf("record %d: %v", n, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("got %d records, want 3", n)
	}
	// Cut anywhere: whole records come out, then the reader says that the last is torn.
	for cut := range 60 {
		r, err := k.OpenRecords(bytes.NewReader(file[:cut]))
		if err != nil {
			t.Fatal(err)
		}
		whole, torn := 0, false
		for _, err := range journal.Details(r) {
			if err != nil {
				torn = true
				break
			}
			whole++
		}
		first := len(one) + 16
		second := first + len(two) + 16
		wantWhole := 0
		if cut >= first {
			wantWhole++
		}
		if cut >= second {
			wantWhole++
		}
		if whole != wantWhole || torn != (cut != 0 && cut != first && cut != second) {
			t.Errorf("cut at %d: got %d records, torn %v", cut, whole, torn)
		}
	}
	for name, bad := range map[string][]byte{
		"changed":     append([]byte{0, 0, 0, 32}, bytes.Repeat([]byte{7}, 32)...),
		"another run": writeRecords(t, func() *Keys { k, _ := newKeys(t, identity(t).Recipient()); return k }(), one),
		"swapped":     append(bytes.Clone(file[len(one)+16:][:len(two)+16]), file[:len(one)+16]...),
		"missing":     file[len(one)+16:],
		"too short":   {0, 0, 0, 16, 1, 2, 3},
		"too long":    {0xff, 0, 0, 0, 1},
	} {
		if got, err := readRecords(k, bad); err == nil {
			t.Errorf("%s: got %d bytes and no error", name, len(got))
		}
	}
}

// A write that fails is followed by none: the numbers would be wrong.
func TestRecordsFailOnce(t *testing.T) {
	k, _ := newKeys(t, identity(t).Recipient())
	f := &failing{}
	w, err := k.Records(f)
	if err != nil {
		t.Fatal(err)
	}
	f.err = errors.New("disk full")
	if _, err := w.Write(record("a")); !errors.Is(err, f.err) {
		t.Errorf("got %v", err)
	}
	first := f.err
	f.err = nil
	if _, err := w.Write(record("b")); !errors.Is(err, first) {
		t.Errorf("after the failure: got %v", err)
	}
	w, err = k.Records(&buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte{0, 0, 0, 9, 1}); err == nil {
		t.Error("half a record: got no error")
	}
	if _, err := w.Write(append([]byte{1, 0, 0, 0}, make([]byte, 1<<24)...)); err == nil {
		t.Error("a record too large: got no error")
	}
}

type failing struct {
	buffer
	err error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.buffer.Write(p)
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := journal.Secret{1, 2, 3}
	if k, err := OpenFolder(root, nil); k != nil || err != nil {
		t.Errorf("in clear: got %v, %v, want no keys", k, err)
	}
	put(journal.SecretFile, secret[:])
	put(journal.DetailsFile, record("in clear"))
	check := func(k *Keys) {
		t.Helper()
		f := Folder{root, k}
		if got, err := f.Secret(); err != nil || got != secret {
			t.Errorf("got %x, %v", got, err)
		}
		d, err := f.Details()
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if b, err := io.ReadAll(d); err != nil || string(b) != string(record("in clear")) {
			t.Errorf("got %q, %v", b, err)
		}
	}
	check(nil)
	id := identity(t)
	k, file := newKeys(t, id.Recipient())
	sealed, err := k.EncryptBytes(secret[:])
	if err != nil {
		t.Fatal(err)
	}
	put(KeyFile, file)
	put(RecipientsFile, []byte(id.Recipient().String()+"\n"))
	put(SecretFile, sealed)
	put(journal.DetailsFile, writeRecords(t, k, record("in clear")))
	got, err := OpenFolder(root, []age.Identity{id})
	if err != nil {
		t.Fatal(err)
	}
	check(got)
	var wrong *WrongIdentityError
	if _, err := OpenFolder(root, nil); !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, SecretFile), filepath.Join(dir, KeyFile)); err == nil {
		if _, err := OpenFolder(root, []age.Identity{id}); err == nil {
			t.Error("a key file that is a link: got no error")
		}
	}
}

func TestRecipients(t *testing.T) {
	a := identity(t).Recipient().String()
	pq, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	list := RecipientLines([]byte("# team\n" + a + "\r\n\n" + pq.Recipient().String() + "\n"))
	got, text, err := Recipients(list)
	if err != nil || len(got) != 2 || text != a+"\n"+pq.Recipient().String()+"\n" {
		t.Errorf("got %d, %q, %v", len(got), text, err)
	}
	for _, bad := range [][]string{nil, {""}, {"age1x"}, {a + "\n" + a}, {"ssh-ed25519 AAAA"}, {"# " + a}} {
		if _, _, err := Recipients(bad); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
	if _, err := Identities(strings.NewReader("AGE-SECRET-KEY-1NOTAKEY\n")); err == nil || strings.Contains(err.Error(), "NOTAKEY") {
		t.Errorf("got %v, want an error that shows nothing of the file", err)
	}
}

func FuzzOpenRecords(f *testing.F) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	k, _ := newKeys(f, id.Recipient())
	f.Add([]byte{0, 0, 0, 17, 1})
	f.Add(writeRecords(f, k, record("x"), record("y")))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := readRecords(k, file)
		if err == nil && len(got) > len(file) {
			t.Errorf("got %d bytes of %d", len(got), len(file))
		}
	})
}
