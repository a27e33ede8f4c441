package receipt

import (
	"bytes"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// PartVersion is the first element of a part of a benchmark's seal.
const PartVersion = "cleanrun/part/v1"

// maxPath is how many hashes an inclusion proof can have (RFC 9162, section
// 2.1.3.1): one for each level of a tree of 2^64 leaves.
const maxPath = 64

// A Part is one task's share of a benchmark's seal: the owner's head, and the
// task's sealed set with the proof that the head's root covers it. Nothing in it
// is verified.
type Part struct {
	Head  []byte     // COSE_Sign1 of the head, KindBenchmark
	Index uint64     // place of the set among the head's sets, from 0
	Path  [][32]byte // inclusion proof (RFC 9162, section 2.1.3.1)
	Set   []byte     // payload: the sealed set
}

type partFrame struct {
	_       struct{} `cbor:",toarray"`
	Version string
	Head    []byte
	Index   uint64
	Path    [][32]byte
	Set     []byte
}

// FormatPart returns the only file that holds p.
func FormatPart(p *Part) ([]byte, error) {
	data, err := dcbor.Marshal(partFrame{Version: PartVersion, Head: p.Head, Index: p.Index, Path: p.Path, Set: p.Set})
	if err != nil {
		return nil, fmt.Errorf("part: %w", err)
	}
	if _, err := ParseSealed(data); err != nil {
		return nil, err
	}
	return data, nil
}

// A Sealed is the file task.sealed as found: a set that the owner signed by
// itself, or a part of a benchmark's seal. Nobody has checked the signature, nor
// that the head covers the set.
type Sealed struct {
	Signed *Unverified // KindSealedSet over the set, or KindBenchmark over the head
	Part   *Part       // nil if the set is signed by itself
}

// ParseSealed reads a task.sealed of either kind. It reads neither the set nor
// the head's payload: contraband does.
func ParseSealed(data []byte) (*Sealed, error) {
	if !bytes.HasPrefix(data, []byte{0x85}) { // an array of five: a part
		u, err := ParseSign1(KindSealedSet, data)
		if err != nil {
			return nil, err
		}
		return &Sealed{Signed: u}, nil
	}
	p, err := parsePart(data)
	if err != nil {
		return nil, err.in("part of a benchmark seal")
	}
	u, signed := ParseSign1(KindBenchmark, p.Head)
	if signed != nil {
		return nil, signed
	}
	return &Sealed{Signed: u, Part: p}, nil
}

func parsePart(data []byte) (*Part, *Error) {
	if len(data) > MaxSealedSet {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", MaxSealedSet), "")
	}
	var f partFrame
	if err := decode(data, &f); err != nil {
		return nil, err
	}
	if f.Version != PartVersion {
		return nil, refuse(StageType, fmt.Sprintf("%q", clip([]byte(f.Version))), fmt.Sprintf("%q", PartVersion), "the file is of another version, or another kind of file")
	}
	if len(f.Path) > maxPath {
		return nil, refuse(StageSize, fmt.Sprintf("a proof of %d hashes", len(f.Path)), fmt.Sprintf("at most %d", maxPath), "")
	}
	if len(f.Set) == 0 {
		return nil, refuse(StagePayload, "an empty set", "at least one byte", "")
	}
	return &Part{Head: f.Head, Index: f.Index, Path: f.Path, Set: f.Set}, nil
}

// Set is the payload that holds the sealed set: not authenticated.
func (s *Sealed) Set() []byte {
	if s.Part != nil {
		return s.Part.Set
	}
	return s.Signed.Unauthenticated().Payload
}
