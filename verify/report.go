package verify

import (
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
)

// Exit codes of cleanrun verify. Any other code is a failure.
const (
	ExitClean     = 0 // verified CLEAN
	ExitInvalid   = 1 // bytes, signatures or chains are wrong
	ExitUnusable  = 2 // not a bundle at all
	ExitUndecided = 3 // verified INCONCLUSIVE, or cannot decide
	ExitDirty     = 4 // verified DIRTY
)

// What the first line can say besides a verdict of package attest.
const (
	Invalid   = "INVALID"   // not a verdict: something is wrong
	Unusable  = "UNUSABLE"  // the file is no bundle: nothing was checked
	Undecided = "UNDECIDED" // consistent as far as checked, but not for us to decide
)

// Check ids, in the order in which they are made. The list is closed;
// spec/statement.md says of each what it guards.
const (
	CheckBundle      = "bundle"             // the tar frame
	CheckMembers     = "members"            // no member that this version cannot check
	CheckReceipt     = "receipt"            // receipt.cose is well formed
	CheckRunnerKey   = "runner-key"         // it names a pinned runner key
	CheckSignature   = "signature"          // that key signed it
	CheckEnvelope    = "envelope"           // statement.dsse.json is well formed and has the receipt's payload and key id
	CheckEnvelopeSig = "envelope-signature" // the same key signed it
	CheckSecond      = "second-signature"   // receipt2.cose, by another pinned key
	CheckStatement   = "statement"          // the payload is a statement of this version
	CheckSealed      = "sealed-set"         // task.sealed is well formed
	CheckOwnerKey    = "owner-key"          // it names a pinned owner key
	CheckOwnerSig    = "owner-signature"    // that key signed it
	CheckInclusion   = "seal-inclusion"     // the owner's benchmark head covers the set
	CheckPeriod      = "key-period"         // the set is of the key period that the policy names
	CheckSeal        = "seal-digest"        // the statement names this task.sealed
	CheckEvidenceSum = "evidence-digest"    // the statement names this evidence.cbor
	CheckEvidence    = "evidence"           // rows, head, entries, digests and tree hold together
	CheckCompact     = "compact-proof"      // proof.cbor holds under the statement's roots
	CheckBinding     = "binding"            // the start row and the sealed set belong together
	CheckSubject     = "subject"            // subject and sub name this journal's head and run
	CheckVerdict     = "verdict"            // the stored verdict is the derived one
	CheckFields      = "statement-fields"   // so is everything else that the statement says
	CheckFootprint   = "footprint"          // what the run changed is within the sealed footprint, if the policy requires it
	CheckExpect      = "named-path"         // what the task expects of a named path was passed, if the policy requires it

	CheckLogMembers     = "log-members"     // what a logged bundle carries is all there, and in its one form
	CheckLogCheckpoints = "log-checkpoints" // the checkpoints are of one log, of growing size, and by the pinned key
	CheckLogInclusion   = "log-inclusion"   // the entries are in the log, and its checkpoints are of one tree
	CheckLogEntries     = "log-entries"     // the entries are of this run and its seal, by their keys
	CheckLogOrder       = "log-order"       // they were logged in the order in which things must have happened
	CheckLogWitnesses   = "log-witnesses"   // the policy's quorum of witnesses saw each checkpoint
	CheckLogTimes       = "log-times"       // at times that fit the run
	CheckLogInterval    = "log-interval"    // no stretch of rows was kept back for longer than the policy allows
)

// Status of a check.
type Status string

const (
	OK      Status = "ok"
	Failed  Status = "failed"
	Skipped Status = "skipped" // the detail says why
	// Open is a check that could not be decided, so that the result is UNDECIDED
	// unless a check fails. The detail says why.
	Open Status = "undecided"
)

// A Check is one named check. At most one fails: those after it are skipped,
// since what they would say of wrong bytes means nothing.
type Check struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// A Party is who signed something. Only a pinned party is known: an unpinned
// name is what the file says of itself.
type Party struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Pinned      bool   `json:"pinned"` // the policy pins this key, and it signed
}

// A Benchmark is the benchmark seal that task.sealed is a part of, as its head
// says. It is the owner's word if Owner is pinned.
type Benchmark struct {
	Name     string `json:"name"`
	Period   string `json:"period"`
	Revision string `json:"revision"` // of the data; may be ""
	Tasks    uint64 `json:"tasks"`
	Weak     uint64 `json:"weak"`   // tasks of the data that the owner left out
	Root     string `json:"root"`   // over all sets, hex
	Index    uint64 `json:"index"`  // of this task
	Public   bool   `json:"public"` // the head publishes the key
}

// A Why is one line of reason.
type Why struct {
	Reason string `json:"reason"`
	Dirty  bool   `json:"dirty"`
	Event  uint64 `json:"event"` // 0 for the whole run
	What   string `json:"what"`  // what the row did
	Detail string `json:"detail"`
}

// Checked says how much was derived again.
type Checked struct {
	Level     string `json:"level"`
	Rederived string `json:"rederived"` // RederivedFull or RederivedCompact
	Events    uint64 `json:"events"`
	Digests   uint64 `json:"digests"`
	Bytes     uint64 `json:"bytes"` // of content
}

// Levels of assurance.
const (
	L0 = "L0" // the runner's word for when things happened
	L1 = "L1" // sealed and registered before the run, in a witnessed log
)

// Assurance is derived from what is present, never read from a field.
type Assurance struct {
	Level  string `json:"level"`
	Detail string `json:"detail"`
}

// A Logged is where and when a run was logged, as far as the log checks got.
type Logged struct {
	Origin      string `json:"origin"`
	Pinned      bool   `json:"pinned"`      // the policy pins the log, and it signed the checkpoints
	Size        uint64 `json:"size"`        // of the newest checkpoint
	Index       uint64 `json:"index"`       // of the receipt
	Seal        uint64 `json:"seal"`        // index
	Register    uint64 `json:"register"`    // index
	Final       uint64 `json:"final"`       // index
	Checkpoints int    `json:"checkpoints"` // of the run
	Witnesses   int    `json:"witnesses"`   // that cosigned, of the log's three checkpoints the least
	Of          int    `json:"of"`          // witnesses that the policy names
	Registered  uint64 `json:"registered"`  // unix seconds by which the quorum had seen the registration; 0 without a quorum
	Closed      uint64 `json:"closed"`      // and by which it had seen the end of the run
	// Interval is the longest time in milliseconds between two rows that one
	// checkpoint of the run covers and the one before does not; nil if the rows are
	// not there.
	Interval *uint64 `json:"interval"`
}

// A Report is what Verify found. Fields other than Checks are filled as far as
// the checks got.
type Report struct {
	Verdict    string                 `json:"verdict"`           // CLEAN, DIRTY, INCONCLUSIVE, INVALID, UNUSABLE or UNDECIDED
	Exit       int                    `json:"exit"`              //
	Derived    attest.Verdict         `json:"derived,omitempty"` // from the evidence, whoever signed it
	Notes      []string               `json:"notes"`             // why UNDECIDED, and what to know of the parties
	CheckedAt  time.Time              `json:"checkedAt"`         // the caller's time
	Run        *attest.RunClaim       `json:"run,omitempty"`
	Agent      string                 `json:"agent"` // asserted
	Model      string                 `json:"model"` // asserted
	Runner     *Party                 `json:"runner,omitempty"`
	Second     *Party                 `json:"second,omitempty"`
	Owner      *Party                 `json:"owner,omitempty"`
	Benchmark  *Benchmark             `json:"benchmark,omitempty"` // nil if the set is signed by itself
	Why        []Why                  `json:"why"`
	Score      *attest.Score          `json:"score,omitempty"`
	CountsAs   string                 `json:"countsAs,omitempty"` // what the score counts as
	Phases     []attest.PhaseClaim    `json:"phases"`             // that ended, in order
	Grader     string                 `json:"grader,omitempty"`   // who chose it: owner, runner or none
	Counts     *attest.Counts         `json:"counts,omitempty"`
	Coverage   *attest.Coverage       `json:"coverage,omitempty"`
	Footprint  *attest.FootprintClaim `json:"footprint,omitempty"` // nil if the set states none
	NamedPath  string                 `json:"namedPath,omitempty"` // that the set expects something of
	Expect     *expect.Result         `json:"expect,omitempty"`    // nil if it expects nothing
	Checked    *Checked               `json:"checked,omitempty"`
	Attested   []string               `json:"attested"`
	Asserted   []string               `json:"asserted"`
	Trusted    []string               `json:"trusted"` // what a compact proof leaves to the runner's word; empty of a full re-derivation
	NotCovered []string               `json:"notCovered"`
	Assurance  *Assurance             `json:"assurance,omitempty"`
	Logged     *Logged                `json:"logged,omitempty"`   // nil if the bundle is not logged
	Conflict   []string               `json:"conflict,omitempty"` // signed checkpoints that contradict each other, as they stand
	Checks     []Check                `json:"checks"`
}

// FailedCheck returns the check that failed, nil if none did.
func (r *Report) FailedCheck() *Check {
	for i := range r.Checks {
		if r.Checks[i].Status == Failed {
			return &r.Checks[i]
		}
	}
	return nil
}
