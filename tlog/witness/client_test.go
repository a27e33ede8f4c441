package witness_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

// site is a witness behind HTTP, which a test can replace.
type site struct {
	*httptest.Server
	key   *proof.Cosigner
	asked atomic.Int64
	mu    sync.Mutex
	h     http.Handler
}

func newSite(t testing.TB, name string, logs ...receipt.PublicKey) *site {
	t.Helper()
	w := &site{key: newCosigner(t, name)}
	w.h = newServer(t, t.TempDir(), w.key, logs...)
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		w.mu.Lock()
		h := w.h
		w.mu.Unlock()
		h.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Server.Close)
	return w
}

func (w *site) replace(h http.Handler) http.Handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.h
	w.h = h
	return old
}

// policy reads lines; the witnesses' are made of the sites.
func policy(t testing.TB, log receipt.PublicKey, sites []*site, lines ...string) *proof.Policy {
	t.Helper()
	all := []string{"log " + log.String()}
	for i, w := range sites {
		all = append(all, fmt.Sprintf("witness w%d %s %s", i+1, w.key.Key(), w.URL))
	}
	var p proof.Policy
	for _, l := range append(all, lines...) {
		if err := p.Line(strings.Fields(l)); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	return &p
}

func newClient(t testing.TB, p *proof.Policy, log receipt.PublicKey) *witness.Client {
	t.Helper()
	c, err := witness.NewClient(p, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// check holds a note to the policy.
func check(t testing.TB, p *proof.Policy, note []byte, log receipt.PublicKey) (proof.Checkpoint, proof.Quorum) {
	t.Helper()
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		t.Fatal(err)
	}
	v, err := u.Verify(log)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Check(v)
	if err != nil {
		t.Fatal(err)
	}
	return v.Checkpoint(), q
}

func TestClientCollects(t *testing.T) {
	l := newTree(t, 50)
	sites := []*site{newSite(t, "w.example/1", l.Key()), newSite(t, "w.example/2", l.Key()), newSite(t, "w.example/3", l.Key())}
	p := policy(t, l.Key(), sites, "group three all w1 w2 w3", "quorum three")
	c := newClient(t, p, l.Key())
	for _, size := range []int{0, 1, 1, 20, 50} {
		note, q, err := c.Cosign(t.Context(), l.note(t, size), l.Consistency)
		if err != nil {
			t.Fatal(err)
		}
		cp, again := check(t, p, note, l.Key())
		if cp.Size != uint64(size) || !again.Met || !q.Met || q.Time != uint64(clock.Unix()) || q.Got != 3 {
			t.Errorf("got size %d, %+v and %+v, want all three", cp.Size, q, again)
		}
	}
	for i, w := range sites {
		if n := w.asked.Load(); n != 5 {
			t.Errorf("w%d was asked %d times, want 5: it was known what it had cosigned", i+1, n)
		}
	}
	// Another client of the log does not know: a conflict tells it.
	c = newClient(t, p, l.Key())
	l.grow(60)
	if _, _, err := c.Cosign(t.Context(), l.note(t, 60), l.Consistency); err != nil {
		t.Error(err)
	}
	if n := sites[0].asked.Load(); n != 7 {
		t.Errorf("w1 was asked %d times, want 7", n)
	}
	// A cosignature that is there already is not asked for.
	note, _, err := c.Cosign(t.Context(), l.note(t, 60), l.Consistency)
	if err != nil {
		t.Fatal(err)
	}
	asked := sites[0].asked.Load()
	if again, q, err := c.Cosign(t.Context(), note, l.Consistency); err != nil || !q.Met || string(again) != string(note) || sites[0].asked.Load() != asked {
		t.Errorf("got %s, %+v, %v, want the same note", again, q, err)
	}
	two, _, err := newClient(t, policy(t, l.Key(), sites[:2], "group two all w1 w2", "quorum two"), l.Key()).Cosign(t.Context(), l.note(t, 60), l.Consistency)
	if err != nil {
		t.Fatal(err)
	}
	asked = sites[0].asked.Load()
	if _, q, err := c.Cosign(t.Context(), two, l.Consistency); err != nil || q.Got != 3 || sites[0].asked.Load() != asked {
		t.Errorf("got %+v, %v, want the third added", q, err)
	}
}

func TestClientQuorumNone(t *testing.T) {
	l := newTree(t, 5)
	w := newSite(t, "w.example/1", l.Key())
	c := newClient(t, policy(t, l.Key(), []*site{w}, "quorum none"), l.Key())
	note, q, err := c.Cosign(t.Context(), l.note(t, 5), l.Consistency)
	if err != nil || !q.Met || q.Time != 0 || string(note) != string(l.note(t, 5)) || w.asked.Load() != 0 {
		t.Errorf("got %s, %+v, %v, want the note as it was", note, q, err)
	}
	for _, p := range []*proof.Policy{{}, policy(t, l.Key(), []*site{w})} {
		if _, err := witness.NewClient(p, l.Key(), nil); err == nil {
			t.Error("a policy without a quorum was taken")
		}
	}
	if _, err := witness.NewClient(policy(t, newTree(t, 0).Key(), nil, "quorum none"), l.Key(), nil); err == nil {
		t.Error("a policy of another log was taken")
	}
}

// Each witness fails in its own way, and the error names it and the way. The
// quorum of the others is met at once.
func TestRT79_ClientNamesFailures(t *testing.T) {
	l := newTree(t, 30)
	good := newSite(t, "w.example/good", l.Key())
	fork := l.fork(10, 20)
	for _, c := range []struct {
		name string
		set  func(*site)
		want string
	}{
		{"down", func(w *site) { w.Server.Close() }, "refused"},
		{"500", func(w *site) {
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "out of order", 500) }))
		}, `answered 500 Internal Server Error: "out of order"`},
		{"redirect", func(w *site) { w.replace(http.RedirectHandler(good.URL+"/add-checkpoint", 307)) }, "answered 307"},
		{"another witness's signature", func(w *site) { w.replace(newServer(t, t.TempDir(), newCosigner(t, "w.example/x"), l.Key())) }, "without a cosignature of w.example/1"},
		{"another key of its name", func(w *site) { w.replace(newServer(t, t.TempDir(), newCosigner(t, "w.example/1"), l.Key())) }, "without a cosignature of w.example/1"},
		{"a signature over another tree", func(w *site) {
			s := newServer(t, t.TempDir(), w.key, l.Key())
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_, _, answer := post(s, request(0, nil, fork.note(t, 20)))
				fmt.Fprint(rw, answer)
			}))
		}, "does not verify"},
		{"no note", func(w *site) {
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "— nonsense\n") }))
		}, "its answer cannot be read"},
		{"an answer without end", func(w *site) {
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, strings.Repeat("— x\n", 1<<16)) }))
		}, "more than"},
		{"a size that is no number", func(w *site) {
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/x.tlog.size")
				rw.WriteHeader(409)
				fmt.Fprint(rw, "007\n")
			}))
		}, "as its size"},
		{"another size each time", func(w *site) {
			n := 0
			w.replace(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				n++
				rw.Header().Set("Content-Type", "text/x.tlog.size")
				rw.WriteHeader(409)
				fmt.Fprintln(rw, n)
			}))
		}, "another size each time"},
		{"a larger tree than ours", func(w *site) {
			post(w.h, request(0, nil, l.note(t, 30)))
		}, "it cosigned size 30, which is after size 20: this is an old checkpoint, or the log went back"},
		{"another tree of our size", func(w *site) {
			post(w.h, request(0, nil, fork.note(t, 20)))
		}, "it knows another tree of size 20, so the log has shown two"},
		{"a log that it does not know", func(w *site) {
			w.replace(newServer(t, t.TempDir(), w.key, newTree(t, 0).Key()))
		}, "answered 403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := newSite(t, "w.example/1", l.Key())
			c.set(bad)
			p := policy(t, l.Key(), []*site{bad}, "quorum w1")
			_, q, err := newClient(t, p, l.Key()).Cosign(t.Context(), l.note(t, 20), l.Consistency)
			var missed *witness.QuorumError
			if !errors.Is(err, witness.ErrNoQuorum) || !errors.As(err, &missed) || len(missed.Failed) != 1 || missed.Failed[0].Name != "w1" || q.Met {
				t.Fatalf("got %v, want a quorum that w1 missed", err)
			}
			if !strings.Contains(err.Error(), "got 0 of 1, which is not quorum w1; w1: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q", err, c.want)
			}
		})
	}
}

// A witness that does not answer holds nobody up whose quorum is met without it,
// and is there again later.
func TestClientSlowWitness(t *testing.T) {
	l := newTree(t, 30)
	fast, slow := newSite(t, "w.example/1", l.Key()), newSite(t, "w.example/2", l.Key())
	release := make(chan struct{})
	real := slow.h
	slow.replace(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		<-release
		real.ServeHTTP(rw, r)
	}))
	p := policy(t, l.Key(), []*site{fast, slow}, "group some any w1 w2", "quorum some")
	c := newClient(t, p, l.Key())
	note, _, err := c.Cosign(t.Context(), l.note(t, 10), l.Consistency)
	if err != nil {
		t.Fatal(err)
	}
	if _, q := check(t, p, note, l.Key()); len(q.Signed) != 1 || q.Signed[0] != "w1" {
		t.Errorf("got %+v, want w1 alone", q)
	}
	close(release)
	both := policy(t, l.Key(), []*site{fast, slow}, "group both all w1 w2", "quorum both")
	if _, _, err := newClient(t, both, l.Key()).Cosign(t.Context(), l.note(t, 20), l.Consistency); err != nil {
		t.Error(err)
	}
	// Who asked may go.
	hang := make(chan struct{})
	defer close(hang)
	slow.replace(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	ctx, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	c = newClient(t, both, l.Key())
	if _, _, err := c.Cosign(ctx, l.note(t, 30), l.Consistency); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the caller's deadline", err)
	}
	c.Close() // and the client ends what it asked
}

func TestCosigned(t *testing.T) {
	l := newTree(t, 0)
	sites := []*site{newSite(t, "w.example/1", l.Key()), newSite(t, "w.example/2", l.Key())}
	p := policy(t, l.Key(), sites, "group both all w1 w2", "quorum both")
	client, err := witness.NewClient(p, l.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	c := witness.NewCosigned(l, client)
	var wg sync.WaitGroup
	const adders, each = 20, 5
	for w := range adders {
		wg.Go(func() {
			for i := range each {
				n, err := c.Add(t.Context(), fmt.Appendf(nil, "%d of %d", i, w))
				if err != nil {
					t.Error(err)
					return
				}
				note, err := c.Wait(t.Context(), n)
				if err != nil {
					t.Error(err)
					return
				}
				if cp, q := check(t, p, note, l.Key()); cp.Size <= n || !q.Met {
					t.Errorf("entry %d: got size %d, %+v, want it in a cosigned checkpoint", n, cp.Size, q)
				}
			}
		})
	}
	wg.Wait()
	if n := sites[0].asked.Load(); n > adders*each {
		t.Errorf("a witness was asked %d times for %d entries: want one round for all who wait", n, adders*each)
	}
	asked := sites[0].asked.Load()
	note, err := c.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cp, q := check(t, p, note, l.Key()); cp.Size != adders*each || !q.Met || sites[0].asked.Load() != asked {
		t.Errorf("got size %d, %+v, want the last one, without asking again", cp.Size, q)
	}
	// Without the quorum nothing new is published, and the old one stays.
	old := sites[1].replace(http.NotFoundHandler())
	n, err := c.Add(t.Context(), []byte("late"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), n); !errors.Is(err, witness.ErrNoQuorum) || !strings.Contains(err.Error(), "w2: ") {
		t.Errorf("got %v, want ErrNoQuorum that names w2", err)
	}
	if again, err := c.Checkpoint(t.Context()); err != nil || string(again) != string(note) {
		t.Errorf("got %s, %v, want the last cosigned checkpoint", again, err)
	}
	sites[1].replace(old)
	if note, err := c.Wait(t.Context(), n); err != nil {
		t.Error(err)
	} else if cp, q := check(t, p, note, l.Key()); cp.Size <= n || !q.Met {
		t.Errorf("got size %d, %+v", cp.Size, q)
	}
	if _, err := c.Wait(t.Context(), n+1); !errors.Is(err, tlog.ErrNoEntry) {
		t.Errorf("got %v, want ErrNoEntry", err)
	}
	if err := c.Close(); err != nil || !l.closed {
		t.Errorf("Close: %v, %v", err, l.closed)
	}
	l.grow(200)
	if _, err := c.Wait(t.Context(), 150); !errors.Is(err, tlog.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
	for _, w := range sites {
		w.Server.Close()
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("goroutines left after Close:\n%s", b[:runtime.Stack(b, true)])
		}
	}
}
