//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestLargeBundleIsCopied reads a bundle as a large one is read: whoever changes
// the file afterwards changes nothing that is verified, and no copy stays behind.
func TestLargeBundleIsCopied(t *testing.T) {
	want := bytes.Repeat([]byte("bundle. "), 4096)
	for _, c := range []struct {
		name  string
		tmp   string // TMPDIR
		small int64
	}{
		{"copied", t.TempDir(), 0},
		{"small", t.TempDir(), int64(len(want))},
		{"no folder for a copy", filepath.Join(t.TempDir(), "none"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.cleanrun")
			t.Setenv("TMPDIR", c.tmp)
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readBundle(path, c.small)
			if err != nil {
				t.Fatal(err)
			}
			// In place, as somebody would who holds the file open.
			if err := os.WriteFile(path, bytes.Repeat([]byte("another "), 4096), 0o600); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatal("what was read changed with the file")
			}
			if left, _ := os.ReadDir(c.tmp); len(left) > 0 {
				t.Fatalf("%s stays behind in TMPDIR", left[0].Name())
			}
		})
	}
}

func TestLargeBundleRefusals(t *testing.T) {
	dir := t.TempDir()
	if _, err := readBundle(dir, 0); err == nil {
		t.Error("a folder was read")
	}
	if _, err := readBundle(filepath.Join(dir, "none"), 0); !os.IsNotExist(err) {
		t.Errorf("no file: got %v", err)
	}
	huge := filepath.Join(dir, "huge")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(maxBundle + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := readBundle(huge, 0); err == nil {
		t.Error("a file above the limit was read")
	}
}
