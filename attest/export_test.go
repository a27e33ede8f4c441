package attest

import "github.com/cleanrun-dev/cleanrun/journal"

// SetOrigin changes where a row's content comes from. Parsed model channels and
// the network have no operation yet, so no journal can hold their origins; the
// verdict function knows them already.
func (e *Evidence) SetOrigin(seq uint64, o journal.Origin) {
	if e.origins == nil {
		e.origins = map[uint64]journal.Origin{}
	}
	e.origins[seq] = o
}

// ReasonIDs is the closed list.
func ReasonIDs() []string { return reasonOrder }

// MatchListSum is what a statement binds of a list of matches.
func MatchListSum(all []Match) string { return matchListSum(all) }

// Says tells that a reason has a meaning and an advice.
func Says(id string) bool { return meanings[id].says != "" && meanings[id].next != "" }

// Reread makes e read its rows again where it needs them, as it does for long
// journals.
func (e *Evidence) Reread() { e.kept = nil }

// Kept tells that e keeps the events of its rows.
func (e *Evidence) Kept() bool { return e.kept != nil }
