package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRenameNew(t *testing.T) {
	for name, rename := range map[string]func(from, to string) error{"RenameNew": RenameNew, "renameIfAbsent": renameIfAbsent} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		for _, d := range []string{"a", "b", "taken"} {
			if err := os.Mkdir(at(d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(at("a/x"), []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
		// An empty folder is taken, too: rename(2) would replace it.
		if err := rename(at("a"), at("taken")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: got %v over an empty folder, want fs.ErrExist", name, err)
		}
		if err := os.Symlink("nowhere", at("link")); err == nil {
			if err := rename(at("a"), at("link")); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: got %v over a dangling link, want fs.ErrExist", name, err)
			}
		}
		if err := rename(at("none"), at("new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want fs.ErrNotExist", name, err)
		}
		if err := rename(at("a"), at("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(at("new/x")); err != nil || string(got) != "a" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
