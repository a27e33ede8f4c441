package witness_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

var clock = time.Unix(1_800_000_000, 0)

func newServer(t testing.TB, dir string, c *proof.Cosigner, logs ...receipt.PublicKey) *witness.Server {
	t.Helper()
	s, err := witness.NewServer(witness.Options{Dir: dir, Keys: []*proof.Cosigner{c}, Logs: logs, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request is the body of add-checkpoint, put together by hand.
func request(old int, path [][32]byte, note []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", old)
	for _, h := range path {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(h[:]))
	}
	return b.String() + "\n" + string(note)
}

// post returns the status, the content type and the body.
func post(h http.Handler, body string) (int, string, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/add-checkpoint", strings.NewReader(body)))
	return w.Code, w.Header().Get("Content-Type"), w.Body.String()
}

// cosigned checks that an answer is a cosignature of the note by the key.
func cosigned(t *testing.T, note []byte, answer string, log receipt.PublicKey, key proof.WitnessKey) {
	t.Helper()
	all, err := proof.AddSignatures(note, []byte(answer))
	if err != nil {
		t.Fatalf("%v: %q", err, answer)
	}
	u, err := proof.ParseCheckpoint(all)
	if err != nil {
		t.Fatal(err)
	}
	v, err := u.Verify(log)
	if err != nil {
		t.Fatal(err)
	}
	if at, ok, err := key.Verify(v); !ok || err != nil || at != uint64(clock.Unix()) {
		t.Errorf("got time %d, %v, %v, want a cosignature of %d", at, ok, err, clock.Unix())
	}
}

func TestServerFollowsLog(t *testing.T) {
	l, c, dir := newTree(t, 300), newCosigner(t, "witness.example/1"), filepath.Join(t.TempDir(), "w")
	s := newServer(t, dir, c, l.Key())
	last := 0
	for _, size := range []int{0, 0, 1, 2, 3, 7, 8, 8, 100, 256, 300} {
		body := request(last, nil, l.note(t, size))
		if 0 < last && last < size {
			body = request(last, subproof(last, l.entries[:size], true), l.note(t, size))
		}
		status, _, answer := post(s, body)
		if status != 200 {
			t.Fatalf("from size %d to %d: got %d %s", last, size, status, answer)
		}
		cosigned(t, l.note(t, size), answer, l.Key(), c.Key())
		last = size
		if size == 8 || size == 256 { // it remembers
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = newServer(t, dir, c, l.Key())
		}
	}
}

// One thing is wrong with each request. Nothing is cosigned, and the witness is where it was.
func TestServerRefuses(t *testing.T) {
	l, c, dir := newTree(t, 64), newCosigner(t, "witness.example/1"), filepath.Join(t.TempDir(), "w")
	s := newServer(t, dir, c, l.Key())
	if status, _, answer := post(s, request(0, nil, l.note(t, 20))); status != 200 {
		t.Fatalf("control: got %d %s", status, answer)
	}
	good := subproof(20, l.entries[:40], true)
	other := newTree(t, 64) // same name, other key
	unknown := &tree{key: newKey(t, "other.example/log"), entries: l.entries}
	fork := l.fork(10, 64)
	note40 := l.note(t, 40)
	changed := bytes.Replace(note40, []byte("\n40\n"), []byte("\n41\n"), 1)
	long := make([][32]byte, 64)
	for _, c := range []struct {
		name, body string
		status     int
		size       bool
		answer     string
	}{
		{"unknown log", request(0, nil, unknown.note(t, 40)), 404, false, `got a checkpoint of "other.example/log"`},
		{"another key of the same name", request(20, good, other.note(t, 40)), 403, false, "unsigned: "},
		{"a signature over another text", request(20, good, changed), 403, false, "signature: "},
		{"old size after the checkpoint", request(41, nil, note40), 400, false, "got old size 41 and a checkpoint of size 40"},
		{"an old size that is too small", request(10, subproof(10, l.entries[:40], true), note40), 409, true, "20\n"},
		{"no old size", request(0, nil, note40), 409, true, "20\n"},
		{"an old size that is too large", request(30, subproof(30, l.entries[:40], true), note40), 409, true, "20\n"},
		{"a smaller tree", request(10, nil, l.note(t, 10)), 409, true, "20\n"},
		{"no proof", request(20, nil, note40), 422, false, "from size 20 to 40: path: "},
		{"a proof of another size", request(20, subproof(21, l.entries[:40], true), note40), 422, false, "from size 20 to 40: "},
		{"a hash too many", request(20, append(good[:len(good):len(good)], good[0]), note40), 422, false, "from size 20 to 40: path: "},
		{"another tree", request(20, subproof(20, fork.entries[:40], true), fork.note(t, 40)), 422, false, "from size 20 to 40: root: "},
		{"another tree of the same size", request(20, nil, fork.note(t, 20)), 409, false, "the log shows two trees"},
		{"a proof of nothing", request(20, good, l.note(t, 20)), 422, false, "want none"},
		{"64 hashes", request(20, long, note40), 400, false, "at most 63"},
		{"a leading zero", strings.Replace(request(20, good, note40), "old 20", "old 020", 1), 400, false, "another spelling"},
		{"a sign", strings.Replace(request(20, good, note40), "old 20", "old +20", 1), 400, false, "as first line"},
		{"two blanks", strings.Replace(request(20, good, note40), "old 20", "old  20", 1), 400, false, "as first line"},
		{"no old line", strings.TrimPrefix(request(20, good, note40), "old 20\n"), 400, false, "as first line"},
		{"carriage returns", strings.ReplaceAll(request(20, good, note40), "\n", "\r\n"), 400, false, "no empty line"},
		{"short base64", strings.Replace(request(20, good, note40), "=\n", "\n", 1), 400, false, "got proof line"},
		{"no checkpoint", "old 20\n\n", 400, false, "note: "},
		{"nothing", "", 400, false, "no empty line"},
		{"a request without end", request(20, good, note40) + strings.Repeat("x", 1<<17), 413, false, "want at most that"},
	} {
		status, kind, answer := post(s, c.body)
		if status != c.status || !strings.Contains(answer, c.answer) || c.size != (kind == "text/x.tlog.size") || strings.Contains(answer, "—") {
			t.Errorf("%s: got %d (%s) %q, want %d and %q", c.name, status, kind, answer, c.status, c.answer)
		}
	}
	if status, _, answer := post(s, request(20, good, note40)); status != 200 {
		t.Errorf("control: got %d %s", status, answer)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/add-checkpoint", nil))
	if w.Code != 405 {
		t.Errorf("GET: got %d, want 405", w.Code)
	}
}

// A log that signs two trees of one size gets one cosignature, and both of its
// checkpoints are evidence.
func TestRT78_WitnessRefusesSecondTree(t *testing.T) {
	l, c := newTree(t, 20), newCosigner(t, "witness.example/1")
	var evidence [][2]string
	s, err := witness.NewServer(witness.Options{Dir: t.TempDir(), Keys: []*proof.Cosigner{c}, Logs: []receipt.PublicKey{l.Key()},
		Conflict: func(a, b []byte) { evidence = append(evidence, [2]string{string(a), string(b)}) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mine, theirs := l.note(t, 20), l.fork(19, 20).note(t, 20)
	if status, _, answer := post(s, request(0, nil, mine)); status != 200 {
		t.Fatalf("control: got %d %s", status, answer)
	}
	if status, _, answer := post(s, request(20, nil, mine)); status != 200 {
		t.Fatalf("control: the same tree again: got %d %s", status, answer)
	}
	status, kind, answer := post(s, request(20, nil, theirs))
	if status != 409 || kind == "text/x.tlog.size" || !strings.Contains(answer, "the log shows two trees") {
		t.Errorf("got %d (%s) %s, want 409", status, kind, answer)
	}
	if len(evidence) != 1 || evidence[0] != [2]string{string(mine), string(theirs)} {
		t.Errorf("got evidence %q, want both checkpoints", evidence)
	}
}

// Of many requests that lead to different trees only those of one tree are
// cosigned: checking and remembering is one step.
func TestServerRace(t *testing.T) {
	l, c := newTree(t, 8), newCosigner(t, "witness.example/1")
	s := newServer(t, t.TempDir(), c, l.Key())
	if status, _, answer := post(s, request(0, nil, l.note(t, 8))); status != 200 {
		t.Fatalf("got %d %s", status, answer)
	}
	var mu sync.Mutex
	signed := 0
	var wg sync.WaitGroup
	for i := range 16 {
		// Sizes differ, and no tree is the beginning of another.
		f := l.fork(8, 9+i)
		f.entries[8] = fmt.Sprintf("tree %d", i)
		body := request(8, subproof(8, f.entries, true), f.note(t, 9+i))
		wg.Go(func() {
			if status, _, _ := post(s, body); status == 200 {
				mu.Lock()
				signed++
				mu.Unlock()
			} else if status != 409 {
				t.Errorf("got %d, want 409", status)
			}
		})
	}
	wg.Wait()
	if signed != 1 {
		t.Errorf("got %d trees cosigned, want 1", signed)
	}
}

// What cannot be kept is not cosigned.
func TestServerCannotKeep(t *testing.T) {
	l, c, dir := newTree(t, 9), newCosigner(t, "witness.example/1"), filepath.Join(t.TempDir(), "w")
	s := newServer(t, dir, c, l.Key())
	if status, _, answer := post(s, request(0, nil, l.note(t, 8))); status != 200 {
		t.Fatalf("control: got %d %s", status, answer)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Skipf("an open folder cannot be moved here: %v", err)
	}
	next := request(8, subproof(8, l.entries, true), l.note(t, 9))
	if status, _, answer := post(s, next); status != 503 || !strings.Contains(answer, "not cosigned") {
		t.Errorf("got %d %s, want 503", status, answer)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if status, _, answer := post(s, next); status != 200 {
		t.Errorf("once it can be kept: got %d %s", status, answer)
	}
}

// A witness does not start with a memory that it cannot read.
func TestServerMemory(t *testing.T) {
	l, c, dir := newTree(t, 9), newCosigner(t, "witness.example/1"), filepath.Join(t.TempDir(), "w")
	s := newServer(t, dir, c, l.Key())
	if status, _, answer := post(s, request(0, nil, l.note(t, 8))); status != 200 {
		t.Fatalf("got %d %s", status, answer)
	}
	open := func(logs ...receipt.PublicKey) error {
		s, err := witness.NewServer(witness.Options{Dir: dir, Keys: []*proof.Cosigner{c}, Logs: logs})
		if err == nil {
			s.Close()
		}
		return err
	}
	if err := open(l.Key()); !errors.Is(err, tlog.ErrInUse) {
		t.Errorf("a second process: got %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(l.Key()); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := open(newTree(t, 0).Key()); err == nil || !strings.Contains(err.Error(), "cosigned last of "+origin) {
		t.Errorf("another key of the log: got %v", err)
	}
	if err := open(l.Key(), l.Key()); err == nil {
		t.Error("one log twice was taken")
	}
	if err := open(); err == nil {
		t.Error("no log was taken")
	}
	files, err := filepath.Glob(filepath.Join(dir, "[0-9a-f]*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got files %v, %v, want one", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "cut": good[:len(good)-5], "another size": bytes.Replace(good, []byte("\n8\n"), []byte("\n7\n"), 1)} {
		if err := os.WriteFile(files[0], bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(l.Key()); err == nil || !strings.Contains(err.Error(), "restore the file") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, files[0]); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	if err := open(l.Key()); err == nil {
		t.Error("a link in the place of the memory was taken")
	}
}

// The body may come slowly and never end; it is read up to a bound.
func TestServerBoundsBody(t *testing.T) {
	l, c := newTree(t, 1), newCosigner(t, "witness.example/1")
	s := newServer(t, t.TempDir(), c, l.Key())
	read := 0
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/add-checkpoint", io.TeeReader(endless{}, counter{&read})))
	if w.Code != 413 || read > 1<<18 {
		t.Errorf("got %d after %d bytes, want 413 soon", w.Code, read)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'o'
	}
	return len(p), nil
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }
