package journal

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
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
type accumulator struct{ t *merkle.Tree }

func newAccumulator() accumulator { return accumulator{new(merkle.Tree)} }

func (a accumulator) add(row []byte) { a.t.Push(LeafHash(row)) }

func (a accumulator) root() [32]byte { return a.t.Root() }

// A Tree holds the leaf hashes of a journal's rows, 32 bytes a row, and proves
// what they contain. The zero value is the empty tree.
type Tree struct{ leaves [][32]byte }

// Append adds the next row.
func (t *Tree) Append(row []byte) { t.leaves = append(t.leaves, LeafHash(row)) }

// Size is the number of rows.
func (t *Tree) Size() uint64 { return uint64(len(t.leaves)) }

// Root returns the tree hash over the first size rows (RFC 9162, section 2.1.1).
func (t *Tree) Root(size uint64) ([32]byte, error) {
	if size > t.Size() {
		return [32]byte{}, broken(RuleProof, fmt.Sprintf("at most the %d rows of the tree", t.Size()), "size %d", size)
	}
	if size == 0 {
		return [32]byte(rfc6962.DefaultHasher.EmptyRoot()), nil
	}
	return t.hash(0, size), nil
}

// hash is MTH of RFC 9162 over leaves [from, to), not empty.
func (t *Tree) hash(from, to uint64) [32]byte {
	if to-from == 1 {
		return t.leaves[from]
	}
	half := uint64(1) << (bits.Len64(to-from-1) - 1) // largest power of two below the number of leaves
	l, r := t.hash(from, from+half), t.hash(from+half, to)
	return [32]byte(rfc6962.DefaultHasher.HashChildren(l[:], r[:]))
}

// Inclusion returns the proof that row index is in the tree of the first size
// rows (RFC 9162, section 2.1.3.1).
func (t *Tree) Inclusion(index, size uint64) ([][32]byte, error) {
	if size > t.Size() || index >= size {
		return nil, broken(RuleProof, fmt.Sprintf("a row below the size, a size of at most %d", t.Size()), "row %d, size %d", index, size)
	}
	nodes, err := proof.Inclusion(index, size)
	if err != nil {
		return nil, broken(RuleProof, "a row of the tree", "%v", err)
	}
	return t.rehash(nodes)
}

// Consistency returns the proof that the tree of the first newer rows begins
// with the first older rows (RFC 9162, section 2.1.4.1).
func (t *Tree) Consistency(older, newer uint64) ([][32]byte, error) {
	if older == 0 || older > newer || newer > t.Size() {
		return nil, broken(RuleProof, fmt.Sprintf("1 <= older <= newer <= %d", t.Size()), "sizes %d and %d", older, newer)
	}
	nodes, err := proof.Consistency(older, newer)
	if err != nil {
		return nil, broken(RuleProof, "two sizes of the tree", "%v", err)
	}
	return t.rehash(nodes)
}

func (t *Tree) rehash(nodes proof.Nodes) ([][32]byte, error) {
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		h := t.node(id)
		hashes[i] = h[:]
	}
	hashes, err := nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		return nil, broken(RuleProof, "a proof", "%v", err)
	}
	out := make([][32]byte, len(hashes))
	for i, h := range hashes {
		out[i] = [32]byte(h)
	}
	return out, nil
}

// node is the hash of a whole subtree.
func (t *Tree) node(id compact.NodeID) [32]byte {
	from, to := id.Coverage()
	return t.hash(from, to)
}

// VerifyInclusion checks that row is the index-th of the head's journal (RFC
// 9162, section 2.1.3.2). The error is a *RuleError of RuleProof.
func VerifyInclusion(head Head, index uint64, row []byte, path [][32]byte) error {
	leaf := LeafHash(row)
	err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, head.Size, leaf[:], slicesOf(path), head.Root[:])
	if err != nil {
		e := broken(RuleProof, "a proof that ends in the head's root", "%v", err)
		e.Row = index
		return e
	}
	return nil
}

// VerifyConsistency checks that the newer head's journal begins with the older
// one's (RFC 9162, section 2.1.4.2). A journal that was cut back, or begun
// again, fails here. The error is a *RuleError of RuleProof.
func VerifyConsistency(older, newer Head, path [][32]byte) error {
	if older.Run != newer.Run {
		return broken(RuleProof, fmt.Sprintf("two heads of run %x", older.Run), "run %x", newer.Run)
	}
	if older.Size == 0 || older.Size > newer.Size {
		return broken(RuleProof, fmt.Sprintf("a newer size of at least %d, both above 0", older.Size), "%d", newer.Size)
	}
	err := proof.VerifyConsistency(rfc6962.DefaultHasher, older.Size, newer.Size, slicesOf(path), older.Root[:], newer.Root[:])
	if err != nil {
		return broken(RuleProof, "a proof that joins both roots", "%v", err)
	}
	return nil
}

func slicesOf(path [][32]byte) [][]byte {
	out := make([][]byte, len(path))
	for i := range path {
		out[i] = path[i][:]
	}
	return out
}
