package cause

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// rows builds a journal without commitments.
type rows struct {
	list []journal.Row
	dirs map[string]uint32
}

var pathKey = scope.PathKey{1}

func newRows() *rows {
	roots := append(scope.SystemRoots(), scope.Root{Path: "/w", Mode: scope.WriteTree, Class: scope.Workspace})
	scope.SortRoots(pathKey, roots)
	return &rows{list: []journal.Row{{Op: journal.OpStart, Start: &journal.Start{Roots: roots}}}, dirs: map[string]uint32{"/": 0}}
}

func digest(p string) [32]byte { return scope.Digest(scope.Key(pathKey, p), p) }

func (r *rows) dir(p string) uint32 {
	if n, ok := r.dirs[p]; ok {
		return n
	}
	parent := r.dir(path.Dir(p))
	n := uint32(len(r.dirs))
	r.dirs[p] = n
	r.list = append(r.list, journal.Row{Seq: uint64(len(r.list)), Op: journal.OpDir, Child: n, Path: &journal.PathRef{Dir: parent, Digest: digest(p)}})
	return n
}

func (r *rows) ref(p string) *journal.PathRef {
	return &journal.PathRef{Dir: r.dir(path.Dir(p)), Digest: digest(p)}
}

// add appends a row and returns its number.
func (r *rows) add(op journal.Op, proc, object uint32, flags journal.Flags, paths ...string) uint64 {
	row := journal.Row{Op: op, Proc: proc, Object: object, Flags: flags, Phase: journal.PhaseAgent}
	for i, p := range paths {
		if ref := r.ref(p); i == 0 {
			row.Path = ref
		} else {
			row.Path2 = ref
		}
	}
	row.Seq = uint64(len(r.list))
	r.list = append(r.list, row)
	return row.Seq
}

func (r *rows) fork(parent, child uint32) uint64 {
	seq := r.add(journal.OpFork, parent, 0, 0)
	r.list[seq].Child = child
	return seq
}

func (r *rows) run(t *testing.T) *Run {
	t.Helper()
	out, err := New(r.list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The oracle holds a whole file system, with every name of every file, and asks after
// each operation which names changed.
func TestHistoryAgainstOracle(t *testing.T) {
	files := []string{"/w/a", "/w/b", "/w/c", "/w/d/x", "/w/d/y", "/w/e/x"}
	const linked = 3 // of them get hard links: one below a folder that is renamed would be lost
	kinds := map[string]int{}
	for round := range 400 {
		r := rand.New(rand.NewPCG(3, uint64(round)))
		j := newRows()
		fs := map[string]uint32{}
		made := uint32(0)
		want := map[string][]uint64{}
		changed := func(seq uint64, names ...string) {
			for _, p := range names {
				if !slices.Contains(want[p], seq) {
					want[p] = append(want[p], seq)
				}
			}
		}
		names := func(object uint32) (out []string) {
			for p, o := range fs {
				if o == object {
					out = append(out, p)
				}
			}
			return out
		}
		for range 16 {
			p, q := files[r.IntN(len(files))], files[r.IntN(linked)]
			o := fs[p]
			switch k := r.IntN(9); {
			case o == 0:
				made++
				fs[p] = made
				changed(j.add(journal.OpOpen, 1, made, journal.FlagWrite|journal.FlagCreate, p), p)
			case k == 0:
				changed(j.add(journal.OpOpen, 1, o, journal.FlagWrite, p), names(o)...)
			case k == 1:
				changed(j.add(journal.OpWrote, 1, o, 0, p), names(o)...)
			case k == 2:
				changed(j.add(journal.OpChmod, 1, o, 0, p), names(o)...)
			case k == 3:
				j.add(journal.OpOpen, 1, o, journal.FlagRead, p)
			case k == 4:
				changed(j.add(journal.OpUnlink, 1, o, 0, p), p)
				delete(fs, p)
			case k == 5 && fs[q] == 0 && slices.Contains(files[:linked], p):
				changed(j.add(journal.OpLink, 1, o, 0, p, q), p, q)
				fs[q] = o
				kinds["link"]++
			case k == 6 && p != q && fs[q] != o && !slices.Contains(files[:linked], p):
				changed(j.add(journal.OpRename, 1, o, 0, p, q), p, q)
				fs[q] = o
				delete(fs, p)
				kinds["rename"]++
			case k == 7:
				failed := j.add(journal.OpUnlink, 1, o, 0, p)
				j.list[failed].Result = 13
			case k == 8:
				from, to := "/w/d", "/w/e"
				if r.IntN(2) == 0 {
					from, to = to, from
				}
				if slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, to+"/") && fs[f] != 0 }) {
					continue
				}
				seq := j.add(journal.OpRename, 1, 0, journal.FlagDirectory, from, to)
				kinds["folder"]++
				for _, f := range files {
					rest, below := strings.CutPrefix(f, from+"/")
					if below && fs[f] != 0 {
						fs[to+"/"+rest] = fs[f]
						delete(fs, f)
					}
					if below || strings.HasPrefix(f, to+"/") {
						changed(seq, f)
					}
				}
				if !slices.Contains(files, to+"/y") {
					delete(fs, to+"/y") // nobody asks for it
				}
			}
		}
		refs := map[string]*journal.PathRef{}
		for _, p := range files {
			refs[p] = j.ref(p)
		}
		run := j.run(t)
		for _, p := range files {
			if got := run.History(*refs[p]); !slices.Equal(got, want[p]) {
				t.Fatalf("round %d, %s:\n%s\n got  %v\n want %v", round, p, j.text(), got, want[p])
			}
		}
	}
	if kinds["link"] < 20 || kinds["rename"] < 20 || kinds["folder"] < 20 {
		t.Errorf("only %v", kinds)
	}
}

func (r *rows) text() string {
	var b strings.Builder
	for _, row := range r.list {
		fmt.Fprintf(&b, "%d p%d %v object %d flags %x child %d result %d", row.Seq, row.Proc, row.Op, row.Object, row.Flags, row.Child, row.Result)
		for _, ref := range []*journal.PathRef{row.Path, row.Path2} {
			if ref != nil {
				fmt.Fprintf(&b, " %x", ref.Digest[:3])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// The oracle draws the whole family tree and takes the last of all that was read.
func TestBeforeAgainstOracle(t *testing.T) {
	files := []string{"/w/a", "/w/b", "/w/c", "/w/d/x", "/usr/lib/libc.so", "/etc/passwd", "/out/of/scope"}
	by := map[Relation]int{}
	for round := range 400 {
		r := rand.New(rand.NewPCG(5, uint64(round)))
		j := newRows()
		parent := map[uint32]uint32{1: 0, 2: 0}
		program := map[uint32]uint64{}
		j.fork(0, 1)
		j.fork(0, 2)
		type read struct {
			seq  uint64
			proc uint32
			path string
		}
		var all []read
		programs := map[uint64]map[uint32]uint64{}
		for range 30 {
			p := uint32(1 + r.IntN(len(parent)))
			switch r.IntN(5) {
			case 0:
				child := uint32(len(parent) + 1)
				parent[child] = p
				if exec, ok := program[p]; ok {
					program[child] = exec
				}
				j.fork(p, child)
			case 1:
				program[p] = j.add(journal.OpExec, p, 0, 0, "/usr/bin/tool")
			case 2:
				j.add(journal.OpOpen, p, 0, journal.FlagWrite|journal.FlagCreate, files[r.IntN(len(files))])
			case 3:
				seq := j.add(journal.OpStdin, 0, 9, 0)
				j.list[seq].Size = 5
				all = append(all, read{seq, 0, "stdin"})
			default:
				f := files[r.IntN(len(files))]
				all = append(all, read{j.add(journal.OpOpen, p, 0, journal.FlagRead, f), p, f})
			}
			now := map[uint32]uint64{}
			for p := range parent {
				now[p] = program[p]
			}
			programs[uint64(len(j.list))] = now
		}
		at := j.add(journal.OpExit, 1, 0, 0)
		run := j.run(t)
		ancestors := func(p uint32) (out []uint32) {
			for p = parent[p]; p != 0; p = parent[p] {
				out = append(out, p)
			}
			return out
		}
		for p := range parent {
			top := func(p uint32) uint32 { return append([]uint32{p}, ancestors(p)...)[len(ancestors(p))] }
			last := map[string]read{}
			for _, x := range all {
				if x.proc == 0 || top(x.proc) == top(p) {
					last[x.path] = x
				}
			}
			var want Reads
			groups := map[bool][]Read{}
			for f, x := range last {
				if strings.HasPrefix(f, "/usr/") || strings.HasPrefix(f, "/etc/") {
					want.System++
					continue
				}
				rel := Tree
				switch {
				case x.proc == 0:
					rel = Stdin
				case x.proc == p:
					rel = Itself
				case slices.Contains(ancestors(p), x.proc):
					rel = Ancestor
				case slices.Contains(ancestors(x.proc), p):
					rel = Descendant
				}
				by[rel]++
				if rel == Stdin {
					want.Rows = append(want.Rows, Read{x.seq, rel})
					continue
				}
				groups[rel == Tree] = append(groups[rel == Tree], Read{x.seq, rel})
			}
			order := func(a, b Read) int { return int(a.Event) - int(b.Event) }
			const n = 2
			for _, g := range groups {
				slices.SortFunc(g, order)
				if len(g) > n {
					g, want.More = g[len(g)-n:], true
				}
				want.Rows = append(want.Rows, g...)
			}
			slices.SortFunc(want.Rows, order)
			got := run.Before(p, at, n)
			if !slices.Equal(got.Rows, want.Rows) || got.More != want.More || got.System != want.System {
				t.Fatalf("round %d, process %d:\n%s\n got  %v\n want %v", round, p, j.text(), got, want)
			}
			for seq, programs := range programs {
				exec, ok := run.Program(p, seq)
				if want, born := programs[p]; born && (exec != want || ok != (want != 0)) {
					t.Fatalf("round %d, program of %d at %d:\n%s\n got %d, %v, want %d", round, p, seq, j.text(), exec, ok, want)
				}
			}
		}
	}
	for _, rel := range []Relation{Itself, Ancestor, Descendant, Tree, Stdin} {
		if by[rel] < 20 {
			t.Errorf("only %d reads by %s", by[rel], rel)
		}
	}
}

// A path that was deleted and made again by renames keeps its own history.
func TestHistoryOfRestored(t *testing.T) {
	j := newRows()
	j.add(journal.OpOpen, 1, 7, journal.FlagRead, "/w/keys/k")
	away := j.add(journal.OpRename, 1, 7, 0, "/w/keys/k", "/w/saved")
	j.add(journal.OpOpen, 1, 7, journal.FlagWrite, "/w/saved")
	made := j.add(journal.OpOpen, 2, 8, journal.FlagWrite|journal.FlagCreate, "/w/keys/k")
	wrote := j.add(journal.OpWrote, 2, 8, 0, "/w/keys/k")
	gone := j.add(journal.OpUnlink, 2, 8, 0, "/w/keys/k")
	back := j.add(journal.OpRename, 1, 7, 0, "/w/saved", "/w/keys/k")
	if got, want := j.run(t).History(*j.ref("/w/keys/k")), []uint64{away, made, wrote, gone, back}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Lineage names forks and the execs that count, not what was executed before or after.
func TestLineage(t *testing.T) {
	j := newRows()
	f1 := j.fork(0, 1)
	j.add(journal.OpExec, 1, 0, 0, "/usr/bin/env")
	sh := j.add(journal.OpExec, 1, 0, 0, "/usr/bin/sh")
	f2 := j.fork(1, 2)
	j.add(journal.OpExec, 1, 0, 0, "/usr/bin/later")
	rm := j.add(journal.OpExec, 2, 0, 0, "/usr/bin/rm")
	at := j.add(journal.OpUnlink, 2, 3, 0, "/w/a")
	run := j.run(t)
	if got, want := run.Lineage(2, at), []uint64{f1, sh, f2, rm}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := run.Lineage(2, rm), []uint64{f1, sh, f2}; !slices.Equal(got, want) {
		t.Errorf("of the exec itself: got %v, want %v", got, want)
	}
}
