package journal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Secret is what the recorder draws once for a run. All salts and the path
// key follow from it by HKDF-SHA256 (RFC 5869). Who holds it can open every row.
type Secret [32]byte

const (
	secretSalt  = "cleanrun/journal/secret/v1"
	pathKeyInfo = "path-key"
	saltInfo    = "row-salt" // followed by the row's number, 8 bytes big endian
	markerInfo  = "marker"
	commitLabel = "cleanrun/journal/commit/v1\x00"
)

// DrawSecret returns a fresh secret of the operating system's generator.
func DrawSecret() (s Secret) {
	rand.Read(s[:]) // never fails (crypto/rand)
	return s
}

func (s Secret) extract() []byte {
	prk, err := hkdf.Extract(sha256.New, s[:], []byte(secretSalt))
	if err != nil {
		panic(err) // SHA-256 is always allowed
	}
	return prk
}

// PathKey returns K_path.
func (s Secret) PathKey() (k scope.PathKey) {
	newExpander(s).expand([]byte(pathKeyInfo), (*[32]byte)(&k))
	return k
}

// Salt returns the salt of the row with number seq. Publishing it opens that
// row's commitment and no other.
func (s Secret) Salt(seq uint64) (salt [32]byte) {
	newExpander(s).salt(seq, &salt)
	return salt
}

// Marker returns the seed of the run's marker (package expect).
func (s Secret) Marker() (seed [32]byte) {
	newExpander(s).expand([]byte(markerInfo), &seed)
	return seed
}

// expander computes HKDF-Expand for 32 bytes, which is one HMAC over
// info || 0x01 (RFC 5869, section 2.3), without a new key schedule each time.
type expander struct {
	mac hash.Hash
	buf []byte
}

func newExpander(s Secret) *expander { return &expander{mac: hmac.New(sha256.New, s.extract())} }

func (e *expander) expand(info []byte, out *[32]byte) {
	e.mac.Reset()
	e.buf = append(append(e.buf[:0], info...), 1)
	e.mac.Write(e.buf)
	e.mac.Sum(out[:0])
}

func (e *expander) salt(seq uint64, out *[32]byte) {
	e.expand(binary.BigEndian.AppendUint64([]byte(saltInfo), seq), out)
}

// Commit returns the hiding commitment to the encoded detail of a row,
// SHA-256(label || salt || detail).
func Commit(salt [32]byte, detail []byte) (c [32]byte) {
	h := sha256.New()
	h.Write([]byte(commitLabel))
	h.Write(salt[:])
	h.Write(detail)
	h.Sum(c[:0])
	return c
}

// EncodeDetail returns the deterministic encoding of a detail. A nil detail is
// the empty one.
func EncodeDetail(d *Detail) ([]byte, error) {
	if d == nil {
		return []byte{0xa0}, nil
	}
	return dcbor.Marshal(d)
}

// ParseDetail decodes one detail. It is not authenticated: compare its
// commitment with the row's (Opens).
func ParseDetail(raw []byte) (Detail, error) {
	if len(raw) > MaxDetail {
		return Detail{}, broken(RuleFrame, "at most 16 MiB", "a detail of %d bytes", len(raw))
	}
	var d Detail
	if err := dcbor.Unmarshal(raw, &d); err != nil {
		return Detail{}, broken(RuleEncoding, "deterministic CBOR of the closed schema", "%v", err)
	}
	return d, nil
}

// Opens tells whether salt and detail open the row's commitment.
func (r *Row) Opens(salt [32]byte, detail []byte) bool { return Commit(salt, detail) == r.Commit }
