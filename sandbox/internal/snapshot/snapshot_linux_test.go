package snapshot

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "original")
	for i := range 4 {
		d := filepath.Join(dir, fmt.Sprint("d", i), "sub")
		check(t, os.MkdirAll(d, 0o755))
		for j := range 4 {
			check(t, os.WriteFile(filepath.Join(d, fmt.Sprint("f", j)), []byte(fmt.Sprint("content ", i, j)), 0o644))
			check(t, os.Symlink(fmt.Sprint("f", j), filepath.Join(d, fmt.Sprint("l", j))))
		}
	}
	check(t, os.WriteFile(filepath.Join(dir, "exec"), []byte("#!/bin/sh\n"), 0o755))
	return dir
}

// state is what a tree holds, without times.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	check(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(b)
		} else if info.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			text = "link " + to
		}
		out[rel] = text
		return nil
	}))
	return out
}

func TestCopyIsEqual(t *testing.T) {
	from := tree(t)
	check(t, os.Chmod(filepath.Join(from, "d1"), 0o555))
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "d1"), 0o755) })
	to := filepath.Join(t.TempDir(), "copy")
	ix, err := Copy(from, to)
	check(t, err)
	t.Cleanup(func() { Remove(to) })
	if d := cmp.Diff(state(t, from), state(t, to)); d != "" {
		t.Error(d)
	}
	changes, err := ix.Changes(to)
	check(t, err)
	if len(changes) != 0 {
		t.Errorf("an untouched copy differs: %v", changes)
	}
	check(t, os.WriteFile(filepath.Join(to, "exec"), []byte("#!/bin/ex\n"), 0o755)) // the positive control
	if changes, err = ix.Changes(to); err != nil || len(changes) != 1 || changes[0].Kind != overlay.Modified {
		t.Errorf("got %v, %v, want the file of the same size modified", changes, err)
	}
}

// Random edits. The exported layer over the original is what the copy was, and
// package overlay, which reads layers by the kernel's rules, finds the same changes
// in it.
func TestExportAgainstOverlay(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		from := tree(t)
		to := filepath.Join(t.TempDir(), "copy")
		ix, err := Copy(from, to)
		check(t, err)
		at := func() string {
			names := []string{"d0", "d1", "d2", "d3", "exec", "new"}
			p := filepath.Join(to, names[r.IntN(len(names))])
			for _, more := range [][]string{{"sub", "sub", "x"}, {"f0", "f1", "l0", "l1", "y"}} {
				if r.IntN(3) > 0 {
					p = filepath.Join(p, more[r.IntN(len(more))])
				}
			}
			return p
		}
		for range 12 { // failures are fine: the tree is what it is
			switch p := at(); r.IntN(8) {
			case 0:
				os.RemoveAll(p)
			case 1:
				if st, err := os.Stat(p); err != nil || st.Mode().IsRegular() { // an open of a pipe would wait
					os.WriteFile(p, []byte(fmt.Sprint("written ", r.IntN(3))), 0o644)
				}
			case 2:
				os.Mkdir(p, 0o755)
			case 3:
				os.Rename(p, at())
			case 4:
				os.Chmod(p, fs.FileMode(0o700|r.IntN(64)))
			case 5:
				os.Symlink("target", p)
			case 6:
				os.Link(p, at())
			case 7:
				unix.Mkfifo(p, 0o600)
			}
		}
		want := state(t, to)
		changes, err := ix.Changes(to)
		check(t, err)
		upper := filepath.Join(t.TempDir(), "upper")
		check(t, os.Mkdir(upper, 0o755))
		check(t, Export(changes, to, upper))
		u, err := os.Open(upper)
		check(t, err)
		defer u.Close()
		l, err := os.Open(from)
		check(t, err)
		defer l.Close()
		read, err := overlay.Changes(int(u.Fd()), int(l.Fd()))
		check(t, err)
		if d := cmp.Diff(kinds(changes), kinds(read)); d != "" {
			t.Errorf("seed %d: changes against the layer that was exported: %s", seed, d)
		}
		_, _, err = overlay.Apply(int(u.Fd()), int(l.Fd()))
		check(t, err)
		if d := cmp.Diff(want, state(t, from)); d != "" {
			t.Errorf("seed %d: the copy against the original with the layer applied: %s", seed, d)
		}
	}
}

func kinds(list []overlay.Change) map[string]string {
	out := map[string]string{}
	for _, c := range list {
		out[c.Path] = c.Kind.String()
	}
	return out
}

func TestRemove(t *testing.T) {
	dir := tree(t)
	for _, d := range []string{"d0/sub", "d0", "d1"} {
		check(t, os.Chmod(filepath.Join(dir, d), 0))
	}
	check(t, Remove(dir))
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
