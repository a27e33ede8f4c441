package verify_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// signer holds an Ed25519 key made from its name.
type signer struct {
	public receipt.PublicKey
	key    ed25519.PrivateKey
}

func newSigner(name string) signer { return namedSigner(name, name) }

// namedSigner separates the name from what the key is made from.
func namedSigner(name, seed string) signer {
	sum := sha256.Sum256([]byte(seed))
	key := ed25519.NewKeyFromSeed(sum[:])
	public, err := receipt.NewPublicKey(name, key.Public())
	if err != nil {
		panic(err) // the names in tests are good ones
	}
	return signer{public, key}
}

func (s signer) Public() receipt.PublicKey           { return s.public }
func (s signer) Sign(message []byte) ([]byte, error) { return ed25519.Sign(s.key, message), nil }

// now is the time that tests verify at.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// kit makes bundles. Its hooks break one thing each.
type kit struct {
	runner, owner, second signer
	groups                []fixture.Group    // fixture.Groups if nil
	record                func(*fixture.Run) // what the agent does
	set                   func(*contraband.Set)
	start                 func(*journal.Start)
	open                  bool
	score                 *attest.Score
	openings              func(*fixture.Run, *fixture.Pack)
	pack                  func(*fixture.Pack)     // before the statement
	statement             func(*attest.Statement) // before signing
	bundle                func(b *receipt.Bundle) // at the end
	sub                   func(run string) string // of the receipt
	two                   bool                    // with receipt2.cose
	enveloped             *signer                 // signs the envelope instead of runner
	sealDigest            *[32]byte               // that the start row binds
	sealedSub             string                  // of task.sealed
	sealedBy              *signer                 // signs task.sealed instead of owner
	head                  func(*contraband.Head)  // task.sealed is a part of a benchmark of five; breaks its head
	part                  func(*receipt.Part)     // breaks that part
	digest                func(*fixture.Run)      //
	attestWith            func(*contraband.Set)   // changes the set after the run was recorded
	logging               *fixture.Logging        // the run is logged
	took                  uint64                  // seconds between the first checkpoints of the log
}

func newKit() *kit {
	return &kit{
		runner: newSigner("evals.example/runner"), owner: newSigner("bench.example/owner"), second: newSigner("evals.example/second"),
		record: honest,
	}
}

func honest(r *fixture.Run) {
	r.Argv(true, fixture.Content{Size: 40})
	r.Read("/work/a", fixture.Content{Filler: 8})
	r.Stdin(fixture.Content{Filler: 1})
	r.Write("/work/b", fixture.Content{Filler: 4})
}

func cheat(r *fixture.Run) {
	honest(r)
	r.Read("/work/copy", fixture.Content{Items: fixture.Names("f", 12)})
	r.Read("/hidden/solution", fixture.Content{Items: []string{"file-raw"}})
}

// trace is an excerpt below the limit.
func trace(r *fixture.Run) {
	honest(r)
	r.Read("/work/excerpt", fixture.Content{Items: []string{"f2"}})
}

// makePart puts the set among four others.
func (k *kit) makePart(owner signer, set *contraband.Set, payload []byte) ([]byte, error) {
	hash := rfc6962.DefaultHasher
	leaf := [][]byte{hash.HashLeaf([]byte("a")), hash.HashLeaf([]byte("b")), hash.HashLeaf(payload), hash.HashLeaf([]byte("d")), hash.HashLeaf([]byte("e"))}
	left, right := hash.HashChildren(leaf[0], leaf[1]), hash.HashChildren(leaf[2], leaf[3])
	root := hash.HashChildren(hash.HashChildren(left, right), leaf[4])
	head := contraband.Head{Version: contraband.BenchmarkVersion, Benchmark: set.Benchmark, Period: set.Period, Tasks: 5, Root: [32]byte(root), Weak: 1, Revision: "v7"}
	k.head(&head)
	data, err := head.Marshal()
	if err != nil {
		return nil, err
	}
	sub := head.Benchmark
	if k.sealedSub != "" {
		sub = k.sealedSub
	}
	signed, err := receipt.Sign1(receipt.KindBenchmark, owner, sub, data)
	if err != nil {
		return nil, err
	}
	p := &receipt.Part{Head: signed, Index: 2, Path: [][32]byte{[32]byte(leaf[3]), [32]byte(left), [32]byte(leaf[4])}, Set: payload}
	if k.part != nil {
		k.part(p)
	}
	return receipt.FormatPart(p)
}

func (k *kit) make(t testing.TB) []byte {
	t.Helper()
	groups := k.groups
	if groups == nil {
		groups = fixture.Groups()
	}
	set, err := fixture.Set(groups, func(s *contraband.Set) {
		s.Channels = []contraband.Channel{{Name: "stdin", Role: "model"}}
		s.Uncovered = []contraband.Count{{Kind: contraband.KindTest, N: 2}}
		if k.set != nil {
			k.set(s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := set.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	owner := k.owner
	if k.sealedBy != nil {
		owner = *k.sealedBy
	}
	sealedSub := set.Benchmark + "/" + set.Task
	if k.sealedSub != "" {
		sealedSub = k.sealedSub
	}
	sealed, err := receipt.Sign1(receipt.KindSealedSet, owner, sealedSub, payload)
	if k.head != nil {
		sealed, err = k.makePart(owner, set, payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	seal := sha256.Sum256(sealed)
	bound := seal
	if k.sealDigest != nil {
		bound = *k.sealDigest
	}
	start := k.start
	if k.logging != nil {
		start = func(s *journal.Start) {
			if k.start != nil {
				k.start(s)
			}
			k.logging.Registered(s, sealed)
		}
	}
	r := fixture.NewRun(set, bound, start)
	if k.digest != nil {
		k.digest(r)
	}
	r.Control()
	r.Phase = journal.PhaseAgent
	k.record(r)
	if !k.open {
		r.Close(journal.Final{})
	}
	pack, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if k.logging != nil {
		k.logging.Ended(pack, k.took)
	}
	if k.openings != nil {
		k.openings(r, pack)
	}
	good := pack.Bytes()
	if k.attestWith != nil {
		k.attestWith(set)
	}
	s := k.compose(t, set, seal, good)
	if k.pack != nil {
		// The attacker signs a statement that fits the changed pack.
		k.pack(pack)
		good = pack.Bytes()
		sum := sha256.Sum256(good)
		s.Predicate.Evidence.SHA256 = hex.EncodeToString(sum[:])
	}
	if k.statement != nil {
		k.statement(s)
	}
	data, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	sub := s.Predicate.Run.ID
	if k.sub != nil {
		sub = k.sub(sub)
	}
	b := &receipt.Bundle{Sealed: sealed, Evidence: good}
	if b.Receipt, err = receipt.Sign1(receipt.KindReceipt, k.runner, sub, data); err != nil {
		t.Fatal(err)
	}
	enveloped := k.runner
	if k.enveloped != nil {
		enveloped = *k.enveloped
	}
	if b.Statement, err = receipt.SignDSSE(enveloped, data); err != nil {
		t.Fatal(err)
	}
	if k.two {
		if b.Receipt2, err = receipt.Sign1(receipt.KindReceipt, k.second, sub, data); err != nil {
			t.Fatal(err)
		}
	}
	if k.logging != nil {
		k.logging.Attested(b)
	}
	if k.bundle != nil {
		k.bundle(b)
	}
	out, err := receipt.FormatBundle(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compose is what an attester that does not look at Bind would sign.
func (k *kit) compose(t testing.TB, set *contraband.Set, seal [32]byte, pack []byte) *attest.Statement {
	t.Helper()
	ev, err := attest.ReadEvidence(pack)
	if err != nil {
		t.Fatal(err)
	}
	s, err := attest.Compose(set, seal, ev, sha256.Sum256(pack), attest.Derive(set, ev), k.score)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// policy pins the kit's owner and runner.
func (k *kit) policy() *verify.Policy {
	return &verify.Policy{Owners: []receipt.PublicKey{k.owner.public}, Runners: []receipt.PublicKey{k.runner.public}}
}

// result is exit code and failed check of a report.
type result struct {
	exit  int
	check string
}

func of(r *verify.Report) result {
	got := result{exit: r.Exit}
	if c := r.FailedCheck(); c != nil {
		got.check = c.ID
	}
	return got
}
