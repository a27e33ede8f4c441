// Package receipt signs and checks the signed parts of a clean-run receipt:
// COSE_Sign1 (RFC 9052), DSSE, COSE receipts of a log (RFC 9942) and the
// *.cleanrun bundle that carries them. It works on bytes. spec/bundle.md and
// spec/log.md are the wire formats.
//
// Limits first. The package says who signed which bytes and nothing about
// whether they are true; deriving the verdict is attest's business. It knows no
// certificates, no clock and no revocation: a key is trusted because a policy
// file pins it. A key, a name or a key id inside a file is never trusted. It
// knows two algorithms, Ed25519 and ECDSA P-256 with SHA-256, and one encoding
// of every object.
//
// Parsing gives an Unverified or UnverifiedEnvelope; Verify with a pinned key
// gives a Signed or Envelope. Only those hold a payload that somebody signed.
//
//	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
//	s, err := u.Verify(runnerKey)
//	e, err := receipt.ParseDSSE(b.Statement)
//	v, err := e.Verify(runnerKey)
//	err = receipt.SamePayload(s.Payload(), v.Payload())
package receipt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"
)

// Sign1 signs payload and returns the tagged COSE_Sign1 (RFC 9052, section 4.2)
// with iss = the key's name and sub = subject. The same input gives the same
// bytes if the signer is deterministic. What it returns, ParseSign1 accepts.
// KindSeal and KindSubmit are made by SignHashEnvelope.
func Sign1(kind Kind, s Signer, subject string, payload []byte) ([]byte, error) {
	f, ok := kinds[kind]
	if !ok || f.preimages != nil {
		return nil, refuse(StageType, kind.String(), "a known kind that carries its payload", "")
	}
	return sign1(kind, s, subject, payload, cose.ProtectedHeader{labelContentType: f.contentType})
}

// SignHashEnvelope signs the SHA-256 digest of another object of ours in place of
// the object (RFC 9995). preimageType is the Type of the object's kind: of
// KindSealedSet or KindBenchmark for KindSeal, of KindSubmission for KindSubmit.
func SignHashEnvelope(kind Kind, s Signer, subject, preimageType string, digest [32]byte) ([]byte, error) {
	if kinds[kind].preimages == nil {
		return nil, refuse(StageType, kind.String(), "a kind that is a hash envelope", "")
	}
	return sign1(kind, s, subject, digest[:], cose.ProtectedHeader{labelHashAlg: hashSHA256, labelPreimage: preimageType})
}

// sign1 adds to header what all kinds have.
func sign1(kind Kind, s Signer, subject string, payload []byte, header cose.ProtectedHeader) ([]byte, error) {
	f := kinds[kind]
	key := s.Public()
	kid := key.Thumbprint()
	header[labelAlg] = int64(key.Alg())
	header[labelKid] = kid[:]
	header[labelClaims] = cose.CWTClaims{claimIss: key.Name(), claimSub: subject}
	header[labelTyp] = f.typ
	msg := cose.Sign1Message{
		Headers: cose.Headers{Protected: header, Unprotected: cose.UnprotectedHeader{}},
		Payload: payload,
	}
	if err := msg.Sign(nil, nil, coseSigner{s}); err != nil {
		return nil, fmt.Errorf("%s: %w", f.object, err)
	}
	out, err := msg.MarshalCBOR()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.object, err)
	}
	u, err := ParseSign1(kind, out)
	if err != nil {
		return nil, err
	}
	if _, err := u.Verify(key); err != nil {
		return nil, err
	}
	return out, nil
}

// coseSigner and coseVerifier give go-cose the algorithms that it does not know
// by number (RFC 9864).
type coseSigner struct{ s Signer }

func (c coseSigner) Algorithm() cose.Algorithm { return cose.Algorithm(c.s.Public().Alg()) }
func (c coseSigner) Sign(_ io.Reader, content []byte) ([]byte, error) {
	return signChecked(c.s, content)
}

type coseVerifier struct{ key PublicKey }

func (c coseVerifier) Algorithm() cose.Algorithm        { return cose.Algorithm(c.key.Alg()) }
func (c coseVerifier) Verify(content, sig []byte) error { return c.key.Verify(content, sig) }

// Unverified is a well-formed COSE_Sign1 whose signature nobody has checked.
type Unverified struct {
	kind   Kind
	claims Unauthenticated
	msg    cose.Sign1Message
}

// Unauthenticated is what an object says of itself. Anybody can have written it.
type Unauthenticated struct {
	Alg     Alg
	Kid     [32]byte // thumbprint of the key that is said to have signed
	Issuer  string   // name of that key; COSE only
	Subject string   // COSE only
	Payload []byte

	// PreimageType is what a hash envelope says its payload is the SHA-256 of,
	// as Kind.Type; "" in other objects.
	PreimageType string
}

// Signed is a COSE_Sign1 whose signature verified under a pinned key.
type Signed struct {
	kind     Kind
	key      PublicKey
	subject  string
	payload  []byte
	preimage string
}

// Payload is the signed content.
func (s *Signed) Payload() []byte { return s.payload }

// Subject is the signed sub claim: the run id in a receipt, benchmark/task in a
// sealed set.
func (s *Signed) Subject() string { return s.subject }

// PreimageType is the Type of the kind whose SHA-256 the payload of a hash
// envelope is, or "".
func (s *Signed) PreimageType() string { return s.preimage }

// Key is the pinned key that verified.
func (s *Signed) Key() PublicKey { return s.key }

// Kind of the object.
func (s *Signed) Kind() Kind { return s.kind }

// sign1Frame is the array under tag 18.
type sign1Frame struct {
	_           struct{} `cbor:",toarray"`
	Protected   []byte
	Unprotected cbor.RawMessage
	Payload     cbor.RawMessage // a byte string, or null if detached
	Signature   []byte
}

// ParseSign1 reads a COSE_Sign1 of the given kind. It accepts exactly one
// encoding of each: what Sign1 writes. The result is unverified.
func ParseSign1(kind Kind, data []byte) (*Unverified, error) {
	f, ok := kinds[kind]
	if !ok {
		return nil, refuse(StageType, kind.String(), "a known kind", "")
	}
	u, err := parseSign1(f, data)
	if err != nil {
		return nil, err.in(f.object)
	}
	u.kind = kind
	return u, nil
}

// parseFrame reads the array under the tag.
func parseFrame(data []byte) (frame sign1Frame, _ *Error) {
	// Tag 98 is COSE_Sign, whose signatures are made in another context.
	if !bytes.HasPrefix(data, []byte{0xd2, 0x84}) {
		return frame, refuse(StageTag, fmt.Sprintf("%x", data[:min(2, len(data))]), "d284: tag 18 over an array of four", "")
	}
	if err := decode(data[1:], &frame); err != nil {
		return frame, err
	}
	return frame, nil
}

func parseSign1(f kindFields, data []byte) (*Unverified, *Error) {
	if len(data) == 0 || len(data) > f.max {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", f.max), "")
	}
	frame, err := parseFrame(data)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(frame.Unprotected, []byte{0xa0}) {
		return nil, refuse(StageUnprotected, fmt.Sprintf("%x", clip(frame.Unprotected)), "a0: the empty map", "nothing outside the signature is read; attach proofs as members of the bundle")
	}
	if bytes.Equal(frame.Payload, []byte{0xf6}) {
		return nil, refuse(StagePayload, "a detached payload (null)", "a byte string", "")
	}
	var payload []byte
	if err := decode(frame.Payload, &payload); err != nil {
		return nil, err
	}
	if len(payload) == 0 {
		return nil, refuse(StagePayload, "an empty payload", "at least one byte", "")
	}
	if len(frame.Signature) != SignatureSize {
		return nil, refuse(StageSignature, fmt.Sprintf("%d bytes", len(frame.Signature)), "64 bytes", "")
	}
	said, err := parseProtected(f, frame.Protected)
	if err != nil {
		return nil, err
	}
	if f.preimages != nil && len(payload) != sha256.Size {
		return nil, refuse(StagePayload, fmt.Sprintf("a digest of %d bytes", len(payload)), "32 bytes, a SHA-256", "")
	}
	said.Payload = payload
	u := &Unverified{claims: said}
	// go-cose builds the Sig_structure from the bytes that it parsed itself.
	if err := u.msg.UnmarshalCBOR(data); err != nil {
		return nil, refuse(StageCBOR, err.Error(), "a COSE_Sign1", "")
	}
	return u, nil
}

// parseProtected holds the header to its labels, each of its one type.
func parseProtected(f kindFields, data []byte) (said Unauthenticated, _ *Error) {
	var header map[int64]cbor.RawMessage
	err := decode(data, &header)
	if err != nil {
		return said, err
	}
	if err := exactLabels(header, f.labels()); err != nil {
		return said, err
	}
	if said, err = parseIdentity(header); err != nil {
		return said, err
	}
	if err := textField(header, labelTyp, f.typ); err != nil {
		return said, err
	}
	if f.preimages == nil {
		return said, textField(header, labelContentType, f.contentType)
	}
	var hash int64
	if err := field(header[labelHashAlg], &hash, StageAlg, "an integer"); err != nil {
		return said, err
	}
	if hash != hashSHA256 {
		return said, refuse(StageAlg, fmt.Sprintf("payload hash algorithm %d", hash), fmt.Sprintf("%d, SHA-256", hashSHA256), "")
	}
	if err := field(header[labelPreimage], &said.PreimageType, StageType, "text"); err != nil {
		return said, err
	}
	types := make([]string, len(f.preimages))
	for i, k := range f.preimages {
		types[i] = k.Type()
	}
	if !slices.Contains(types, said.PreimageType) {
		return said, refuse(StageType, fmt.Sprintf("%q in label %d", clip([]byte(said.PreimageType)), labelPreimage), strings.Join(types, " or "), "")
	}
	return said, nil
}

// Unauthenticated shows what the object says before any key has verified it.
func (u *Unverified) Unauthenticated() Unauthenticated { return u.claims }

// Verify checks algorithm, key id, issuer and signature against a pinned key.
// Trust is by the bytes of key: a kid or a name that merely equals it proves
// nothing and only makes for a better error.
func (u *Unverified) Verify(key PublicKey) (*Signed, error) {
	object := kinds[u.kind].object
	if err := matchKey(u.claims.Alg, u.claims.Kid, key); err != nil {
		return nil, err.in(object)
	}
	if u.claims.Issuer != key.Name() {
		return nil, refuse(StageIssuer, fmt.Sprintf("iss %q", u.claims.Issuer), fmt.Sprintf("%q, the name of the pinned key", key.Name()), "the key is right but its name is not: compare the policy line with what keygen printed").in(object)
	}
	if err := u.msg.Verify(nil, coseVerifier{key}); err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			return nil, e.in(object)
		}
		return nil, refuse(StageSignature, err.Error(), "a signature by "+key.Name(), "").in(object)
	}
	return &Signed{u.kind, key, u.claims.Subject, u.claims.Payload, u.claims.PreimageType}, nil
}

// matchKey compares what an object says of its key with the pinned key.
func matchKey(alg Alg, kid [32]byte, key PublicKey) *Error {
	if alg != key.Alg() {
		return refuse(StageAlg, alg.String(), key.Alg().String()+", the algorithm of the pinned key", "")
	}
	if want := key.Thumbprint(); kid != want {
		return refuse(StageKid, Fingerprint(kid), Fingerprint(want)+", the pinned key", "the file was signed by another key than the policy pins")
	}
	return nil
}

// SamePayload fails if two payloads that must be one differ. DSSE and COSE carry
// the same statement; a second one would be a second truth.
func SamePayload(cose, other []byte) error {
	if bytes.Equal(cose, other) {
		return nil
	}
	i := 0
	for i < len(cose) && i < len(other) && cose[i] == other[i] {
		i++
	}
	return refuse(StagePayload, fmt.Sprintf("%d bytes that differ from offset %d", len(other), i), fmt.Sprintf("the %d bytes of the receipt's payload", len(cose)), "the two envelopes were not made from one statement")
}

// VerifySecond checks receipt2.cose: a second required signature, over the same
// payload and subject, by another key than the first.
func (u *Unverified) VerifySecond(first *Signed, key PublicKey) (*Signed, error) {
	const object = "second receipt"
	if key.SameKey(first.key) {
		return nil, refuse(StageSecond, "the key of the first signature", "another key", "pin two keys for two required signatures").in(object)
	}
	if u.kind != first.kind || u.claims.Subject != first.subject || !bytes.Equal(u.claims.Payload, first.payload) {
		return nil, refuse(StageSecond, "another statement", "the payload and sub of the first receipt", "").in(object)
	}
	return u.Verify(key)
}
