package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The committed files are what the generator writes, all of them and no others.
func TestCommittedVectors(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(want) < 70 {
		t.Fatalf("generated %d files, %v", len(want), err)
	}
	got, err := filepath.Glob(filepath.Join("..", "*.txt"))
	if err != nil || len(got) != len(want) {
		t.Errorf("%d committed files, want %d, %v", len(got), len(want), err)
	}
	for _, p := range want {
		a, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join("..", filepath.Base(p)))
		if err != nil {
			t.Error(err)
		} else if string(a) != string(b) {
			t.Errorf("%s differs from what is generated", filepath.Base(p))
		}
	}
}

// A vector made by the code under test would prove nothing.
func TestImportsNothingOfOurs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.Contains(i.Path.Value, ".") {
				t.Errorf("%s imports %s, want the standard library only", name, i.Path.Value)
			}
		}
	}
}
