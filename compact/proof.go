// Package compact is the compact proof, the member proof.cbor of a bundle: what
// is published of a large run in place of its evidence pack. spec/compact.md is
// the format.
//
// Limits first. A compact proof shows that no sealed item is in the tree that the
// runner signed, and what the rows say that it shows. It does not show that the
// tree holds every digest of every row, nor what the rows say that it does not
// show: that is the runner's word, and verify prints "aggregation trusted". A
// tree that leaves out a digest of the evidence, or dates it later, is convicted
// by a Fraud of less than 4 KiB.
//
// The package is pure. Verdicts are derived by package attest.
//
//	p, err := compact.Prove(set, ev)           // from the whole evidence
//	p, err := compact.Parse(data)              // unauthenticated
//	ev, err := p.Check(set, &statement.Predicate)
//	d, err := attest.DeriveShown(set, ev, &statement.Predicate)
package compact

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Version of the compact proof.
const Version = "cleanrun/compact/v1"

// MaxSize is the largest compact proof in bytes.
const MaxSize = 16 << 20

// A Proof is a compact proof. What it says is unauthenticated until Check holds it
// to a statement whose signature was verified.
type Proof struct {
	Version    string   `cbor:"1,keyasint"`
	Rows       []Row    `cbor:"2,keyasint"` // shown rows, by number
	RowPath    []byte   `cbor:"3,keyasint"` // multiproof of them under the journal's root: hashes, joined
	EntryPath  []byte   `cbor:"4,keyasint"` // multiproof of the shown entries under the root over all entries
	Buckets    [][]byte `cbor:"5,keyasint"` // the bucket of each sealed item and opened control, by index
	BucketPath []byte   `cbor:"6,keyasint"` // multiproof of them under the root of the tree
	Controls   []byte   `cbor:"7,keyasint"` // opened controls, as in the evidence's trailer
}

// A Row is one shown row. Its number stands in it.
type Row struct {
	_     struct{} `cbor:",toarray"`
	Row   []byte   // as in the journal
	Entry *Entry   // null for a row without content
}

// An Entry is the entry of a shown row.
type Entry struct {
	_         struct{} `cbor:",toarray"`
	Seen      uint64   // the fields of attest.Entry
	Scanned   uint64
	Baseline  uint64
	Declared  uint64
	Opaque    uint64
	Canonical uint64
	Bounds    uint32
	Same      *uint64
	Root      [32]byte
	Count     uint64 // digests of its own
	Shown     *Shown // some of them, null for none
}

// Shown are those digests of an entry that are sealed items or opened controls.
type Shown struct {
	_       struct{} `cbor:",toarray"`
	Places  []uint64 // of the shown ones among the entry's, from 0
	Digests []byte   // the shown ones, joined
	Path    []byte   // multiproof of them under the entry's root
}

// Rules that a compact proof can break. The list is closed; spec/compact.md
// explains each one.
const (
	RuleShape     = "shape"     // not the one encoding of a proof
	RuleVersion   = "version"   // it names another version
	RuleStatement = "statement" // the statement's roots are malformed or do not fit each other
	RuleRows      = "rows"      // a shown row is malformed, out of order, or the first or last is not shown
	RuleRowPath   = "row-path"  // the shown rows are not rows of the journal
	RuleEntry     = "entry"     // a shown entry is malformed or not its row's
	RuleEntryPath = "entry-path"
	RuleShown     = "shown"    // a shown digest is not one of the entry, or nobody asked for it
	RuleBuckets   = "buckets"  // the buckets are not those of the signed tree
	RuleFirst     = "first"    // the first row of a found item is not shown, or is another
	RuleUnneeded  = "unneeded" // a shown row decides nothing
	RuleWhole     = "whole"    // the sealed set asks what only the whole evidence shows
	RuleAtOdds    = "at-odds"  // the statement says something else than the rows shown
)

// An Error says which rule a proof breaks, and how.
type Error struct {
	Rule  string
	Cause error
}

func (e *Error) Error() string { return fmt.Sprintf("compact proof: %s: %v", e.Rule, e.Cause) }

func (e *Error) Unwrap() error { return e.Cause }

func broken(rule, format string, args ...any) error { return &Error{rule, fmt.Errorf(format, args...)} }

// Parse reads a compact proof and checks its form. The error is an *Error.
func Parse(data []byte) (*Proof, error) {
	if len(data) > MaxSize {
		return nil, broken(RuleShape, "got %d bytes, want at most %d", len(data), MaxSize)
	}
	p := new(Proof)
	if err := dcbor.Unmarshal(data, p); err != nil {
		return nil, &Error{RuleShape, err}
	}
	if p.Version != Version {
		return nil, broken(RuleVersion, "got %q, want %q: another version of cleanrun may read it", p.Version, Version)
	}
	for _, path := range [][]byte{p.RowPath, p.EntryPath, p.BucketPath} {
		if len(path)%32 != 0 {
			return nil, broken(RuleShape, "got a path of %d bytes, want a multiple of 32", len(path))
		}
	}
	for i := range p.Rows {
		e := p.Rows[i].Entry
		if e == nil || e.Shown == nil {
			continue
		}
		s := e.Shown
		if n := len(s.Places); n == 0 || len(s.Digests) != n*attest.DigestSize || len(s.Path)%32 != 0 {
			return nil, broken(RuleShape, "shown row %d: got %d places, %d bytes of digests and a path of %d, want at least one digest of 16 bytes for each place and hashes of 32", i, n, len(s.Digests), len(s.Path))
		}
	}
	return p, nil
}

// Marshal returns the one encoding of the proof. It fails if that is longer than
// MaxSize: a run that met many sealed items is published with its evidence pack.
func (p *Proof) Marshal() ([]byte, error) {
	data, err := dcbor.Marshal(p)
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("compact proof: got %d bytes, want at most %d: too many rows hold sealed items", len(data), MaxSize)
	}
	return data, err
}

// entry is the entry of the row as evidence has it, with the shown digests only.
func (e *Entry) entry() *attest.Entry {
	if e == nil {
		return nil
	}
	out := &attest.Entry{Seen: e.Seen, Scanned: e.Scanned, Baseline: e.Baseline, Declared: e.Declared, Opaque: e.Opaque,
		Canonical: e.Canonical, Bounds: e.Bounds, Same: e.Same, Root: e.Root}
	if e.Shown != nil {
		out.Digests = e.Shown.Digests
	}
	return out
}

func hashes(path []byte) [][32]byte {
	out := make([][32]byte, len(path)/32)
	for i := range out {
		out[i] = [32]byte(path[32*i:])
	}
	return out
}

func joined(path [][32]byte) []byte {
	out := make([]byte, 0, 32*len(path))
	for i := range path {
		out = append(out, path[i][:]...)
	}
	return out
}
