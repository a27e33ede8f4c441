package receipt

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"
)

// vdsCCF is CCF_LEDGER_SHA256, the ledger of the Confidential Consortium Framework
// (draft-ietf-scitt-receipts-ccf-profile; the number is requested, not assigned).
const vdsCCF int64 = 2

// maxEvidence bounds the commit evidence in bytes (section 2.2 of the draft).
const maxEvidence = 1024

// algES384 is ECDSA on P-384 with SHA-384. No PublicKey has it: ledgers sign with
// it, and nobody else.
const (
	algES384      Alg = -35
	signatureP384     = 96 // bytes, r || s
)

// spkiP384 is the DER of SubjectPublicKeyInfo for an uncompressed P-384 point
// (RFC 5480, section 2), up to the point.
var spkiP384 = []byte{
	0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
	0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
}

// A CCFKey is the service identity of a CCF ledger, a P-384 key, with the name
// that its receipts have as iss. It verifies receipts of profile ccf and nothing
// else: it is no PublicKey, has no vkey and cannot stand in a policy. The zero
// value verifies nothing. Values of one key and name compare equal with ==.
type CCFKey struct {
	name  string
	point string   // 97 bytes, uncompressed
	kid   [32]byte // SHA-256 of the DER SubjectPublicKeyInfo
}

// NewCCFKey names the key of a ledger. The error is an *Error.
func NewCCFKey(name string, pub *ecdsa.PublicKey) (CCFKey, error) {
	if err := checkName(name); err != nil {
		return CCFKey{}, err
	}
	if pub == nil || pub.Curve != elliptic.P384() {
		return CCFKey{}, refuse(StageVKey, "no key on P-384", "the P-384 key of the ledger's service certificate", "")
	}
	point, err := pub.Bytes()
	if err != nil {
		return CCFKey{}, refuse(StageVKey, err.Error(), "a point on P-384", "")
	}
	return CCFKey{name, string(point), sha256.Sum256(append(bytes.Clone(spkiP384), point...))}, nil
}

// Name is what the ledger calls itself.
func (k CCFKey) Name() string { return k.name }

// CCFInclusion is the inclusion proof of a CCF ledger (section 3 of the draft). It
// tells neither the size of the tree nor the place of the leaf.
type CCFInclusion struct {
	Transaction [32]byte // hash of the ledger entry: what else the leaf commits to
	Evidence    string   // commit evidence, 1 to 1,024 bytes; only its hash is in the leaf
	Data        [32]byte // SHA-256 of the statement as it was registered
	Path        []CCFElement
}

// CCFElement is a step from the leaf, which is first, to the root.
type CCFElement struct {
	Left bool // Hash is the left one of the two
	Hash [32]byte
}

// root folds the path. A leaf hashes 96 bytes and a node 64, which keeps the two
// apart: the lengths are checked when the proof is parsed.
func (in *CCFInclusion) root() [32]byte {
	evidence := sha256.Sum256([]byte(in.Evidence))
	h := sha256.Sum256(bytes.Join([][]byte{in.Transaction[:], evidence[:], in.Data[:]}, nil))
	for _, e := range in.Path {
		left, right := h, e.Hash
		if e.Left {
			left, right = right, left
		}
		h = sha256.Sum256(append(left[:], right[:]...))
	}
	return h
}

// The labels of a proof, and its two parts as they stand there.
const (
	labelCCFLeaf int64 = 1
	labelCCFPath int64 = 2
)

type (
	ccfLeafFrame struct {
		_           struct{} `cbor:",toarray"`
		Transaction []byte
		Evidence    string
		Data        []byte
	}
	ccfElementFrame struct {
		_    struct{} `cbor:",toarray"`
		Left bool
		Hash []byte
	}
)

// parseCCFInclusion reads the one deterministic encoding of a proof. The draft
// does not ask for it, but ledgers write it, and the proof is not signed.
func parseCCFInclusion(data []byte) (*CCFInclusion, *Error) {
	const (
		want     = "{1: [hash of 32 bytes, text, hash of 32 bytes], 2: path}"
		wantPath = "1 to 64 elements [left or not, hash of 32 bytes]"
	)
	var parts map[int64]cbor.RawMessage
	if err := field(data, &parts, StageProof, want); err != nil {
		return nil, err
	}
	if len(parts) != 2 || parts[labelCCFLeaf] == nil || parts[labelCCFPath] == nil {
		return nil, refuse(StageProof, fmt.Sprintf("a proof of %d parts", len(parts)), want, "")
	}
	var leaf ccfLeafFrame
	if err := field(parts[labelCCFLeaf], &leaf, StageProof, want); err != nil {
		return nil, err
	}
	if len(leaf.Transaction) != sha256.Size || len(leaf.Data) != sha256.Size {
		return nil, refuse(StageProof, fmt.Sprintf("hashes of %d and %d bytes in the leaf", len(leaf.Transaction), len(leaf.Data)), "32 bytes each", "")
	}
	if n := len(leaf.Evidence); n == 0 || n > maxEvidence {
		return nil, refuse(StageProof, fmt.Sprintf("commit evidence of %d bytes", n), fmt.Sprintf("1 to %d", maxEvidence), "")
	}
	in := &CCFInclusion{Transaction: [32]byte(leaf.Transaction), Evidence: leaf.Evidence, Data: [32]byte(leaf.Data)}
	var path []ccfElementFrame
	if err := field(parts[labelCCFPath], &path, StageProof, wantPath); err != nil {
		return nil, err
	}
	if len(path) == 0 || len(path) > maxPath {
		return nil, refuse(StageProof, fmt.Sprintf("a path of %d elements", len(path)), wantPath, "")
	}
	for _, e := range path {
		if len(e.Hash) != sha256.Size {
			return nil, refuse(StageProof, fmt.Sprintf("a hash of %d bytes", len(e.Hash)), wantPath, "")
		}
		in.Path = append(in.Path, CCFElement{e.Left, [32]byte(e.Hash)})
	}
	return in, nil
}

// parseCCFKid reads the kid as CCF writes it: the SHA-256 of the key's DER in
// lower-case hex.
func parseCCFKid(kid []byte) (sum [32]byte, _ *Error) {
	if n, err := hex.Decode(sum[:], kid[:min(len(kid), 64)]); err != nil || n != len(sum) || hex.EncodeToString(sum[:]) != string(kid) {
		return sum, refuse(StageKid, fmt.Sprintf("%q", clip(kid)), "64 lower-case hex digits, the SHA-256 of the ledger's key", "")
	}
	return sum, nil
}

// CCFReceipt is a receipt of profile ccf whose root the pinned ledger signed.
type CCFReceipt struct {
	claims LogReceiptClaims
	ledger CCFKey
	root   [32]byte
}

// Ledger is the pinned key that verified.
func (r *CCFReceipt) Ledger() CCFKey { return r.ledger }

// Root is the root that the ledger signed.
func (r *CCFReceipt) Root() [32]byte { return r.root }

// Inclusion is the proof.
func (r *CCFReceipt) Inclusion() *CCFInclusion { return r.claims.CCF }

// Subject is the signed sub, in which a ledger names the kind of its receipt.
func (r *CCFReceipt) Subject() string { return r.claims.Subject }

// VerifyCCF checks, in this order, that a receipt of profile ccf names the pinned
// ledger and its key, that it is for the statement, byte for byte as it was
// registered, and that the ledger signed the root to which the path leads. The
// error is an *Error.
func (r *UnverifiedLogReceipt) VerifyCCF(ledger CCFKey, statement []byte) (*CCFReceipt, error) {
	if err := r.matchLedger(ledger); err != nil {
		return nil, err.in(logReceiptObject)
	}
	root, err := r.InclusionRoot(statement)
	if err != nil {
		return nil, err
	}
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P384(), []byte(ledger.point))
	if err != nil {
		return nil, refuse(StageVKey, err.Error(), "a pinned ledger", "").in(logReceiptObject)
	}
	verifier, err := cose.NewVerifier(cose.AlgorithmES384, pub)
	if err != nil {
		return nil, refuse(StageVKey, err.Error(), "a pinned ledger", "").in(logReceiptObject)
	}
	msg := r.msg // a copy: parsed receipts are used from many goroutines
	msg.Payload = root[:]
	if err := msg.Verify(nil, verifier); err != nil {
		return nil, refuse(StageSignature, fmt.Sprintf("a signature that is not over root %x", root), "one by "+ledger.Name()+" over the root to which the path leads",
			"the receipt was changed, or another key signed it").in(logReceiptObject)
	}
	return &CCFReceipt{r.claims, ledger, root}, nil
}

// matchLedger compares what a receipt says of its ledger with the pinned one.
func (r *UnverifiedLogReceipt) matchLedger(ledger CCFKey) *Error {
	if r.profile != ProfileCCF {
		return refuse(StageType, "a receipt read as profile "+r.profile.String(), "one of profile "+ProfileCCF.String(), "check it with VerifyInclusion")
	}
	if r.claims.Kid != ledger.kid {
		return refuse(StageKid, fmt.Sprintf("%x", r.claims.Kid), fmt.Sprintf("%x, the pinned ledger", ledger.kid), "another ledger signed it, or this one under an earlier or later identity")
	}
	if r.claims.Issuer != ledger.name {
		return refuse(StageIssuer, fmt.Sprintf("iss %q", r.claims.Issuer), fmt.Sprintf("%q, the name of the pinned ledger", ledger.name), "")
	}
	return nil
}
