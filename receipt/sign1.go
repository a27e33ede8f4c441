package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Kind says what a COSE_Sign1 of ours is. It fixes typ and content type, so a
// signature over one kind is never taken for another.
type Kind uint8

const (
	KindReceipt    Kind = iota + 1 // receipt.cose, receipt2.cose: an in-toto Statement signed by the runner
	KindSealedSet                  // task.sealed: a sealed set signed by the owner
	KindBenchmark                  // head of a benchmark's seal, signed by the owner; sub is the benchmark
	KindSubmission                 // submission.cose: an in-toto Statement over many receipts; sub is the submission id
)

type kindFields struct {
	object      string
	typ         string // label 16, RFC 9596: the whole object
	contentType string // label 3: the payload
	max         int    // bytes of the whole object
}

var kinds = map[Kind]kindFields{
	KindReceipt:    {"receipt", "application/cleanrun-receipt+cose", PayloadType, MaxReceipt},
	KindSealedSet:  {"sealed set", "application/cleanrun-sealed-set+cose", "application/cleanrun-sealed-set+cbor", MaxSealedSet},
	KindBenchmark:  {"benchmark seal", "application/cleanrun-benchmark+cose", "application/cleanrun-benchmark+cbor", MaxBenchmark},
	KindSubmission: {"submission", "application/cleanrun-submission+cose", PayloadType, MaxSubmission},
}

func (k Kind) String() string {
	if f, ok := kinds[k]; ok {
		return f.object
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Largest COSE_Sign1 of each kind, and longest sub claim, in bytes.
const (
	MaxReceipt    = 64 << 10
	MaxSealedSet  = 64 << 20
	MaxBenchmark  = 16 << 10 // the head alone
	MaxSubmission = 64 << 20
	MaxSubject    = 512
)

// Labels of the protected header (RFC 9052, 9596, 9597). It holds these five
// and no other.
const (
	labelAlg         int64 = 1
	labelCrit        int64 = 2
	labelContentType int64 = 3
	labelKid         int64 = 4
	labelClaims      int64 = 15
	labelTyp         int64 = 16
)

// CWT claims in the header (RFC 8392); RFC 9943, section 6, demands both.
const (
	claimIss int64 = 1
	claimSub int64 = 2
)

// Sign1 signs payload and returns the tagged COSE_Sign1 (RFC 9052, section 4.2)
// with iss = the key's name and sub = subject. The same input gives the same
// bytes if the signer is deterministic. What it returns, ParseSign1 accepts.
func Sign1(kind Kind, s Signer, subject string, payload []byte) ([]byte, error) {
	f, ok := kinds[kind]
	if !ok {
		return nil, refuse(StageType, kind.String(), "a known kind", "")
	}
	key := s.Public()
	kid := key.Thumbprint()
	msg := cose.Sign1Message{
		Headers: cose.Headers{
			Protected: cose.ProtectedHeader{
				labelAlg:         int64(key.Alg()),
				labelContentType: f.contentType,
				labelKid:         kid[:],
				labelClaims:      cose.CWTClaims{claimIss: key.Name(), claimSub: subject},
				labelTyp:         f.typ,
			},
			Unprotected: cose.UnprotectedHeader{},
		},
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
}

// Signed is a COSE_Sign1 whose signature verified under a pinned key.
type Signed struct {
	kind    Kind
	key     PublicKey
	subject string
	payload []byte
}

// Payload is the signed content.
func (s *Signed) Payload() []byte { return s.payload }

// Subject is the signed sub claim: the run id in a receipt, benchmark/task in a
// sealed set.
func (s *Signed) Subject() string { return s.subject }

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

func parseSign1(f kindFields, data []byte) (*Unverified, *Error) {
	if len(data) == 0 || len(data) > f.max {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", f.max), "")
	}
	// Tag 98 is COSE_Sign, whose signatures are made in another context.
	if !bytes.HasPrefix(data, []byte{0xd2, 0x84}) {
		return nil, refuse(StageTag, fmt.Sprintf("%x", data[:min(2, len(data))]), "d284: tag 18 over an array of four", "")
	}
	var frame sign1Frame
	if err := decode(data[1:], &frame); err != nil {
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
	said.Payload = payload
	u := &Unverified{claims: said}
	// go-cose builds the Sig_structure from the bytes that it parsed itself.
	if err := u.msg.UnmarshalCBOR(data); err != nil {
		return nil, refuse(StageCBOR, err.Error(), "a COSE_Sign1", "")
	}
	return u, nil
}

// parseProtected holds the header to its five labels, each of its one type.
func parseProtected(f kindFields, data []byte) (said Unauthenticated, _ *Error) {
	var header map[int64]cbor.RawMessage
	if err := decode(data, &header); err != nil {
		return said, err
	}
	if v, ok := header[labelCrit]; ok {
		return said, refuse(StageCrit, fmt.Sprintf("crit %x", clip(v)), "no crit header", "the file asks for a rule that this version does not know; use a newer cleanrun")
	}
	labels := []int64{labelAlg, labelContentType, labelKid, labelClaims, labelTyp}
	for l := range header {
		if !slices.Contains(labels, l) {
			return said, refuse(StageHeader, fmt.Sprintf("label %d", l), "only labels 1, 3, 4, 15 and 16", "a key or certificate inside the file is never trusted; pin keys in a policy file")
		}
	}
	for _, l := range labels {
		if _, ok := header[l]; !ok {
			stage := StageHeader
			if l == labelAlg {
				stage = StageAlg
			}
			return said, refuse(stage, fmt.Sprintf("no label %d in the protected header", l), "labels 1, 3, 4, 15 and 16", "")
		}
	}

	var alg int64
	if err := field(header[labelAlg], &alg, StageAlg, "an integer"); err != nil {
		return said, err
	}
	if said.Alg = Alg(alg); said.Alg != Ed25519 && said.Alg != ESP256 {
		return said, refuse(StageAlg, said.Alg.String(), fmt.Sprintf("%v or %v", Ed25519, ESP256), "")
	}

	var kid []byte
	if err := field(header[labelKid], &kid, StageKid, "a byte string"); err != nil {
		return said, err
	}
	if len(kid) != len(said.Kid) {
		return said, refuse(StageKid, fmt.Sprintf("kid of %d bytes", len(kid)), "32 bytes, a COSE key thumbprint", "")
	}
	said.Kid = [32]byte(kid)

	const wantClaims = "{1: iss, 2: sub}, both text"
	var claims map[int64]string
	if err := field(header[labelClaims], &claims, StageHeader, wantClaims); err != nil {
		return said, err
	}
	iss, ok1 := claims[claimIss]
	sub, ok2 := claims[claimSub]
	if !ok1 || !ok2 || len(claims) != 2 {
		return said, refuse(StageHeader, fmt.Sprintf("claims %x", clip(header[labelClaims])), wantClaims, "")
	}
	if checkName(iss) != nil {
		return said, refuse(StageIssuer, fmt.Sprintf("iss %q", clip([]byte(iss))), "a key name", "")
	}
	if err := checkSubject(sub); err != nil {
		return said, err
	}
	said.Issuer, said.Subject = iss, sub

	for _, t := range []struct {
		label int64
		want  string
	}{{labelTyp, f.typ}, {labelContentType, f.contentType}} {
		var got string
		if err := field(header[t.label], &got, StageType, "text"); err != nil {
			return said, err
		}
		if got != t.want {
			return said, refuse(StageType, fmt.Sprintf("%q in label %d", clip([]byte(got)), t.label), fmt.Sprintf("%q", t.want), "this is another kind of file")
		}
	}
	return said, nil
}

// field decodes one header value, which the decoding of the map left unread.
func field(raw []byte, v any, stage Stage, want string) *Error {
	err := decode(raw, v)
	if err == nil || err.Stage == StageCanonical {
		return err
	}
	return refuse(stage, fmt.Sprintf("%x (%s)", clip(raw), err.Got), want, "")
}

func checkSubject(sub string) *Error {
	ok := sub != "" && len(sub) <= MaxSubject && utf8.ValidString(sub)
	for _, r := range sub {
		ok = ok && r >= ' ' && r != 0x7f
	}
	if !ok {
		return refuse(StageHeader, fmt.Sprintf("sub %q", clip([]byte(sub))), fmt.Sprintf("1 to %d bytes of text without control characters", MaxSubject), "")
	}
	return nil
}

// decode tells malformed CBOR from a second spelling of good CBOR.
func decode(data []byte, v any) *Error {
	err := dcbor.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if errors.Is(err, dcbor.ErrNotCanonical) {
		return refuse(StageCanonical, err.Error(), "the deterministic encoding", "")
	}
	return refuse(StageCBOR, err.Error(), "strict CBOR of the shape in spec/bundle.md", "")
}

// clip bounds what an error quotes.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }

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
	return &Signed{u.kind, key, u.claims.Subject, u.claims.Payload}, nil
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
