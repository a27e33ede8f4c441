package attest

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// EvidenceVersion of the evidence pack.
const EvidenceVersion = "cleanrun/evidence/v1"

// An evidence pack is a CBOR sequence (RFC 8742): one Header, then for each row
// of the journal, in order, one Item, then one Trailer. spec/evidence.md. Write
// it with the Append methods and read it with ReadEvidence.
type (
	// Header opens the pack.
	Header struct {
		Version string   `cbor:"1,keyasint"`
		Rows    uint64   `cbor:"2,keyasint"`
		Root    [32]byte `cbor:"3,keyasint"` // RFC 9162 root over the rows
	}
	// Item is one row and what its content was hashed to.
	Item struct {
		_     struct{} `cbor:",toarray"`
		Row   []byte   // the row's bytes as in the journal
		Entry *Entry   // null for a row without content (Size 0)
	}
	// Entry is the coverage and the digests of one row's content.
	// Seen = Scanned + Baseline + Declared, and equals the row's Size.
	Entry struct {
		_         struct{} `cbor:",toarray"`
		Seen      uint64   // bytes of content
		Scanned   uint64   // bytes that went through all views
		Baseline  uint64   // bytes of a baseline object: exempt
		Declared  uint64   // bytes on a declared opaque channel: searched for canaries only
		Opaque    uint64   // bytes of Scanned that no view could read
		Canonical uint64   // canonical bytes of the raw view without baseline and declared bytes
		Bounds    uint32   // Bound* bits: limits that cut the scan short
		Same      *uint64  // seq of an earlier row whose entry has exactly this content's digests; Digests is then empty
		Root      [32]byte // Merkle root over the digests (of Same's entry, if there is one), DigestRoot
		Digests   []byte   // 16-byte run digests d, sorted, unique
	}
	// Trailer closes the pack.
	Trailer struct {
		_       struct{} `cbor:",toarray"`
		Tree    [32]byte // root of the prefix-bucket tree over all (d, first row, direction); internal/bucket
		Depth   uint8
		Digests uint64 // distinct digests in the tree
		// Opened controls: for each, its layer-1 value s, so that Control(s) is
		// in the sealed set and RunDigest(salt, s) in the entries. Sorted.
		Controls []byte
		// What the sealed set asks to show; nil, and then left out, for nothing.
		Openings *Openings
	}
)

// Bounds that a scan can hit. Any bit makes the run INCONCLUSIVE.
const (
	BoundDepth uint32 = 1 << iota // views nested deeper than 3
	BoundViews                    // more than 64 views of one object
	BoundBytes                    // views larger than 64 MiB together
	BoundRatio                    // a view over 200 times its source
	BoundView                     // a view that began well but was cut or corrupt

	allBounds = BoundView<<1 - 1
)

// Major types of CBOR (RFC 8949, section 3.1).
const (
	majorUint  = 0
	majorBytes = 2
	majorArray = 4

	cborNull = 0xf6
)

// Append appends the encoded header to b.
func (h *Header) Append(b []byte) []byte {
	data, err := dcbor.Marshal(h)
	if err != nil {
		panic(err) // the type holds nothing that cannot be encoded
	}
	return append(b, data...)
}

// Append appends the encoded item to b. Nil and empty byte strings are the same.
func (it *Item) Append(b []byte) []byte {
	b = appendHead(b, majorArray, 2)
	b = appendBytes(b, it.Row)
	e := it.Entry
	if e == nil {
		return append(b, cborNull)
	}
	b = appendHead(b, majorArray, 10)
	return appendBytes(e.appendFields(b), e.Digests)
}

// EntryLeaf is the hash of the entry of row seq, nil without content, as a leaf of
// the tree over the entries of all rows: with how many digests of its own it has
// in place of them, which its root covers. So one entry can be shown without the
// others.
func EntryLeaf(seq uint64, e *Entry, digests uint64) [32]byte {
	if e == nil {
		return noEntry
	}
	b := appendHead(append(make([]byte, 0, 128), 0), majorArray, 11)
	b = e.appendFields(appendHead(b, majorUint, seq))
	return sha256.Sum256(appendHead(b, majorUint, digests))
}

var noEntry = sha256.Sum256([]byte{0, cborNull})

// appendFields appends all of an entry but the digests.
func (e *Entry) appendFields(b []byte) []byte {
	for _, v := range []uint64{e.Seen, e.Scanned, e.Baseline, e.Declared, e.Opaque, e.Canonical, uint64(e.Bounds)} {
		b = appendHead(b, majorUint, v)
	}
	if e.Same == nil {
		b = append(b, cborNull)
	} else {
		b = appendHead(b, majorUint, *e.Same)
	}
	return appendBytes(b, e.Root[:])
}

// Append appends the encoded trailer to b.
func (t *Trailer) Append(b []byte) []byte {
	fields := uint64(4)
	if t.Openings != nil {
		fields++
	}
	b = appendHead(b, majorArray, fields)
	b = appendBytes(b, t.Tree[:])
	b = appendHead(b, majorUint, uint64(t.Depth))
	b = appendHead(b, majorUint, t.Digests)
	b = appendBytes(b, t.Controls)
	if t.Openings != nil {
		b = t.Openings.append(b)
	}
	return b
}

func appendBytes(b, s []byte) []byte {
	return append(appendHead(b, majorBytes, uint64(len(s))), s...)
}

// appendHead writes the shortest head (RFC 8949, section 4.2.1).
func appendHead(b []byte, major byte, v uint64) []byte {
	major <<= 5
	switch {
	case v < 24:
		return append(b, major|byte(v))
	case v < 1<<8:
		return append(b, major|24, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), v)
}
