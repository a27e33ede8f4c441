package journal

import "github.com/cleanrun-dev/cleanrun/scope"

// Version of the row format, bound in every start row.
const Version = "cleanrun/journal/v1"

// Start is what row 0 binds. Everything else in the run follows from it: its
// hash salts every digest of the run (contraband.RunSalt).
type Start struct {
	Version    string       `cbor:"1,keyasint"`
	Run        [16]byte     `cbor:"2,keyasint"` // drawn by the recorder
	Benchmark  string       `cbor:"3,keyasint"` // "" in a run without a task
	Task       string       `cbor:"4,keyasint"`
	Trial      uint32       `cbor:"5,keyasint"` // from 1; 0 without a task
	Attempt    uint32       `cbor:"6,keyasint"` // from 1; 0 without a task
	Commitment [32]byte     `cbor:"7,keyasint"` // task commitment of the sealed set, zero without a task
	Seal       [32]byte     `cbor:"8,keyasint"` // SHA-256 of the sealed set's file, zero without a task
	Baseline   [32]byte     `cbor:"9,keyasint"` // Merkle root of the baseline manifest as found at the start
	Roots      []scope.Root `cbor:"10,keyasint"`
	Workspace  string       `cbor:"11,keyasint"` // path of the workspace inside the sandbox
	Observe    bool         `cbor:"12,keyasint"` // the whole host was visible read-only
	Channels   []Channel    `cbor:"13,keyasint"` // sorted by name
	Recorder   string       `cbor:"14,keyasint"` // version of the recorder
	Backend    string       `cbor:"15,keyasint"` // how it watched, e.g. "namespaces+seccomp-notify"
	Blind      []string     `cbor:"16,keyasint"` // ids of what the backend does not see, sorted
	// Registration and Freshness are null until runs are logged before they
	// start; the keys exist so that adding them changes no old row.
	Registration *[]byte `cbor:"17,keyasint"`
	Freshness    *[]byte `cbor:"18,keyasint"`
	Agent        string  `cbor:"19,keyasint"` // asserted by the runner
	Model        string  `cbor:"20,keyasint"` // asserted by the runner
}

// A Channel is a stream that the task declares, such as "stdin" of role "model".
type Channel struct {
	_    struct{} `cbor:",toarray"`
	Name string   // "stdin"
	Role string   // "model" or "driver"
}

// Outcome closes a journal.
type Outcome uint8

const (
	Completed Outcome = iota + 1 // the command ended by itself with 0
	Failed                       // the command ended by itself with another code or a signal
	Cancelled                    // the user stopped it
	Abandoned                    // the recorder gave up; the reason is in the detail
)

// Final is what the closing row binds.
type Final struct {
	Outcome  Outcome     `cbor:"1,keyasint"`
	Code     uint32      `cbor:"2,keyasint"` // exit code of the command, 128+n if signal n ended it
	Counts   []OpCount   `cbor:"3,keyasint"` // rows before this one, sorted by phase, then op
	Born     uint64      `cbor:"4,keyasint"` // processes started
	Ended    uint64      `cbor:"5,keyasint"` // processes seen to end
	Received uint64      `cbor:"6,keyasint"` // notifications received
	Answered uint64      `cbor:"7,keyasint"` // answered
	Void     uint64      `cbor:"8,keyasint"` // whose caller was gone
	Lost     uint64      `cbor:"9,keyasint"` // events known to be lost
	Delta    DeltaResult `cbor:"10,keyasint"`
}

// OpCount counts rows of one phase and operation.
type OpCount struct {
	_     struct{} `cbor:",toarray"`
	Phase Phase
	Op    Op
	N     uint64
}

// DeltaResult compares the overlay's upper layer with the journaled writes.
type DeltaResult struct {
	_           struct{} `cbor:",toarray"`
	Changed     uint64   // paths that differ between the layers
	Unexplained uint64   // of those, paths without a journaled write
}

// Detail is the private half of a row. It stays in RUNDIR; disclosing it with
// its salt opens the row's commitment.
type Detail struct {
	Path    string            `cbor:"1,keyasint,omitempty"`  // resolved, inside the sandbox
	Path2   string            `cbor:"2,keyasint,omitempty"`  //
	Asked   string            `cbor:"3,keyasint,omitempty"`  // the path as the program spelled it, if it differs
	SHA256  []byte            `cbor:"4,keyasint,omitempty"`  // of the content; the content is objects/<hex> in RUNDIR
	Text    []byte            `cbor:"5,keyasint,omitempty"`  // content of a FlagText row
	Argv    []string          `cbor:"6,keyasint,omitempty"`  // exec
	Env     []string          `cbor:"7,keyasint,omitempty"`  // names only; values are never stored
	Cwd     string            `cbor:"8,keyasint,omitempty"`  //
	Address string            `cbor:"9,keyasint,omitempty"`  // socket address, e.g. "inet 127.0.0.1:80"
	Syscall string            `cbor:"10,keyasint,omitempty"` // name of the call
	Mode    uint32            `cbor:"11,keyasint,omitempty"` //
	Args    map[string]uint64 `cbor:"12,keyasint,omitempty"` //
	Exit    int32             `cbor:"13,keyasint,omitempty"` // exit row: wait status as code, or -signal
	PID     int32             `cbor:"14,keyasint,omitempty"` // inside the sandbox
	Note    string            `cbor:"15,keyasint,omitempty"` // reason, for killed, lost, final
	ReadBy  []uint32          `cbor:"16,keyasint,omitempty"` // wrote: processes that hold the file open for reading
}
