package verify

import (
	"fmt"
	"reflect"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// A field is one value of a statement that must equal the derived one. Together
// they are the whole statement: a test walks the type and fails if a value can
// change without a field noticing.
type field struct {
	name string
	get  func(*attest.Statement) any
}

// subjectFields are the values that tie the statement to a journal.
var subjectFields = []field{
	{"_type", func(s *attest.Statement) any { return s.Type }},
	{"predicateType", func(s *attest.Statement) any { return s.PredicateType }},
	{"subject", func(s *attest.Statement) any { return s.Subject }},
	{"run.id", func(s *attest.Statement) any { return s.Predicate.Run.ID }},
	{"journal", func(s *attest.Statement) any { return s.Predicate.Journal }},
}

var verdictFields = []field{
	{"verdict", func(s *attest.Statement) any { return s.Predicate.Verdict }},
}

// restFields are all others, in the order of the statement.
var restFields = []field{
	{"reasons", func(s *attest.Statement) any { return s.Predicate.Reasons }},
	{"matches", func(s *attest.Statement) any { return s.Predicate.Matches }},
	{"run", func(s *attest.Statement) any { return s.Predicate.Run }},
	{"seal", func(s *attest.Statement) any { return s.Predicate.Seal }},
	{"evidence", func(s *attest.Statement) any { return s.Predicate.Evidence }},
	{"scope", func(s *attest.Statement) any { return s.Predicate.Scope }},
	{"counts", func(s *attest.Statement) any { return s.Predicate.Counts }},
	{"phases", func(s *attest.Statement) any { return s.Predicate.Phases }},
	{"grader", func(s *attest.Statement) any { return s.Predicate.Grader }},
	{"coverage", func(s *attest.Statement) any { return s.Predicate.Coverage }},
	{"notCovered", func(s *attest.Statement) any { return s.Predicate.NotCovered }},
	{"recorder", func(s *attest.Statement) any { return s.Predicate.Recorder }},
	{"asserted", func(s *attest.Statement) any { return s.Predicate.Asserted }},
	// A score that is asserted is the one value that evidence does not give:
	// checkSubject takes it from the statement, unless the rows hold a reward.
	{"score", func(s *attest.Statement) any { return s.Predicate.Score }},
	{"footprint", func(s *attest.Statement) any { return s.Predicate.Footprint }},
	{"expect", func(s *attest.Statement) any { return s.Predicate.Expect }},
}

// compare returns the first field in which the two statements differ.
func compare(fields []field, stored, derived *attest.Statement) error {
	for _, f := range fields {
		got, want := f.get(stored), f.get(derived)
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: got %s, want %s, as derived from the evidence", f.name, show(got), show(want))
		}
	}
	return nil
}

// show prints a value, cut to a length that fits on a screen.
func show(v any) string {
	const most = 200
	text := fmt.Sprintf("%+v", v)
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}
