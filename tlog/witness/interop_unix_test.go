//go:build unix

package witness_test

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

// Tessera's own client gets cosignatures from our witness, and formats verifies them.
func TestTesseraAsksUs(t *testing.T) {
	skey, vkey, err := note.GenerateKey(nil, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := receipt.ParseVKey(vkey)
	if err != nil {
		t.Fatal(err)
	}
	w := newSite(t, "w.example/1", key)
	u, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := tessera.NewWitness(w.key.Key().String(), u)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := posix.New(t.Context(), posix.Config{Path: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a, shut, r, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).WithCheckpointInterval(100*time.Millisecond).WithBatching(1, time.Millisecond).
		WithWitnesses(tessera.NewWitnessGroup(1, theirs), &tessera.WitnessOptions{Timeout: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	await := tessera.NewPublicationAwaiter(ctx, r.ReadCheckpoint, 20*time.Millisecond)
	cosig, err := fnote.NewVerifierForCosignatureV1(w.key.Key().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []string{"one", "two", "three"} {
		within, done := context.WithTimeout(ctx, time.Minute)
		_, cp, err := await.Await(within, a.Add(within, tessera.NewEntry([]byte(e))))
		done()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := note.Open(cp, note.VerifierList(cosig)); err != nil || len(n.Sigs) != 1 {
			t.Errorf("%s: got %v, want our cosignature in %s", e, err, cp)
		}
		p := policy(t, key, []*site{w}, "quorum w1")
		if _, q := check(t, p, cp, key); !q.Met {
			t.Errorf("%s: got %+v, want the quorum met", e, q)
		}
	}
	if err := shut(ctx); err != nil {
		t.Error(err)
	}
}

// Our client gets cosignatures from the witness of transparency-dev, which is built
// from its module, for a log in a folder.
func TestWeAskTransparencyDev(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "peer")
	trilliantest.Build(t, "peer", "-o", bin, ".")
	l, dir := newKey(t, origin), filepath.Join(t.TempDir(), "log")
	if err := tlog.Init(t.Context(), dir, l); err != nil {
		t.Fatal(err)
	}
	embedded, err := tlog.Open(t.Context(), dir, l)
	if err != nil {
		t.Fatal(err)
	}
	skey, vkey, err := fnoteKey("w.example/theirs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, skey, l.Public().String())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p := &proof.Policy{}
	for _, line := range []string{"log " + l.Public().String(), "witness theirs " + vkey + " http://" + strings.TrimSpace(address), "quorum theirs"} {
		if err := p.Line(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second client learns by a conflict what they have seen
		client, err := witness.NewClient(p, l.Public(), http.DefaultTransport)
		if err != nil {
			t.Fatal(err)
		}
		log := witness.NewCosigned(embedded, client)
		for _, e := range []string{"one", "two", "three"} {
			n, err := log.Add(t.Context(), []byte(e))
			if err != nil {
				t.Fatal(err)
			}
			note, err := log.Wait(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if cp, q := check(t, p, note, l.Public()); cp.Size <= n || !q.Met || q.Time == 0 {
				t.Errorf("got size %d, %+v, want entry %d cosigned", cp.Size, q, n)
			}
		}
		client.Close()
	}
	if err := embedded.Close(); err != nil {
		t.Error(err)
	}
}

// fnoteKey makes a cosignature key pair: the private key as x/mod spells it, the
// verifier key with the type of cosignatures.
func fnoteKey(name string) (skey, vkey string, err error) {
	skey, vkey, err = note.GenerateKey(nil, name)
	if err != nil {
		return "", "", err
	}
	vkey, err = fnote.VKeyToCosignatureV1(vkey)
	return skey, vkey, err
}
