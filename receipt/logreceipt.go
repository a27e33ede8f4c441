package receipt

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// MaxLogReceipt is the largest COSE receipt of profile cleanrun in bytes.
const MaxLogReceipt = 4 << 10

const logReceiptObject = "COSE receipt"

// vdsRFC9162 is RFC9162_SHA256, the verifiable data structure of all logs but those
// of profile ccf (RFC 9942, section 5.2): label 395. The labels below say what a
// proof in it proves.
const (
	vdsRFC9162       int64 = 1
	labelInclusion   int64 = -1
	labelConsistency int64 = -2
)

// LeafHash is the hash of an entry in the tree (RFC 9162, section 2.1.1).
func LeafHash(entry []byte) [32]byte {
	return sha256.Sum256(append([]byte{rfc6962.RFC6962LeafHashPrefix}, entry...))
}

// Inclusion is an inclusion proof (RFC 9162, section 2.1.3.1).
type Inclusion struct {
	Size, Index uint64     // leaves of the tree; place of the entry, from 0
	Path        [][32]byte // the leaf's sibling first
}

// Consistency is a consistency proof (RFC 9162, section 2.1.4.1). If both sizes
// are one, the path is empty.
type Consistency struct {
	Older, Newer uint64 // leaves of the two trees, Older at least 1
	Path         [][32]byte
}

// inclusionFrame and consistencyFrame are the two as they stand in a COSE receipt
// (RFC 9942, sections 5.2 and 5.3). The decoder would pad a short hash to an array,
// so paths are slices here.
type (
	inclusionFrame struct {
		_           struct{} `cbor:",toarray"`
		Size, Index uint64
		Path        [][]byte
	}
	consistencyFrame struct {
		_            struct{} `cbor:",toarray"`
		Older, Newer uint64
		Path         [][]byte
	}
)

// check refuses a proof that no tree has. RFC 9162 has one length of path for
// each size and index, so the path is empty in a tree of one leaf only.
func (in Inclusion) check() *Error {
	if in.Index >= in.Size {
		return refuse(StageProof, fmt.Sprintf("leaf index %d in a tree of %d", in.Index, in.Size), "an index below the size", "")
	}
	inner := bits.Len64(in.Index ^ (in.Size - 1))
	want := inner + bits.OnesCount64(in.Index>>inner)
	if len(in.Path) != want {
		return refuse(StageProof, fmt.Sprintf("a path of %d hashes", len(in.Path)), fmt.Sprintf("%d, for leaf %d of %d", want, in.Index, in.Size), "")
	}
	return nil
}

func (c Consistency) check() *Error {
	if c.Older < 1 || c.Older > c.Newer {
		return refuse(StageProof, fmt.Sprintf("sizes %d and %d", c.Older, c.Newer), "an older size of at least 1 and a newer that is not smaller", "every tree is consistent with the empty one: there is nothing to prove")
	}
	want := 0
	if c.Older < c.Newer {
		shift := bits.TrailingZeros64(c.Older)
		inner := bits.Len64((c.Older - 1) ^ (c.Newer - 1))
		want = inner - shift + bits.OnesCount64((c.Older-1)>>inner)
		if c.Older != 1<<shift {
			want++ // the root of the subtree of 2^shift leaves
		}
	}
	if len(c.Path) != want {
		return refuse(StageProof, fmt.Sprintf("a path of %d hashes", len(c.Path)), fmt.Sprintf("%d, from size %d to %d", want, c.Older, c.Newer), "")
	}
	return nil
}

// SignInclusion signs the root of a tree in which the path of in leads from an
// entry to root, as a COSE receipt (RFC 9942, section 5.2): payload detached, sub
// is the sub claim of the entry. That the path does lead there is the caller's to
// know: the entry is not seen. What it returns, ParseLogReceipt accepts.
func SignInclusion(s Signer, sub string, in Inclusion, root [32]byte) ([]byte, error) {
	return signLogReceipt(s, sub, root, labelInclusion, inclusionFrame{Size: in.Size, Index: in.Index, Path: hashes(in.Path)})
}

// SignConsistency signs the newer root together with the path from an older one
// (RFC 9942, section 5.3). sub is the log's own name.
func SignConsistency(s Signer, c Consistency, root [32]byte) ([]byte, error) {
	return signLogReceipt(s, s.Public().Name(), root, labelConsistency, consistencyFrame{Older: c.Older, Newer: c.Newer, Path: hashes(c.Path)})
}

func signLogReceipt(s Signer, sub string, root [32]byte, sort int64, frame any) ([]byte, error) {
	path, err := dcbor.Marshal(frame)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", logReceiptObject, err)
	}
	key := s.Public()
	kid := key.Thumbprint()
	msg := cose.Sign1Message{
		Headers: cose.Headers{
			Protected: cose.ProtectedHeader{
				labelAlg:    int64(key.Alg()),
				labelKid:    kid[:],
				labelClaims: cose.CWTClaims{claimIss: key.Name(), claimSub: sub},
				labelVDS:    vdsRFC9162,
			},
			Unprotected: cose.UnprotectedHeader{labelVDP: map[int64][][]byte{sort: {path}}},
		},
		Payload: root[:],
	}
	if err := msg.Sign(nil, nil, coseSigner{s}); err != nil {
		return nil, fmt.Errorf("%s: %w", logReceiptObject, err)
	}
	msg.Payload = nil
	out, err := msg.MarshalCBOR()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", logReceiptObject, err)
	}
	r, err := ParseLogReceipt(out)
	if err != nil {
		return nil, err
	}
	if err := r.verifyRoot(key, root); err != nil {
		return nil, err
	}
	return out, nil
}

// UnverifiedLogReceipt is a well-formed COSE receipt. Nobody has checked its
// signature, nor that its path leads anywhere.
type UnverifiedLogReceipt struct {
	profile Profile
	claims  LogReceiptClaims
	msg     cose.Sign1Message
}

// LogReceiptClaims is what a COSE receipt says of itself. Anybody can have written
// it. Exactly one of the three proofs is set: CCF in profile ccf, one of the others
// elsewhere.
type LogReceiptClaims struct {
	Alg         Alg
	Kid         [32]byte // thumbprint of the log's key, in profile ccf SHA-256 of its DER; zero if a profile but these found another kid
	Issuer      string   // name of the log; may be "" in profile digest-leaf
	Subject     string   // sub of the entry, or the log's name; may be "" in profile digest-leaf
	Inclusion   *Inclusion
	Consistency *Consistency
	CCF         *CCFInclusion
}

// LogReceipt is a COSE receipt whose proof holds and whose root a log signed.
type LogReceipt struct {
	claims LogReceiptClaims
	log    PublicKey
	root   [32]byte
}

// Log is the pinned key that verified.
func (r *LogReceipt) Log() PublicKey { return r.log }

// Root is the root that the log signed: of a consistency proof the newer one.
func (r *LogReceipt) Root() [32]byte { return r.root }

// Size is the number of leaves in the tree with that root.
func (r *LogReceipt) Size() uint64 {
	if r.claims.Inclusion != nil {
		return r.claims.Inclusion.Size
	}
	return r.claims.Consistency.Newer
}

// Inclusion is the proof, or nil if it is one of consistency.
func (r *LogReceipt) Inclusion() *Inclusion { return r.claims.Inclusion }

// Consistency is the proof, or nil if it is one of inclusion.
func (r *LogReceipt) Consistency() *Consistency { return r.claims.Consistency }

// Unauthenticated shows what the receipt says before a key has verified it.
func (r *UnverifiedLogReceipt) Unauthenticated() LogReceiptClaims { return r.claims }

// InclusionRoot is the root to which the path leads from the entry: what the log
// must have signed. It needs no key. Any entry leads to some root; only a
// comparison with a root that is known otherwise, or VerifyInclusion, tells
// whether the entry is the right one. In profile cleanrun the entry must be a
// statement of ours with the sub of the receipt, in profile ccf its SHA-256 must
// stand in the leaf.
func (r *UnverifiedLogReceipt) InclusionRoot(entry []byte) ([32]byte, error) {
	root, err := r.inclusionRoot(entry)
	if err != nil {
		return root, err
	}
	return root, nil
}

func (r *UnverifiedLogReceipt) inclusionRoot(entry []byte) (root [32]byte, _ error) {
	in, ccf := r.claims.Inclusion, r.claims.CCF
	if in == nil && ccf == nil {
		return root, refuse(StageProof, "a consistency proof", "an inclusion proof", "").in(logReceiptObject)
	}
	if len(entry) == 0 || len(entry) > MaxEntry {
		return root, refuse(StageSize, fmt.Sprintf("%d bytes", len(entry)), fmt.Sprintf("1 to %d", MaxEntry), "").in("entry")
	}
	if ccf != nil {
		if sum := sha256.Sum256(entry); sum != ccf.Data {
			return root, refuse(StageSubject, fmt.Sprintf("a leaf with data hash %x", ccf.Data), fmt.Sprintf("%x, of the statement", sum), "the receipt is for another statement, or for this one in other bytes").in(logReceiptObject)
		}
		return ccf.root(), nil
	}
	if r.profile == ProfileCleanrun {
		sub, err := entrySubject(entry)
		if err != nil {
			return root, err
		}
		if sub != r.claims.Subject {
			return root, refuse(StageSubject, fmt.Sprintf("sub %q", r.claims.Subject), fmt.Sprintf("%q, the sub of the entry", sub), "the receipt is for another entry").in(logReceiptObject)
		}
	}
	leaf := LeafHash(entry)
	if r.profile == ProfileDigestLeaf {
		digest := sha256.Sum256(entry)
		leaf = LeafHash(digest[:])
	}
	got, err := proof.RootFromInclusionProof(rfc6962.DefaultHasher, in.Index, in.Size, leaf[:], hashes(in.Path))
	if err != nil {
		return root, refuse(StageProof, err.Error(), "a path of RFC 9162", "").in(logReceiptObject)
	}
	return [32]byte(got), nil
}

// entrySubject is what a statement of ours says its sub is.
func entrySubject(entry []byte) (string, error) {
	kind, err := KindOf(entry)
	if err != nil {
		return "", err
	}
	u, err := ParseSign1(kind, entry)
	if err != nil {
		return "", err
	}
	return u.claims.Subject, nil
}

// ConsistencyHolds checks that the path leads from the older root to the newer
// one (RFC 9162, section 2.1.4.2). It needs no key.
func (r *UnverifiedLogReceipt) ConsistencyHolds(olderRoot, newerRoot [32]byte) error {
	c := r.claims.Consistency
	if c == nil {
		return refuse(StageProof, "an inclusion proof", "a consistency proof", "").in(logReceiptObject)
	}
	err := proof.VerifyConsistency(rfc6962.DefaultHasher, c.Older, c.Newer, hashes(c.Path), olderRoot[:], newerRoot[:])
	if mismatch := (proof.RootMismatchError{}); errors.As(err, &mismatch) {
		return refuse(StageProof, fmt.Sprintf("a path to root %x", mismatch.CalculatedRoot), fmt.Sprintf("one from root %x of size %d to root %x of size %d", olderRoot, c.Older, newerRoot, c.Newer),
			"one tree is not the continuation of the other: keep both checkpoints, they are the evidence").in(logReceiptObject)
	}
	if err != nil {
		return refuse(StageProof, err.Error(), "a path of RFC 9162", "").in(logReceiptObject)
	}
	return nil
}

// VerifyInclusion checks, in this order, that the receipt names the pinned log's
// key, that it is for the entry, and that the log signed the root to which the
// path leads.
func (r *UnverifiedLogReceipt) VerifyInclusion(log PublicKey, entry []byte) (*LogReceipt, error) {
	if err := r.matchLog(log); err != nil {
		return nil, err.in(logReceiptObject)
	}
	root, err := r.InclusionRoot(entry)
	if err != nil {
		return nil, err
	}
	if err := r.verifyRoot(log, root); err != nil {
		return nil, err
	}
	return &LogReceipt{r.claims, log, root}, nil
}

// VerifyConsistency checks that the receipt names the pinned log's key, that the
// log signed the newer root, and that the path leads there from the older one.
func (r *UnverifiedLogReceipt) VerifyConsistency(log PublicKey, olderRoot, newerRoot [32]byte) (*LogReceipt, error) {
	if r.claims.Consistency == nil {
		return nil, refuse(StageProof, "an inclusion proof", "a consistency proof", "").in(logReceiptObject)
	}
	// RFC 9942, section 5.3: the signature first.
	if err := r.verifyRoot(log, newerRoot); err != nil {
		return nil, err
	}
	if err := r.ConsistencyHolds(olderRoot, newerRoot); err != nil {
		return nil, err
	}
	return &LogReceipt{r.claims, log, newerRoot}, nil
}

// verifyRoot checks the signature over a root, which is the detached payload.
func (r *UnverifiedLogReceipt) verifyRoot(log PublicKey, root [32]byte) error {
	if err := r.matchLog(log); err != nil {
		return err.in(logReceiptObject)
	}
	msg := r.msg // a copy: parsed receipts are used from many goroutines
	msg.Payload = root[:]
	if err := msg.Verify(nil, rootVerifier{log, r.claims.Alg, r.profile}); err != nil {
		return refuse(StageSignature, fmt.Sprintf("a signature that is not over root %x", root), "one by "+log.Name()+" over the root to which the path leads",
			"the receipt is for another entry or another tree, or was changed").in(logReceiptObject)
	}
	return nil
}

func hashes(path [][32]byte) [][]byte {
	out := make([][]byte, len(path))
	for i := range path {
		out[i] = path[i][:]
	}
	return out
}

// hashes32 is the inverse of hashes, for at most maxPath hashes.
func hashes32(path [][]byte) ([][32]byte, *Error) {
	if len(path) > maxPath {
		return nil, refuse(StageProof, fmt.Sprintf("a path of %d hashes", len(path)), fmt.Sprintf("at most %d", maxPath), "")
	}
	var out [][32]byte
	for _, h := range path {
		if len(h) != sha256.Size {
			return nil, refuse(StageProof, fmt.Sprintf("a hash of %d bytes", len(h)), "32 bytes", "")
		}
		out = append(out, [32]byte(h))
	}
	return out, nil
}
