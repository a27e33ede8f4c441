//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// servedLog is a log in a folder with its keys and its policy, and the entries that
// tests add to it.
type servedLog struct {
	dir           string
	owner, runner receipt.Signer
	log           receipt.PublicKey
}

func newServedLog(t *testing.T) *servedLog {
	t.Helper()
	l := &servedLog{dir: t.TempDir()}
	var policy strings.Builder
	for _, k := range []struct {
		role keys.Role
		to   *receipt.Signer
	}{{keys.Owner, &l.owner}, {keys.Runner, &l.runner}, {keys.Log, nil}} {
		path := l.path(string(k.role) + ".key")
		public, err := keys.Generate(path, string(k.role)+".example", receipt.Ed25519)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&policy, keys.PolicyLine(k.role, public))
		if k.to == nil {
			l.log = public
		} else if *k.to, err = keys.Load(path); err != nil {
			t.Fatal(err)
		}
	}
	policy.WriteString("quorum none\n")
	if err := os.WriteFile(l.path("policy"), []byte(policy.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := l.command("log", "init", "-dir", l.path("log"), "-key", l.path("log.key")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return l
}

func (l *servedLog) path(name string) string { return filepath.Join(l.dir, name) }

// command is the real main with these arguments.
func (l *servedLog) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Args = append([]string{stageTest}, args...)
	return cmd
}

// serve starts a server and waits until it takes requests.
func (l *servedLog) serve(t *testing.T) (*exec.Cmd, *registry.Client) {
	t.Helper()
	url := l.path("url")
	os.Remove(url)
	cmd := l.command("log", "serve", "-dir", l.path("log"), "-key", l.path("log.key"), "-policy", l.path("policy"), "-listen", "127.0.0.1:0", "-url", url)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(url); err == nil {
			c, err := registry.Dial(t.Context(), strings.TrimSpace(string(b)), registry.DialOptions{Key: l.log, HTTP: &http.Transport{MaxIdleConnsPerHost: 64}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return cmd, c
		}
		if time.Now().After(end) {
			t.Fatal("the server does not start")
		}
	}
}

// stop ends a server as a user does.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
}

func (l *servedLog) seal(t testing.TB) []byte {
	b, err := entry.SignSeal(l.owner, entry.Seal{Subject: "bench", Of: receipt.KindBenchmark, Digest: sha256.Sum256(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// register is the REGISTER of trial n.
func (l *servedLog) register(t testing.TB, n int) []byte {
	run := sha256.Sum256(fmt.Appendf(nil, "run %d", n))
	b, err := entry.SignRegister(l.runner, entry.Register{Run: [16]byte(run[:16]), Benchmark: "bench", Task: "task", Trial: uint32(n + 1), Attempt: 1,
		Seal: run, Sealed: sha256.Sum256(nil), Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proveAll asks for the proof of each acknowledged entry and checks it.
func (l *servedLog) proveAll(t *testing.T, r registry.Registry, acknowledged map[uint64][]byte) {
	t.Helper()
	var indexes []uint64
	check := func() {
		p, err := r.Proofs(t.Context(), indexes, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := proof.ParseCheckpoint(p.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		v, err := u.Verify(l.log)
		if err != nil {
			t.Fatal(err)
		}
		for n, i := range indexes {
			if err := proof.Inclusion(i, v.Checkpoint().Size, receipt.LeafHash(acknowledged[i]), p.Inclusion[n], v.Checkpoint().Root); err != nil {
				t.Errorf("entry %d was acknowledged: %v", i, err)
			}
		}
		indexes = indexes[:0]
	}
	for i := range acknowledged {
		if indexes = append(indexes, i); len(indexes) == 1000 {
			check()
		}
	}
	if len(indexes) > 0 {
		check()
	}
}

// fsckTessera asks Tessera's own check about a folder that is in order.
func fsckTessera(t *testing.T, dir string, key receipt.PublicKey) {
	t.Helper()
	v, err := note.NewVerifier(key.String())
	if err != nil {
		t.Fatal(err)
	}
	hash := func(bundle []byte) (hashes [][]byte, err error) {
		var b api.EntryBundle
		if err := b.UnmarshalText(bundle); err != nil {
			return nil, err
		}
		for _, e := range b.Entries {
			hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(e))
		}
		return hashes, nil
	}
	if err := fsck.New(v.Name(), v, client.FileFetcher{Root: dir}, hash, fsck.Opts{N: 2}).Check(t.Context()); err != nil {
		t.Errorf("Tessera's fsck: %v", err)
	}
}

// A server that is killed in the middle of adding has lost nothing that it
// acknowledged, and what it did not acknowledge can be added again.
func TestLogServeKilled(t *testing.T) {
	total := 1000
	if os.Getenv("CLEANRUN_LONG") != "" {
		total = 10_000
	}
	l := newServedLog(t)
	cmd, r := l.serve(t)
	acknowledged := map[uint64][]byte{}
	var mu sync.Mutex
	keep := func(index uint64, statement []byte) int {
		mu.Lock()
		defer mu.Unlock()
		if old := acknowledged[index]; old != nil && !bytes.Equal(old, statement) {
			t.Errorf("index %d was given to two entries", index)
		}
		acknowledged[index] = statement
		return len(acknowledged)
	}
	addAll := func(ctx context.Context, killAt int) {
		var wg sync.WaitGroup
		next := make(chan int)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for range 64 {
			wg.Go(func() {
				for n := range next {
					statement := l.register(t, n)
					logged, err := r.Add(ctx, statement)
					switch {
					case err == nil:
						if keep(logged.Index, statement) == killAt {
							cmd.Process.Kill()
							cancel()
						}
					case ctx.Err() == nil:
						t.Error(err)
						cancel()
					}
				}
			})
		}
		for n := 0; n < total && ctx.Err() == nil; n++ {
			select {
			case next <- n:
			case <-ctx.Done():
			}
		}
		close(next)
		wg.Wait()
	}
	logged, err := r.Add(t.Context(), l.seal(t))
	if err != nil {
		t.Fatal(err)
	}
	keep(logged.Index, l.seal(t))
	addAll(t.Context(), total/2)
	cmd.Wait()
	if len(acknowledged) < total/2 {
		t.Fatalf("got %d entries before the kill, want at least %d", len(acknowledged), total/2)
	}
	cmd, r = l.serve(t)
	l.proveAll(t, r, acknowledged)
	addAll(t.Context(), -1)
	if len(acknowledged) != total+1 {
		t.Errorf("got %d entries, want the SEAL and %d", len(acknowledged), total)
	}
	l.proveAll(t, r, acknowledged)
	r.Close()
	stop(t, cmd)
	if out, err := l.command("log", "check", "-dir", l.path("log"), "-policy", l.path("policy")).CombinedOutput(); err != nil {
		t.Errorf("log check: %v\n%s", err, out)
	}
	fsckTessera(t, l.path("log"), l.log)
}

// Mixed load: adding, proving, reading, wrong requests and clients that hang. Each
// acknowledged entry is proved in the end. Ten minutes with CLEANRUN_LONG.
func TestLogServeLoad(t *testing.T) {
	during := 2 * time.Second
	if os.Getenv("CLEANRUN_LONG") != "" {
		during = 10 * time.Minute
	}
	l := newServedLog(t)
	cmd, r := l.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	url, err := os.ReadFile(l.path("url"))
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSpace(string(url))
	if _, err := r.Add(t.Context(), l.seal(t)); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[uint64][]byte{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() { // a run registers, and its second registration is refused
			for n := w; ctx.Err() == nil; n += 16 {
				statement := l.register(t, n)
				logged, err := r.Add(t.Context(), statement)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged[logged.Index] = statement
				mu.Unlock()
				if _, err := r.Proofs(t.Context(), []uint64{logged.Index}, []uint64{logged.Index + 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	plain := &http.Client{Transport: &http.Transport{}}
	wrong := []func() int{
		func() int {
			a, err := plain.Post(base+"/entries", "application/cose", bytes.NewReader(make([]byte, 70_000)))
			return status(a, err)
		},
		func() int {
			a, err := plain.Post(base+"/entries", "application/cose", strings.NewReader("no entry"))
			return status(a, err)
		},
		func() int { a, err := plain.Get(base + "/tile/entries/999"); return status(a, err) },
		func() int { a, err := plain.Get(base + "/cleanrun/v1/proofs?index=x"); return status(a, err) },
	}
	for i, f := range wrong {
		want := []int{413, 400, 404, 400}[i]
		wg.Go(func() {
			for ctx.Err() == nil {
				if got := f(); got != want {
					t.Errorf("wrong request %d: got status %d, want %d", i, got, want)
					return
				}
			}
		})
	}
	var hanging []net.Conn
	for range 20 { // they send half a request and nothing more
		n, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		hanging = append(hanging, n)
		io.WriteString(n, "POST /entries HTTP/1.1\r\nHost: x\r\nContent-Type: application/cose\r\nContent-Length: 1000\r\n\r\nx")
	}
	wg.Wait()
	for _, n := range hanging {
		n.Close()
	}
	if len(acknowledged) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	l.proveAll(t, r, acknowledged)
	t.Logf("%d entries", len(acknowledged))
	r.Close()
	plain.CloseIdleConnections()
	stop(t, cmd)
	if out, err := l.command("log", "check", "-dir", l.path("log"), "-policy", l.path("policy")).CombinedOutput(); err != nil {
		t.Errorf("log check: %v\n%s", err, out)
	}
}

// status is that of an answer, or 0.
func status(a *http.Response, err error) int {
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, a.Body)
	a.Body.Close()
	return a.StatusCode
}
