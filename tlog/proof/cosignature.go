package proof

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"filippo.io/mldsa"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// Types of c2sp.org/signed-note that a witness signs with.
const (
	TypeEd25519 = 0x04 // c2sp.org/tlog-cosignature, "Ed25519 signed message"
	TypeMLDSA44 = 0x06 // same, "ML-DSA-44 signed message"
)

const (
	maxName      = 128     // bytes of a key name, as in receipt
	maxVKey      = 2 << 10 // characters; the longest valid one has 1,890
	maxTimestamp = 1<<63 - 1
)

// A WitnessKey is a key that cosigns checkpoints, with its name. Its zero value
// verifies nothing.
type WitnessKey struct {
	name string
	typ  byte
	raw  string // 32 or 1,312 bytes
	id   uint32
	ed   receipt.PublicKey // of TypeEd25519: the same key as one that signs
	pq   *mldsa.PublicKey  // of TypeMLDSA44
}

func newWitnessKey(name string, typ byte, raw []byte) (WitnessKey, *Error) {
	k := WitnessKey{name: name, typ: typ, raw: string(raw)}
	switch typ {
	case TypeEd25519:
		if len(raw) != ed25519.PublicKeySize {
			return k, refuse(StageKey, fmt.Sprintf("an Ed25519 key of %d bytes", len(raw)), "32 bytes", "")
		}
		ed, err := receipt.NewPublicKey(name, ed25519.PublicKey(raw))
		if err != nil {
			return k, refuse(StageKey, err.Error(), "an Ed25519 cosignature key", "")
		}
		k.ed = ed
	case TypeMLDSA44:
		if err := checkName(name); err != nil {
			return k, err
		}
		pq, err := mldsa.NewPublicKey(mldsa.MLDSA44(), raw)
		if err != nil {
			return k, refuse(StageKey, fmt.Sprintf("%d bytes (%v)", len(raw), err), "an ML-DSA-44 key of 1,312 bytes", "")
		}
		k.pq = pq
	default:
		return k, refuse(StageKey, fmt.Sprintf("key type 0x%02x", typ), "0x04 (Ed25519 cosignature) or 0x06 (ML-DSA-44 cosignature)", "a witness's key is of another type than that of a log or a runner, even if it is the same key: ask the witness for its cosignature key")
	}
	sum := sha256.Sum256(slices.Concat([]byte(name), []byte{'\n', typ}, raw))
	k.id = binary.BigEndian.Uint32(sum[:])
	return k, nil
}

// checkName holds the name of a key to what receipt asks of its own: printable
// ASCII, so that no two names look alike.
func checkName(name string) *Error {
	ok := name != "" && len(name) <= maxName
	for i := range len(name) {
		ok = ok && name[i] > ' ' && name[i] <= '~' && name[i] != '+'
	}
	if !ok {
		return refuse(StageKey, "key name "+clip(name), "1 to 128 printable ASCII characters without space and plus", "use a schema-less URL such as witness.example.org/w1")
	}
	return nil
}

// ParseWitnessKey reads a verifier key (c2sp.org/signed-note) of type 0x04 or
// 0x06. Exactly one text stands for a key: what String gives. The error is an
// *Error.
func ParseWitnessKey(vkey string) (WitnessKey, error) {
	if len(vkey) > maxVKey {
		return WitnessKey{}, refuse(StageKey, fmt.Sprintf("%d characters", len(vkey)), fmt.Sprintf("at most %d", maxVKey), "")
	}
	name, rest, ok := strings.Cut(vkey, "+")
	id, key64, ok2 := strings.Cut(rest, "+")
	blob, err := base64.StdEncoding.Strict().DecodeString(key64)
	if !ok || !ok2 || err != nil || len(blob) < 2 {
		return WitnessKey{}, refuse(StageKey, clip(vkey), "NAME+8 hex digits+base64", "copy the whole verifier key of the witness")
	}
	k, bad := newWitnessKey(name, blob[0], blob[1:])
	if bad != nil {
		return WitnessKey{}, bad
	}
	if again := k.String(); again != vkey {
		return WitnessKey{}, refuse(StageKey, "key id "+clip(id)+" or another spelling", clip(again), "name, id and key belong together: copy the whole line")
	}
	return k, nil
}

// String is the vkey, or "" for the zero key.
func (w WitnessKey) String() string {
	if w.typ == 0 {
		return ""
	}
	return fmt.Sprintf("%s+%08x+%s", w.name, w.id, base64.StdEncoding.EncodeToString(append([]byte{w.typ}, w.raw...)))
}

// Name is the name of the key, which is not that of the witness in a policy.
func (w WitnessKey) Name() string { return w.name }

// ID is the key id of c2sp.org/signed-note: a hint, not a digest to rely on.
func (w WitnessKey) ID() uint32 { return w.id }

// Type is TypeEd25519 or TypeMLDSA44, or 0 of the zero key.
func (w WitnessKey) Type() byte { return w.typ }

// SameKey reports whether two keys are one, whatever their names. The zero key is
// the same as none.
func (w WitnessKey) SameKey(other WitnessKey) bool {
	return w.typ != 0 && w.typ == other.typ && w.raw == other.raw
}

// IsKeyOf reports whether it is an Ed25519 key that also signs other things, as k,
// whatever their names.
func (w WitnessKey) IsKeyOf(k receipt.PublicKey) bool { return w.ed.SameKey(k) }

// Verify looks for the witness's cosignature of a checkpoint. The timestamp is in
// seconds since 1970, or 0 of a witness that states no time (ML-DSA-44 only);
// ok tells whether there is a cosignature. A line with the name and id of the key
// that does not verify is an error, and the checkpoint is not to be used at all.
// The error is an *Error.
func (w WitnessKey) Verify(v *Verified) (timestamp uint64, ok bool, err error) {
	_, timestamp, ok, err = w.find(v)
	return timestamp, ok, err
}

// Line returns the witness's signature line in a note once it verified, for
// AddSignatures: ok tells whether there is one. Errors as of Verify.
func (w WitnessKey) Line(v *Verified) (text []byte, ok bool, err error) {
	l, _, ok, err := w.find(v)
	if err != nil || !ok {
		return nil, false, err
	}
	return []byte(l.String()), true, nil
}

func (w WitnessKey) find(v *Verified) (l line, timestamp uint64, ok bool, err error) {
	if w.typ == 0 {
		return l, 0, false, refuse(StageKey, "no key", "a witness's key", "")
	}
	l, ok = find(v.u.lines, w.name, w.id)
	if !ok {
		return l, 0, false, nil
	}
	timestamp, err = w.check(v, l)
	return l, timestamp, err == nil, err
}

// check verifies a line of this key: 8 bytes of time and a signature.
func (w WitnessKey) check(v *Verified, l line) (uint64, error) {
	if len(l.sig) < 8 {
		return 0, badSignature(l, fmt.Errorf("%d bytes", len(l.sig)))
	}
	timestamp := binary.BigEndian.Uint64(l.sig)
	msg, bad := w.message(v, timestamp)
	if bad != nil {
		return 0, bad
	}
	var err error
	if w.typ == TypeEd25519 {
		err = w.ed.Verify(msg, l.sig[8:])
	} else {
		err = mldsa.Verify(w.pq, msg, l.sig[8:], nil)
	}
	if err != nil {
		return 0, badSignature(l, err)
	}
	return timestamp, nil
}

// message is what a cosignature signs. That of ML-DSA-44 leaves extension lines
// out; nothing here gives them a meaning.
func (w WitnessKey) message(v *Verified, timestamp uint64) ([]byte, *Error) {
	if timestamp > maxTimestamp {
		return nil, refuse(StageSignature, fmt.Sprintf("timestamp %d", timestamp), "below 2^63", "")
	}
	if w.typ == TypeEd25519 {
		return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", timestamp, v.u.text), nil
	}
	// Both names are those of keys, of at most maxName bytes.
	msg := append([]byte("subtree/v1\n\x00"), byte(len(w.name)))
	msg = append(msg, w.name...)
	msg = binary.BigEndian.AppendUint64(msg, timestamp)
	msg = append(msg, byte(len(v.u.checkpoint.Origin)))
	msg = append(msg, v.u.checkpoint.Origin...)
	msg = binary.BigEndian.AppendUint64(msg, 0) // start
	msg = binary.BigEndian.AppendUint64(msg, v.u.checkpoint.Size)
	return append(msg, v.u.checkpoint.Root[:]...), nil
}

// A Cosigner holds a witness's private key.
type Cosigner struct {
	key  WitnessKey
	sign func(message []byte) ([]byte, error)
}

// NewEd25519Cosigner makes cosignatures of type 0x04 under the signer's name. Its
// key should sign nothing else.
func NewEd25519Cosigner(s receipt.Signer) (*Cosigner, error) {
	blob, err := typedKey(s.Public())
	if err != nil {
		return nil, err
	}
	key, bad := newWitnessKey(s.Public().Name(), TypeEd25519, blob)
	if bad != nil {
		return nil, bad
	}
	return &Cosigner{key, s.Sign}, nil
}

// typedKey takes the 32 bytes of an Ed25519 key out of its vkey.
func typedKey(k receipt.PublicKey) ([]byte, error) {
	if err := checkLogKey(k); err != nil {
		return nil, refuse(StageKey, fmt.Sprintf("a witness key of %v", k.Alg()), "Ed25519", "ML-DSA-44 keys are made by NewMLDSA44Cosigner")
	}
	// The third part: base64 has plus signs of its own.
	blob, err := base64.StdEncoding.DecodeString(strings.SplitN(k.String(), "+", 3)[2])
	if err != nil {
		return nil, err
	}
	return blob[1:], nil
}

// NewMLDSA44Cosigner makes cosignatures of type 0x06 from a seed of 32 bytes. Under
// the name of a log it makes the log's own second signature.
func NewMLDSA44Cosigner(name string, seed []byte) (*Cosigner, error) {
	private, err := mldsa.NewPrivateKey(mldsa.MLDSA44(), seed)
	if err != nil {
		return nil, refuse(StageKey, fmt.Sprintf("a seed of %d bytes (%v)", len(seed), err), "32 bytes", "")
	}
	key, bad := newWitnessKey(name, TypeMLDSA44, private.PublicKey().Bytes())
	if bad != nil {
		return nil, bad
	}
	return &Cosigner{key, func(msg []byte) ([]byte, error) { return private.Sign(nil, msg, nil) }}, nil
}

// Key is the key under which the cosignatures verify.
func (c *Cosigner) Key() WitnessKey { return c.key }

// Cosign returns a signature line over a checkpoint as of a time in seconds since
// 1970, not 0. Whether the checkpoint is consistent with all that was cosigned
// before is the caller's to know.
func (c *Cosigner) Cosign(v *Verified, timestamp uint64) ([]byte, error) {
	if timestamp == 0 {
		return nil, refuse(StageSignature, "timestamp 0", "the time of cosigning", "a cosignature without a time counts for no quorum")
	}
	msg, bad := c.key.message(v, timestamp)
	if bad != nil {
		return nil, bad
	}
	sig, err := c.sign(msg)
	if err != nil {
		return nil, fmt.Errorf("cosigning with %s: %w", c.key.name, err)
	}
	l := line{c.key.name, c.key.id, append(binary.BigEndian.AppendUint64(nil, timestamp), sig...)}
	// A faulted signature can give the private key away.
	if _, err := c.key.check(v, l); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}
