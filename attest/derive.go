package attest

import (
	"github.com/cleanrun-dev/cleanrun/contraband"
)

// A Derivation is what Derive found: the verdict, why, and what was counted.
type Derivation struct {
	Verdict    Verdict
	Reasons    []Reason  // in the order of the closed list, DIRTY first
	Matches    []Match   // all, sorted by event, class, reason
	Findings   []Finding // per sealed group that decided something, sorted by event
	Counts     Counts
	Coverage   Coverage
	NotCovered []ChannelClaim
}

// A Finding is one sealed group of which the run holds items. It explains a
// reason in numbers.
type Finding struct {
	Reason string
	Event  uint64           // first row with such an item
	Kind   contraband.Kind  // of the group's source
	Class  contraband.Class //
	Found  uint64           // distinct items found
	Of     uint64           // items in the group, padding included
	Limit  uint32           // items that make a match
}

// Counts of a run. Items are distinct sealed items over the setup and agent phase.
type Counts struct {
	Events       uint64 `json:"events"`       // rows
	Activity     uint64 `json:"activity"`     // rows of the agent phase that expose content, control files excepted
	Processes    uint64 `json:"processes"`    // processes started
	OutOfScope   uint64 `json:"outOfScope"`   // rows out of scope in the setup and agent phase
	GradeOut     uint64 `json:"gradeOut"`     // rows out of scope in the grade phase: sealed paths may be read there
	Denied       uint64 `json:"denied"`       // refused system calls
	Inbound      uint64 `json:"inbound"`      // items that came in
	Generated    uint64 `json:"generated"`    // items that an earlier parsed reply holds
	Authored     uint64 `json:"authored"`     // items that the run wrote, with nothing inbound before
	Named        uint64 `json:"named"`        // items of once-per-task kinds, from anywhere
	Controls     uint64 `json:"controls"`     // control fragments that were challenged
	ControlsSeen uint64 `json:"controlsSeen"` // and of those, opened and seen
}

// Coverage sums the entries of all rows, in bytes.
type Coverage struct {
	Seen      uint64 `json:"seen"`
	Scanned   uint64 `json:"scanned"`
	Baseline  uint64 `json:"baseline"`
	Declared  uint64 `json:"declared"`
	Opaque    uint64 `json:"opaque"`
	Canonical uint64 `json:"canonical"`
}
