package verify

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// A Session verifies many bundles under one policy. It makes the checks of
// Verify on each, and reads a sealed set that many bundles share once. Its
// methods may be called by several goroutines.
type Session struct {
	policy *Policy
	now    time.Time
	seals  seals
}

// NewSession starts a session. policy and now are those of Verify.
func NewSession(policy *Policy, now time.Time) *Session {
	return &Session{policy: policy, now: now}
}

// A Result is what Session.Check found out about one bundle. After a failed
// check only Exit, Verdict, Failed, Notes and Conflict are set. It holds nothing of the
// bundle's bytes but Receipt.
type Result struct {
	Verdict string // as in Report
	Exit    int    // as in Report
	Failed  *Check // the check that failed, nil if none did
	Open    *Check // the first check that could not be decided, nil if all could
	Notes   []string
	// Conflict holds signed checkpoints that contradict each other, if Failed is
	// about such; see Report.
	Conflict []string

	// Statement is the statement as derived again, which the runner's is equal to;
	// nil if there is no evidence to derive it from.
	Statement *attest.Statement
	Rederived string // RederivedFull or RederivedCompact; "" if Statement is nil
	Receipt   []byte // the member receipt.cose
	Runner    Signatory
	Owner     Signatory
	Seal      Seal
	Assurance Assurance
	Killed    bool // says that it was registered in a log and killed, without proof; never CLEAN
	// Checkpoints are those of a log that the policy pins; nil if it pins none, or
	// the bundle is not logged.
	Checkpoints []Checkpoint
}

// A Checkpoint is one that a pinned log signed.
type Checkpoint struct {
	proof.Checkpoint
	Log  [32]byte // thumbprint of its key
	Note string   // signed note, with cosignatures
}

// A Signatory is the key that a signed file names.
type Signatory struct {
	Name   string   // as the file says
	Key    [32]byte // thumbprint
	Pinned bool     // the policy pins this key, and it signed
}

// Seal is the seal of the benchmark that a sealed set is part of.
type Seal struct {
	Head   [32]byte         // SHA-256 of the signed head; zero if the set was sealed by itself
	Claims *contraband.Head // what the head says, under which the set was proved to be; nil if it was sealed by itself
}

// Check verifies one bundle as Verify does. It first compares the statement as a
// whole with the derived one; only if they differ it is read, to say where.
func (s *Session) Check(bundle []byte) *Result {
	v := s.verifier(bundle, true)
	if v.failed {
		v = s.verifier(bundle, false)
	}
	v.decide()
	r := &Result{Verdict: v.report.Verdict, Exit: v.report.Exit, Failed: v.report.FailedCheck(), Open: v.open, Notes: v.report.Notes, Conflict: v.report.Conflict}
	if v.failed {
		return r
	}
	r.Assurance, r.Checkpoints, r.Killed = *v.assurance(), v.checkpoints(), v.killed
	s.seals.add(&seal{v.sealSum, len(v.bundle.Sealed), v.sealed, v.head, v.set, v.owner})
	if r.Statement, r.Receipt = v.composed, v.bundle.Receipt; r.Statement != nil {
		r.Rederived = v.rederived()
	}
	r.Runner = signatory(v.receipt, v.runner != nil)
	r.Owner = signatory(v.sealed.Signed, v.owner != nil)
	if v.head != nil {
		r.Seal = Seal{sha256.Sum256(v.sealed.Part.Head), v.head}
	}
	return r
}

func (s *Session) verifier(bundle []byte, whole bool) *verifier {
	v := newVerifier(s.policy, s.now)
	v.seals, v.whole = &s.seals, whole
	v.run(bundle)
	return v
}

var errOther = errors.New("the statement is not the derived one")

// compareWhole holds the bytes of the statement to those of the derived one. Equal
// bytes are equal in every field, and in form.
func (v *verifier) compareWhole() error {
	data, err := v.composed.Marshal()
	if err == nil && !bytes.Equal(data, v.receipt.Unauthenticated().Payload) {
		err = errOther
	}
	v.statement = v.composed
	return err
}

// claimedScore is the score that the statement claims: the one thing in it that
// evidence may not give. Of a statement that was not read it is a guess, which
// compareWhole confirms or not: in a text the quotes would be escaped.
func claimedScore(v *verifier) *attest.Score {
	if !v.whole {
		return v.statement.Predicate.Score
	}
	_, rest, ok := bytes.Cut(v.receipt.Unauthenticated().Payload, []byte(`"score":{"source":"asserted","value":"`))
	value, _, ok2 := bytes.Cut(rest, []byte(`"`))
	if !ok || !ok2 {
		return nil
	}
	return &attest.Score{Value: string(value), Source: attest.ScoreAsserted}
}

func signatory(u *receipt.Unverified, pinned bool) Signatory {
	said := u.Unauthenticated()
	return Signatory{said.Issuer, said.Kid, pinned}
}

// A seal is a task.sealed that passed every check of a session's policy.
type seal struct {
	sum    [32]byte // of the file
	size   int
	sealed *receipt.Sealed
	head   *contraband.Head
	set    *contraband.Set
	owner  *receipt.Signed // nil if no policy pins an owner
}

// seals remembers the sets that were read last. A nil one remembers nothing.
type seals struct {
	mu    sync.Mutex
	bySum map[[32]byte]*seal
	order []*seal // as they came in
	bytes int
}

// maxSeals bounds the bytes of the files that are remembered. Bundles come task by
// task, so a few are enough.
const maxSeals = 32 << 20

// get finds the seal of a file of this SHA-256, or returns a copy of the file that
// may be kept.
func (s *seals) get(sum [32]byte, file []byte) (*seal, []byte) {
	if s == nil {
		return nil, file
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.bySum[sum]; ok {
		return e, file
	}
	return nil, bytes.Clone(file)
}

func (s *seals) add(e *seal) {
	if e.size > maxSeals {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySum[e.sum] != nil {
		return
	}
	for s.bytes+e.size > maxSeals {
		old := s.order[0]
		s.order = s.order[1:]
		s.bytes -= old.size
		delete(s.bySum, old.sum)
	}
	if s.bySum == nil {
		s.bySum = map[[32]byte]*seal{}
	}
	s.bySum[e.sum] = e
	s.order = append(s.order, e)
	s.bytes += e.size
}
