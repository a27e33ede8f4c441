// Package entry has the entries of a transparency log of runs, and the Ledger
// that says which of them contradict each other. spec/log.md is the format.
//
// Limits first. An entry is what its issuer says: that a journal has this size
// and root, not that the journal is honest. A log shows what was registered, and
// a run that nobody registered is in no log. Names of agents, models, benchmarks
// and tasks are compared byte by byte: two that look alike are two. The package
// knows no tree, no checkpoint of a log and no proof.
//
// Parse gives an Unverified, which shows who is said to have signed what. Verify
// with a key that the log admits gives an Entry: only that shows a payload.
//
//	u, err := entry.Parse(data)
//	key, ok := admitted(u.Issuer(), u.Kind().Role())
//	e, err := u.Verify(key)
//	err = ledger.Check(e)
//	ledger.Apply(e, index)
//
// The package is pure: bytes and values, no clock, no file, no network.
package entry

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// MaxSize is the largest entry in bytes: c2sp.org/tlog-tiles puts a 16-bit
// length before each.
const MaxSize = receipt.MaxEntry

// Kind of an entry: a row of the table in spec/log.md, "Entries".
type Kind uint8

const (
	KindSeal       Kind = iota + 1 // a sealed set or a benchmark's seal exists
	KindRegister                   // a run is about to start
	KindCheckpoint                 // the journal of a run that goes on has this size and root
	KindFinal                      // the journal of a run has ended with this size and root
	KindAttest                     // receipt.cose of a run, as it was signed
	KindSubmit                     // a submission, or its digest
)

var kindNames = [...]string{"", "SEAL", "REGISTER", "CHECKPOINT", "FINAL", "ATTEST", "SUBMIT"}

// String is the entry's name in spec/log.md.
func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Role is what a log admits a key for. A runner that could seal would be judged
// by a set of its own making; so no role includes the other.
type Role uint8

const (
	RoleOwner  Role = iota + 1 // of a benchmark
	RoleRunner                 // of agents
)

// String is the role's name.
func (r Role) String() string {
	switch r {
	case RoleOwner:
		return "owner"
	case RoleRunner:
		return "runner"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Role is that of the keys which may sign entries of the kind.
func (k Kind) Role() Role {
	if k == KindSeal {
		return RoleOwner
	}
	return RoleRunner
}

// kindOf is the entry that a signed object is. A submission is the statement
// itself or a hash envelope over it.
var kindOf = map[receipt.Kind]Kind{
	receipt.KindSeal:       KindSeal,
	receipt.KindRegister:   KindRegister,
	receipt.KindCheckpoint: KindCheckpoint,
	receipt.KindFinal:      KindFinal,
	receipt.KindReceipt:    KindAttest,
	receipt.KindSubmission: KindSubmit,
	receipt.KindSubmit:     KindSubmit,
}

// Unverified is a well-formed entry whose signature nobody has checked.
type Unverified struct {
	kind  Kind
	sign1 *receipt.Unverified
	said  receipt.Unauthenticated
	leaf  [32]byte
	body  body
}

// body is the content of an entry; the part of its kind is set.
type body struct {
	seal     Seal
	register Register
	head     journal.Head // CHECKPOINT
	final    Final
	attest   Attest
	submit   Submit
}

// Parse reads an entry of any kind, by its typ. It accepts what the Sign
// functions of this package, receipt.Sign1 of a receipt and receipt.Sign1 of a
// submission of at most MaxSize bytes write, and no second spelling of it. The
// error is a *Refusal with NotAnEntry.
func Parse(data []byte) (*Unverified, error) {
	if len(data) == 0 || len(data) > MaxSize {
		return nil, &Refusal{NotAnEntry, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", MaxSize), "a submission that is larger is logged by its digest"}
	}
	of, err := receipt.KindOf(data)
	if err != nil {
		return nil, notAnEntry(err)
	}
	kind, ok := kindOf[of]
	if !ok {
		return nil, &Refusal{NotAnEntry, "a " + of.String(), "a SEAL, REGISTER, CHECKPOINT, FINAL, ATTEST or SUBMIT", "a sealed set or a benchmark's seal is logged by a SEAL over its digest"}
	}
	sign1, err := receipt.ParseSign1(of, data)
	if err != nil {
		return nil, notAnEntry(err)
	}
	u := &Unverified{kind: kind, sign1: sign1, said: sign1.Unauthenticated(), leaf: receipt.LeafHash(data)}
	if u.body, err = parseBody(of, u.said); err != nil {
		r := notAnEntry(err)
		r.Got = kind.String() + ": " + r.Got
		return nil, r
	}
	return u, nil
}

func notAnEntry(err error) *Refusal {
	var e *receipt.Error
	var m *malformation
	switch {
	case errors.As(err, &m):
		return &Refusal{NotAnEntry, m.got, m.want, ""}
	case !errors.As(err, &e):
		return &Refusal{NotAnEntry, err.Error(), "an entry as spec/log.md has it", ""}
	}
	return &Refusal{NotAnEntry, fmt.Sprintf("%s: %s", e.Stage, e.Got), e.Want, e.Hint}
}

// Kind of the entry.
func (u *Unverified) Kind() Kind { return u.kind }

// Issuer is the thumbprint of the key that is said to have signed.
func (u *Unverified) Issuer() [32]byte { return u.said.Kid }

// IssuerName is the name of that key. Anybody can have written it.
func (u *Unverified) IssuerName() string { return u.said.Issuer }

// Subject is the sub claim. Anybody can have written it.
func (u *Unverified) Subject() string { return u.said.Subject }

// Verify checks the signature under a key that the log admits for the kind's
// role. The error is a *Refusal with BadSignature.
func (u *Unverified) Verify(key receipt.PublicKey) (*Entry, error) {
	if _, err := u.sign1.Verify(key); err != nil {
		r := notAnEntry(err)
		r.ID = BadSignature
		return nil, r
	}
	return &Entry{kind: u.kind, key: key, subject: u.said.Subject, leaf: u.leaf, body: u.body}, nil
}

// An Entry is what the holder of a key says.
type Entry struct {
	kind    Kind
	key     receipt.PublicKey
	subject string
	leaf    [32]byte
	body    body
}

// Kind of the entry. Of the methods below, that of the same name has its content,
// and the others return zero values.
func (e *Entry) Kind() Kind { return e.kind }

// Key is the key that verified.
func (e *Entry) Key() receipt.PublicKey { return e.key }

// Subject is the sub claim.
func (e *Entry) Subject() string { return e.subject }

// Leaf is the entry's hash in the tree (RFC 9162, section 2.1.1).
func (e *Entry) Leaf() [32]byte { return e.leaf }

// Seal is the content of a SEAL.
func (e *Entry) Seal() Seal { return e.body.seal }

// Register is the content of a REGISTER.
func (e *Entry) Register() Register { return e.body.register }

// Checkpoint is the content of a CHECKPOINT.
func (e *Entry) Checkpoint() journal.Head { return e.body.head }

// Final is the content of a FINAL.
func (e *Entry) Final() Final { return e.body.final }

// Attest is the content of an ATTEST.
func (e *Entry) Attest() Attest { return e.body.attest }

// Submit is the content of a SUBMIT.
func (e *Entry) Submit() Submit { return e.body.submit }

// Run is the id of the run that a REGISTER, CHECKPOINT, FINAL or ATTEST is about;
// zero for the others.
func (e *Entry) Run() [16]byte {
	switch e.kind {
	case KindRegister:
		return e.body.register.Run
	case KindCheckpoint:
		return e.body.head.Run
	case KindFinal:
		return e.body.final.Head.Run
	case KindAttest:
		return e.body.attest.Head.Run
	}
	return [16]byte{}
}

// parseRun reads a run id: 32 lower-case hex digits, not all zero.
func parseRun(text string) (run [16]byte, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(run) || hex.EncodeToString(b) != text || [16]byte(b) == run {
		return run, malformed(fmt.Sprintf("sub %.80q", text), "a run id: 32 lower-case hex digits, not all zero")
	}
	return [16]byte(b), nil
}
