package attest

import (
	"crypto/sha256"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// An Attestation is what Build made: the statement to sign and what it rests on.
type Attestation struct {
	Bytes      []byte // JCS bytes of Statement
	Statement  *Statement
	Derivation *Derivation
	Evidence   *Evidence
}

// A Refusal is why a run cannot be attested at all. Nothing was signed.
type Refusal struct {
	ID   string // closed list in spec/statement.md
	Got  string
	Want string
	Hint string // what to do next
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("cannot attest (%s): got %s, want %s", r.ID, r.Got, r.Want)
}

// Build derives the statement of a run. It is pure: the same bytes in give the
// same bytes out.
//
// sealed is the file task.sealed, and set the payload in it, with the owner's
// signature already verified. evidence is the pack that the scanner wrote. score
// may be nil. An error is a *Refusal if the run as such cannot be attested, and
// an *EvidenceError if the pack is malformed.
func Build(set *contraband.Set, sealed, evidence []byte, score *Score) (*Attestation, error) {
	ev, err := ReadEvidence(evidence)
	if err != nil {
		return nil, err
	}
	seal := sha256.Sum256(sealed)
	if err := Bind(set, seal, ev); err != nil {
		return nil, err
	}
	d := Derive(set, ev)
	s, err := Compose(set, seal, ev, sha256.Sum256(evidence), d, score)
	if err != nil {
		return nil, err
	}
	data, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	return &Attestation{Bytes: data, Statement: s, Derivation: d, Evidence: ev}, nil
}
