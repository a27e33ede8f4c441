package entry

import (
	"encoding/hex"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// ID says why a log refuses an entry. The list is closed: spec/log.md, "What a
// log refuses".
type ID string

const (
	SealMissing            ID = "seal-missing"            // a REGISTER whose SEAL is not in the log
	RegisterAgain          ID = "register-again"          // a second REGISTER of an attempt or of a run id
	CheckpointUnregistered ID = "checkpoint-unregistered" // a CHECKPOINT of a run that its issuer has not registered
	CheckpointBack         ID = "checkpoint-back"         // a CHECKPOINT that is not larger than the run's last
	FinalUnregistered      ID = "final-unregistered"      // a FINAL of a run that its issuer has not registered
	FinalShort             ID = "final-short"             // a FINAL smaller than the run's last CHECKPOINT
	FinalHead              ID = "final-head"              // a FINAL of the last CHECKPOINT's size with another root
	FinalAgain             ID = "final-again"             // a second FINAL of a run
	AfterFinal             ID = "after-final"             // a CHECKPOINT of a run that has its FINAL
	AttestUnfinished       ID = "attest-unfinished"       // an ATTEST of a run without FINAL
	AttestHead             ID = "attest-head"             // an ATTEST whose journal head is not that of the run's FINAL
	NotAnEntry             ID = "not-an-entry"            // no entry of the table
	UnknownIssuer          ID = "unknown-issuer"          // a key that the log does not admit for this kind
	BadSignature           ID = "bad-signature"           // a signature that does not verify
)

// IDs lists all of them in the order of spec/log.md.
var IDs = []ID{SealMissing, RegisterAgain, CheckpointUnregistered, CheckpointBack, FinalUnregistered, FinalShort, FinalHead, FinalAgain,
	AfterFinal, AttestUnfinished, AttestHead, NotAnEntry, UnknownIssuer, BadSignature}

// A Refusal is the reason why a log does not take an entry.
type Refusal struct {
	ID        ID
	Got, Want string
	Hint      string // what to do next; may be ""
}

// Error gives the facts in one line. The hint is left to the caller to print.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: got %s, want %s", r.ID, r.Got, r.Want)
}

// Unknown is the refusal of an entry whose issuer the log does not admit for the
// role of its kind.
func Unknown(u *Unverified) *Refusal {
	return &Refusal{UnknownIssuer, fmt.Sprintf("the %v of the key %s, which calls itself %q", u.kind, receipt.Fingerprint(u.said.Kid), u.said.Issuer),
		fmt.Sprintf("one by a key that the log admits as %v", u.kind.Role()), "ask the log's operator to admit the key"}
}

func hexRun(run [16]byte) string { return hex.EncodeToString(run[:]) }
