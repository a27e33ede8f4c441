package attest

// EvidenceVersion of the evidence pack.
const EvidenceVersion = "cleanrun/evidence/v1"

// An evidence pack is a CBOR sequence (RFC 8742): one Header, then for each row
// of the journal, in order, one Item, then one Trailer. spec/evidence.md.
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
		Root      [32]byte // Merkle root over the digests, DigestRoot
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
	}
)

// Bounds that a scan can hit. Any bit makes the run INCONCLUSIVE.
const (
	BoundDepth uint32 = 1 << iota // views nested deeper than 3
	BoundViews                    // more than 64 views of one object
	BoundBytes                    // views larger than 64 MiB together
	BoundRatio                    // a view over 200 times its source
	BoundView                     // a view that began well but was cut or corrupt
)
