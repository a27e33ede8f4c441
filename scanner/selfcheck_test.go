//go:build unix

package scanner

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// TestSelfCheckCatchesBrokenScanners: one that emits the controls only, one that
// emits nothing, one that loses a digest in a hundred, one with another key.
func TestSelfCheckCatchesBrokenScanners(t *testing.T) {
	key := testKey("broken")
	s := seal(t, key)
	controls := map[[32]byte]bool{}
	for i := 0; i < len(s.set.Controls); i += 32 {
		controls[[32]byte(s.set.Controls[i:])] = true
	}
	broken := func(lose func(contraband.Class, [32]byte) bool) workerMaker {
		return func(cfg *Config, salt [16]byte, sc *scratch) *worker {
			w := newWorker(cfg, salt, sc)
			w.lose = lose
			return w
		}
	}
	n := 0
	dir := recorded(t, s.set, nil, false, open("/work/a", []byte(prose(3, 2000))), stdin(prose(4, 100)), argv(prose(5, 20)))
	for name, maker := range map[string]workerMaker{
		"controls only": broken(func(_ contraband.Class, s [32]byte) bool { return !controls[contraband.Control(s)] }),
		"nothing":       broken(func(contraband.Class, [32]byte) bool { return true }),
		"one of a hundred lost": broken(func(contraband.Class, [32]byte) bool {
			n++
			return n%100 == 0
		}),
		"another key": func(cfg *Config, salt [16]byte, sc *scratch) *worker {
			w := newWorker(cfg, salt, sc)
			w.fp = canon.New(testKey("other"), cfg.Set.Filter)
			return w
		},
	} {
		var check *CheckError
		err := scanOne(t, dir, key, s.set, maker)
		if !errors.As(err, &check) || !strings.Contains(err.Error(), "scanner self-check failed") {
			t.Errorf("%s: got %v, want a failed self-check", name, err)
		}
	}
	if err := scanError(t, dir, key, s.set, newWorker); err != nil {
		t.Errorf("control: the whole scanner: %v", err)
	}
}

// scanOne is scanError with one worker, since the broken ones above count.
func scanOne(t *testing.T, dir string, key contraband.TaskKey, set *contraband.Set, maker workerMaker) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	_, err = scan(context.Background(), root, io.Discard, Config{Key: key, Set: set, Workers: 1}, maker)
	return err
}

func TestDamagedFolderIsAnError(t *testing.T) {
	key := testKey("damaged")
	s := seal(t, key)
	text := []byte(prose(3, 300))
	object := filepath.Join(ObjectsDir, filepath.FromSlash(objects.Name(sha256.Sum256(text))))
	for name, c := range map[string]struct {
		damage  func(dir string) error
		content bool // a *ContentError that names the event
		want    string
	}{
		"whole folder":     {func(string) error { return nil }, false, ""},
		"object missing":   {func(dir string) error { return os.Remove(filepath.Join(dir, object)) }, true, "no such file"},
		"object changed":   {func(dir string) error { return flip(filepath.Join(dir, object), 40) }, true, "its bytes have SHA-256"},
		"object cut":       {func(dir string) error { return os.Truncate(filepath.Join(dir, object), 100) }, true, "its bytes have SHA-256"},
		"object a folder":  {func(dir string) error { return swapped(filepath.Join(dir, object)) }, true, "want a regular file"},
		"detail changed":   {func(dir string) error { return flip(filepath.Join(dir, journal.DetailsFile), 200) }, true, "does not open the row"},
		"details cut":      {func(dir string) error { return os.Truncate(filepath.Join(dir, journal.DetailsFile), 0) }, false, "fewer details than rows"},
		"journal torn":     {func(dir string) error { return shorten(filepath.Join(dir, journal.RowsFile), 3) }, false, "frame"},
		"journal empty":    {func(dir string) error { return os.Truncate(filepath.Join(dir, journal.RowsFile), 0) }, false, "without rows"},
		"baseline changed": {func(dir string) error { return os.Remove(filepath.Join(dir, BaselineFile)) }, false, "baseline manifest"},
		"secret cut":       {func(dir string) error { return os.Truncate(filepath.Join(dir, journal.SecretFile), 8) }, false, "secret: got 8 bytes"},
	} {
		dir := recorded(t, s.set, map[string]string{"b": "base"}, false, stdin("hello"), open("/work/x", text), open("/work/y", text))
		must(t, os.Chmod(filepath.Join(dir, journal.SecretFile), 0o600))
		must(t, c.damage(dir))
		err := scanError(t, dir, key, s.set, newWorker)
		var content *ContentError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: got %v, want none", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &content) != c.content):
			t.Errorf("%s: got %v, want one that says %q, naming the event: %v", name, err, c.want, c.content)
		}
	}
}

func flip(name string, at int64) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return os.WriteFile(name, b, 0o600)
}

func shorten(name string, n int64) error {
	fi, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Truncate(name, fi.Size()-n)
}

func swapped(name string) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	return os.Mkdir(name, 0o700)
}

func TestAnotherTasksKeyIsRefused(t *testing.T) {
	key := testKey("right")
	s := seal(t, key)
	root, err := os.OpenRoot(recorded(t, s.set, nil, false, stdin("hello")))
	must(t, err)
	defer root.Close()
	var wrong *contraband.KeyError
	if _, err := Scan(context.Background(), root, io.Discard, Config{Key: testKey("wrong"), Set: s.set}); !errors.As(err, &wrong) {
		t.Errorf("got %v, want a *contraband.KeyError", err)
	}
	if _, err := Scan(context.Background(), root, io.Discard, Config{Key: key, Set: s.set}); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestCancelledScanEnds(t *testing.T) {
	key := testKey("cancel")
	s := seal(t, key)
	root, err := os.OpenRoot(recorded(t, s.set, nil, false, open("/work/x", []byte(prose(3, 3000)))))
	must(t, err)
	defer root.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Scan(ctx, root, io.Discard, Config{Key: key, Set: s.set}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestNaiveEqualsCanon holds the two derivations against each other where they
// are most likely to differ; package canon has an oracle of its own.
func TestNaiveEqualsCanon(t *testing.T) {
	key := testKey("naive")
	values := key.Filter()
	for _, text := range []string{
		"", "short", prose(9, 400), strings.Repeat("0", 500), fullWidth(prose(9, 50)), "e\u0301\u0301 \xff\xfe mixed \xc3 " + prose(10, 60),
		"\xff\xfea\x00b\x00c\x00", strings.Repeat("\u0301", 70) + prose(11, 90), strings.Repeat("漢字テスト", 40) + canary + "\n" + canary,
	} {
		filter := []uint32{values.Value(contraband.ClassCanary, canon.Canonical([]byte(canary))[:24]), values.Value(contraband.ClassLine, canon.Canonical([]byte(canary)))}
		for _, asText := range []bool{false, true} {
			want, got := map[[32]byte]bool{}, map[[32]byte]bool{}
			n := newNaive(key, filter)
			c := n.items([]byte(text), asText, func(it item) { want[n.digest(it)] = true })
			k := canon.New(key, filter).Object([]byte(text), asText, func(_ contraband.Class, s [32]byte) { got[s] = true })
			if uint64(c) != k {
				t.Errorf("%q: got %d canonical bytes, want %d", text, k, c)
			}
			for s := range want {
				if !got[s] {
					t.Errorf("%.40q: canon lacks a digest", text)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%.40q: got %d digests, want %d", text, len(got), len(want))
			}
		}
	}
}
