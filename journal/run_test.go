package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/scope"
)

func testStart() Start {
	roots := append(scope.SystemRoots(), scope.KernelRoots()...)
	roots = append(roots,
		scope.Root{Path: "/work", Mode: scope.WriteTree, Class: scope.Workspace},
		scope.Root{Path: "/srv/data.csv", Mode: scope.ReadOne, Class: scope.Grant})
	return Start{Run: [16]byte{1}, Roots: roots, Workspace: "/work", Recorder: "cleanrun test", Backend: "test"}
}

var testSecret = Secret{1, 2, 3}

// memory is a File in memory. limit, if not 0, is the number of bytes that fit.
type memory struct {
	bytes.Buffer
	limit         int
	short         bool // the write that does not fit returns no error
	full, badSync error
	writes, syncs int
	onSync        func()
}

func (m *memory) Write(b []byte) (int, error) {
	m.writes++
	if m.limit > 0 && m.Len()+len(b) > m.limit {
		n, _ := m.Buffer.Write(b[:m.limit-m.Len()])
		if m.short {
			return n, nil
		}
		return n, m.full
	}
	return m.Buffer.Write(b)
}

func (m *memory) Sync() error {
	m.syncs++
	if m.onSync != nil {
		m.onSync()
	}
	return m.badSync
}

// bench is a Writer in memory with a clock that ticks.
type bench struct {
	*Writer
	rows, details memory
	heads         [][]byte
	badHead       error
	now           uint64
}

func (b *bench) config() Config {
	return Config{
		Rows: &b.rows, Details: &b.details, Secret: testSecret, Start: testStart(),
		SaveHead: func(text []byte) error { b.heads = append(b.heads, bytes.Clone(text)); return b.badHead },
		Clock:    func() uint64 { b.now++; return b.now },
	}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := new(bench)
	w, err := NewWriter(b.config())
	if err != nil {
		t.Fatal(err)
	}
	b.Writer = w
	return b
}

type step struct {
	r Row
	d Detail
}

// steps is a small run.
func steps() []step {
	return []step{
		{Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, Detail{}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExec, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 100}, Detail{Path: "/usr/bin/cat", SHA256: make([]byte, 32)}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpArgv, Dir: DirIn, Origin: OriginDriver, Flags: FlagText, Size: 5}, Detail{Text: []byte("cat x")}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 2, Size: 7}, Detail{Path: "/work/a/b/x"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead | FlagHidden, Result: 2}, Detail{Path: "/home/me/hidden"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpMkdir, Dir: DirOut, Origin: OriginRun, Flags: FlagText, Size: 1}, Detail{Path: "/work/a/c"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpRename, Dir: DirOut, Origin: OriginRun, Flags: FlagText, Size: 1, Object: 2}, Detail{Path: "/work/a/b/x", Path2: "/work/a/c/y"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead | FlagDirectory}, Detail{Path: "/"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExit}, Detail{}},
	}
}

func (b *bench) run(t testing.TB) {
	t.Helper()
	for i, s := range steps() {
		if err := b.Append(&s.r, &s.d); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

// check runs a Checker over a journal file.
func check(file []byte) (Summary, error) {
	c := NewChecker()
	for line, err := range Rows(bytes.NewReader(file)) {
		if err != nil {
			return Summary{}, err
		}
		if _, err := c.Add(line.Raw); err != nil {
			return Summary{}, err
		}
	}
	return c.Summary(), nil
}

// manyRows writes n open rows over a few hundred directories.
func manyRows(t testing.TB, w *Writer, n int) {
	t.Helper()
	fork := Row{Phase: PhaseAgent, Op: OpFork, Child: 1}
	if err := w.Append(&fork, nil); err != nil {
		t.Fatal(err)
	}
	paths := make([]string, 2000)
	for i := range paths {
		paths[i] = fmt.Sprintf("/usr/lib/python3/dist-packages/module%d/file%d.py", i%200, i)
	}
	sum := make([]byte, 32)
	for i := range n {
		r := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: uint32(i%2000 + 1), Size: 4711}
		if err := w.Append(&r, &Detail{Path: paths[i%len(paths)], SHA256: sum, Syscall: "openat"}); err != nil {
			t.Fatal(err)
		}
	}
}

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
