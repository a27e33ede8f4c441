// Package contraband is everything that a verifier needs of a sealed set: the
// format, the keys and the digests. spec/sealed-set.md has the bytes.
//
// Limits: it cuts nothing out of content (internal/canon does) and checks no
// signature. A Set says what its owner claims; whether the ground truth behind
// it is what the owner says shows only when the task key is revealed.
package contraband

// Version of the sealed set's format.
const Version = "cleanrun/sealed-set/v1"

// Profile names the canonical form and the parameters of all digests. A run
// under another profile cannot be compared.
const Profile = "canon-text/1 unicode-15.0.0 k48w49 k24w25"

// A Set is the payload of a *.sealed file: the ground truth of one task, so
// that it can be matched but not read. A Set that ParseSet returned is well
// formed; whether its owner signed it is receipt's business.
type Set struct {
	Version    string    `cbor:"1,keyasint"`
	Profile    string    `cbor:"2,keyasint"`
	Benchmark  string    `cbor:"3,keyasint"`
	Task       string    `cbor:"4,keyasint"`
	Period     string    `cbor:"5,keyasint"`  // key period, "" is the first
	KeyCommit  [32]byte  `cbor:"6,keyasint"`  // HMAC(K_task, "key-commit", Commitment, period, profile)
	Commitment [32]byte  `cbor:"7,keyasint"`  // HMAC(K_open, task source): binds the ground truth
	Prompt     [32]byte  `cbor:"8,keyasint"`  // SHA-256 of the prompt
	Baseline   [32]byte  `cbor:"9,keyasint"`  // Merkle root of the baseline manifest (workspace)
	Scope      Scope     `cbor:"10,keyasint"` //
	Channels   []Channel `cbor:"11,keyasint"` // sorted by name
	Sources    []Count   `cbor:"12,keyasint"` // how many sources of each kind, in clear, sorted by kind
	Uncovered  []Count   `cbor:"13,keyasint"` // items too weak to seal, by kind
	Groups     []Group   `cbor:"14,keyasint"` // sorted by (kind, class, first item)
	Allowed    []byte    `cbor:"15,keyasint"` // 32-byte digests, sorted, unique, padded to a power of two or empty
	Controls   []byte    `cbor:"16,keyasint"` // 32-byte control digests c (Control), sorted, unique: at least 64
	Control    string    `cbor:"17,keyasint"` // the control file's text, in clear
	Filter     []uint32  `cbor:"18,keyasint"` // keyed 24-bit values of all line, atom and canary items, sorted, unique, padded; see TaskKey.Filter
	Kept       uint8     `cbor:"19,keyasint"` // tenths of the novel part that baseline subtraction left, rounded down, 0..10
	Small      bool      `cbor:"20,keyasint"` // the owner says: no whole object and fewer than 8 items, before padding; see TooSmall
	Phases     *Phases   `cbor:"21,keyasint"` // what runs beside the agent; null: the runner may choose

	Footprint *Footprint `cbor:"22,keyasint,omitempty"` // what the run may change; absent: the owner does not say
	Expect    *Expect    `cbor:"23,keyasint,omitempty"` // what must happen with a named path; absent: nothing
}

// Scope as the task states it. The workspace is named, not located: its path
// differs from machine to machine.
type Scope struct {
	_         struct{} `cbor:",toarray"`
	Workspace uint8    // scope.ReadTree or scope.WriteTree
	Grants    []Grant  // sorted by path
}

// A Grant lets a run use one path outside its workspace.
type Grant struct {
	_    struct{} `cbor:",toarray"`
	Path string
	Mode uint8 // scope.Mode
}

// Channel as in journal.Channel; the start row's must equal the sealed ones.
type Channel struct {
	_    struct{} `cbor:",toarray"`
	Name string
	Role string
}

// Kind of a source of ground truth.
type Kind uint8

const (
	KindID        Kind = iota + 1 // task id
	KindTitle                     //
	KindSignal                    // completion signal
	KindCommand                   // expected test command
	KindReference                 // reference solution
	KindTest                      // hidden test
	KindCanary                    //
)

var kindNames = [...]string{KindID: "id", KindTitle: "title", KindSignal: "signal", KindCommand: "command",
	KindReference: "reference", KindTest: "test", KindCanary: "canary"}

// String is the name of k on screen.
func (k Kind) String() string {
	if k >= KindID && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown kind"
}

// OncePerTask tells the kinds whose match counts only when it comes in from the
// network.
func (k Kind) OncePerTask() bool { return k >= KindID && k <= KindCommand }

// Class of an item: how it is cut out of content and compared.
type Class uint8

const (
	ClassCanary    Class = iota + 1 // first 24 canonical bytes of a canary, looked for at every position
	ClassRaw                        // a whole object's bytes
	ClassCanonical                  // a whole object's canonical bytes, at least 64
	ClassShingle                    // k=48, w=49
	ClassShingle24                  // k=24, w=25, on text fields only
	ClassLine                       // a whole line of at least 24 canonical bytes
	ClassAtom                       // a generated token of at least 40 bits
)

// Count is a number for a kind.
type Count struct {
	_    struct{} `cbor:",toarray"`
	Kind Kind
	N    uint32
}

// A Group is the items of one class from one source. An item of two sources
// stands in both groups.
type Group struct {
	_         struct{} `cbor:",toarray"`
	Kind      Kind
	Class     Class
	Threshold uint32 // distinct items, over the whole run, that make a match
	Items     []byte // 32-byte digests s, sorted, unique, a power of two of them, at least 16 (dummies included)
}
