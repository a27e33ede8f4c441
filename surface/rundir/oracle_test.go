package rundir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// The oracle holds whole file systems, one after each event, in which every write is
// dated at once; then a location's versions are the contents that it had.
func TestAgainstOracle(t *testing.T) {
	type inode struct {
		number int
		text   string
		ours   bool
	}
	r := rand.New(rand.NewPCG(11, 12))
	paths := []string{"a", "b", "c", "d/a", "d/b"}
	for round := range 300 {
		var rows []string
		fs := map[string]*inode{}
		numbers := 0
		var want []string
		holds := map[string]int{} // index into want of the version a path holds
		emit := func(f string, a ...any) { rows = append(rows, fmt.Sprintf(f, a...)) }
		over := func(p, fate string) {
			if i, ok := holds[p]; ok {
				want[i] = strings.Replace(want[i], "kept 0", fmt.Sprintf("%s %d", fate, len(rows)), 1)
				delete(holds, p)
			}
		}
		has := func(p, how string, f *inode) {
			over(p, "replaced")
			holds[p] = len(want)
			want = append(want, fmt.Sprintf("%s %q %s %d kept 0", p, f.text, how, len(rows)))
		}
		for step := range 12 {
			p, q := paths[r.IntN(len(paths))], paths[r.IntN(len(paths))]
			f := fs[p]
			switch k := r.IntN(6); {
			case k < 2 && f == nil, k == 0 && f != nil:
				if f == nil {
					numbers++
					f = &inode{number: numbers}
					fs[p] = f
					emit("create %s %d", p, f.number)
				} else {
					emit("open %s %d", p, f.number)
				}
				f.ours, f.text = true, fmt.Sprintf("r%d s%d", round, step)
				emit("wrote %s %d %s", p, f.number, f.text)
				for _, n := range paths {
					if fs[n] == f {
						has(n, "wrote", f)
					}
				}
			case f == nil:
			case k == 2:
				emit("unlink %s %d", p, f.number)
				over(p, "deleted")
				delete(fs, p)
			case k == 3 && p != q && fs[q] != f:
				emit("rename %s %s %d", p, q, f.number)
				over(p, "moved away")
				has(q, "moved", f)
				fs[q] = f
				delete(fs, p)
			case k == 4 && fs[q] == nil:
				emit("link %s %s %d", p, q, f.number)
				has(q, "moved", f)
				fs[q] = f
			}
		}
		emit("final")
		got := describe(observe(t, script(t, strings.Join(rows, "\n")), all))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("round %d:\n%s\n got  %q\n want %q", round, strings.Join(rows, "\n"), got, want)
		}
	}
}

// Whatever rows come in whatever order, the versions hold together: each location and
// event once, ends after beginnings.
func FuzzRows(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x03\x00\x01\x0a\x01\x02\x00\x00\x01"))
	f.Add([]byte{0, 0, 1, 9, 0, 1, 9, 1, 1, 3, 0, 1, 2, 0, 1, 9, 0, 1, 8, 1, 1, 3, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		paths := []string{"a", "b", "d/a", "d", "e/a"}
		ops := []string{"create", "trunc", "open", "wrote", "live", "read", "again", "unlink", "link", "rename", "symlink", "setup", "agent", "lost"}
		var rows []string
		phase := 0
		for ; len(b) >= 3 && len(rows) < 200; b = b[3:] {
			op, p, q := ops[int(b[0])%len(ops)], paths[int(b[1])%len(paths)], paths[int(b[1]>>4)%len(paths)]
			object := int(b[2]) % 5
			switch op {
			case "wrote", "live", "read":
				rows = append(rows, fmt.Sprintf("%s %s %d text %d", op, p, object, b[2]))
			case "link", "rename":
				rows = append(rows, fmt.Sprintf("%s %s %s %d", op, p, q, object))
			case "symlink":
				rows = append(rows, fmt.Sprintf("symlink %s %s", p, q))
			case "setup", "agent":
				if phase == 0 && len(rows) == 0 || op == "agent" {
					rows = append(rows, op)
				}
				phase++
			case "lost":
				rows = append(rows, op)
			default:
				rows = append(rows, fmt.Sprintf("%s %s %d", op, p, object))
			}
		}
		if len(rows) == 0 {
			return
		}
		o, err := surface.Observe(context.Background(), script(t, strings.Join(rows, "\n")), all, surface.Scope{}, surface.DefaultLimits)
		if err != nil {
			t.Fatalf("%s:\n%v", strings.Join(rows, "\n"), err)
		}
		if _, err := surface.Format(o); err != nil {
			t.Fatal(err)
		}
	})
}
