//go:build unix

package prune

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder makes a run folder with all that a recorder and attest can leave there.
func folder(t *testing.T) (dir string, w *journal.DirWriter) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { exec.Command("chmod", "-R", "u+rwX", dir).Run() })
	w, err := journal.Create(dir, journal.Secret{1}, journal.Start{Run: [16]byte{1}, Roots: []scope.Root{{Path: "/", Mode: scope.ReadOne, Class: scope.System}, {Path: "/work", Mode: scope.WriteTree}},
		Workspace: "/work", Recorder: "test", Backend: "test"})
	must(t, err)
	for _, d := range []string{"objects/ab", "overlay/upper/deep/er", "overlay/work", "lower", "grant-0/upper", "grant-12/upper", "staged", "tests"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	for _, f := range []string{"objects/ab/abcd", "overlay/upper/deep/er/f", "lower/f", "grant-0/upper/f", ".evidence-123", "scan-77.tmp", "task.sealed", "baseline", "registration.cbor", "key.age", "secret.age", "recipients"} {
		must(t, os.WriteFile(filepath.Join(dir, f), make([]byte, 5000), 0o600))
	}
	return dir, w
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRun(t *testing.T) {
	dir, w := folder(t)
	if _, err := Run(dir, false); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("a run that goes on: got %v", err)
	}
	must(t, w.Close())
	// What a program can leave: folders that forbid their removal, links that lead out.
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "overlay/upper/out")))
	must(t, os.Symlink(filepath.Join(outside, "precious"), filepath.Join(dir, "objects/ab/out")))
	must(t, os.Mkdir(filepath.Join(dir, "overlay/upper/locked"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "overlay/upper/locked/f"), nil, 0o000))
	must(t, os.Chmod(filepath.Join(dir, "overlay/upper/locked"), 0o000))
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "grant-1")))
	must(t, os.Mkdir(filepath.Join(dir, "grant-x"), 0o700))

	before := names(t, dir)
	dry, err := Run(dir, true)
	must(t, err)
	if !slices.Equal(names(t, dir), before) {
		t.Error("a dry run removed something")
	}
	rep, err := Run(dir, false)
	must(t, err)
	removed := []string{".evidence-123", "grant-0", "grant-12", "lower", "objects", "overlay", "scan-77.tmp", "staged", "tests"}
	left := []string{"grant-1", "grant-x", "notes.txt"}
	if !slices.Equal(rep.Removed, removed) || !slices.Equal(dry.Removed, removed) || !slices.Equal(rep.Left, left) {
		t.Errorf("removed %v, dry %v, left %v", rep.Removed, dry.Removed, rep.Left)
	}
	if rep.Bytes < 6*4096 || rep.Files < 6 || os.Getuid() == 0 && (dry.Bytes != rep.Bytes || dry.Files != rep.Files) {
		t.Errorf("got %+v, dry %+v", rep, dry)
	}
	want := []string{"baseline", "checkpoint", "detail", "grant-1", "grant-x", "journal", "key.age", "notes.txt", "recipients", "registration.cbor", "secret", "secret.age", "task.sealed"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
	again, err := Run(dir, false)
	if err != nil || len(again.Removed) != 0 || again.Bytes != 0 {
		t.Errorf("again: got %+v, %v, want nothing to do", again, err)
	}
}

func TestEmpty(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if rep, err := Empty(dir, "staged", false); err != nil || len(rep.Removed) != 0 {
		t.Errorf("without the folder: %+v, %v", rep, err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "staged/one"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "staged/one/test"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "staged/link")))
	if rep, err := Empty(dir, "staged", true); err != nil || rep.Files != 1 || len(names(t, filepath.Join(dir, "staged"))) != 2 {
		t.Errorf("dry: %+v, %v", rep, err)
	}
	if rep, err := Empty(dir, "staged", false); err != nil || len(rep.Removed) != 2 || len(names(t, filepath.Join(dir, "staged"))) != 0 {
		t.Errorf("got %+v, %v", rep, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	if _, err := Empty(dir, "link", false); err == nil {
		t.Error("a link to a folder: got no error")
	}
}

// A folder that is no run's is left alone.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "objects"), 0o700))
	if _, err := Run(dir, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no journal: got %v", err)
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "journal")))
	if _, err := Run(dir, false); err == nil {
		t.Error("a journal that is a link: got no error")
	}
	run, w := folder(t)
	must(t, w.Close())
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(run, link))
	if _, err := Run(link, false); err == nil {
		t.Error("a link to a run folder: got no error")
	}
	for _, d := range []string{dir, run} {
		if _, err := os.Stat(filepath.Join(d, "objects")); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// An objects entry that is a link is no folder of the recorder's.
func TestPlantedTop(t *testing.T) {
	dir, w := folder(t)
	must(t, w.Close())
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "precious"), []byte("x"), 0o600))
	must(t, os.RemoveAll(filepath.Join(dir, "objects")))
	must(t, os.Symlink(outside, filepath.Join(dir, "objects")))
	rep, err := Run(dir, false)
	if err != nil || !slices.Contains(rep.Left, "objects") {
		t.Errorf("got %+v, %v, want the link left and named", rep, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
}
