package receipt

import "fmt"

// Stage names the check that refused an object. The list is closed; spec/bundle.md
// explains each one, and the test vectors assert them.
type Stage string

const (
	StageSize        Stage = "size"         // longer or shorter than an object of this kind can be
	StageVKey        Stage = "vkey"         // a verifier key is malformed or its key is not acceptable
	StageTag         Stage = "tag"          // not a tagged COSE_Sign1 (tag 18, array of four)
	StageCBOR        Stage = "cbor"         // not well-formed CBOR of the required shape
	StageCanonical   Stage = "canonical"    // a second spelling of an acceptable object
	StageUnprotected Stage = "unprotected"  // the unprotected header is not the empty map
	StageCrit        Stage = "crit"         // a crit header: this version understands none
	StageHeader      Stage = "header"       // a protected header or claim is missing, unknown or of another type
	StageAlg         Stage = "alg"          // unknown algorithm, or not the algorithm of the key
	StageKid         Stage = "kid"          // not the thumbprint of the key
	StageIssuer      Stage = "issuer"       // the iss claim is not the name of the key
	StageType        Stage = "type"         // typ or content type of another kind of object
	StagePayload     Stage = "payload"      // payload detached, empty, or not the one it must equal
	StageSignature   Stage = "signature"    // the signature does not verify, or is not in its only spelling
	StageJSON        Stage = "json"         // not JSON of the required shape
	StagePayloadType Stage = "payload-type" // a DSSE payload type that is not in-toto's
	StageBase64      Stage = "base64"       // not strict standard base64
	StageSignatures  Stage = "signatures"   // a DSSE envelope without exactly one signature
	StageTar         Stage = "tar"          // a byte of the tar frame differs from the only frame of these members
	StageMember      Stage = "member"       // a member is unknown, repeated, misordered, missing, empty or too long
	StageVDS         Stage = "vds"          // a COSE receipt of another verifiable data structure than its profile reads
	StageProof       Stage = "proof"        // not exactly one Merkle proof, or one that no tree can have
	StageSubject     Stage = "subject"      // a COSE receipt whose sub, or data hash in profile ccf, is not that of the entry
	StageSecond      Stage = "second"       // the second signature does not sign what the first one signs, or is by the same key
)

// Error is the reason why bytes were refused. Callers branch on Stage.
type Error struct {
	Object string // what was checked, such as "receipt"; "" if the caller knows
	Stage  Stage
	Got    string
	Want   string
	Hint   string // what to do next; may be ""
}

// Error gives the facts in one line. The hint is left to the caller to print.
func (e *Error) Error() string {
	what := string(e.Stage)
	if e.Object != "" {
		what = e.Object + ": " + what
	}
	return fmt.Sprintf("%s: got %s, want %s", what, e.Got, e.Want)
}

// in returns the error with its object named, unless it already is.
func (e *Error) in(object string) *Error {
	if e.Object != "" {
		return e
	}
	named := *e
	named.Object = object
	return &named
}

func refuse(stage Stage, got, want, hint string) *Error {
	return &Error{Stage: stage, Got: got, Want: want, Hint: hint}
}
