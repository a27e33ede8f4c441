package proof

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
)

const (
	logProofHeader = "c2sp.org/tlog-proof@v1"
	// MaxLogProof is the largest proof file in bytes: lines and a note.
	MaxLogProof = MaxNote + 4<<10
)

// A LogProof is a proof file (c2sp.org/tlog-proof): an entry's place in the tree of
// a checkpoint. Nothing in it is verified.
type LogProof struct {
	Index      uint64
	Path       [][32]byte // inclusion proof of RFC 9162, section 2.1.3.1, at most 64
	Checkpoint []byte     // signed note
}

// FormatLogProof returns the one file that holds p. It does not check p:
// ParseLogProof does.
func FormatLogProof(p *LogProof) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nindex %d\n", logProofHeader, p.Index)
	for _, h := range p.Path {
		b.WriteString(base64.StdEncoding.EncodeToString(h[:]) + "\n")
	}
	b.WriteString("\n")
	b.Write(p.Checkpoint)
	return b.Bytes()
}

// ParseLogProof reads a proof file whose note is a checkpoint. The optional line
// "extra" is refused: nobody vouches for it, and nothing here needs it. The error
// is an *Error.
func ParseLogProof(data []byte) (*LogProof, error) {
	if len(data) > MaxLogProof {
		return nil, refuse(StageSize, fmt.Sprintf("a proof file of %d bytes", len(data)), fmt.Sprintf("at most %d", MaxLogProof), "")
	}
	bad := func(got, want, hint string) error { return refuse(StageLogProof, got, want, hint) }
	// The first empty line ends the proof; the note has one of its own.
	head, note, ok := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if lines[0] != logProofHeader {
		return nil, bad(clip(lines[0]), logProofHeader, "the file is of another kind or version")
	}
	if !ok || len(lines) < 2 {
		return nil, bad("no empty line after the index", "index, hashes, an empty line and a checkpoint", "")
	}
	if strings.HasPrefix(lines[1], "extra ") {
		return nil, bad("an extra line", "index", "extra data are not authenticated and are not used here: take the line out")
	}
	digits, ok := strings.CutPrefix(lines[1], "index ")
	index, ok2 := parseDecimal(digits)
	if !ok || !ok2 {
		return nil, bad(clip(lines[1]), "index and a decimal number without leading zeros, below 2^64", "")
	}
	p := &LogProof{Index: index, Checkpoint: bytes.Clone(note)}
	if len(lines)-2 > merkle.MaxPath {
		return nil, refuse(StageSize, fmt.Sprintf("%d hashes", len(lines)-2), fmt.Sprintf("at most %d", merkle.MaxPath), "")
	}
	for _, l := range lines[2:] {
		h, ok := parseHash(l)
		if !ok {
			return nil, bad("hash "+clip(l), "strict base64 of 32 bytes", "")
		}
		p.Path = append(p.Path, h)
	}
	if _, err := ParseCheckpoint(note); err != nil {
		return nil, err
	}
	if again := FormatLogProof(p); !bytes.Equal(again, data) {
		return nil, bad("another spelling", "the one that FormatLogProof gives", "")
	}
	return p, nil
}

// Inclusion checks that leaf is the hash of entry number index in the tree of size
// leaves with that root (RFC 9162, section 2.1.3.2). The error is an *Error.
func Inclusion(index, size uint64, leaf [32]byte, path [][32]byte, root [32]byte) error {
	got, err := merkle.InclusionRoot(index, size, leaf, path)
	return compare(got, root, err)
}

// Consistency checks that the older tree is how the newer one began (RFC 9162,
// section 2.1.4.2). Sizes must be 0 < older <= newer: nothing proves that a
// tree is consistent with the empty one, and nothing needs to. The error is an
// *Error.
func Consistency(older, newer uint64, path [][32]byte, olderRoot, newerRoot [32]byte) error {
	fromOlder, fromNewer, err := merkle.ConsistencyRoots(older, newer, path, olderRoot)
	if err := compare(fromOlder, olderRoot, err); err != nil {
		return err
	}
	return compare(fromNewer, newerRoot, nil)
}

func compare(got, want [32]byte, err error) error {
	switch {
	case err != nil:
		return refuse(StagePath, err.Error(), "a proof of these places", "the proof is of another entry or another tree")
	case got != want:
		return refuse(StageRoot, fmt.Sprintf("%x", got), fmt.Sprintf("%x", want), "the entry, its place or the proof is another one than the log signed")
	}
	return nil
}
