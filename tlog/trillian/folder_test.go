package trillian

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/tlog"
)

func TestConfig(t *testing.T) {
	good := "cleanrun trillian log v1\nserver 127.0.0.1:8090\ntree 77\n"
	if c, err := parseConfig([]byte(good)); err != nil || c != (config{"127.0.0.1:8090", 77}) {
		t.Fatalf("got %+v, %v", c, err)
	}
	for name, bad := range map[string]string{
		"empty":              "",
		"another version":    strings.Replace(good, "v1", "v2", 1),
		"no server":          strings.Replace(good, "server 127.0.0.1:8090\n", "", 1),
		"an empty server":    strings.Replace(good, "127.0.0.1:8090", "", 1),
		"tls alone":          strings.Replace(good, "127.0.0.1:8090", "tls:", 1),
		"a blank":            strings.Replace(good, "127.0.0.1:8090", "127.0.0.1 :8090", 1),
		"no number":          strings.Replace(good, "77", "x", 1),
		"a leading zero":     strings.Replace(good, "77", "077", 1),
		"a sign":             strings.Replace(good, "77", "+77", 1),
		"no end of line":     strings.TrimSuffix(good, "\n"),
		"a line more":        good + "\n",
		"carriage returns":   strings.ReplaceAll(good, "\n", "\r\n"),
		"lines out of order": "cleanrun trillian log v1\ntree 77\nserver 127.0.0.1:8090\n",
	} {
		if c, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, c)
		}
	}
}

// state is what a log of some leaves has signed.
func state(t testing.TB, f *folder, n int) *signed {
	t.Helper()
	tree := ranges.NewEmptyRange(0)
	for i := range n {
		if err := tree.Append(rfc6962.DefaultHasher.HashLeaf([]byte{byte(i)}), nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := f.sign(tree)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSigned(t *testing.T) {
	f := &folder{dir: t.TempDir(), key: newKey(t), now: time.Now}
	for _, n := range []int{0, 1, 2, 7, 255} {
		want := state(t, f, n)
		got, err := f.read()
		if err != nil {
			t.Fatalf("size %d: %v", n, err)
		}
		if !bytes.Equal(got.bytes, want.bytes) || !got.tree.Equal(want.tree) || got.note.Checkpoint().Size != uint64(n) {
			t.Errorf("size %d: got %+v", n, got)
		}
	}
	seven := state(t, f, 7).format()
	lines := strings.SplitAfterN(string(seven), "\n", 4)
	six, note := state(t, f, 6), string(state(t, f, 7).bytes)
	for name, bad := range map[string]string{
		"empty":                    "",
		"no hashes":                "\n" + note,
		"a hash less":              lines[0] + lines[1] + lines[3],
		"a hash more":              lines[0] + string(seven),
		"hashes of another order":  lines[1] + lines[0] + lines[2] + lines[3],
		"hashes of another tree":   strings.Replace(string(seven), lines[0], "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 1),
		"loose base64":             strings.Replace(string(seven), "=\n", "\n", 1),
		"the note of another size": lines[0] + lines[1] + lines[2] + "\n" + string(six.bytes),
		"a note cut short":         string(seven[:len(seven)-4]),
		"another size":             strings.Replace(string(seven), "\n7\n", "\n15\n", 1),
		"no empty line":            strings.Repeat("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", 70),
		"carriage returns":         strings.Replace(string(seven), "\n", "\r\n", 1),
	} {
		if err := os.WriteFile(filepath.Join(f.dir, signedName), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.read(); err == nil || !strings.Contains(err.Error(), "it is not what log.example/2026 signed last") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, signedName), seven, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(); err != nil {
		t.Errorf("control: %v", err)
	}
	other := &folder{dir: f.dir, key: newKey(t), now: time.Now}
	if _, err := other.read(); err == nil {
		t.Error("what another key signed was taken")
	}
}

func TestIs(t *testing.T) {
	_, l, dir, s := newFake(t)
	if !Is(dir) || Is(t.TempDir()) || Is(filepath.Join(dir, "none")) {
		t.Error("got a folder for another kind of log")
	}
	if _, err := Open(t.Context(), dir, s); !errors.Is(err, tlog.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), t.TempDir(), s); !errors.Is(err, tlog.ErrNoLog) {
		t.Errorf("got %v, want ErrNoLog", err)
	}
	if err := os.Remove(filepath.Join(dir, signedName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without what was signed last: got %v, want an error", err)
	}
}

func FuzzParseSigned(f *testing.F) {
	dir := &folder{dir: f.TempDir(), key: newKey(f), now: time.Now}
	for _, n := range []int{0, 1, 7} {
		f.Add(state(f, dir, n).format())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSigned(data, dir.key.Public())
		if err != nil {
			if s != nil {
				t.Error("a value came with an error")
			}
			return
		}
		if !bytes.Equal(s.format(), data) {
			t.Errorf("got %q, want %q", s.format(), data)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("cleanrun trillian log v1\nserver tls:log.example:443\ntree -7\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseConfig(data); err == nil && !bytes.Equal(c.format(), data) {
			t.Errorf("got %q, want %q", c.format(), data)
		}
	})
}
