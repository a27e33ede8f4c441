package receipt

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"
)

// A Profile says how strictly a COSE receipt is read and what the leaf of an
// entry is. RFC 9942 leaves both open, and published receipts differ.
type Profile uint8

const (
	// ProfileCleanrun is what we write and all that verify accepts: one encoding,
	// protected labels 1, 4, 15 and 395, the entry as leaf.
	ProfileCleanrun Profile = iota + 1
	// ProfileRFC9943 reads receipts of other transparency services: kid and
	// claims are required, other protected labels are allowed, algorithms -8 and
	// -7 too, and the entry is the leaf. kid is a hint and is not compared.
	ProfileRFC9943
	// ProfileDigestLeaf reads the receipts of the published SCITT interop set:
	// no kid and no claims are asked for, and the leaf is the SHA-256 of the
	// statement as it was registered. The receipt does not name its log.
	ProfileDigestLeaf
	// ProfileCCF reads receipts of CCF ledgers, another tree under another
	// algorithm: kid and claims are required, other protected labels are allowed,
	// ES384 only. See VerifyCCF; no PublicKey verifies them.
	ProfileCCF
)

func (p Profile) String() string {
	switch p {
	case ProfileCleanrun:
		return "cleanrun"
	case ProfileRFC9943:
		return "rfc9943"
	case ProfileDigestLeaf:
		return "digest-leaf"
	case ProfileCCF:
		return "ccf"
	}
	return fmt.Sprintf("profile %d", uint8(p))
}

// Polymorphic algorithms that RFC 9864 deprecates and that published receipts
// use.
const (
	algEdDSA Alg = -8
	algES256 Alg = -7
)

// maxForeignReceipt bounds receipts of other services, which may hold
// certificates.
const maxForeignReceipt = 64 << 10

// foreign decodes what others write: maps in any order and longer integers, but
// no repeated keys, no indefinite lengths and no tags.
var foreign = func() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		IntDec:           cbor.IntDecConvertSigned,
		UTF8:             cbor.UTF8RejectInvalid,
		MaxNestedLevels:  16,
		MaxArrayElements: 1024,
		MaxMapPairs:      1024,
	}.DecMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return m
}()

// decode reads one item as the profile allows it to be spelled.
func (p Profile) decode(data []byte, v any) *Error {
	if p == ProfileCleanrun {
		return decode(data, v)
	}
	if err := foreign.Unmarshal(data, v); err != nil {
		return refuse(StageCBOR, err.Error(), "CBOR without repeated keys, indefinite lengths and tags", "")
	}
	return nil
}

// ParseLogReceipt reads a COSE receipt of profile cleanrun. It accepts exactly one
// encoding of each: what SignInclusion and SignConsistency write. The result is
// unverified, the error an *Error.
func ParseLogReceipt(data []byte) (*UnverifiedLogReceipt, error) {
	return ParseLogReceiptAs(ProfileCleanrun, data)
}

// ParseLogReceiptAs reads a COSE receipt of a named profile.
func ParseLogReceiptAs(p Profile, data []byte) (*UnverifiedLogReceipt, error) {
	r, err := parseLogReceipt(p, data)
	if err != nil {
		return nil, err.in(logReceiptObject)
	}
	return r, nil
}

func parseLogReceipt(p Profile, data []byte) (*UnverifiedLogReceipt, *Error) {
	most := maxForeignReceipt
	switch p {
	case ProfileCleanrun:
		most = MaxLogReceipt
	case ProfileRFC9943, ProfileDigestLeaf, ProfileCCF:
	default:
		return nil, refuse(StageType, p.String(), "a known profile", "")
	}
	if len(data) == 0 || len(data) > most {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", most), "")
	}
	frame, err := parseFrame(data)
	if err != nil {
		return nil, err
	}
	r := &UnverifiedLogReceipt{profile: p}
	if p == ProfileCleanrun {
		err = r.claims.parseProtected(frame.Protected)
	} else {
		err = r.claims.parseForeign(p, frame.Protected)
	}
	if err != nil {
		return nil, err
	}
	if err := r.claims.parseProofs(p, frame.Unprotected); err != nil {
		return nil, err
	}
	if !bytes.Equal(frame.Payload, []byte{0xf6}) {
		return nil, refuse(StagePayload, fmt.Sprintf("an attached payload %x", clip(frame.Payload)), "null: the root is detached", "a root that stands in the receipt would not have to be computed")
	}
	if want := p.signatureSize(); len(frame.Signature) != want {
		return nil, refuse(StageSignature, fmt.Sprintf("%d bytes", len(frame.Signature)), fmt.Sprintf("%d bytes", want), "")
	}
	if err := r.msg.UnmarshalCBOR(data); err != nil {
		return nil, refuse(StageCBOR, err.Error(), "a COSE_Sign1", "")
	}
	return r, nil
}

func (p Profile) signatureSize() int {
	if p == ProfileCCF {
		return signatureP384
	}
	return SignatureSize
}

// algs are the algorithms that receipts of other services may name.
func (p Profile) algs() []Alg {
	if p == ProfileCCF {
		return []Alg{algES384}
	}
	return []Alg{Ed25519, ESP256, algEdDSA, algES256}
}

// parseProtected reads the header that says who signed, and of which structure.
func (c *LogReceiptClaims) parseProtected(data []byte) *Error {
	var header map[int64]cbor.RawMessage
	if err := decode(data, &header); err != nil {
		return err
	}
	if err := exactLabels(header, []int64{labelAlg, labelKid, labelClaims, labelVDS}); err != nil {
		return err
	}
	if err := ProfileCleanrun.checkVDS(header[labelVDS]); err != nil {
		return err
	}
	said, err := parseIdentity(header)
	if err != nil {
		return err
	}
	c.Alg, c.Kid, c.Issuer, c.Subject = said.Alg, said.Kid, said.Issuer, said.Subject
	return nil
}

// parseForeign reads what it needs of a header with any other labels in it.
func (c *LogReceiptClaims) parseForeign(p Profile, data []byte) *Error {
	header, err := p.labels(data)
	if err != nil {
		return err
	}
	if v, ok := header[labelCrit]; ok {
		return refuse(StageCrit, fmt.Sprintf("crit %x", clip(v)), "no crit header", "the file asks for a rule that this version does not know")
	}
	// Proofs and receipts are not signed: the protected header is no place for them.
	for _, l := range []int64{labelReceipts, labelVDP} {
		if _, ok := header[l]; ok {
			return refuse(StageHeader, fmt.Sprintf("label %d in the protected header", l), "the label in one header only", "")
		}
	}
	if err := p.checkVDS(header[labelVDS]); err != nil {
		return err
	}
	var alg int64
	if err := p.field(header[labelAlg], &alg, StageAlg, "an integer"); err != nil {
		return err
	}
	if c.Alg = Alg(alg); !slices.Contains(p.algs(), c.Alg) {
		return refuse(StageAlg, c.Alg.String(), fmt.Sprintf("one of %v", p.algs()), "")
	}
	if p == ProfileDigestLeaf {
		return nil
	}
	var kid []byte
	if err := p.field(header[labelKid], &kid, StageKid, "a byte string"); err != nil {
		return err
	}
	if p == ProfileCCF {
		if c.Kid, err = parseCCFKid(kid); err != nil {
			return err
		}
	} else if len(kid) == len(c.Kid) {
		c.Kid = [32]byte(kid)
	}
	const wantClaims = "claims with iss and sub, both text (RFC 9943, section 7)"
	if len(header[labelClaims]) == 0 {
		return refuse(StageHeader, "no label 15 in the protected header", wantClaims, "")
	}
	claims, err := p.labels(header[labelClaims])
	if err != nil {
		return err
	}
	if err := p.field(claims[claimIss], &c.Issuer, StageHeader, wantClaims); err != nil {
		return err
	}
	if err := p.field(claims[claimSub], &c.Subject, StageHeader, wantClaims); err != nil {
		return err
	}
	if checkName(c.Issuer) != nil {
		return refuse(StageIssuer, fmt.Sprintf("iss %q", clip([]byte(c.Issuer))), "a key name", "")
	}
	return checkSubject(c.Subject)
}

// labels are the entries of a map with integer keys.
func (p Profile) labels(data []byte) (map[int64]cbor.RawMessage, *Error) {
	var all map[any]cbor.RawMessage
	if err := p.decode(data, &all); err != nil {
		return nil, err
	}
	header := make(map[int64]cbor.RawMessage)
	for k, v := range all {
		if n, ok := k.(int64); ok {
			header[n] = v
		}
	}
	return header, nil
}

func (p Profile) field(raw []byte, v any, stage Stage, want string) *Error {
	if p == ProfileCleanrun {
		return field(raw, v, stage, want)
	}
	if err := p.decode(raw, v); err != nil {
		return refuse(stage, fmt.Sprintf("%x (%s)", clip(raw), err.Got), want, "")
	}
	return nil
}

// checkVDS reads the protected header alone: nothing unprotected can choose how a
// proof is read.
func (p Profile) checkVDS(raw cbor.RawMessage) *Error {
	only, want, hint := vdsRFC9162, "1, RFC9162_SHA256", "the receipt is of a log of another kind, which this profile does not read"
	if p == ProfileCCF {
		only, want = vdsCCF, "2, CCF_LEDGER_SHA256"
	}
	var vds int64
	if err := p.field(raw, &vds, StageVDS, want); err != nil {
		return err
	}
	if vds != only {
		return refuse(StageVDS, fmt.Sprintf("verifiable data structure %d", vds), want, hint)
	}
	return nil
}

// parseProofs reads the unprotected header, {396: {-1 or -2: [proof]}}.
func (c *LogReceiptClaims) parseProofs(p Profile, data []byte) *Error {
	var unprotected map[int64]cbor.RawMessage
	if err := p.decode(data, &unprotected); err != nil {
		return err
	}
	raw, ok := unprotected[labelVDP]
	if !ok || len(unprotected) != 1 {
		return refuse(StageUnprotected, fmt.Sprintf("labels %v", slices.Sorted(maps.Keys(unprotected))), "label 396 alone", "nothing else outside the signature is read")
	}
	const want = "a map with one of -1 (inclusion) and -2 (consistency), an array of one byte string"
	var proofs map[int64][][]byte
	if err := p.field(raw, &proofs, StageProof, want); err != nil {
		return err
	}
	in, ok1 := proofs[labelInclusion]
	con, ok2 := proofs[labelConsistency]
	if len(proofs) != 1 || ok1 == ok2 || len(in)+len(con) != 1 {
		return refuse(StageProof, fmt.Sprintf("proofs of the sorts %v, %d in all", slices.Sorted(maps.Keys(proofs)), len(in)+len(con)), want, "")
	}
	if p == ProfileCCF {
		if !ok1 {
			return refuse(StageProof, "a consistency proof", "an inclusion proof", "this version reads no other proof of a CCF ledger")
		}
		var err *Error
		c.CCF, err = parseCCFInclusion(in[0])
		return err
	}
	if ok1 {
		var f inclusionFrame
		if err := p.field(in[0], &f, StageProof, "[size, index, path], hashes of 32 bytes"); err != nil {
			return err
		}
		path, err := hashes32(f.Path)
		if err != nil {
			return err
		}
		c.Inclusion = &Inclusion{f.Size, f.Index, path}
		return c.Inclusion.check()
	}
	var f consistencyFrame
	if err := p.field(con[0], &f, StageProof, "[older size, newer size, path], hashes of 32 bytes"); err != nil {
		return err
	}
	path, err := hashes32(f.Path)
	if err != nil {
		return err
	}
	c.Consistency = &Consistency{f.Older, f.Newer, path}
	return c.Consistency.check()
}

// matchLog compares what a receipt says of its log with the pinned key, as far as
// the profile goes. A log's key under another name is another log (RFC 9943,
// section 7.1: trust is in key and identity).
func (r *UnverifiedLogReceipt) matchLog(log PublicKey) *Error {
	if r.profile == ProfileCleanrun {
		if err := matchKey(r.claims.Alg, r.claims.Kid, log); err != nil {
			return err
		}
	} else if r.profile == ProfileCCF {
		return refuse(StageAlg, "a receipt of a CCF ledger, ES384", log.Alg().String()+", the algorithm of the pinned key", "a ledger has a key type of its own: check it with VerifyCCF")
	} else if a := r.claims.Alg; !(log.Alg() == Ed25519 && (a == Ed25519 || a == algEdDSA) || log.Alg() == ESP256 && (a == ESP256 || a == algES256)) {
		return refuse(StageAlg, a.String(), log.Alg().String()+", the algorithm of the pinned key", "")
	}
	if r.profile != ProfileDigestLeaf && r.claims.Issuer != log.Name() {
		return refuse(StageIssuer, fmt.Sprintf("iss %q", r.claims.Issuer), fmt.Sprintf("%q, the name of the pinned log", log.Name()), "the key is the same, the log is not: two logs under one key can contradict each other")
	}
	return nil
}

// rootVerifier gives go-cose the algorithm as the receipt numbers it. Other
// services give out ECDSA signatures with a high s; in a receipt that is read
// under a foreign profile a second spelling does no harm.
type rootVerifier struct {
	log     PublicKey
	alg     Alg
	profile Profile
}

func (v rootVerifier) Algorithm() cose.Algorithm { return cose.Algorithm(v.alg) }
func (v rootVerifier) Verify(content, sig []byte) error {
	if v.profile != ProfileCleanrun && v.log.Alg() == ESP256 {
		sig = lowerS(sig)
	}
	return v.log.Verify(content, sig)
}
