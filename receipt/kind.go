package receipt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

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

	// Entries of a log, see spec/log.md. Receipts and small submissions are
	// entries as they are.
	KindSeal       // hash envelope over a sealed set or a benchmark's head, signed by the owner
	KindRegister   // a run that is about to start, signed by the runner; sub is the run id
	KindCheckpoint // size and root of the journal of a run that goes on
	KindFinal      // size and root of the journal of a run that has ended
	KindSubmit     // hash envelope over submission.cose; sub is the submission id
)

type kindFields struct {
	object      string
	typ         string // label 16, RFC 9596: the whole object
	contentType string // label 3: the payload; "" in a hash envelope
	preimages   []Kind // what a hash envelope (RFC 9995) may be over; nil in other kinds
	max         int    // bytes of the whole object
}

var kinds = map[Kind]kindFields{
	KindReceipt:    {"receipt", "application/cleanrun-receipt+cose", PayloadType, nil, MaxReceipt},
	KindSealedSet:  {"sealed set", "application/cleanrun-sealed-set+cose", "application/cleanrun-sealed-set+cbor", nil, MaxSealedSet},
	KindBenchmark:  {"benchmark seal", "application/cleanrun-benchmark+cose", "application/cleanrun-benchmark+cbor", nil, MaxBenchmark},
	KindSubmission: {"submission", "application/cleanrun-submission+cose", PayloadType, nil, MaxSubmission},
	KindSeal:       {"SEAL entry", "application/cleanrun-seal+cose", "", []Kind{KindSealedSet, KindBenchmark}, MaxEntry},
	KindRegister:   {"REGISTER entry", "application/cleanrun-register+cose", "application/cleanrun-register+cbor", nil, MaxEntry},
	KindCheckpoint: {"CHECKPOINT entry", "application/cleanrun-checkpoint+cose", "application/cleanrun-checkpoint+cbor", nil, MaxEntry},
	KindFinal:      {"FINAL entry", "application/cleanrun-final+cose", "application/cleanrun-final+cbor", nil, MaxEntry},
	KindSubmit:     {"SUBMIT entry", "application/cleanrun-submit+cose", "", []Kind{KindSubmission}, MaxEntry},
}

func (k Kind) String() string {
	if f, ok := kinds[k]; ok {
		return f.object
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Type is the typ of the kind (label 16), a media type, or "" for no kind.
func (k Kind) Type() string { return kinds[k].typ }

// Largest COSE_Sign1 of each kind, and longest sub claim, in bytes.
const (
	MaxReceipt    = 64 << 10
	MaxSealedSet  = 64 << 20
	MaxBenchmark  = 16 << 10 // the head alone
	MaxSubmission = 64 << 20
	MaxEntry      = 65535 // c2sp.org/tlog-tiles: a 16-bit length stands before each entry
	MaxSubject    = 512
)

// Labels of headers (RFC 9052, 9596, 9597, 9942, 9995).
const (
	labelAlg         int64 = 1
	labelCrit        int64 = 2
	labelContentType int64 = 3
	labelKid         int64 = 4
	labelClaims      int64 = 15
	labelTyp         int64 = 16
	labelHashAlg     int64 = 258 // payload hash algorithm of a hash envelope
	labelPreimage    int64 = 259 // content type of what was hashed
	labelReceipts    int64 = 394 // unprotected: COSE receipts
	labelVDS         int64 = 395 // verifiable data structure
	labelVDP         int64 = 396 // unprotected: proofs in it
)

// hashSHA256 is SHA-256 among the COSE algorithms (RFC 9054).
const hashSHA256 int64 = -16

// CWT claims in the header (RFC 8392); RFC 9943, section 6, demands both.
const (
	claimIss int64 = 1
	claimSub int64 = 2
)

// labels are the labels of the protected header of a kind: it holds these and no
// other. RFC 9995, section 3, forbids label 3 in a hash envelope.
func (f kindFields) labels() []int64 {
	if f.preimages != nil {
		return []int64{labelAlg, labelKid, labelClaims, labelTyp, labelHashAlg, labelPreimage}
	}
	return []int64{labelAlg, labelContentType, labelKid, labelClaims, labelTyp}
}

// KindOf reads the typ of a COSE_Sign1 and nothing else: it says by which kind to
// parse the bytes, not that they are of it. The error is an *Error.
func KindOf(data []byte) (Kind, error) {
	if len(data) > MaxSubmission {
		return 0, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", MaxSubmission), "")
	}
	frame, err := parseFrame(data)
	if err != nil {
		return 0, err
	}
	var header map[int64]cbor.RawMessage
	if err := decode(frame.Protected, &header); err != nil {
		return 0, err
	}
	var typ string
	if err := field(header[labelTyp], &typ, StageType, "text"); err != nil {
		return 0, err
	}
	for k, f := range kinds {
		if f.typ == typ {
			return k, nil
		}
	}
	return 0, refuse(StageType, fmt.Sprintf("%q in label %d", clip([]byte(typ)), labelTyp), "the typ of a known kind", "this is another kind of file, or of another version")
}

// exactLabels holds a protected header to its labels: each is there and no other
// is.
func exactLabels(header map[int64]cbor.RawMessage, labels []int64) *Error {
	if v, ok := header[labelCrit]; ok {
		return refuse(StageCrit, fmt.Sprintf("crit %x", clip(v)), "no crit header", "the file asks for a rule that this version does not know; use a newer cleanrun")
	}
	want := "labels " + strings.Trim(fmt.Sprint(labels), "[]")
	for l := range header {
		if !slices.Contains(labels, l) {
			return refuse(StageHeader, fmt.Sprintf("label %d", l), "only "+want, "a key or certificate inside the file is never trusted; pin keys in a policy file")
		}
	}
	for _, l := range labels {
		if _, ok := header[l]; !ok {
			stage := StageHeader
			switch l {
			case labelAlg:
				stage = StageAlg
			case labelVDS:
				stage = StageVDS
			}
			return refuse(stage, fmt.Sprintf("no label %d in the protected header", l), want, "")
		}
	}
	return nil
}

// parseIdentity reads alg, kid and claims, which say who signed.
func parseIdentity(header map[int64]cbor.RawMessage) (said Unauthenticated, _ *Error) {
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
	return said, nil
}

// textField holds a label to the one text that it may have.
func textField(header map[int64]cbor.RawMessage, label int64, want string) *Error {
	var got string
	if err := field(header[label], &got, StageType, "text"); err != nil {
		return err
	}
	if got != want {
		return refuse(StageType, fmt.Sprintf("%q in label %d", clip([]byte(got)), label), fmt.Sprintf("%q", want), "this is another kind of file")
	}
	return nil
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
