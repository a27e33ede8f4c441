package footprint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// shake changes a tree at random.
func shake(r *rand.Rand, dir string, steps int) {
	names := []string{"a", "a.b", "a-b", "b", "sub", "z"}
	for range steps {
		p := dir
		for range 1 + r.Intn(3) {
			p = filepath.Join(p, names[r.Intn(len(names))])
		}
		switch r.Intn(4) { // each fails if a file is in the way, or a folder: that step does nothing
		case 0:
			os.RemoveAll(p)
		case 1:
			os.MkdirAll(p, 0o755)
		default:
			os.MkdirAll(filepath.Dir(p), 0o755)
			os.WriteFile(p, []byte{byte('0' + r.Intn(4))}, 0o644)
		}
	}
}

// plainly lists a tree by the standard library.
func plainly(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || d.IsDir() {
			out[filepath.ToSlash(rel)] = "folder"
			return err
		}
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = "file " + string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func plainDiff(before, after map[string]string) (out []string) {
	for p, was := range before {
		if now, ok := after[p]; !ok {
			out = append(out, p+" deleted")
		} else if was != now {
			out = append(out, p+" modified")
		}
	}
	for p := range after {
		if _, ok := before[p]; !ok {
			out = append(out, p+" added")
		}
	}
	slices.Sort(out)
	return out
}

// Every way to compare says what a comparison of plain maps says, by any number of workers.
func TestDiffAgainstOracle(t *testing.T) {
	ctx := context.Background()
	sum := 0
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		dir := t.TempDir()
		shake(r, dir, 40)
		was := plainly(t, dir)
		before := take(t, dir, true, DefaultLimits)
		shake(r, dir, 12)
		now := plainly(t, dir)
		want := plainDiff(was, now)
		sum += len(want)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		after := take(t, dir, true, DefaultLimits)
		byTwo, gaps := Diff(before, after)
		byStream, _, err := DiffAll(before, after.All(), nil)
		if err != nil || len(gaps) != 0 {
			t.Fatal(err, gaps)
		}
		results := [][]Change{byTwo, byStream}
		for _, workers := range []int{1, 4} {
			_, changes, _, err := look(ctx, root, before, true, DefaultLimits, workers)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, changes)
		}
		root.Close()
		for i, changes := range results {
			var got []string
			for _, c := range changes {
				got = append(got, c.Path+" "+c.Kind.String())
				if isDir := now[c.Path] == "folder"; c.Dir != (c.Kind == Added && isDir) {
					t.Errorf("%+v: got Dir %v", c, c.Dir)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("seed %d, way %d: got %q, want %q", seed, i, got, want)
			}
			if !reflect.DeepEqual(changes, results[0]) {
				t.Fatalf("seed %d, way %d: got %v, want %v", seed, i, changes, results[0])
			}
		}
		var all []string
		for e := range after.All() {
			all = append(all, e.Path)
			if found := after.Find(e.Path); found == nil || *found != e {
				t.Fatalf("%s: got %+v, want %+v", e.Path, found, e)
			}
			if want := now[e.Path]; e.Mode.IsRegular() && e.Digest != sha256.Sum256([]byte(strings.TrimPrefix(want, "file "))) {
				t.Fatalf("%s: got another digest than that of %q", e.Path, want)
			}
			delete(now, e.Path)
		}
		if len(now) != 0 || len(all) == 0 || after.Find("none") != nil || after.Has("a/none") {
			t.Fatalf("got %q, want %v too", all, now)
		}
		// Built of its own entries, it is the same.
		built, err := Build(after.All(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if changes, _ := Diff(after, built); len(changes) != 0 || !slices.Equal(slices.Collect(built.All()), slices.Collect(after.All())) {
			t.Fatalf("seed %d: got %v", seed, changes)
		}
	}
	if sum < 50 {
		t.Errorf("got %d changes in all, want many", sum)
	}
}

func TestBuildRefusesDisorder(t *testing.T) {
	dir := fs.ModeDir | 0o755
	top := Entry{Path: ".", Mode: dir}
	for _, bad := range [][]Entry{
		{{Path: "a"}},
		{top, top},
		{top, {Path: "b"}, {Path: "a"}},
		{top, {Path: "a"}, {Path: "a"}},
		{top, {Path: "a"}, {Path: "a/b"}},
		{top, {Path: "a", Mode: dir}, {Path: "b"}, {Path: "a/b"}},
		{top, {Path: ""}},
		{top, {Path: ".."}},
		{top, {Path: "/a"}},
		{top, {Path: "./a"}},
	} {
		if _, err := Build(slices.Values(bad), nil); err == nil {
			t.Errorf("%v: got no error, want one", bad)
		}
	}
	good := []Entry{top, {Path: "a", Mode: dir}, {Path: "a/b"}, {Path: "a/c"}, {Path: "a.b", Mode: dir}, {Path: "b"}}
	if m, err := Build(slices.Values(good), nil); err != nil || !slices.Equal(paths(m), []string{".", "a", "a/b", "a/c", "a.b", "b"}) {
		t.Errorf("got %v, %v", m, err)
	}
}

// Many folders at once: a walk by several workers sees what one sees, in the same order.
func TestWorkersAgree(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		put(t, filepath.Join(dir, fmt.Sprintf("d%d/e%d/f%d", i%7, i%31, i)), fmt.Sprint(i))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, limits := range []Limits{DefaultLimits, {Entries: 60, Bytes: 1 << 20, Depth: 10}, {Entries: 1000, Bytes: 100, Depth: 10}} {
		want, _, _, err := look(context.Background(), root, nil, true, limits, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, err := Take(context.Background(), root, true, limits)
			if err != nil || !slices.Equal(got.Gaps, want.Gaps) || !slices.Equal(slices.Collect(got.All()), slices.Collect(want.All())) {
				t.Fatalf("%+v: got %v and %d paths (%v), want %v and %d", limits, got.Gaps, len(paths(got)), err, want.Gaps, len(paths(want)))
			}
		}
	}
}
