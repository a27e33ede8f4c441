package journal

import (
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

func TestCreateWriteCheck(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Secret{1, 2, 3}, testStart())
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		r Row
		d Detail
	}{
		{Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, Detail{}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExec, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 100}, Detail{Path: "/usr/bin/cat", SHA256: make([]byte, 32)}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpArgv, Dir: DirIn, Origin: OriginDriver, Flags: FlagText, Size: 5}, Detail{Text: []byte("cat x")}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 2, Size: 7}, Detail{Path: "/work/a/b/x"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead | FlagHidden, Result: 2}, Detail{Path: "/home/me/hidden"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExit}, Detail{}},
	}
	for i, s := range steps {
		if err := w.Append(&s.r, &s.d); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	head, err := w.Final(Final{Outcome: Completed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, RowsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := NewChecker()
	for line, err := range Rows(f) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Add(line.Raw); err != nil {
			t.Fatal(err)
		}
	}
	sum := c.Summary()
	if !sum.Closed() || sum.Head != head || sum.OutOfScope != 1 {
		t.Fatalf("got %+v, want closed, head %v, 1 row out of scope", sum, head)
	}
}
