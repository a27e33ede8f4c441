package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// serve serves a log on loopback until stop is called, which returns what Serve did.
func serve(t testing.TB, s *registry.Service, o registry.HandlerOptions) (url string, stop func() error) {
	t.Helper()
	h, done, err := registry.Handler(s, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- registry.Serve(ctx, l, h) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, done())
	})
	t.Cleanup(func() { stop() })
	return "http://" + l.Addr().String(), stop
}

func dial(t testing.TB, url string, c cast) *registry.Client {
	t.Helper()
	r, err := registry.Dial(t.Context(), url, registry.DialOptions{Key: c.log.public, HTTP: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// Over HTTP a log answers as in process, refusals word by word.
func TestHTTP(t *testing.T) {
	c := newCast(t)
	before := runtime.NumGoroutine()
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	url, stop := serve(t, s, registry.HandlerOptions{Dir: dir})
	r := dial(t, url, c)
	statements := map[uint64][]byte{}
	for i, e := range [][]byte{c.seal("head"), c.register(1), c.checkpoint(1, 10), c.final(1, 30, 1)} {
		l := add(t, r, e)
		if l.Index != uint64(i) {
			t.Errorf("got index %d, want %d", l.Index, i)
		}
		checkLogged(t, c, l, e)
		statements[l.Index] = e
	}
	if got := add(t, r, statements[2]); got.Index != 2 {
		t.Errorf("equal bytes: got index %d, want 2", got.Index)
	}
	checkProofs(t, c, r, statements, 1, 4)
	if b, err := r.Entry(t.Context(), 3); err != nil || !bytes.Equal(b, statements[3]) {
		t.Errorf("Entry: got %x, %v", b, err)
	}
	if i, err := r.Seal(t.Context(), sum("head")); i != 0 || err != nil {
		t.Errorf("Seal: got %d, %v", i, err)
	}
	for _, err := range []error{
		second(r.Seal(t.Context(), sum("nothing"))), second(r.Entry(t.Context(), 4)),
		second(r.Proofs(t.Context(), []uint64{4}, nil)), second(r.Proofs(t.Context(), nil, []uint64{5})),
	} {
		if !errors.Is(err, registry.ErrNoSeal) && !errors.Is(err, registry.ErrNoEntry) {
			t.Errorf("got %v, want ErrNoSeal or ErrNoEntry", err)
		}
	}
	// A whole request of proofs fits into a header and an answer.
	if p, err := r.Proofs(t.Context(), make([]uint64, registry.MaxIndexes), []uint64{1, 2}); err != nil || len(p.Inclusion) != registry.MaxIndexes {
		t.Errorf("many proofs: %v", err)
	}
	stranger, bad := c, bytes.Clone(c.register(2))
	stranger.runner = c.other
	bad[len(bad)-1] ^= 1
	for _, e := range [][]byte{c.register(1, func(r *entry.Register) { r.Run = runID(2) }), c.final(1, 31, 1), c.checkpoint(2, 5), stranger.register(3), bad,
		[]byte("no entry"), c.register(4, func(r *entry.Register) { r.Sealed = sum("unsealed") })} {
		_, here := s.Add(t.Context(), e)
		_, there := r.Add(t.Context(), e)
		a, ok := errors.AsType[*entry.Refusal](here)
		b, also := errors.AsType[*entry.Refusal](there)
		if !ok || !also || *a != *b {
			t.Errorf("got %+v over HTTP, want %+v", there, here)
		}
	}
	r.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	noneLeft(t, before)
}

func second[T any](_ T, err error) error { return err }

// ask sends one request and returns the answer with its body.
func ask(t testing.TB, method, url, contentType string, body io.Reader) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	a, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// Each wrong request gets its status and its problem, in the one spelling of RFC 9290.
func TestProblems(t *testing.T) {
	c := newCast(t)
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	add(t, s, c.seal("head"))
	url, _ := serve(t, s, registry.HandlerOptions{Dir: dir})
	big := bytes.Repeat([]byte{0xd2}, tlog.MaxEntry+1)
	bad := bytes.Clone(c.register(1))
	bad[len(bad)-1] ^= 1
	stranger := c
	stranger.runner = c.other
	for _, q := range []struct {
		method, path, contentType string
		body                      []byte
		status                    int
		title, detail             string
	}{
		{"POST", "/entries", "application/cose", []byte("x"), 400, "not-an-entry", "got "},
		{"POST", "/entries", "application/cose", nil, 400, "not-an-entry", "got 0 bytes"},
		{"POST", "/entries", "application/cose; cose-type=\"cose-sign1\"", []byte("x"), 400, "not-an-entry", ""},
		{"POST", "/entries", "application/cose", big, 413, "Request Entity Too Large", "at most 65535"},
		{"POST", "/entries", "application/json", []byte("{}"), 415, "Unsupported Media Type", "want application/cose"},
		{"POST", "/entries", "", []byte("{}"), 415, "Unsupported Media Type", ""},
		{"POST", "/entries", "application/cose", bad, 401, "bad-signature", ""},
		{"POST", "/entries", "application/cose", stranger.register(1), 403, "unknown-issuer", "got the REGISTER of the key"},
		{"POST", "/entries", "application/cose", c.final(9, 5, 0), 409, "final-unregistered", "register"},
		{"GET", "/entries/1", "", nil, 404, "Not Found", "less than 1"},
		{"GET", "/entries/01", "", nil, 400, "Bad Request", "decimal"},
		{"GET", "/entries/-1", "", nil, 400, "Bad Request", "decimal"},
		{"GET", "/entries/99999999999999999999999", "", nil, 400, "Bad Request", "decimal"},
		{"GET", "/cleanrun/v1/entry/1", "", nil, 404, "Not Found", ""},
		{"GET", "/cleanrun/v1/seal/00", "", nil, 400, "Bad Request", "64 lower-case hex"},
		{"GET", "/cleanrun/v1/seal/" + strings.Repeat("AB", 32), "", nil, 400, "Bad Request", "64 lower-case hex"},
		{"GET", "/cleanrun/v1/seal/" + strings.Repeat("ab", 32), "", nil, 404, "Not Found", "no SEAL"},
		{"GET", "/cleanrun/v1/proofs?index=0&index=1", "", nil, 404, "Not Found", "less than 1"},
		{"GET", "/cleanrun/v1/proofs?index=x", "", nil, 400, "Bad Request", "decimal"},
		{"GET", "/cleanrun/v1/proofs?size=1", "", nil, 400, "Bad Request", "index or from"},
		{"GET", "/cleanrun/v1/proofs?from=1&from=1&from=1", "", nil, 400, "Bad Request", "at most 4096 and 2"},
		{"GET", "/cleanrun/v1/proofs?from=0", "", nil, 404, "Not Found", "1 to 1"},
		{"GET", "/.well-known/scitt-keys/00", "", nil, 404, "Not Found", "key is"},
		{"GET", "/tile/0/x", "", nil, 400, "Bad Request", "tlog-tiles"},
		{"GET", "/tile/0/001", "", nil, 404, "Not Found", "tile/0/001"},
		{"GET", "/.lock", "", nil, 404, "Not Found", "no \"/.lock\""},
		{"GET", "/.state/treeState", "", nil, 404, "Not Found", ""},
		{"GET", "/", "", nil, 404, "Not Found", ""},
		{"GET", "/entries", "", nil, 405, "Method Not Allowed", ""},
		{"DELETE", "/entries/0", "", nil, 405, "Method Not Allowed", ""},
		{"POST", "/checkpoint", "", nil, 405, "Method Not Allowed", ""},
	} {
		a, b := ask(t, q.method, url+q.path, q.contentType, bytes.NewReader(q.body))
		var p struct {
			Title  string         `cbor:"-1,keyasint"`
			Detail string         `cbor:"-2,keyasint"`
			Facts  map[string]any `cbor:"tag:cleanrun.dev#refusal,omitempty"`
		}
		if err := dcbor.Unmarshal(b, &p); err != nil || a.Header.Get("Content-Type") != "application/concise-problem-details+cbor" {
			t.Errorf("%s %s: got %s %x: %v", q.method, q.path, a.Header.Get("Content-Type"), b, err)
		}
		if a.StatusCode != q.status || p.Title != q.title || !strings.Contains(p.Detail, q.detail) {
			t.Errorf("%s %s: got %d %q: %q, want %d %q: %q", q.method, q.path, a.StatusCode, p.Title, p.Detail, q.status, q.title, q.detail)
		}
	}
	// The neighbours that are right.
	for path, want := range map[string]string{"/entries/0": "application/cose", "/cleanrun/v1/entry/0": "application/cose", "/checkpoint": "text/plain; charset=utf-8",
		"/cleanrun/v1/proofs": "application/cbor", "/cleanrun/v1/proofs?from=1&index=0": "application/cbor", "/tile/0/000.p/1": "application/octet-stream",
		"/tile/entries/000.p/1": "application/octet-stream", "/.well-known/scitt-keys": "application/cbor", "/healthz": "text/plain; charset=utf-8"} {
		if a, b := ask(t, "GET", url+path, "", nil); a.StatusCode != 200 || a.Header.Get("Content-Type") != want || len(b) == 0 {
			t.Errorf("%s: got %d %s, %d bytes, want 200 %s", path, a.StatusCode, a.Header.Get("Content-Type"), len(b), want)
		}
	}
	kid := c.log.public.Thumbprint()
	_, b := ask(t, "GET", fmt.Sprintf("%s/.well-known/scitt-keys/%x", url, kid), "", nil)
	if !bytes.Equal(b, receipt.COSEKey(c.log.public)) {
		t.Errorf("the log's key: got %x", b)
	}
	_, b = ask(t, "GET", url+"/metrics", "", nil)
	for _, line := range []string{"cleanrun_log_size 1\n", "cleanrun_log_adds_total{outcome=\"not-an-entry\"} 3\n", "cleanrun_log_adds_total{outcome=\"final-unregistered\"} 1\n",
		"cleanrun_log_requests_total{status=\"405\"} 3\n", "cleanrun_log_faults 0\n"} {
		if !strings.Contains(string(b), line) {
			t.Errorf("metrics: got no %q in\n%s", line, b)
		}
	}
}

// Clients that send slowly, or nothing, do not keep others out, and leave nothing.
func TestSlowClients(t *testing.T) {
	defer registry.ClientsWithin(5*time.Second, 5*time.Second)()
	c := newCast(t)
	before := runtime.NumGoroutine()
	s := c.open(t, c.openLog(t, c.folder(t)))
	url, stop := serve(t, s, registry.HandlerOptions{})
	var slow []net.Conn
	for i := range 60 {
		n, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		fmt.Fprint(n, []string{"", "POST /entr", "POST /entries HTTP/1.1\r\nHost: x\r\nContent-Type: application/cose\r\nContent-Length: 60000\r\n\r\nabc"}[i%3])
		slow = append(slow, n)
	}
	r := dial(t, url, c)
	checkLogged(t, c, add(t, r, c.seal("head")), c.seal("head"))
	r.Close()
	for i, n := range slow { // the server hangs up by itself
		n.SetReadDeadline(time.Now().Add(time.Minute))
		if b, err := io.ReadAll(n); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("slow client %d is still connected, got %q", i, b)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	s.Close()
	noneLeft(t, before)
}

// blocked is a log whose Add waits.
type blocked struct {
	tlog.Log
	entered, release chan struct{}
}

func (b *blocked) Add(ctx context.Context, e []byte) (uint64, error) {
	b.entered <- struct{}{}
	<-b.release
	return b.Log.Add(ctx, e)
}

// More requests than are answered at a time are told so; a server that ends
// answers what it has.
func TestInFlightAndGracefulStop(t *testing.T) {
	c := newCast(t)
	l := &blocked{c.openLog(t, c.folder(t)), make(chan struct{}, 1), make(chan struct{})}
	s := c.open(t, l)
	url, stop := serve(t, s, registry.HandlerOptions{InFlight: 1})
	r := dial(t, url, c)
	added := make(chan error, 1)
	go func() {
		got, err := r.Add(t.Context(), c.seal("head"))
		if err == nil && got.Index != 0 {
			err = fmt.Errorf("got index %d", got.Index)
		}
		added <- err
	}()
	<-l.entered
	a, _ := ask(t, "GET", url+"/checkpoint", "", nil)
	if a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("a second request: got %d, want 503 and Retry-After", a.StatusCode)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until no new connection is taken
		n, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			break
		}
		n.Close()
		time.Sleep(5 * time.Millisecond)
	}
	close(l.release)
	if err := <-added; err != nil {
		t.Errorf("what was in flight: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestRates(t *testing.T) {
	allow := registry.Allow(10)
	now := time.Unix(1000, 0)
	count := func(host string) (n int) {
		for range 100 {
			if allow(host, now) {
				n++
			}
		}
		return n
	}
	if n := count("a"); n != 20 {
		t.Errorf("got %d at once, want 20", n)
	}
	now = now.Add(500 * time.Millisecond)
	if n := count("a"); n != 5 {
		t.Errorf("got %d after half a second, want 5", n)
	}
	if n := count("b"); n != 20 {
		t.Errorf("another address: got %d, want 20", n)
	}
	now = now.Add(time.Hour)
	if n := count("a"); n != 20 {
		t.Errorf("got %d after an hour, want 20", n)
	}
	for i := range 40_000 { // bounded memory
		allow(fmt.Sprint("host ", i), now)
	}
	if none := registry.Allow(0); !none("a", now) {
		t.Error("a limit of 0 is none")
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("index=0&from=1&index=18446744073709551615")
	f.Fuzz(func(t *testing.T, s string) {
		indexes, from, err := registry.ParseQuery(s)
		if err == nil && (len(indexes) > registry.MaxIndexes || len(from) > registry.MaxFrom) {
			t.Errorf("%q: got %d and %d numbers", s, len(indexes), len(from))
		}
	})
}

func FuzzParseProblem(f *testing.F) {
	f.Add(409, "application/concise-problem-details+cbor", []byte{0xa2, 0x20, 0x61, 'a', 0x21, 0x61, 'b'})
	f.Fuzz(func(t *testing.T, status int, contentType string, b []byte) {
		if registry.ParseProblem(status, contentType, b) == nil {
			t.Error("got no error")
		}
	})
}
