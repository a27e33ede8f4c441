//go:build unix

package tlog_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

// A pipe or a link in the place of a file of a log is named, and not waited for or
// followed.
func TestCheckReadsFilesOnly(t *testing.T) {
	dir, _, s := newLog(t)
	l := openLog(t, dir, s)
	for _, e := range []string{"one", "two"} {
		if _, err := l.Add(t.Context(), []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := tlog.Check(t.Context(), dir, s.Public()); n != 2 || err != nil {
		t.Fatalf("control: got %d, %v, want 2", n, err)
	}
	for _, name := range []string{"checkpoint", "tile/0/000.p/2", "tile/entries/000.p/2"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		outside := filepath.Join(t.TempDir(), "good")
		if err := os.WriteFile(outside, good, 0o600); err != nil {
			t.Fatal(err)
		}
		for what, put := range map[string]func() error{
			"pipe":          func() error { return syscall.Mkfifo(path, 0o600) },
			"symbolic link": func() error { return os.Symlink(outside, path) },
			"folder":        func() error { return os.Mkdir(path, 0o700) },
		} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := put(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := tlog.Check(t.Context(), dir, s.Public())
				done <- err
			}()
			select {
			case err := <-done:
				var kind *regular.KindError
				if !errors.As(err, &kind) || !strings.Contains(err.Error(), name+": got a "+what) {
					t.Errorf("%s as %s: got %v, want a refusal", name, what, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s as %s: it is waited for", name, what)
			}
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A folder above that is a link to outside does not lead there.
	moved := filepath.Join(t.TempDir(), "tile")
	if err := os.Rename(filepath.Join(dir, "tile"), moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(moved, filepath.Join(dir, "tile")); err != nil {
		t.Fatal(err)
	}
	if _, err := tlog.Check(t.Context(), dir, s.Public()); err == nil {
		t.Error("a link out of the folder was followed")
	}
	// The checkpoint is a pipe when the log is opened.
	if err := os.Remove(filepath.Join(dir, "checkpoint")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if _, err := tlog.Open(ctx, dir, s); err == nil || !strings.Contains(err.Error(), "got a pipe") {
		t.Errorf("Open: got %v, want a refusal of the pipe", err)
	}
}

// A tile that is larger than one is not read whole.
func TestCheckBoundsFiles(t *testing.T) {
	dir, _, s := newLog(t)
	l := openLog(t, dir, s)
	if _, err := l.Add(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]int64{"checkpoint": 64 << 10, "tile/0/000.p/1": 256 * 32, "tile/entries/000.p/1": 256 * 65537} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, limit+1); err != nil {
			t.Fatal(err)
		}
		if _, err := tlog.Check(t.Context(), dir, s.Public()); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: got %v, want a bound", name, err)
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := tlog.Check(t.Context(), dir, s.Public()); n != 1 || err != nil {
		t.Errorf("control: got %d, %v", n, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "tile/entries/000.p/1"))
	if err != nil || !bytes.Equal(b, []byte("\x00\x03one")) {
		t.Errorf("got %q, %v, want the bundle of one entry", b, err)
	}
}

// What stands behind the last entry of a bundle, or the last hash of a tile, is a fault:
// what is added next would come after it.
func TestNothingBehindTheLast(t *testing.T) {
	dir, _, s := newLog(t)
	l := openLog(t, dir, s)
	for _, e := range []string{"one", "two"} {
		if _, err := l.Add(t.Context(), []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	read := func() error { return l.Entries(t.Context(), 0, func(uint64, []byte) error { return nil }) }
	if _, err := l.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read(), l.Close()); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, more := range map[string][]byte{"tile/entries/000.p/2": {0, 1, 'x'}, "tile/0/000.p/2": make([]byte, 32)} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(bytes.Clone(good), more...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := tlog.Check(t.Context(), dir, s.Public()); err == nil || !strings.HasPrefix(err.Error(), name+": got ") {
			t.Errorf("%s: got %v", name, err)
		}
		l = openLog(t, dir, s)
		if err := read(); strings.Contains(name, "entries") && err == nil {
			t.Errorf("%s: all entries were read", name)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := tlog.Check(t.Context(), dir, s.Public()); n != 2 || err != nil {
		t.Errorf("control: got %d, %v, want 2", n, err)
	}
}
