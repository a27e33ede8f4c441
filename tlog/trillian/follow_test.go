package trillian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	pb "github.com/google/trillian"
	"github.com/google/trillian/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanrun-dev/cleanrun/tlog"
)

// A tree that is not what follows from the last one that was signed is refused, by
// a log that is open and by one that is opened, and nothing is signed. Once
// Trillian has the right tree again, the log goes on.
func TestRollback(t *testing.T) {
	replaced := func(n int, more ...string) func(*fake) {
		return func(f *fake) {
			f.leaves = f.leaves[:n:n]
			for _, e := range more {
				f.leaves = append(f.leaves, []byte(e))
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*fake)
	}{
		{"shorter", replaced(3)},
		{"empty", replaced(0)},
		{"another last entry", replaced(4, "other")},
		{"another first entry", func(f *fake) { f.leaves = append([][]byte{[]byte("other")}, f.leaves[1:]...) }},
		{"two swapped", func(f *fake) {
			f.leaves = append([][]byte(nil), f.leaves...)
			f.leaves[1], f.leaves[2] = f.leaves[2], f.leaves[1]
		}},
		{"shorter, and grown beyond", replaced(3, "a", "b", "c", "d")},
		{"another root of the same size", func(f *fake) { f.lie = func(r *types.LogRootV1) { r.RootHash[0] ^= 1 } }},
		{"a root of leaves that are others", func(f *fake) {
			f.leaves = append(f.leaves, []byte("new"))
			f.relabel = func(l []*pb.LogLeaf) {
				for i := range l {
					l[i].LeafValue = []byte("not new")
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, l, dir, s := newFake(t)
			add(t, l, 0, 5)
			before, err := l.Checkpoint(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var right [][]byte
			f.set(func(f *fake) { right = f.leaves; c.change(f) })
			want := fmt.Sprintf("which follows from the tree of size 5 that was signed last (%s)", dir)
			if _, err := l.Add(within(t), []byte("next")); !errors.Is(err, tlog.ErrRollback) || !strings.Contains(err.Error(), want) {
				t.Errorf("Add: got %v, want ErrRollback, %q", err, want)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), dir, s); !errors.Is(err, tlog.ErrRollback) {
				t.Errorf("Open: got %v, want ErrRollback", err)
			}
			f.set(func(f *fake) { f.leaves, f.lie, f.relabel = right, nil, nil })
			l, err = Open(t.Context(), dir, s)
			if err != nil {
				t.Fatalf("control: %v", err)
			}
			defer l.Close()
			if after, err := l.Checkpoint(t.Context()); err != nil || !bytes.Equal(before, after) {
				t.Errorf("got %s, %v, want what was signed before", after, err)
			}
			add(t, l, 5, 7)
		})
	}
}

// A log that is open goes on by itself when a server that was behind has caught up.
func TestServerBehind(t *testing.T) {
	f, l, _, _ := newFake(t)
	add(t, l, 0, 5)
	right := f.leaves
	f.set(func(f *fake) { f.leaves = f.leaves[:2:2] })
	if _, err := l.Add(within(t), []byte("entry 5")); !errors.Is(err, tlog.ErrRollback) {
		t.Fatalf("got %v, want ErrRollback", err)
	}
	f.set(func(f *fake) { f.leaves = right })
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n, err := l.Add(within(t), []byte("entry 5"))
		if err == nil && n == 5 {
			break
		}
		if err != nil && !errors.Is(err, tlog.ErrRollback) || time.Now().After(end) {
			t.Fatalf("got %d, %v, want the log to go on", n, err)
		}
	}
}

// An entry that was queued before, and one that is in the tree, get their own index.
func TestAddAgain(t *testing.T) {
	f, l, _, _ := newFake(t)
	add(t, l, 0, 5)
	if n, err := l.Add(within(t), []byte("entry 2")); n != 2 || err != nil {
		t.Errorf("in the tree: got %d, %v, want 2", n, err)
	}
	f.set(func(f *fake) { f.hold = true })
	results := make(chan error, 3)
	for range cap(results) {
		go func() {
			n, err := l.Add(within(t), []byte("held"))
			if err == nil && n != 5 {
				err = fmt.Errorf("got index %d, want 5", n)
			}
			results <- err
		}()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waiting := 0
		for _, w := range l.waiting {
			waiting += len(w)
		}
		l.mu.Unlock()
		if waiting == cap(results) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("they do not wait")
		}
	}
	f.set(func(f *fake) { f.hold, f.leaves, f.queued = false, append(f.leaves, []byte("held")), nil })
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if len(l.waiting) != 0 {
		t.Errorf("%d leaves are still waited for", len(l.waiting))
	}
}

// What Trillian refuses or gets wrong is an error that says so, and no entry is acknowledged.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fake)
		is     error
		want   string
	}{
		{"not there", func(f *fake) { f.fail = func(string) error { return status.Error(codes.Unavailable, "gone") } }, nil, "gone"},
		{"database full", func(f *fake) {
			f.fail = func(string) error {
				return status.Error(codes.Unknown, "could not extend file: No space left on device")
			}
		}, tlog.ErrFull, "No space left"},
		{"queued, then gone", func(f *fake) {
			f.hold = true
			f.fail = func(m string) error {
				if m == "queue" {
					return nil
				}
				return status.Error(codes.Internal, errFake.Error())
			}
		}, context.DeadlineExceeded, ""},
		{"a leaf out of its place", func(f *fake) {
			f.relabel = func(l []*pb.LogLeaf) {
				for i := range l {
					l[i].LeafIndex++
				}
			}
		}, context.DeadlineExceeded, ""},
		{"a root without leaves", func(f *fake) { f.lie = func(r *types.LogRootV1) { r.TreeSize += 10 } }, context.DeadlineExceeded, ""},
		{"a short root", func(f *fake) { f.lie = func(r *types.LogRootV1) { r.RootHash = r.RootHash[:31] } }, context.DeadlineExceeded, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, l, _, _ := newFake(t)
			add(t, l, 0, 2)
			before, _ := l.Checkpoint(t.Context())
			f.set(c.change)
			limit := time.Minute
			if c.is == context.DeadlineExceeded {
				limit = 300 * time.Millisecond
			}
			ctx, done := context.WithTimeout(t.Context(), limit)
			defer done()
			_, err := l.Add(ctx, []byte("next"))
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v, %q", err, c.is, c.want)
			}
			if after, _ := l.Checkpoint(t.Context()); !bytes.Equal(before, after) {
				t.Errorf("got %s, want nothing signed", after)
			}
			f.set(func(f *fake) {
				f.fail, f.lie, f.relabel, f.hold = nil, nil, nil, false
				f.leaves = append(f.leaves, f.queued...)
				f.queued = nil
			})
			if _, err := l.Add(within(t), []byte("next")); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestRanges(t *testing.T) {
	f, l, dir, s := newFake(t)
	add(t, l, 0, 10) // leaves come three at a time
	n := 4
	if err := l.Entries(t.Context(), 4, func(i uint64, e []byte) error {
		if want := fmt.Sprintf("entry %d", n); i != uint64(n) || string(e) != want {
			return fmt.Errorf("got entry %d = %q, want %d = %q", i, e, n, want)
		}
		n++
		return nil
	}); err != nil || n != 10 {
		t.Errorf("got up to %d, %v, want 10", n, err)
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"wait", second(l.Wait(t.Context(), 10)), tlog.ErrNoEntry},
		{"wait for the last index", second(l.Wait(t.Context(), math.MaxUint64)), tlog.ErrNoEntry},
		{"inclusion beyond the tree", second(l.Inclusion(t.Context(), 5, 5)), tlog.ErrNoEntry},
		{"inclusion beyond the log", second(l.Inclusion(t.Context(), 5, 11)), tlog.ErrNoSize},
		{"consistency beyond the log", second(l.Consistency(t.Context(), 5, math.MaxUint64)), tlog.ErrNoSize},
		{"consistency backwards", second(l.Consistency(t.Context(), 6, 5)), tlog.ErrNoSize},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.err, c.want)
		}
	}
	if _, err := l.Inclusion(t.Context(), 5, 10); err == nil || !strings.Contains(err.Error(), "may be behind") {
		t.Errorf("no proof: got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Who has no state of a tree that has entries cannot make one.
	other := t.TempDir()
	if err := Init(t.Context(), other, must(l.folder.config()).server, 7, s); err == nil || !strings.Contains(err.Error(), "want an empty tree") {
		t.Errorf("Init of a tree with entries: got %v", err)
	}
	// Entries of others are signed too.
	f.set(func(f *fake) { f.leaves = append(f.leaves, []byte("theirs")) })
	l, err := Open(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if e, err := tlog.Entry(t.Context(), l, 10); err != nil || string(e) != "theirs" {
		t.Errorf("got %q, %v", e, err)
	}
}

func second[T any](_ T, err error) error { return err }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
