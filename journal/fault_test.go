package journal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
)

// Each fault poisons the writer for ever: the first cause comes back from every
// later call, no later row reaches the files, and what is there is a valid prefix
// plus at most a torn tail.
func TestFaultsPoison(t *testing.T) {
	full, broken := syscall.ENOSPC, syscall.EIO
	for name, c := range map[string]struct {
		set   func(*bench)
		cause error
	}{
		"rows full":                {func(b *bench) { b.rows.limit, b.rows.full = b.rows.Len()+300, full }, full},
		"rows full at once":        {func(b *bench) { b.rows.limit, b.rows.full = b.rows.Len(), full }, full},
		"details full":             {func(b *bench) { b.details.limit, b.details.full = b.details.Len()+10, full }, full},
		"rows short":               {func(b *bench) { b.rows.limit, b.rows.short = b.rows.Len()+300, true }, io.ErrShortWrite},
		"details short":            {func(b *bench) { b.details.limit, b.details.short = b.details.Len()+1, true }, io.ErrShortWrite},
		"rows not synced":          {func(b *bench) { b.rows.badSync = broken }, broken},
		"details not synced":       {func(b *bench) { b.details.badSync = broken }, broken},
		"head not saved":           {func(b *bench) { b.badHead = broken }, broken},
		"rows closed descriptor":   {func(b *bench) { b.rows.limit, b.rows.full = b.rows.Len(), syscall.EBADF }, syscall.EBADF},
		"details closed, by error": {func(b *bench) { b.details.limit, b.details.full = b.details.Len(), io.ErrClosedPipe }, io.ErrClosedPipe},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			b := newBench(t)
			c.set(b)
			b.run(t)
			_, err := b.Checkpoint()
			if !errors.Is(err, c.cause) {
				t.Fatalf("got %v, want the cause %v", err, c.cause)
			}
			// The fault goes away; the writer must not come back.
			b.rows.limit, b.details.limit, b.rows.badSync, b.details.badSync, b.badHead = 0, 0, nil, nil, nil
			rows, details, heads := b.rows.Len(), b.details.Len(), len(b.heads)
			again := map[string]error{"Append": b.Append(&Row{Phase: PhaseAgent, Op: OpLost}, nil), "Flush": b.Flush()}
			_, again["Checkpoint"] = b.Checkpoint()
			_, again["Final"] = b.Final(Final{Outcome: Completed}, nil)
			again["Close"] = b.Close()
			for call, got := range again {
				if got == nil || got.Error() != err.Error() || !errors.Is(got, c.cause) {
					t.Errorf("%s: got %v, want %v", call, got, err)
				}
			}
			if b.rows.Len() != rows || b.details.Len() != details || len(b.heads) != heads {
				t.Error("bytes were written after the fault")
			}
			prefix := new(bytes.Buffer)
			for line, err := range Rows(bytes.NewReader(b.rows.Bytes())) {
				if err != nil {
					if !isRule(err, RuleFrame) {
						t.Errorf("got %v, want at most a torn tail", err)
					}
					break
				}
				prefix.Write(appendRecord(nil, line.Raw))
			}
			if sum, err := check(prefix.Bytes()); err != nil || sum.Closed() {
				t.Errorf("what is there: got closed %v, %v, want a valid open prefix", sum.Closed(), err)
			}
		})
	}
}

func TestFaultAtStart(t *testing.T) {
	b := new(bench)
	b.rows.limit, b.rows.full = 10, syscall.ENOSPC
	if w, err := NewWriter(b.config()); !errors.Is(err, syscall.ENOSPC) || w != nil {
		t.Errorf("got %v, %v, want no writer and ENOSPC", w, err)
	}
	bad := new(bench).config()
	bad.Start.Workspace = "/elsewhere"
	if w, err := NewWriter(bad); !isRule(err, RuleStart) || w != nil {
		t.Errorf("got %v, %v, want no writer and rule start", w, err)
	}
}

// A slow disk holds up the checkpoint, not the rows; the saved head is of rows
// that were synced.
func TestAppendDuringSync(t *testing.T) {
	b := newBench(t)
	b.run(t)
	size := b.Summary().Head.Size
	b.details.onSync = func() {
		b.details.onSync = nil
		if err := b.Append(&Row{Phase: PhaseAgent, Op: OpLost}, nil); err != nil {
			t.Error(err)
		}
		if err := b.Flush(); err != nil {
			t.Error(err)
		}
	}
	head, err := b.Checkpoint()
	if err != nil || head.Size != size {
		t.Errorf("got a head of %d rows, %v, want %d", head.Size, err, size)
	}
	if got := b.Summary().Head.Size; got != size+1 {
		t.Errorf("got %d rows, want %d", got, size+1)
	}
	b.rows.badSync = syscall.EIO
	if _, err := b.Checkpoint(); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if err := b.Append(&Row{Phase: PhaseAgent, Op: OpLost}, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Append afterwards: got %v, want EIO", err)
	}
}
