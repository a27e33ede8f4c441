package journal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/cleanrun-dev/cleanrun/scope"
)

func TestWriterMakesValidJournal(t *testing.T) {
	b := newBench(t)
	b.run(t)
	head, err := b.Final(Final{Outcome: Completed}, &Detail{Note: "done"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	sum, err := check(b.rows.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !sum.Closed() || sum.OutOfScope != 1 || sum.Born != 1 || sum.Ended != 1 {
		t.Errorf("got %+v, want closed, 1 row out of scope, 1 process", sum)
	}
	if err := sum.CheckHead(head); err != nil {
		t.Error(err)
	}
	if last, err := ParseHead(b.heads[len(b.heads)-1]); err != nil || last != head {
		t.Errorf("saved head: got %+v, %v, want %+v", last, err, head)
	}
	// Every detail opens its row, in order.
	var details [][]byte
	for raw, err := range Details(bytes.NewReader(b.details.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		details = append(details, raw)
	}
	n := 0
	for line, err := range Rows(bytes.NewReader(b.rows.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		salt := testSecret.Salt(line.Row.Seq)
		if !line.Row.Opens(salt, details[n]) {
			t.Errorf("row %d: its detail does not open it", n)
		}
		if line.Row.Opens(testSecret.Salt(line.Row.Seq+1), details[n]) || line.Row.Opens(salt, append(details[n], 0)) {
			t.Errorf("row %d: another salt or detail opens it", n)
		}
		n++
	}
	if n != len(details) {
		t.Errorf("got %d details for %d rows", len(details), n)
	}
}

// Nothing that is random or of the wall clock is in the bytes.
func TestRT95_SameRunSameBytes(t *testing.T) {
	a, b := newBench(t), newBench(t)
	for _, w := range []*bench{a, b} {
		w.run(t)
		if _, err := w.Final(Final{Outcome: Completed}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.rows.Bytes(), b.rows.Bytes()) || !bytes.Equal(a.details.Bytes(), b.details.Bytes()) {
		t.Error("two equal runs gave different bytes")
	}
}

// TestRT88_NoPlaintextInRows: what rows say of names and contents is digests
// under the run's secret.
func TestRT88_NoPlaintextInRows(t *testing.T) {
	b := newBench(t)
	b.run(t)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	raw := sha256.Sum256([]byte("/work/a/b/x"))
	for _, secret := range [][]byte{[]byte("hidden"), []byte("/work/a"), []byte("cat"), raw[:]} {
		if bytes.Contains(b.details.Bytes(), secret) == bytes.Equal(secret, raw[:]) {
			t.Fatalf("positive control: %q", secret)
		}
		if bytes.Contains(b.rows.Bytes(), secret) {
			t.Errorf("the rows hold %q", secret)
		}
	}
}

// A row that breaks a rule is refused, writes nothing, and poisons nothing.
func TestRefusedRowIsNotWritten(t *testing.T) {
	b := newBench(t)
	b.run(t)
	before := b.Summary().Head
	for name, s := range map[string]struct {
		step
		rule Rule
	}{
		"unborn process": {step{Row{Phase: PhaseAgent, Proc: 5, Op: OpExit}, Detail{}}, RuleProc},
		"second birth":   {step{Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, Detail{}}, RuleProc},
		"earlier phase":  {step{Row{Op: OpLost}, Detail{}}, RulePhase},
		"run never wrote": {step{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginRun, Object: 2},
			Detail{Path: "/work/a/b/x"}}, RuleOrigin},
		"undeclared directory": {step{Row{Phase: PhaseAgent, Proc: 1, Op: OpUnlink, Path: &PathRef{Dir: 99}}, Detail{}}, RuleDir},
		"start":                {step{Row{Op: OpStart}, Detail{}}, RuleOp},
		"unknown":              {step{Row{Op: OpLost + 1}, Detail{}}, RuleOp},
	} {
		if err := b.Append(&s.r, &s.d); !isRule(err, s.rule) {
			t.Errorf("%s: got %v, want rule %s", name, err, s.rule)
		}
	}
	if err := b.Append(&Row{Phase: PhaseAgent, Proc: 1, Op: OpUnlink}, &Detail{Path: "relative"}); err == nil {
		t.Error("relative path: got no error")
	}
	if after := b.Summary().Head; after != before {
		t.Errorf("got head %+v, want %+v", after, before)
	}
	if err := b.Append(&Row{Phase: PhaseAgent, Op: OpLost}, nil); err != nil {
		t.Errorf("a good row after refused ones: %v", err)
	}
}

// A recorder that numbers directories itself.
func TestCallerNumbersDirectories(t *testing.T) {
	b := newBench(t)
	h := scope.NewHasher(testSecret.PathKey())
	for _, s := range steps() {
		for i, p := range [2]string{s.d.Path, s.d.Path2} {
			if p == "" {
				continue
			}
			ref, fresh, err := h.Path(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range fresh {
				r := Row{Phase: s.r.Phase, Op: OpDir, Child: n.Number, Path: &PathRef{Dir: n.Ref.Dir, Digest: n.Ref.Digest}}
				if err := b.Append(&r, &Detail{Path: n.Path}); err != nil {
					t.Fatal(err)
				}
			}
			*[2]**PathRef{&s.r.Path, &s.r.Path2}[i] = &PathRef{Dir: ref.Dir, Digest: ref.Digest}
		}
		if err := b.Append(&s.r, &s.d); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Append(&Row{Phase: PhaseAgent, Op: OpFinal, Final: &Final{Outcome: Completed}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Errorf("Flush after the final row: %v", err)
	}
	own := newBench(t)
	own.run(t)
	if _, err := own.Final(Final{Outcome: Completed}, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(own.rows.Bytes(), b.rows.Bytes()) {
		t.Error("the writer's own numbering gives another journal")
	}
}

func TestClosedWriter(t *testing.T) {
	b := newBench(t)
	b.run(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if sum, err := check(b.rows.Bytes()); err != nil || sum.Closed() {
		t.Errorf("Close without Final: got closed %v, %v, want an open journal", sum.Closed(), err)
	}
	if err := b.Append(&Row{Phase: PhaseAgent, Op: OpLost}, nil); err != ErrClosed {
		t.Errorf("Append: got %v, want ErrClosed", err)
	}
	if _, err := b.Final(Final{Outcome: Completed}, nil); err != ErrClosed {
		t.Errorf("Final: got %v, want ErrClosed", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// Flush hands over; only a checkpoint syncs.
func TestFlushAndCheckpoint(t *testing.T) {
	b := newBench(t)
	syncs, writes := b.rows.syncs, b.rows.writes
	b.run(t)
	if b.rows.writes != writes {
		t.Error("a buffered row was written at once")
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if b.rows.writes != writes+1 || b.rows.syncs != syncs {
		t.Errorf("Flush: got %d writes and %d syncs more, want 1 and 0", b.rows.writes-writes, b.rows.syncs-syncs)
	}
	if err := b.Flush(); err != nil || b.rows.writes != writes+1 {
		t.Error("a second Flush wrote")
	}
	head, err := b.Checkpoint()
	if err != nil || b.rows.syncs != syncs+1 || b.details.syncs != syncs+1 {
		t.Errorf("Checkpoint: got %d syncs more, %v, want 1", b.rows.syncs-syncs, err)
	}
	sum, err := check(b.rows.Bytes())
	if err != nil || sum.CheckHead(head) != nil {
		t.Errorf("the rows are not the head's: %v", err)
	}
}

func TestBufferIsBounded(t *testing.T) {
	b := newBench(t)
	manyRows(t, b.Writer, 5000)
	if got := len(b.Writer.rows) + len(b.Writer.details); got >= flushAt {
		t.Errorf("got %d bytes buffered, want below %d", got, flushAt)
	}
	if b.rows.writes < 3 {
		t.Errorf("got %d writes, want some without being asked", b.rows.writes)
	}
}

func TestConcurrentAppend(t *testing.T) {
	b := newBench(t)
	if err := b.Append(&Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, nil); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const workers, each = 8, 200
	for n := range workers {
		wg.Go(func() {
			for i := range each {
				r := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 1}
				if err := b.Append(&r, &Detail{Path: "/usr/" + string(rune('a'+i%7)) + "/" + string(rune('a'+n)) + "/x"}); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					if _, err := b.Checkpoint(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if _, err := b.Final(Final{Outcome: Cancelled, Code: 130}, nil); err != nil {
		t.Fatal(err)
	}
	sum, err := check(b.rows.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	opens := uint64(0)
	for _, c := range sum.Counts {
		if c.Op == OpOpen {
			opens = c.N
		}
	}
	if opens != workers*each {
		t.Errorf("got %d opens, want %d", opens, workers*each)
	}
	if len(b.heads) != 2+workers*4 {
		t.Errorf("got %d heads, want %d", len(b.heads), 2+workers*4)
	}
}

// Linux names are bytes; CBOR text is UTF-8.
func TestNamesThatAreNotUTF8(t *testing.T) {
	b := newBench(t)
	b.run(t)
	d := Detail{Path: "/work/caf\xe9\xff", Argv: []string{"a\xfe"}, Env: []string{"ok"}, Note: "n\xc3"}
	if err := b.Append(&Row{Phase: PhaseAgent, Proc: 1, Op: OpUnlink}, &d); err != nil {
		t.Fatal(err)
	}
	if d.Path != "/work/caf\xe9\xff" {
		t.Error("the caller's detail was changed")
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for raw, err := range Details(bytes.NewReader(b.details.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		last = raw
	}
	got, err := ParseDetail(last)
	if err != nil || got.Path != `/work/caf\xe9\xff` || got.Argv[0] != `a\xfe` || got.Note != `n\xc3` {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The clock may run back; the rows do not.
func TestTimeNeverDecreases(t *testing.T) {
	b := newBench(t)
	b.run(t)
	b.now = 0
	r := Row{Phase: PhaseAgent, Op: OpLost}
	last := b.checker.last.Time
	if err := b.Append(&r, nil); err != nil || r.Time != last {
		t.Errorf("got time %d, %v, want %d", r.Time, err, last)
	}
}

// A row and a detail that are larger than one read, up to the bounds.
func TestLargeRecords(t *testing.T) {
	b := new(bench)
	c := b.config()
	for i := range 2000 {
		c.Start.Roots = append(c.Start.Roots, scope.Root{Path: fmt.Sprintf("/x/%04d/%s", i, strings.Repeat("y", 200)), Class: scope.Grant})
	}
	w, err := NewWriter(c)
	if err != nil {
		t.Fatal(err)
	}
	if b.rows.Len() < 400_000 {
		t.Fatalf("got a start row of %d bytes, want a large one", b.rows.Len())
	}
	if err := w.Append(&Row{Op: OpLost}, &Detail{Text: make([]byte, MaxDetail-8)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(&Row{Op: OpLost}, &Detail{Text: make([]byte, MaxDetail)}); err == nil {
		t.Error("a detail above the bound: got no error")
	}
	if _, err := w.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if _, err := check(b.rows.Bytes()); err != nil {
		t.Error(err)
	}
	n := 0
	for raw, err := range Details(bytes.NewReader(b.details.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 2 && len(raw) < MaxDetail-8 {
			t.Errorf("got a detail of %d bytes", len(raw))
		}
	}
	if n != 2 {
		t.Errorf("got %d details, want 2", n)
	}
	for i := range 4000 {
		c.Start.Roots = append(c.Start.Roots, scope.Root{Path: fmt.Sprintf("/z/%04d/%s", i, strings.Repeat("y", 400)), Class: scope.Grant})
	}
	if _, err := NewWriter(c); err == nil {
		t.Error("a start row above the bound: got no error")
	}
}

func TestSummaryCounts(t *testing.T) {
	b := newBench(t)
	b.run(t)
	open := func(flags Flags, path string) step {
		return step{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: flags}, Detail{Path: path}}
	}
	for _, s := range []step{
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpDenied, Result: 38}, Detail{Syscall: "bpf"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpKilled}, Detail{}},
		{Row{Phase: PhaseAgent, Op: OpVoid, Object: 3}, Detail{}},
		{Row{Phase: PhaseAgent, Op: OpLost}, Detail{}},
		open(FlagRead|FlagPseudo, "/dev/null"),
		open(FlagRead|FlagPseudo, "/work/fifo"),
		open(FlagRead|FlagUnreadable, "/work/secret"),
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead | FlagLive | FlagUnstable, Dir: DirIn, Origin: OriginInput, Object: 9, Size: 1000}, Detail{Path: "/work/log"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpUnlink, Flags: FlagRemoved}, Detail{Path: "/etc/passwd"}},
	} {
		if err := b.Append(&s.r, &s.d); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Summary()
	want := got
	want.Born, want.Ended, want.Void, want.Lost, want.Killed, want.Denied = 1, 1, 1, 1, 1, 1
	want.OutOfScope, want.Unreadable, want.Unstable, want.Live, want.Removed, want.Pseudo, want.Controls = 2, 1, 1, 1, 1, 1, 0
	want.Bytes = 100 + 5 + 7 + 1 + 1 + 1000
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	n := uint64(0)
	for _, c := range got.Counts {
		n += c.N
	}
	if n != got.Head.Size {
		t.Errorf("got %d counted rows of %d", n, got.Head.Size)
	}
}
