package registry_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// A liar is a log of one entry that answers what a test wants.
type liar struct {
	cast
	entry  []byte
	key    string
	status int
	answer func(w http.ResponseWriter, r *http.Request) // of everything but the key
}

func newLiar(t *testing.T) (*liar, string) {
	l := &liar{cast: newCast(t)}
	l.entry, l.key = l.seal("head"), l.log.public.String()+"\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cleanrun/v1/key" {
			io.WriteString(w, l.key)
			return
		}
		l.answer(w, r)
	}))
	t.Cleanup(server.Close)
	return l, server.URL
}

// says answers with bytes and a status.
func (l *liar) says(status int, b []byte) {
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write(b)
	}
}

// receiptOf is what an honest log of one entry would answer.
func receiptOf(key receipt.Signer, sub string, e []byte) []byte {
	return must(receipt.SignInclusion(key, sub, receipt.Inclusion{Size: 1, Index: 0}, receipt.LeafHash(e)))
}

func TestRT76_ClientRefusesTheReceiptOfAnotherEntry(t *testing.T) {
	l, url := newLiar(t)
	r := dial(t, url, l.cast)
	l.says(201, receiptOf(l.log, "bench", l.entry))
	if got, err := r.Add(t.Context(), l.entry); err != nil || got.Index != 0 {
		t.Fatalf("control: got %v, %v", got, err)
	}
	for name, c := range map[string]struct {
		answer []byte
		want   string
	}{
		"another entry":      {receiptOf(l.log, "bench", l.seal("other")), "signature"},
		"another log's key":  {receiptOf(l.other, "bench", l.entry), "kid"},
		"a changed path":     {must(receipt.SignInclusion(l.log, "bench", receipt.Inclusion{Size: 2, Index: 0, Path: [][32]byte{{1}}}, receipt.LeafHash(l.entry))), "signature"},
		"consistency":        {must(receipt.SignConsistency(l.log, receipt.Consistency{Older: 1, Newer: 1}, receipt.LeafHash(l.entry))), "inclusion"},
		"something appended": {append(receiptOf(l.log, "bench", l.entry), 0), "receipt"},
		"nothing":            {nil, "receipt"},
	} {
		l.says(201, c.answer)
		if _, err := r.Add(t.Context(), l.entry); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("%s: got %v, want an error about %q", name, err, c.want)
		}
	}
}

func TestRT77_ClientPinsTheLog(t *testing.T) {
	l, url := newLiar(t)
	o := registry.DialOptions{Key: l.log.public, HTTP: &http.Transport{}}
	if _, err := registry.Dial(t.Context(), url, o); err != nil {
		t.Fatalf("control: %v", err)
	}
	renamed := must(receipt.NewPublicKey("other.example/log", l.log.private.Public()))
	for name, key := range map[string]string{"another key": l.other.public.String() + "\n", "the same key under another origin": renamed.String() + "\n"} {
		l.key = key
		if _, err := registry.Dial(t.Context(), url, o); err == nil || !strings.Contains(err.Error(), "this is another log") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	for _, key := range []string{"", "log", l.log.public.String() + "\n\n", strings.Repeat("x", 5000)} {
		l.key = key
		if _, err := registry.Dial(t.Context(), url, registry.DialOptions{HTTP: o.HTTP}); err == nil {
			t.Errorf("%.20q was taken for a key", key)
		}
	}
	for _, bad := range []string{"", "log", "ftp://host/", "http://", "http://h/?a=b", "http://user@h/", "http://h/#f", "file:///tmp"} {
		if _, err := registry.Dial(t.Context(), bad, o); err == nil || !strings.Contains(err.Error(), "want the http or https URL") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

// Answers that never end, redirects and packed ones are not followed.
func TestClientBounds(t *testing.T) {
	l, url := newLiar(t)
	r := dial(t, url, l.cast)
	endless := func(status int) func(w http.ResponseWriter, _ *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			for b := make([]byte, 1<<16); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}
	}
	for status, want := range map[int]string{200: "more than", 400: "more than"} {
		l.answer = endless(status)
		if _, err := r.Entry(t.Context(), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d without end: got %v, want %q", status, err, want)
		}
	}
	l.answer = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	}
	if _, err := r.Entry(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: got %v", err)
	}
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write(make([]byte, 100<<20))
		z.Close()
	}
	if _, err := r.Entry(t.Context(), 0); err == nil { // 100 MB of zeros are 100 KB packed: more than an entry has
		t.Error("a packed answer was unpacked")
	}
}

// A log that is busy is asked again; a refusal is not.
func TestClientRetries(t *testing.T) {
	l, url := newLiar(t)
	r := dial(t, url, l.cast)
	var asked atomic.Int32
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		w.Write(receiptOf(l.log, "bench", l.entry))
	}
	if _, err := r.Add(t.Context(), l.entry); err != nil || asked.Load() != 3 {
		t.Errorf("got %v after %d requests, want none after 3", err, asked.Load())
	}
	asked.Store(0)
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/concise-problem-details+cbor")
		w.WriteHeader(http.StatusConflict)
		w.Write(must(dcbor.Marshal(map[any]any{-1: "final-again", -2: "text", "tag:cleanrun.dev#refusal": map[string]string{"got": "a", "want": "b", "hint": "c"}})))
	}
	_, err := r.Add(t.Context(), l.entry)
	if got, ok := errors.AsType[*entry.Refusal](err); !ok || *got != (entry.Refusal{ID: entry.FinalAgain, Got: "a", Want: "b", Hint: "c"}) || asked.Load() != 1 {
		t.Errorf("got %v after %d requests, want the refusal after one", err, asked.Load())
	}
	asked.Store(0)
	l.answer = func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}
	if _, err := r.Entry(t.Context(), 0); !errors.Is(err, registry.ErrUnavailable) || asked.Load() < 4 {
		t.Errorf("got %v after %d requests, want ErrUnavailable after 4", err, asked.Load())
	}
}

// Proofs that are about something else than was asked for are refused.
func TestClientChecksProofs(t *testing.T) {
	l, url := newLiar(t)
	r := dial(t, url, l.cast)
	leaf := receipt.LeafHash(l.entry)
	type answer struct {
		Checkpoint  []byte       `cbor:"1,keyasint"`
		Inclusion   [][][32]byte `cbor:"2,keyasint"`
		Consistency [][]byte     `cbor:"3,keyasint"`
		Receipt     []byte       `cbor:"4,keyasint"`
	}
	honest := func() answer {
		return answer{must(proof.SignCheckpoint(l.log, proof.Checkpoint{Origin: l.log.public.Name(), Size: 1, Root: leaf})), [][][32]byte{{}},
			[][]byte{must(receipt.SignConsistency(l.log, receipt.Consistency{Older: 1, Newer: 1}, leaf))}, receiptOf(l.log, "bench", l.entry)}
	}
	for name, change := range map[string]func(*answer){
		"": func(*answer) {},
		"another log's note": func(a *answer) {
			a.Checkpoint = must(proof.SignCheckpoint(l.other, proof.Checkpoint{Origin: l.other.public.Name(), Size: 1, Root: leaf}))
		},
		"an unsigned note":     func(a *answer) { a.Checkpoint = bytes.Replace(a.Checkpoint, []byte("\n1\n"), []byte("\n2\n"), 1) },
		"no path":              func(a *answer) { a.Inclusion = nil },
		"two paths":            func(a *answer) { a.Inclusion = append(a.Inclusion, nil) },
		"a long path":          func(a *answer) { a.Inclusion[0] = make([][32]byte, 65) },
		"no receipt":           func(a *answer) { a.Receipt = nil },
		"no consistency":       func(a *answer) { a.Consistency = nil },
		"inclusion for both":   func(a *answer) { a.Consistency[0] = a.Receipt },
		"consistency for both": func(a *answer) { a.Receipt = a.Consistency[0] },
		"consistency of others": func(a *answer) {
			a.Consistency[0] = must(receipt.SignConsistency(l.log, receipt.Consistency{Older: 2, Newer: 2}, leaf))
		},
		"a tree without it": func(a *answer) {
			a.Checkpoint = must(proof.SignCheckpoint(l.log, proof.Checkpoint{Origin: l.log.public.Name(), Size: 0, Root: sum("")}))
		},
	} {
		a := honest()
		change(&a)
		l.says(200, must(dcbor.Marshal(&a)))
		if _, err := r.Proofs(t.Context(), []uint64{0}, []uint64{1}); (err == nil) != (name == "") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	l.says(200, append(must(dcbor.Marshal(honest())), 0))
	if _, err := r.Proofs(t.Context(), []uint64{0}, []uint64{1}); err == nil {
		t.Error("bytes after the answer were taken")
	}
	if _, err := r.Proofs(t.Context(), make([]uint64, registry.MaxIndexes+1), nil); err == nil {
		t.Error("too many indexes were asked for")
	}
}
