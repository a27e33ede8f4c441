package journal

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// OriginPrefix begins the origin line of every head; the run id follows in hex.
const OriginPrefix = "cleanrun.dev/journal/"

// A Head is the state of a journal: how many rows and the RFC 9162 tree hash
// over them. Leaves are SHA-256(0x00 || row), so a row of 64 bytes is never
// taken for two hashes.
type Head struct {
	Run  [16]byte
	Size uint64 // at least 1
	Root [32]byte
}

// FormatHead returns the head as a C2SP checkpoint body
// (c2sp.org/tlog-checkpoint) without extension lines.
func FormatHead(h Head) []byte {
	b := append([]byte(OriginPrefix), hex.EncodeToString(h.Run[:])...)
	b = strconv.AppendUint(append(b, '\n'), h.Size, 10)
	b = base64.StdEncoding.AppendEncode(append(b, '\n'), h.Root[:])
	return append(b, '\n')
}

// ParseHead reads what FormatHead writes and nothing else. The head is not
// authenticated: a signature over it is receipt's business.
func ParseHead(text []byte) (Head, error) {
	var h Head
	if len(text) > 256 {
		return Head{}, broken(RuleHead, "three short lines", "%d bytes", len(text))
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 4 || lines[3] != "" {
		return Head{}, broken(RuleHead, "three lines, each ended by a newline", "%d newlines", len(lines)-1)
	}
	id, ok := strings.CutPrefix(lines[0], OriginPrefix)
	run, err := hex.DecodeString(id)
	if !ok || err != nil || len(run) != len(h.Run) || hex.EncodeToString(run) != id {
		return Head{}, broken(RuleHead, OriginPrefix+" and 32 lower-case hex digits", "origin %q", lines[0])
	}
	copy(h.Run[:], run)
	h.Size, err = strconv.ParseUint(lines[1], 10, 64)
	if err != nil || h.Size == 0 || strconv.FormatUint(h.Size, 10) != lines[1] {
		return Head{}, broken(RuleHead, "a decimal size of at least 1 without leading zeros", "size %q", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(h.Root) || base64.StdEncoding.EncodeToString(root) != lines[2] {
		return Head{}, broken(RuleHead, "32 bytes in standard base64", "root %q", lines[2])
	}
	copy(h.Root[:], root)
	return h, nil
}

// LeafHash returns the hash of a row as a leaf (RFC 9162, section 2.1.1).
func LeafHash(row []byte) [32]byte { return [32]byte(rfc6962.DefaultHasher.HashLeaf(row)) }

// accumulator is the root of a growing tree in logarithmic memory.
type accumulator struct{ r *compact.Range }

func newAccumulator() accumulator {
	f := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	return accumulator{f.NewEmptyRange(0)}
}

func (a accumulator) add(row []byte) {
	if err := a.r.Append(rfc6962.DefaultHasher.HashLeaf(row), nil); err != nil {
		panic(err) // no visitor, no limit: cannot fail
	}
}

func (a accumulator) root() [32]byte {
	if a.r.End() == 0 {
		return [32]byte(rfc6962.DefaultHasher.EmptyRoot())
	}
	root, err := a.r.GetRootHash(nil)
	if err != nil {
		panic(err) // the range begins at 0: cannot fail
	}
	return [32]byte(root)
}
