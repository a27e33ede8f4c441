package monitor_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/tessera/api/layout"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/monitor"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

type signer struct {
	public  receipt.PublicKey
	private ed25519.PrivateKey
}

func newSigner(name string) *signer {
	seed := sha256.Sum256([]byte(name))
	k := ed25519.NewKeyFromSeed(seed[:])
	return &signer{must(receipt.NewPublicKey(name, k.Public())), k}
}

func (s *signer) Public() receipt.PublicKey     { return s.public }
func (s *signer) Sign(b []byte) ([]byte, error) { return ed25519.Sign(s.private, b), nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sum(text string) [32]byte { return sha256.Sum256([]byte(text)) }

var logKey, owner, runner, other = newSigner("log.example/1"), newSigner("owner.example"), newSigner("runner.example"), newSigner("other.example")

func seal(text string) []byte {
	return must(entry.SignSeal(owner, entry.Seal{Subject: "bench", Of: receipt.KindBenchmark, Digest: sum(text)}))
}

func runID(n int) (run [16]byte) {
	s := sha256.Sum256(fmt.Appendf(nil, "run %d", n))
	return [16]byte(s[:16])
}

func register(n int, change ...func(*entry.Register)) []byte {
	r := entry.Register{Run: runID(n), Benchmark: "bench", Task: "task", Trial: uint32(n), Attempt: 1, Seal: sum("part"), Sealed: sum("head"),
		Baseline: sum("baseline"), Scope: sum("scope"), Agent: sum("agent"), Model: sum("model"), Recorder: "0.4.0", Start: sum("start")}
	for _, f := range change {
		f(&r)
	}
	return must(entry.SignRegister(runner, r))
}

func attempt(n uint32) func(*entry.Register) {
	return func(r *entry.Register) { r.Trial, r.Attempt = 1, n }
}

func head(n int, size uint64, root string) journal.Head {
	return journal.Head{Run: runID(n), Size: size, Root: sum(root)}
}

func checkpoint(n int, size uint64) []byte {
	return must(entry.SignCheckpoint(runner, head(n, size, fmt.Sprint("root ", size))))
}

func final(n int, size uint64) []byte {
	return must(entry.SignFinal(runner, entry.Final{Head: head(n, size, fmt.Sprint("root ", size)), Outcome: journal.Completed,
		Counts: []journal.OpCount{{Phase: journal.PhaseSetup, Op: journal.OpStart, N: 1}, {Phase: journal.PhaseAgent, Op: journal.OpOpen, N: size - 2}}}))
}

// A memory is a log that shows any entries, and signs any checkpoint.
type memory struct {
	entries [][]byte
	note    []byte
	down    bool
}

// sign publishes a checkpoint of the first n entries.
func (m *memory) sign(n int) { m.note = signed(m.entries[:n]) }

func signed(entries [][]byte) []byte {
	return must(proof.SignCheckpoint(logKey, proof.Checkpoint{Origin: logKey.public.Name(), Size: uint64(len(entries)), Root: root(entries)}))
}

// root is the Merkle tree hash of RFC 9162, section 2.1.1, as it stands there.
func root(entries [][]byte) [32]byte {
	switch n := len(entries); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, entries[0]...))
	default:
		k := 1
		for k*2 < n {
			k *= 2
		}
		l, r := root(entries[:k]), root(entries[k:])
		return sha256.Sum256(slices.Concat([]byte{1}, l[:], r[:]))
	}
}

func (m *memory) Checkpoint(context.Context) ([]byte, error) {
	if m.down {
		return nil, errors.New("test: down")
	}
	return m.note, nil
}

func (m *memory) Get(_ context.Context, path string, _ int64) ([]byte, error) {
	index, width, err := layout.ParseTileIndexPartial(strings.TrimPrefix(path, "tile/entries/"))
	if err != nil {
		return nil, err
	}
	n := 256
	if width > 0 {
		n = int(width)
	}
	if int(index)*256+n > len(m.entries) {
		return nil, fs.ErrNotExist
	}
	var b []byte
	for _, e := range m.entries[int(index)*256 : int(index)*256+n] {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(e))), e...)
	}
	return b, nil
}

func options() monitor.Options {
	return monitor.Options{Log: logKey.public, Admit: registry.Admit([]receipt.PublicKey{owner.public}, []receipt.PublicKey{runner.public}), Wait: time.Hour,
		Now: func() time.Time { return time.Unix(1e9, 0) }}
}

func step(t *testing.T, m *monitor.Monitor) []monitor.Finding {
	t.Helper()
	f, err := m.Step(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// first is a monitor that has looked once.
func first(t *testing.T, source monitor.Source, o monitor.Options) (*monitor.Monitor, []monitor.Finding) {
	t.Helper()
	m, err := monitor.New(source, o)
	if err != nil {
		t.Fatal(err)
	}
	return m, step(t, m)
}
