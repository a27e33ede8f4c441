package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// want fails unless dir holds exactly the named files with this content.
func want(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(files) {
		t.Errorf("got %d files %v, want %d", len(entries), entries, len(files))
	}
	for name, content := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(b) != content {
			t.Errorf("%s: got %q, %v, want %q", name, b, err, content)
		}
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for _, content := range []string{"first", "second, longer", ""} {
		if err := WriteFile(name, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		want(t, dir, map[string]string{"f": content})
	}
	if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("got %v, %v, want mode 0640", info.Mode(), err)
	}
}

func TestWriteFileReplacesLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "target"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(dir, "f")); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	if err := WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, dir, map[string]string{"target": "kept", "f": "new"})
}

func TestCreateNew(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := CreateNew(name, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CreateNew(name, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing file: got %v, want ErrExist", err)
	}
	want(t, dir, map[string]string{"f": "first"})
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
}

// A planted link, dangling or not, is neither followed nor replaced.
func TestCreateNewRefusesLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, target := range []string{filepath.Join(outside, "absent"), dir} {
		name := filepath.Join(dir, "f")
		if err := os.Symlink(target, name); err != nil {
			t.Skipf("no symbolic links: %v", err)
		}
		if err := CreateNew(name, []byte("x"), 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("link to %s: got %v, want ErrExist", target, err)
		}
		if got, err := os.Readlink(name); err != nil || got != target {
			t.Errorf("the link was changed: %q, %v", got, err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	want(t, outside, nil)
	want(t, dir, nil)
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sub, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The rename onto a directory fails after the temporary file was written.
	if err := WriteFile(sub, []byte("x"), 0o600); err == nil {
		t.Error("onto a directory: got no error")
	}
	if err := CreateNew(sub, []byte("x"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("onto a directory: got %v, want ErrExist", err)
	}
	for _, write := range []func(string, []byte, fs.FileMode) error{WriteFile, CreateNew} {
		if err := write(filepath.Join(dir, "absent", "f"), []byte("x"), 0o600); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("absent folder: got %v, want ErrNotExist", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, want the folder sub alone", entries)
	}
}
