package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// both runs a test on each backend.
func both(t *testing.T, test func(t *testing.T, backend string)) {
	for _, b := range []string{sandbox.Backend, sandbox.PlainBackend} {
		t.Run(b, func(t *testing.T) { test(t, b) })
	}
}

func encoded(t *testing.T, s *journal.Start) []byte {
	t.Helper()
	b, err := journal.EncodeRow(nil, &journal.Row{Start: s})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is registered is the start row, before it is written.
func TestRegister(t *testing.T) {
	both(t, func(t *testing.T, backend string) {
		c := shell(folder(t, filepath.Join(base(t), "ws")), "echo ran")
		c.RunDir, c.Backend = runDir(t), backend
		var asked journal.Start
		calls := 0
		long := make([]byte, 16<<10)
		c.Register = func(_ context.Context, s *journal.Start) error {
			calls++
			if b, err := os.ReadFile(filepath.Join(c.RunDir, "journal")); err != nil || len(b) != 0 {
				t.Errorf("at registration the journal has %d bytes, %v, want none", len(b), err)
			}
			asked = *s
			s.Registration, s.Freshness = &long, &[]byte{1}
			s.Agent = "another" // counts for nothing
			return nil
		}
		r := run(t, c)
		if calls != 1 || r.stdout != "ran\n" {
			t.Fatalf("got %d calls, stdout %q, want 1 and a run", calls, r.stdout)
		}
		got := r.rows[0].Start
		if got.Registration == nil || len(*got.Registration) != len(long) || got.Freshness == nil || string(*got.Freshness) != "\x01" {
			t.Errorf("got registration and freshness %v, want what was given", got.Freshness)
		}
		got.Registration, got.Freshness = nil, nil
		if a, b := encoded(t, got), encoded(t, &asked); !bytes.Equal(a, b) {
			t.Errorf("got the start row\n%x\nwant what was registered\n%x", a, b)
		}
	})
}

// A registration that leaves both values out starts a run that is in no log.
func TestRegisterNothing(t *testing.T) {
	c := shell(folder(t, filepath.Join(base(t), "ws")), "echo ran")
	c.Register = func(context.Context, *journal.Start) error { return nil }
	if r := run(t, c); r.stdout != "ran\n" || r.rows[0].Start.Registration != nil {
		t.Errorf("got stdout %q, registration %v, want a run without", r.stdout, r.rows[0].Start.Registration)
	}
}

func TestRegisterFails(t *testing.T) {
	refused := errors.New("the log refused it")
	for name, register := range map[string]func(*journal.Start) error{
		"refused": func(*journal.Start) error { return refused },
		"half": func(s *journal.Start) error {
			s.Registration = &[]byte{1}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, backend string) {
				ws := folder(t, filepath.Join(base(t), "ws"))
				c := shell(ws, "echo ran")
				c.RunDir, c.Backend, c.Env = runDir(t), backend, environment(t.TempDir())
				var out strings.Builder
				c.Stdout = &out
				c.Register = func(_ context.Context, s *journal.Start) error { return register(s) }
				res, err := sandbox.Run(t.Context(), c)
				var un *sandbox.Unavailable
				if errors.As(err, &un) {
					t.Skip(err)
				}
				var not *sandbox.NotRegistered
				if res != nil || !errors.As(err, &not) || name == "refused" && !errors.Is(err, refused) {
					t.Errorf("got %+v, %v, want NotRegistered", res, err)
				}
				if b, err := os.ReadFile(filepath.Join(c.RunDir, "journal")); err != nil || len(b) != 0 || out.Len() != 0 {
					t.Errorf("got %d bytes of journal, %v, stdout %q, want nothing", len(b), err, &out)
				}
			})
		})
	}
}

// A run that is stopped while it is being registered does not start.
func TestRegisterStopped(t *testing.T) {
	c := shell(folder(t, filepath.Join(base(t), "ws")), "echo ran")
	c.RunDir, c.Env = runDir(t), environment(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Register = func(ctx context.Context, _ *journal.Start) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	res, err := sandbox.Run(ctx, c)
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skip(err)
	}
	if res != nil || err == nil || !strings.Contains(err.Error(), "nothing ran") {
		t.Errorf("got %+v, %v, want that nothing ran", res, err)
	}
	if b, err := os.ReadFile(filepath.Join(c.RunDir, "journal")); err != nil || len(b) != 0 {
		t.Errorf("got %d bytes of journal, %v, want none", len(b), err)
	}
}

// Every head that is told is one of the journal, and larger than the one before.
func TestHeads(t *testing.T) {
	for name, c := range map[string]struct {
		every  time.Duration
		script string
		rows   uint64 // at least between two
	}{
		"rows": {time.Hour, "i=0; while [ $i -lt 1500 ]; do read x < in || :; i=$((i+1)); done; read x", 1000},
		"time": {50 * time.Millisecond, "for i in 1 2 3 4; do read x < in || :; sleep 0.2; done; read x", 1},
	} {
		t.Run(name, func(t *testing.T) {
			defer sandbox.SetHeadEvery(c.every)()
			ws := folder(t, filepath.Join(base(t), "ws"))
			write(t, filepath.Join(ws, "in"), "x\n")
			config := shell(ws, c.script)
			in, release := io.Pipe() // the command ends when a head was told
			config.RunDir, config.Stdin = runDir(t), in
			defer time.AfterFunc(2*time.Minute, func() { release.Close() }).Stop()
			var mu sync.Mutex
			var heads []journal.Head
			config.Head = func(h journal.Head) {
				mu.Lock()
				defer mu.Unlock()
				heads = append(heads, h)
				release.Close()
			}
			r := run(t, config)
			if len(heads) == 0 {
				t.Fatalf("got no head of %d rows, want some", len(r.rows))
			}
			file, err := os.Open(filepath.Join(r.dir, "journal"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			var tree journal.Tree
			for line, err := range journal.Rows(file) {
				if err != nil {
					t.Fatal(err)
				}
				tree.Append(line.Raw)
			}
			last := uint64(1)
			for _, h := range heads {
				root, err := tree.Root(h.Size)
				if err != nil || root != h.Root || h.Run != r.rows[0].Start.Run || h.Size < last+c.rows {
					t.Errorf("got head %+v after %d rows, %v, want one of the journal with %d new rows", h, last, err, c.rows)
				}
				last = h.Size
			}
		})
	}
}
