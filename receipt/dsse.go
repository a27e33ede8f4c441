package receipt

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// PayloadType is the DSSE payload type of an in-toto Statement, and the content
// type of the COSE_Sign1 over the same bytes.
const PayloadType = "application/vnd.in-toto+json"

// MaxStatement is the largest payload of an envelope, MaxEnvelope the largest
// envelope, in bytes. A submission's envelope holds a larger statement.
const (
	MaxStatement = 48 << 10
	MaxEnvelope  = 80 << 10

	MaxSubmissionStatement = 16 << 20
	MaxSubmissionEnvelope  = 24 << 20
)

// envelopeLimits are the most bytes of payload and envelope of a kind.
func envelopeLimits(kind Kind) (payload, envelope int) {
	if kind == KindSubmission {
		return MaxSubmissionStatement, MaxSubmissionEnvelope
	}
	return MaxStatement, MaxEnvelope
}

// wireEnvelope has its fields in the order in which they are written: sorted, as
// RFC 8785 would.
type wireEnvelope struct {
	Payload     *string          `json:"payload"`
	PayloadType *string          `json:"payloadType"`
	Signatures  *[]wireSignature `json:"signatures"`
}

type wireSignature struct {
	KeyID *string `json:"keyid"`
	Sig   *string `json:"sig"`
}

// format writes an envelope in its only form: compact, sorted, one signature,
// no newline at the end.
func formatEnvelope(payload, payloadType, keyid, sig string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"payload":"%s","payloadType":"%s","signatures":[{"keyid":"%s","sig":"%s"}]}`, payload, payloadType, keyid, sig)
	return b.Bytes()
}

// pae is the DSSE pre-authentication encoding (DSSE protocol 1.0.2, "Signature
// definition"). go-securesystemslib has the same function, in a package that
// brings net and log with it; a test compares the two.
func pae(payloadType string, payload []byte) []byte {
	b := make([]byte, 0, len(payloadType)+len(payload)+48)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(payloadType)), 10)
	b = append(b, ' ')
	b = append(b, payloadType...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	b = append(b, ' ')
	return append(b, payload...)
}

// SignDSSE signs an in-toto Statement. keyid is the hex of the key's thumbprint.
// An ECDSA signature is written as DER, as in-toto, cosign and securesystemslib
// expect it. What SignDSSE returns, ParseDSSE accepts.
func SignDSSE(s Signer, payload []byte) ([]byte, error) {
	return SignEnvelope(KindReceipt, s, payload)
}

// SignEnvelope is SignDSSE for the statement of a receipt or of a submission.
// The envelope itself does not say which: predicateType does.
func SignEnvelope(kind Kind, s Signer, payload []byte) ([]byte, error) {
	if most, _ := envelopeLimits(kind); len(payload) == 0 || len(payload) > most {
		return nil, refuse(StagePayload, fmt.Sprintf("a payload of %d bytes", len(payload)), fmt.Sprintf("1 to %d", most), "").in("envelope")
	}
	key := s.Public()
	sig, err := signChecked(s, pae(PayloadType, payload))
	if err != nil {
		return nil, err
	}
	if key.Alg() == ESP256 {
		if sig, err = toDER(sig); err != nil {
			return nil, err
		}
	}
	kid := key.Thumbprint()
	b64 := base64.StdEncoding.EncodeToString
	out := formatEnvelope(b64(payload), PayloadType, hex.EncodeToString(kid[:]), b64(sig))
	e, err := ParseEnvelope(kind, out)
	if err != nil {
		return nil, err
	}
	if _, err := e.Verify(key); err != nil {
		return nil, err
	}
	return out, nil
}

// UnverifiedEnvelope is a well-formed envelope whose signature nobody has
// checked.
type UnverifiedEnvelope struct {
	kid     [32]byte
	payload []byte
	sig     []byte
}

// Envelope is a DSSE envelope whose signature verified under a pinned key.
type Envelope struct {
	key     PublicKey
	payload []byte
}

// Payload is the signed statement.
func (e *Envelope) Payload() []byte { return e.payload }

// Key is the pinned key that verified.
func (e *Envelope) Key() PublicKey { return e.key }

// ParseDSSE reads an envelope in its only form. Other JSON of the same meaning
// (white space, another order, escapes, a repeated key) is refused: whoever can
// write a bundle in two ways can say two things. The result is unverified.
func ParseDSSE(data []byte) (*UnverifiedEnvelope, error) {
	return ParseEnvelope(KindReceipt, data)
}

// ParseEnvelope is ParseDSSE for the statement of a receipt or of a submission.
func ParseEnvelope(kind Kind, data []byte) (*UnverifiedEnvelope, error) {
	e, err := parseDSSE(kind, data)
	if err != nil {
		return nil, err.in("envelope")
	}
	return e, nil
}

func parseDSSE(kind Kind, data []byte) (*UnverifiedEnvelope, *Error) {
	most, largest := envelopeLimits(kind)
	if len(data) == 0 || len(data) > largest {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", largest), "")
	}
	var w wireEnvelope
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return nil, refuse(StageJSON, err.Error(), "a DSSE envelope with payload, payloadType and signatures", "")
	}
	if w.Payload == nil || w.PayloadType == nil || w.Signatures == nil {
		return nil, refuse(StageJSON, "a missing field", "payload, payloadType and signatures", "")
	}
	if n := len(*w.Signatures); n != 1 {
		return nil, refuse(StageSignatures, fmt.Sprintf("%d signatures", n), "exactly one", "a second required signature is a member of its own, receipt2.cose")
	}
	s := (*w.Signatures)[0]
	if s.KeyID == nil || s.Sig == nil {
		return nil, refuse(StageJSON, "a signature without keyid or sig", "both", "")
	}
	if *w.PayloadType != PayloadType {
		return nil, refuse(StagePayloadType, fmt.Sprintf("%q", clip([]byte(*w.PayloadType))), PayloadType, "")
	}
	strict := base64.StdEncoding.Strict()
	payload, err := strict.DecodeString(*w.Payload)
	if err != nil {
		return nil, refuse(StageBase64, "payload: "+err.Error(), "strict standard base64", "")
	}
	sig, err := strict.DecodeString(*s.Sig)
	if err != nil {
		return nil, refuse(StageBase64, "sig: "+err.Error(), "strict standard base64", "")
	}
	if len(payload) == 0 || len(payload) > most {
		return nil, refuse(StagePayload, fmt.Sprintf("a payload of %d bytes", len(payload)), fmt.Sprintf("1 to %d", most), "")
	}
	kid, err := hex.DecodeString(*s.KeyID)
	if err != nil || len(kid) != 32 {
		return nil, refuse(StageKid, fmt.Sprintf("keyid %q", clip([]byte(*s.KeyID))), "64 lower-case hex digits", "")
	}
	// Decoders skip what they do not mind: white space, key order and case,
	// repeated keys, escapes, line breaks in base64, bytes after the end.
	b64 := base64.StdEncoding.EncodeToString
	if again := formatEnvelope(b64(payload), PayloadType, hex.EncodeToString(kid), b64(sig)); !bytes.Equal(again, data) {
		i := 0
		for i < len(again) && i < len(data) && again[i] == data[i] {
			i++
		}
		return nil, refuse(StageCanonical, fmt.Sprintf("another spelling from offset %d", i), "compact JSON in fixed order, nothing before or after", "")
	}
	return &UnverifiedEnvelope{kid: [32]byte(kid), payload: payload, sig: sig}, nil
}

// Unauthenticated shows what the envelope says before any key has verified it.
// Alg, Issuer and Subject are empty: DSSE does not carry them.
func (e *UnverifiedEnvelope) Unauthenticated() Unauthenticated {
	return Unauthenticated{Kid: e.kid, Payload: e.payload}
}

// Verify checks key id and signature against a pinned key.
func (e *UnverifiedEnvelope) Verify(key PublicKey) (*Envelope, error) {
	if err := e.verify(key); err != nil {
		return nil, err.in("envelope")
	}
	return &Envelope{key, e.payload}, nil
}

func (e *UnverifiedEnvelope) verify(key PublicKey) *Error {
	if err := matchKey(key.Alg(), e.kid, key); err != nil {
		return err
	}
	sig := e.sig
	if key.Alg() == ESP256 {
		raw, err := FromDER(sig)
		if err != nil {
			return err.(*Error)
		}
		// FromDER lowers s and the parser may be lenient: only the exact DER of
		// the lower s is the signature's spelling.
		if der, err := toDER(raw); err != nil || !bytes.Equal(der, sig) {
			return refuse(StageSignature, fmt.Sprintf("%x", clip(sig)), "the DER of (r, s) with s in the lower half", "")
		}
		sig = raw
	}
	if err := key.Verify(pae(PayloadType, e.payload), sig); err != nil {
		return err.(*Error)
	}
	return nil
}
