package benchmark

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
)

// forge seals a benchmark, lets change replace sets, and signs the result: what
// an owner could publish, since nobody sees into a set.
func forge(t *testing.T, b *Benchmark, o Options, change func(id string, s *contraband.Set), head func(*contraband.Head)) string {
	t.Helper()
	built, err := b.Seal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { built.Close() })
	s := openSealed(t, writeSealed(t, built))
	var tree merkle.Tree
	built.sets = nil
	at := int64(1 << 30)
	for _, id := range s.Tasks() {
		set, _, err := s.Set(id)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(id, set)
		}
		payload, err := set.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := built.spool.WriteAt(payload, at); err != nil {
			t.Fatal(err)
		}
		leaf := [32]byte(rfc6962.DefaultHasher.HashLeaf(payload))
		tree.Push(leaf)
		built.sets = append(built.sets, spooled{at, int64(len(payload)), leaf})
		at += int64(len(payload))
	}
	built.Head.Root = tree.Root()
	if head != nil {
		head(built.Head)
	}
	return writeSealed(t, built)
}

// difference is the only one that Check finds.
func difference(t *testing.T, b *Benchmark, file string, key contraband.BenchmarkKey) []Difference {
	t.Helper()
	c, err := b.Check(openSealed(t, file), key, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Differences
}

func publicOptions(t *testing.T, b *Benchmark) Options {
	return Options{Key: benchKey(t, b), Public: true, Random: rand.Reader, Dir: t.TempDir()}
}

// TestRT17_SetOfPaddingOnly: the owner seals dummies. Padding hides that from
// everybody without the key; rebuilding shows it.
func TestRT17_SetOfPaddingOnly(t *testing.T) {
	dir, rows := rowsFolder(t, fixture.Rows{Tasks: 3, Lines: 20, Seed: 3})
	b := loadBenchmark(t, dir)
	if d := difference(t, b, forge(t, b, publicOptions(t, b), nil, nil), benchKey(t, b)); len(d) > 0 {
		t.Fatalf("control: got %v", d)
	}
	file := forge(t, b, publicOptions(t, b), func(id string, s *contraband.Set) {
		if id != rows[1].ID {
			return
		}
		key, err := auditKey(t).TaskFor(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Groups {
			g := &s.Groups[i]
			dummies := make([][]byte, len(g.Items)/32)
			for j := range dummies {
				d := key.Dummy("nothing "+string(rune('a'+i)), uint32(j))
				dummies[j] = d[:]
			}
			slices.SortFunc(dummies, bytes.Compare)
			g.Items = bytes.Join(dummies, nil)
		}
		slices.SortFunc(s.Groups, func(a, b contraband.Group) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Class, b.Class), bytes.Compare(a.Items, b.Items))
		})
	}, nil)
	d := difference(t, b, file, benchKey(t, b))
	if len(d) != 1 || d[0].Task != rows[1].ID || d[0].Field != "groups" || !strings.Contains(d[0].Got, "digests are none of the data's") {
		t.Errorf("got %v, want the groups of %s", d, rows[1].ID)
	}
}

// TestRT25_WrongKeyAtReveal: another key than the one that sealed.
func TestRT25_WrongKeyAtReveal(t *testing.T) {
	dir, rows := rowsFolder(t, fixture.Rows{Tasks: 2, Lines: 20, Seed: 3})
	b := loadBenchmark(t, dir)
	other, err := contraband.NewAuditKey([]byte("vutsrqponmlkjihgfedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	wrong := other.Benchmark(b.Name, b.Period)
	o := publicOptions(t, b)
	o.Public = false
	file := forge(t, b, o, nil, nil)
	d := difference(t, b, file, wrong)
	if len(d) != 2 || d[0].Task != rows[0].ID || d[0].Field != "key" || d[1].Field != "key" {
		t.Errorf("got %v, want the key of both tasks", d)
	}
	// A key of another period is another key.
	if d := difference(t, b, file, auditKey(t).Benchmark(b.Name, "2027")); len(d) != 2 || d[0].Field != "key" {
		t.Errorf("another period: got %v", d)
	}
	if d := difference(t, b, file, benchKey(t, b)); len(d) > 0 {
		t.Errorf("control: got %v", d)
	}
	// A head that publishes a key which did not seal the sets is no seal at all.
	public := forge(t, b, publicOptions(t, b), nil, func(h *contraband.Head) { h.Key = wrong.Publish() })
	if d := difference(t, b, public, wrong); len(d) != 2 || d[0].Field != "key" {
		t.Errorf("published: got %v", d)
	}
	if _, _, err := openSealed(t, public).Part(rows[0].ID); err == nil || !strings.Contains(err.Error(), "public") {
		t.Errorf("published: got %v, want no part of it", err)
	}
}

// Each change of the data or the head is named by task and field.
func TestCheckNamesTheField(t *testing.T) {
	for name, c := range map[string]struct {
		data  func(dir string, rows []fixture.Row) // after sealing
		set   func(*contraband.Set)
		head  func(*contraband.Head)
		field string
		task  int // -1 the head
	}{
		"prompt": {data: func(dir string, r []fixture.Row) { edit(t, dir, "tasks.jsonl", "Case 1:", "Case 7:") }, field: "prompt", task: 1},
		"patch": {data: func(dir string, r []fixture.Row) {
			edit(t, dir, "tasks.jsonl", `"instance_id":"invented__lib-00001","repo":"invented/lib"`, `"instance_id":"invented__lib-00001","repo":"invented/lob"`)
		}, field: "commitment", task: 1},
		"workspace": {data: func(dir string, r []fixture.Row) {
			edit(t, filepath.Join(dir, "repos", r[1].ID), "README.md", "=", "==")
		}, field: "baseline", task: 1},
		"grader":         {data: func(dir string, r []fixture.Row) { edit(t, dir, "benchmark.yaml", "exit-code", "stdout") }, field: "phases", task: 0},
		"revision":       {data: func(dir string, r []fixture.Row) { edit(t, dir, "benchmark.yaml", `revision: "1"`, `revision: "2"`) }, field: "revision", task: -1},
		"a task more":    {data: func(dir string, r []fixture.Row) { double(t, dir, r[0]) }, field: "weak", task: -1},
		"kept":           {set: func(s *contraband.Set) { s.Kept = 9 }, field: "kept", task: 0},
		"sources":        {set: func(s *contraband.Set) { s.Sources[0].N++ }, field: "sources", task: 0},
		"weak":           {head: func(h *contraband.Head) { h.Weak = 3 }, field: "weak", task: -1},
		"other data":     {head: func(h *contraband.Head) { h.Data[0] ^= 1 }, field: "data", task: -1},
		"other revision": {head: func(h *contraband.Head) { h.Revision = "9" }, field: "revision", task: -1},
	} {
		dir, rows := rowsFolder(t, fixture.Rows{Tasks: 2, Lines: 20, Seed: 3})
		b := loadBenchmark(t, dir)
		change := func(id string, s *contraband.Set) {
			if c.set != nil && id == rows[0].ID {
				c.set(s)
			}
		}
		file := forge(t, b, publicOptions(t, b), change, c.head)
		if c.data != nil {
			c.data(dir, rows)
		}
		want := ""
		if c.task >= 0 {
			want = rows[c.task].ID
		}
		d := difference(t, loadBenchmark(t, dir), file, benchKey(t, b))
		if !slices.ContainsFunc(d, func(d Difference) bool { return d.Task == want && d.Field == c.field }) {
			t.Errorf("%s: got %v, want field %s of task %q", name, d, c.field, want)
		}
		// Data that differs differs in its digest, too; a set alone does not.
		if named := slices.ContainsFunc(d, func(d Difference) bool { return d.Field == "data" }); named != (c.data != nil || c.field == "data") {
			t.Errorf("%s: digest of the data named: %v\n%v", name, named, d)
		}
	}
}

func edit(t *testing.T, dir, name, from, to string) {
	t.Helper()
	p := filepath.Join(dir, name)
	data, err := os.ReadFile(p)
	if err != nil || !strings.Contains(string(data), from) {
		t.Fatalf("%s: %q is not there (%v)", name, from, err)
	}
	if err := os.WriteFile(p, []byte(strings.Replace(string(data), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// double adds a row like one that is there, under another name.
func double(t *testing.T, dir string, r fixture.Row) {
	t.Helper()
	p := filepath.Join(dir, "tasks.jsonl")
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.Replace(line, r.ID, r.ID+"-again", 1)
	if err := os.WriteFile(p, []byte(string(data)+line+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "repos", r.ID+"-again"), os.DirFS(filepath.Join(dir, "repos", r.ID))); err != nil {
		t.Fatal(err)
	}
}
