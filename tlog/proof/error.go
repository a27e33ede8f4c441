package proof

import "fmt"

// Stage names the check that refused something. The list is closed, and the tests
// assert it.
type Stage string

const (
	StageSize       Stage = "size"       // more bytes, signatures, lines or members than are taken
	StageNote       Stage = "note"       // not a signed note in its only spelling
	StageCheckpoint Stage = "checkpoint" // a note whose text is not a checkpoint
	StageOrigin     Stage = "origin"     // a checkpoint of another log than the key's
	StageUnsigned   Stage = "unsigned"   // no signature line of the key
	StageSignature  Stage = "signature"  // a signature line of the key that does not verify
	StageKey        Stage = "key"        // a key is malformed, of another type, or not acceptable
	StageLogProof   Stage = "log-proof"  // not a proof file in its only spelling
	StagePath       Stage = "path"       // a proof that cannot be one of this index and size
	StageRoot       Stage = "root"       // a proof that leads to another root
	StagePolicy     Stage = "policy"     // a policy line, or the policy as a whole, is wrong
)

// Error is the reason why something was refused. Callers branch on Stage.
type Error struct {
	Stage Stage
	Got   string
	Want  string
	Hint  string // what to do next; may be ""
}

// Error gives the facts in one line. The hint is left to the caller to print.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: got %s, want %s", e.Stage, e.Got, e.Want)
}

func refuse(stage Stage, got, want, hint string) *Error {
	return &Error{Stage: stage, Got: got, Want: want, Hint: hint}
}

// clip quotes what came from outside, shortened.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%.100q and %d bytes more", s, len(s)-most)
	}
	return fmt.Sprintf("%q", s)
}
