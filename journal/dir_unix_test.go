//go:build unix

package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Tests that cannot be undone run in a process of their own.
const childEnv = "CLEANRUN_JOURNAL_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode, dir, _ := strings.Cut(os.Getenv(childEnv), ":"); mode {
	case "":
		os.Exit(m.Run())
	case "endless":
		endless(dir)
	case "limited":
		limited(dir)
	}
	os.Exit(9)
}

func child(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+mode+":"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// endless appends, flushes and tells each flushed row's number on stdout, as a
// recorder that hands descriptors over.
func endless(dir string) {
	w, err := Create(dir, testSecret, testStart())
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	if err := w.Append(&Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, nil); err != nil {
		os.Exit(1)
	}
	for i := 0; ; i++ {
		r := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 1}
		if err := w.Append(&r, &Detail{Path: fmt.Sprintf("/usr/%d/%d", i%50, i)}); err != nil {
			os.Exit(1)
		}
		if err := w.Flush(); err != nil {
			os.Exit(1)
		}
		fmt.Println(r.Seq)
		if i%500 == 0 {
			if _, err := w.Checkpoint(); err != nil {
				os.Exit(1)
			}
		}
	}
}

// TestRT8_Killed: after kill -9 every row that was handed over is there, the
// journal is a valid prefix, and it is open.
func TestRT8_Killed(t *testing.T) {
	for _, stop := range []int{1, 37, 700, 2500} {
		dir := t.TempDir()
		cmd := child(t, "endless", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var handed uint64
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			seq, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			handed = seq
			if n == stop {
				if _, err := Recover(dir); !errors.Is(err, ErrLocked) {
					t.Errorf("Recover while the recorder lives: got %v, want ErrLocked", err)
				}
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if _, err := Recover(dir); err != nil {
			t.Fatal(err)
		}
		sum, details := readDir(t, dir)
		if sum.Closed() {
			t.Error("the journal is closed")
		}
		if sum.Head.Size <= handed || details != sum.Head.Size {
			t.Errorf("got %d rows and %d details, want more than %d, as many details", sum.Head.Size, details, handed)
		}
		head := readHead(t, dir)
		if head.Size > sum.Head.Size {
			t.Errorf("the saved head has %d rows, the journal %d", head.Size, sum.Head.Size)
		}
		tree := new(Tree)
		for raw := range rawRows(readFile(t, dir, RowsFile)) {
			tree.Append(raw)
		}
		if headOf(t, tree, head.Size).Root != head.Root {
			t.Error("the saved head is not one of this journal")
		}
	}
}

func readHead(t *testing.T, dir string) Head {
	t.Helper()
	h, err := ParseHead(readFile(t, dir, HeadFile))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// readDir checks the journal of a folder and that each row has its detail.
func readDir(t *testing.T, dir string) (sum Summary, details uint64) {
	t.Helper()
	sum, err := check(readFile(t, dir, RowsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range Details(bytes.NewReader(readFile(t, dir, DetailsFile))) {
		if err != nil {
			t.Fatal(err)
		}
		details++
	}
	return sum, details
}

func TestDirWriter(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, testSecret, testStart())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		if err := w.Append(&s.r, &s.d); err != nil {
			t.Fatal(err)
		}
	}
	if other, err := Create(dir, testSecret, testStart()); !errors.Is(err, fs.ErrExist) || other != nil {
		t.Errorf("second Create: got %v, want ErrExist", err)
	}
	f, err := os.Open(filepath.Join(dir, RowsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Lock(f); !errors.Is(err, ErrLocked) {
		t.Errorf("second writer: got %v, want ErrLocked", err)
	}
	head, err := w.Final(Final{Outcome: Completed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Lock(f); err != nil {
		t.Errorf("after Close: %v", err)
	}
	f.Close()
	sum, _ := readDir(t, dir)
	if sum.CheckHead(head) != nil || readHead(t, dir) != head || !sum.Closed() {
		t.Errorf("got %+v, saved %+v, want %+v", sum.Head, readHead(t, dir), head)
	}
	if !bytes.Equal(readFile(t, dir, SecretFile), testSecret[:]) {
		t.Error("the secret file is not the secret")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("got %v, want 4 files", entries)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: got mode %v, want -rw-------", e.Name(), info.Mode())
		}
	}
}

// A recorder cut at every byte of its last rows: whole records stay, the rest is
// cut and counted.
func TestRecoverEveryTail(t *testing.T) {
	b := newBench(t)
	b.run(t)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, details := b.rows.Bytes(), b.details.Bytes()
	ends := []int{0}
	for raw := range rawRows(rows) {
		ends = append(ends, ends[len(ends)-1]+prefixSize+len(raw))
	}
	for cut := len(rows) - 400; cut <= len(rows); cut++ {
		dir := t.TempDir()
		write(t, dir, RowsFile, rows[:cut])
		write(t, dir, DetailsFile, details)
		tail, err := Recover(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		whole := 0
		for n, end := range ends {
			if end <= cut {
				whole = n
			}
		}
		if tail.Rows != int64(cut-ends[whole]) {
			t.Errorf("cut at %d: got %d bytes cut, want %d", cut, tail.Rows, cut-ends[whole])
		}
		sum, n := readDir(t, dir)
		if sum.Head.Size != uint64(whole) || n != uint64(whole) {
			t.Errorf("cut at %d: got %d rows and %d details, want %d", cut, sum.Head.Size, n, whole)
		}
		if again, err := Recover(dir); err != nil || again != (Tail{}) {
			t.Errorf("cut at %d: a second Recover cut %+v, %v", cut, again, err)
		}
	}
}

// Recover cuts tails only. Anything else is damage and stays as it is.
func TestRecoverRefusesDamage(t *testing.T) {
	b := newBench(t)
	b.run(t)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, details := b.rows.Bytes(), b.details.Bytes()
	zeroed := bytes.Clone(rows)
	copy(zeroed[len(rows)-200:], make([]byte, 200))
	for name, c := range map[string][2][]byte{
		"record of 0 bytes": {append(bytes.Clone(rows), 0, 0, 0, 0, 0, 0, 0, 0), details},
		"record too long":   {append(bytes.Clone(rows), 0xff, 0xff, 0xff, 0xff), details},
		"detail missing":    {rows, details[:len(details)-1]},
	} {
		dir := t.TempDir()
		write(t, dir, RowsFile, c[0])
		write(t, dir, DetailsFile, c[1])
		if _, err := Recover(dir); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if !bytes.Equal(readFile(t, dir, RowsFile), c[0]) || !bytes.Equal(readFile(t, dir, DetailsFile), c[1]) {
			t.Errorf("%s: the files were changed", name)
		}
	}
	if _, err := check(zeroed); err == nil {
		t.Error("a zeroed tail: the reader found no error")
	}
}

// limited runs under a file size limit of 64 KiB, as on a full disk.
func limited(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}); err != nil {
		os.Exit(3)
	}
	w, err := Create(dir, testSecret, testStart())
	if err != nil {
		os.Exit(4)
	}
	if err := w.Append(&Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, nil); err != nil {
		os.Exit(4)
	}
	for i := range 100_000 {
		r := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 1}
		err := w.Append(&r, &Detail{Path: "/usr/x"})
		if err == nil && i%10 == 0 {
			err = w.Flush()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, unix.EFBIG) && !strings.Contains(err.Error(), "short write") {
			fmt.Println("got", err)
			os.Exit(5)
		}
		if _, again := w.Final(Final{Outcome: Completed}, nil); again == nil || again.Error() != err.Error() {
			fmt.Println("then", again)
			os.Exit(6)
		}
		if closed := w.Close(); closed == nil {
			os.Exit(7)
		}
		fmt.Println("poisoned")
		os.Exit(0)
	}
	os.Exit(8)
}

func TestRT8_FullDisk(t *testing.T) {
	dir := t.TempDir()
	out, err := child(t, "limited", dir).Output()
	if err != nil || string(out) != "poisoned\n" {
		t.Fatalf("got %q, %v, want a poisoned writer", out, err)
	}
	if _, err := Recover(dir); err != nil {
		t.Fatal(err)
	}
	sum, _ := readDir(t, dir)
	if sum.Closed() || sum.Head.Size < 100 {
		t.Errorf("got closed %v, %d rows, want an open journal of what fitted", sum.Closed(), sum.Head.Size)
	}
}

func TestCreateLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	bad := testStart()
	bad.Workspace = "/elsewhere"
	if w, err := Create(dir, testSecret, bad); !isRule(err, RuleStart) || w != nil {
		t.Errorf("got %v, want rule start", err)
	}
	write(t, dir, SecretFile, []byte("there before"))
	if w, err := Create(dir, testSecret, testStart()); !errors.Is(err, fs.ErrExist) || w != nil {
		t.Errorf("secret there: got %v, want ErrExist", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || string(readFile(t, dir, SecretFile)) != "there before" {
		t.Errorf("got %v, %v, want the old secret alone", entries, err)
	}
}

func TestRealDescriptors(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c := new(bench).config()
	c.Rows = full
	if _, err := NewWriter(c); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("/dev/full: got %v, want ENOSPC", err)
	}
	dir := t.TempDir()
	w, err := Create(dir, testSecret, testStart())
	if err != nil {
		t.Fatal(err)
	}
	w.rows.Close()
	if err := w.Append(&Row{Op: OpLost}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed file: got %v, want ErrClosed", err)
	}
	if err := w.Append(&Row{Op: OpLost}, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("afterwards: got %v, want ErrClosed", err)
	}
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: got %v, want ErrClosed", err)
	}
}

func BenchmarkAppendFlushFile(b *testing.B) {
	w, err := Create(b.TempDir(), testSecret, testStart())
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(&Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 1}
		if err := w.Append(&r, &Detail{Path: "/usr/lib/x", SHA256: make([]byte, 32)}); err != nil {
			b.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}
