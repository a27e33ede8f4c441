package receipt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Alg is a fully specified COSE algorithm (RFC 9864).
type Alg int64

const (
	Ed25519 Alg = -19
	ESP256  Alg = -9 // ECDSA on P-256 with SHA-256
)

func (a Alg) String() string {
	switch a {
	case Ed25519:
		return "Ed25519 (-19)"
	case ESP256:
		return "ESP256 (-9)"
	}
	return fmt.Sprintf("algorithm %d", int64(a))
}

// Signature types of c2sp.org/signed-note.
const (
	vkeyEd25519 = 0x01
	vkeyECDSA   = 0x02
)

const (
	maxName = 128 // bytes
	maxVKey = 512 // characters; the longest valid one is below
)

// spkiP256 is the DER of SubjectPublicKeyInfo for an uncompressed P-256 point
// (RFC 5480, section 2), up to the point. It has no other DER encoding.
var spkiP256 = []byte{
	0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
	0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
}

// A PublicKey is a key that may be trusted, with its name. Its zero value
// verifies nothing. Values of one key and name compare equal with ==.
type PublicKey struct {
	name  string
	alg   Alg
	raw   string   // 32 bytes, or the 65-byte uncompressed point
	thumb [32]byte // of alg and raw, see Thumbprint
}

func newKey(name string, alg Alg, raw []byte) PublicKey {
	k := PublicKey{name: name, alg: alg, raw: string(raw)}
	k.thumb = k.thumbprint()
	return k
}

// NewPublicKey names a key. pub is an ed25519.PublicKey or, on P-256, an
// *ecdsa.PublicKey.
//
// Ed25519 keys that are low-order points, or not canonically encoded, are
// refused: under such a key one signature fits many messages.
func NewPublicKey(name string, pub crypto.PublicKey) (PublicKey, error) {
	if err := checkName(name); err != nil {
		return PublicKey{}, err
	}
	switch pub := pub.(type) {
	case ed25519.PublicKey:
		return newEd25519(name, pub)
	case *ecdsa.PublicKey:
		if pub == nil || pub.Curve != elliptic.P256() {
			return PublicKey{}, refuse(StageVKey, "an ECDSA key on another curve", "P-256", "make a key with cleanrun keygen")
		}
		point, err := pub.Bytes()
		if err != nil {
			return PublicKey{}, refuse(StageVKey, err.Error(), "a point on P-256", "")
		}
		return newP256(name, point)
	}
	return PublicKey{}, refuse(StageVKey, fmt.Sprintf("a %T", pub), "an Ed25519 or ECDSA P-256 key", "make a key with cleanrun keygen")
}

func newEd25519(name string, raw []byte) (PublicKey, error) {
	if len(raw) != ed25519.PublicKeySize {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("an Ed25519 key of %d bytes", len(raw)), "32 bytes", "")
	}
	if err := checkEdPoint(raw); err != "" {
		return PublicKey{}, refuse(StageVKey, "an Ed25519 key that is "+err, "a canonically encoded point of large order", "this key cannot have been generated honestly")
	}
	return newKey(name, Ed25519, raw), nil
}

func newP256(name string, point []byte) (PublicKey, error) {
	if _, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point); err != nil {
		return PublicKey{}, refuse(StageVKey, err.Error(), "an uncompressed point on P-256", "")
	}
	return newKey(name, ESP256, point), nil
}

// checkName holds names to c2sp.org/signed-note (not empty, no space, no plus)
// and further to printable ASCII, so that no two names look alike on a screen
// by another alphabet or by writing direction.
func checkName(name string) error {
	bad := func(got string) error {
		return refuse(StageVKey, got, "a key name of 1 to 128 printable ASCII characters without space and plus", "use a schema-less URL such as evals.example.org/runner")
	}
	if name == "" || len(name) > maxName {
		return bad(fmt.Sprintf("a name of %d bytes", len(name)))
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '+' {
			return bad(fmt.Sprintf("byte 0x%02x at offset %d", c, i))
		}
	}
	return nil
}

// ParseVKey reads a verifier key (c2sp.org/signed-note): name, key id in eight
// lower-case hex digits and base64 of type and key, joined by plus signs.
// Exactly one text stands for a key: what String gives.
func ParseVKey(text string) (PublicKey, error) {
	const want = "NAME+8 hex digits+base64"
	if len(text) > maxVKey {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("%d characters", len(text)), fmt.Sprintf("at most %d", maxVKey), "")
	}
	name, rest, ok := strings.Cut(text, "+")
	id, key64, ok2 := strings.Cut(rest, "+")
	if !ok || !ok2 {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("%q", text), want, "copy the line that cleanrun keygen printed")
	}
	if err := checkName(name); err != nil {
		return PublicKey{}, err
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(key64)
	if err != nil || len(blob) == 0 {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("key part %q", key64), "strict standard base64", "")
	}
	k, err := parseTyped(name, blob[0], blob[1:])
	if err != nil {
		return PublicKey{}, err
	}
	if want := fmt.Sprintf("%08x", k.ID()); id != want {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("key id %q", id), want+", from name and key", "name, id and key belong together: copy the whole line")
	}
	if again := k.String(); again != text {
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("%q", text), again, "")
	}
	return k, nil
}

func parseTyped(name string, typ byte, key []byte) (PublicKey, error) {
	switch typ {
	case vkeyEd25519:
		return newEd25519(name, key)
	case vkeyECDSA:
		if point, ok := strings.CutPrefix(string(key), string(spkiP256)); ok {
			return newP256(name, []byte(point))
		}
		return PublicKey{}, refuse(StageVKey, fmt.Sprintf("an ECDSA key %x", key), "the DER SubjectPublicKeyInfo of an uncompressed P-256 point", "")
	}
	return PublicKey{}, refuse(StageVKey, fmt.Sprintf("key type 0x%02x", typ), "0x01 (Ed25519) or 0x02 (ECDSA P-256)", "log and witness keys of other types do not sign receipts")
}

// typed is the type byte and the key as they stand in a vkey.
func (k PublicKey) typed() []byte {
	switch k.alg {
	case Ed25519:
		return append([]byte{vkeyEd25519}, k.raw...)
	case ESP256:
		return append(append([]byte{vkeyECDSA}, spkiP256...), k.raw...)
	}
	return nil
}

// String is the vkey, or "" for the zero key.
func (k PublicKey) String() string {
	if k.alg == 0 {
		return ""
	}
	return fmt.Sprintf("%s+%08x+%s", k.name, k.ID(), base64.StdEncoding.EncodeToString(k.typed()))
}

// Name is what the owner of the key calls it.
func (k PublicKey) Name() string { return k.name }

// Alg is the one algorithm under which the key verifies.
func (k PublicKey) Alg() Alg { return k.alg }

// ID is the 32-bit key id of c2sp.org/signed-note: a hint, not a digest to rely
// on. For Ed25519 it covers name, type and key; for ECDSA the page takes the DER
// key alone.
func (k PublicKey) ID() uint32 {
	in := k.typed()
	switch k.alg {
	case Ed25519:
		in = append([]byte(k.name+"\n"), in...)
	case ESP256:
		in = in[1:]
	}
	sum := sha256.Sum256(in)
	return binary.BigEndian.Uint32(sum[:])
}

// coseKey is the part of a COSE_Key that its thumbprint covers.
type (
	coseOKP struct {
		Kty int64  `cbor:"1,keyasint"`
		Crv int64  `cbor:"-1,keyasint"`
		X   []byte `cbor:"-2,keyasint"`
	}
	coseEC2 struct {
		Kty int64  `cbor:"1,keyasint"`
		Crv int64  `cbor:"-1,keyasint"`
		X   []byte `cbor:"-2,keyasint"`
		Y   []byte `cbor:"-3,keyasint"`
	}
)

// Thumbprint is the SHA-256 COSE Key Thumbprint (RFC 9679, section 4): the kid
// of our COSE_Sign1 and, in hex, the keyid of our DSSE. It does not cover the
// name. The zero key has the zero thumbprint.
func (k PublicKey) Thumbprint() [32]byte { return k.thumb }

// thumbprint computes it, once for each key.
func (k PublicKey) thumbprint() [32]byte {
	raw := []byte(k.raw)
	var key any
	switch k.alg {
	case Ed25519:
		key = coseOKP{Kty: 1, Crv: 6, X: raw}
	case ESP256:
		key = coseEC2{Kty: 2, Crv: 1, X: raw[1:33], Y: raw[33:65]}
	default:
		return [32]byte{}
	}
	b, err := dcbor.Marshal(key)
	if err != nil {
		panic(err) // integers and byte strings always encode
	}
	return sha256.Sum256(b)
}

// coseKeyOKP and coseKeyEC2 are whole COSE_Keys (RFC 9052, section 7): kid and alg
// beside what the thumbprint covers.
type (
	coseKeyOKP struct {
		Kty int64  `cbor:"1,keyasint"`
		Kid []byte `cbor:"2,keyasint"`
		Alg int64  `cbor:"3,keyasint"`
		Crv int64  `cbor:"-1,keyasint"`
		X   []byte `cbor:"-2,keyasint"`
	}
	coseKeyEC2 struct {
		Kty int64  `cbor:"1,keyasint"`
		Kid []byte `cbor:"2,keyasint"`
		Alg int64  `cbor:"3,keyasint"`
		Crv int64  `cbor:"-1,keyasint"`
		X   []byte `cbor:"-2,keyasint"`
		Y   []byte `cbor:"-3,keyasint"`
	}
)

// COSEKey is k as a COSE_Key (RFC 9052, section 7) in deterministic CBOR, with the
// thumbprint as kid. A COSE_Key holds no name. The zero key has none: nil.
func COSEKey(k PublicKey) []byte {
	raw := []byte(k.raw)
	var key any
	switch k.alg {
	case Ed25519:
		key = coseKeyOKP{1, k.thumb[:], int64(k.alg), 6, raw}
	case ESP256:
		key = coseKeyEC2{2, k.thumb[:], int64(k.alg), 1, raw[1:33], raw[33:65]}
	default:
		return nil
	}
	b, err := dcbor.Marshal(key)
	if err != nil {
		panic(err) // integers and byte strings always encode
	}
	return b
}

// COSEKeySet is the COSE_KeySet of keys, in their order. Zero keys are left out.
func COSEKeySet(keys []PublicKey) []byte {
	set := []cbor.RawMessage{}
	for _, k := range keys {
		if b := COSEKey(k); b != nil {
			set = append(set, b)
		}
	}
	b, err := dcbor.Marshal(set)
	if err != nil {
		panic(err) // an array of items that are encoded already
	}
	return b
}

// Fingerprint is the first half of a thumbprint for a person to compare: eight
// groups of four hex digits. 128 bits are enough to find no second key for it.
func Fingerprint(thumbprint [32]byte) string {
	h := hex.EncodeToString(thumbprint[:16])
	groups := make([]string, 0, 8)
	for i := 0; i < len(h); i += 4 {
		groups = append(groups, h[i:i+4])
	}
	return strings.Join(groups, "-")
}

// SameKey reports whether two keys are one, whatever their names. The zero key
// is the same as none.
func (k PublicKey) SameKey(other PublicKey) bool {
	return k.alg != 0 && k.alg == other.alg && k.raw == other.raw
}

// Verify checks a 64-byte signature over message. What is accepted, and why, is
// in spec/bundle.md under "Signatures".
func (k PublicKey) Verify(message, sig []byte) error {
	if len(sig) != SignatureSize {
		return refuse(StageSignature, fmt.Sprintf("%d bytes", len(sig)), "64 bytes", "")
	}
	switch k.alg {
	case Ed25519:
		return verifyEd25519([]byte(k.raw), message, sig)
	case ESP256:
		return verifyP256([]byte(k.raw), message, sig)
	}
	return refuse(StageSignature, "no key", "a pinned key", "pin the signer's key in a policy file")
}
