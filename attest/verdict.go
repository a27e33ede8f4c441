package attest

// Verdict of a run.
type Verdict string

const (
	Clean        Verdict = "CLEAN"
	Dirty        Verdict = "DIRTY"
	Inconclusive Verdict = "INCONCLUSIVE"
)

// A Reason is why a verdict is not CLEAN. IDs form a closed list
// (spec/statement.md).
type Reason struct {
	ID    string `json:"id"`
	Event uint64 `json:"event"` // first row concerned, 0 for the whole run
	Count uint64 `json:"count"`
}

// A Match is one row that holds sealed items of one class. It shows no
// plaintext and no digest.
type Match struct {
	Event  uint64 `json:"event"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}
