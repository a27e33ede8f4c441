package attest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	v1 "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// build attests a script.
func build(t testing.TB, s Script, score *attest.Score) *attest.Attestation {
	t.Helper()
	p := play(t, s)
	a, err := attest.Build(p.set, p.sealed, p.pack, score)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var honest = Script{Rows: []Step{{Do: "read"}}}

var cheat = Script{Rows: []Step{{Do: "read", Items: "f1..f40 file-raw", Path: "/hidden/a"}}}

// graded is a run whose reward stands in the rows.
func graded(rows []Step, rewards ...string) Script {
	return Script{
		Grading: &Grading{Rule: journal.RewardFile, Rewards: rewards, Agent: End{Left: 2}},
		Rows: append(slices.Clone(rows), Step{As: "answer", Do: "write", Path: "/work/answer"},
			Step{Do: "reread", Of: "answer", Path: "/work/answer", Phase: "grade"}),
	}
}

// The statement is one to in-toto's own types, with the same fields.
func TestStatementIsInToto(t *testing.T) {
	a := build(t, graded(cheat.Rows, "text 1.0"), nil)
	var theirs v1.Statement
	if err := protojson.Unmarshal(a.Bytes, &theirs); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Validate(); err != nil {
		t.Fatal(err)
	}
	root := a.Evidence.Root()
	if theirs.Type != attest.StatementType || theirs.PredicateType != attest.PredicateType || len(theirs.Subject) != 1 ||
		theirs.Subject[0].Name != "cleanrun.dev/journal/01020300000000000000000000000000" ||
		theirs.Subject[0].Digest["sha256"] != hex.EncodeToString(root[:]) {
		t.Fatalf("got %v", &theirs)
	}
	predicate := theirs.Predicate.AsMap()
	if predicate["verdict"] != "DIRTY" || !equalJSON(t, predicate["score"], map[string]any{"value": "1.0", "source": "observed"}) {
		t.Fatalf("got predicate %v", predicate)
	}
	var ours map[string]any
	if err := json.Unmarshal(a.Bytes, &ours); err != nil {
		t.Fatal(err)
	}
	if !equalJSON(t, ours["predicate"], predicate) {
		t.Fatal("in-toto reads another predicate")
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

func TestRT95_BuildIsDeterministic(t *testing.T) {
	for _, s := range []Script{honest, cheat, graded(honest.Rows, "text 1", "json 1.0")} {
		a, b := build(t, s, nil), build(t, s, nil)
		if !bytes.Equal(a.Bytes, b.Bytes) {
			t.Fatalf("two builds differ:\n%s\n%s", a.Bytes, b.Bytes)
		}
		canonical, err := jcs.Transform(a.Bytes)
		if err != nil || !bytes.Equal(canonical, a.Bytes) {
			t.Fatalf("not JCS: %v", err)
		}
	}
	if bytes.Equal(build(t, honest, nil).Bytes, build(t, cheat, nil).Bytes) {
		t.Fatal("control: two runs have one statement")
	}
}

// RT93: what a DIRTY statement shows of matches is row, class and reason.
func TestRT93_DirtyShowsRowAndClassOnly(t *testing.T) {
	a := build(t, cheat, nil)
	if a.Derivation.Verdict != attest.Dirty || a.Statement.Predicate.Matches.Total == 0 {
		t.Fatal("control: not a DIRTY statement with matches")
	}
	for _, group := range a.Evidence.Rows() {
		if group == nil {
			continue
		}
		for d := range slices.Chunk(group.Digests, 16) {
			if bytes.Contains(a.Bytes, []byte(hex.EncodeToString(d))) || bytes.Contains(a.Bytes, d) {
				t.Fatalf("the statement shows digest %x", d)
			}
		}
	}
	for _, name := range []string{"f1", "file-raw"} {
		s := fixture.S(name)
		if bytes.Contains(a.Bytes, []byte(hex.EncodeToString(s[:8]))) {
			t.Fatalf("the statement shows item %s", name)
		}
	}
	var m map[string]any
	if err := json.Unmarshal(a.Bytes, &m); err != nil {
		t.Fatal(err)
	}
	for _, one := range m["predicate"].(map[string]any)["matches"].(map[string]any)["first"].([]any) {
		if keys := one.(map[string]any); len(keys) != 3 {
			t.Fatalf("match with keys %v", keys)
		}
	}
}

func TestMatchList(t *testing.T) {
	var all []attest.Match
	for i := range 1000 {
		want, err := json.Marshal(append([]attest.Match{}, all...))
		if err != nil {
			t.Fatal(err)
		}
		if want, err = jcs.Transform(want); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(want)
		if got := attest.MatchListSum(all); got != hex.EncodeToString(sum[:]) {
			t.Fatalf("%d matches: got %s, want %x", i, got, sum)
		}
		if i > 20 {
			break
		}
		all = append(all, attest.Match{Event: uint64(i * i), Class: "fragment", Reason: attest.ReasonFragments})
	}
	s := Script{}
	for range 400 {
		s.Rows = append(s.Rows, Step{Do: "read", Items: "f2..f9"})
	}
	m := build(t, s, nil).Statement.Predicate.Matches
	if m.Total != 400 || len(m.First) != attest.MaxMatches || m.Classes[0].Count != 400 {
		t.Fatalf("got %d matches, %d listed, classes %v", m.Total, len(m.First), m.Classes)
	}
}

func TestParseStatementIsStrict(t *testing.T) {
	good := string(build(t, cheat, &attest.Score{Value: "0.5", Source: attest.ScoreAsserted}).Bytes)
	parsed, err := attest.ParseStatement([]byte(good))
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	if again, err := parsed.Marshal(); err != nil || string(again) != good {
		t.Fatalf("control: encoded again: %v\n%s", err, again)
	}
	swap := func(old, repl string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q in %s", old, good)
		}
		return strings.Replace(good, old, repl, 1)
	}
	cases := map[string]string{
		"RT59_duplicate key":       swap(`"verdict":"DIRTY"`, `"verdict":"DIRTY","verdict":"DIRTY"`),
		"RT59_duplicate, hidden":   swap(`"verdict":"DIRTY"`, `"verdict":"CLEAN","verdict":"DIRTY"`),
		"RT60_1.0":                 swap(`"trial":1`, `"trial":1.0`),
		"RT60_1e0":                 swap(`"trial":1`, `"trial":1e0`),
		"RT60_text for a number":   swap(`"trial":1`, `"trial":"1"`),
		"RT60_true for a number":   swap(`"trial":1`, `"trial":true`),
		"RT60_number for text":     swap(`"verdict":"DIRTY"`, `"verdict":7`),
		"RT60_minus":               swap(`"trial":1`, `"trial":-1`),
		"RT60_bignum":              swap(`"trial":1`, `"trial":99999999999`),
		"RT60_null list":           swap(`"notCovered":[]`, `"notCovered":null`) + " ",
		"RT61_trailing":            good + "\n",
		"RT61_second value":        good + good,
		"RT61_BOM":                 "\ufeff" + good,
		"RT61_NUL":                 good + "\x00",
		"RT61_invalid UTF-8":       swap(`"agent 1.0"`, "\"agent \xff\""),
		"RT61_escape":              swap(`"agent 1.0"`, `"\u0061gent 1.0"`),
		"RT61_white space":         swap(`,"verdict"`, `, "verdict"`),
		"RT62_unknown field":       swap(`"verdict":"DIRTY"`, `"verdict":"DIRTY","version":1`),
		"RT62_case of a field":     swap(`"verdict":"DIRTY"`, `"Verdict":"DIRTY"`),
		"RT62_missing field":       swap(`"verdict":"DIRTY"`, `"x":0`),
		"RT63_deep nesting":        strings.Repeat("[", 10000) + strings.Repeat("]", 10000),
		"RT63_too long":            strings.Repeat(" ", attest.MaxStatement+1),
		"RT75_other predicateType": swap(attest.PredicateType, "https://example.org/v1"),
		"RT75_other _type":         swap(attest.StatementType, "https://in-toto.io/Statement/v0.1"),
		"RT75_empty subject list":  subjects(good, ""),
		"RT75_second subject":      subjects(good, `{"digest":{"sha256":"00"},"name":"a"},{"digest":{"sha256":"00"},"name":"a"}`),
		"order of keys":            strings.TrimSuffix(swap(`"_type":"`+attest.StatementType+`",`, ``), "}") + `,"_type":"` + attest.StatementType + `"}`,
		"score spelled 0.50x":      swap(`"value":"0.5"`, `"value":"0.5x"`),
		"score +1":                 swap(`"value":"0.5"`, `"value":"+1"`),
		"score 01":                 swap(`"value":"0.5"`, `"value":"01"`),
		"score .5":                 swap(`"value":"0.5"`, `"value":".5"`),
		"score NaN":                swap(`"value":"0.5"`, `"value":"NaN"`),
		"score from nowhere":       swap(`"source":"asserted"`, `"source":"reported"`),
		"empty":                    "",
		"null":                     "null",
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			if s, err := attest.ParseStatement([]byte(data)); err == nil || s != nil {
				t.Fatalf("accepted %q", data)
			}
		})
	}
}

// subjects replaces the subject list.
func subjects(statement, list string) string {
	from := strings.Index(statement, `"subject":[`) + len(`"subject":[`)
	return statement[:from] + list + statement[from+strings.Index(statement[from:], "]"):]
}

func FuzzParseStatement(f *testing.F) {
	f.Add(build(f, cheat, &attest.Score{Value: "0.5", Source: attest.ScoreAsserted}).Bytes)
	f.Add([]byte(`{}`))
	r := newNamedRun(f, "stdout")
	r.planted()
	r.Close(journal.Final{})
	f.Add(r.statement(r.pack(nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := attest.ParseStatement(data)
		if err != nil {
			return
		}
		again, err := s.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("a second spelling (%v) of\n%s", err, again)
		}
	})
}

func TestScore(t *testing.T) {
	build(t, honest, &attest.Score{Value: "1", Source: attest.ScoreAsserted})
	for _, c := range []struct {
		rewards []string
		want    string
	}{
		{[]string{"text -12.25"}, "-12.25"},
		{[]string{"json 0.5", "text 0.50"}, "0.5"},
		{[]string{"text 1", "json 0.75"}, "0.75"}, // of two the lower one
		{[]string{"text -0.1", "json -0.25"}, "-0.25"},
	} {
		got := build(t, graded(honest.Rows, c.rewards...), nil).Statement.Predicate.Score
		if got == nil || *got != (attest.Score{Value: c.want, Source: attest.ScoreObserved}) {
			t.Errorf("%v: got %v, want %s, observed", c.rewards, got, c.want)
		}
	}
	// Where the rows hold a reward nobody claims another, not even the same.
	p := play(t, graded(honest.Rows, "text 1"))
	for _, source := range []string{attest.ScoreAsserted, attest.ScoreObserved} {
		_, err := attest.Build(p.set, p.sealed, p.pack, &attest.Score{Value: "1", Source: source})
		var r *attest.Refusal
		if !errors.As(err, &r) || r.ID != attest.RefusedScore || !strings.Contains(r.Want, "grading gave 1") {
			t.Errorf("claimed as %s: got %v, want refusal %s", source, err, attest.RefusedScore)
		}
	}
	p = play(t, honest)
	for _, s := range []attest.Score{
		{Value: "1", Source: attest.ScoreObserved}, // nothing graded
		{Value: "1e3", Source: attest.ScoreAsserted},
		{Value: "", Source: attest.ScoreAsserted},
		{Value: "1", Source: ""},
	} {
		_, err := attest.Build(p.set, p.sealed, p.pack, &s)
		var r *attest.Refusal
		if !errors.As(err, &r) || r.ID != attest.RefusedScore || r.Hint == "" {
			t.Errorf("%v: got %v, want refusal %s with a hint", s, err, attest.RefusedScore)
		}
	}
}

// RT12: nothing is attested about a journal without rows.
func TestRT12_EmptyJournalIsRefused(t *testing.T) {
	p := play(t, honest)
	empty := fixture.Pack{Header: attest.Header{Version: attest.EvidenceVersion}}
	empty.Rehead()
	empty.Grow()
	a, err := attest.Build(p.set, p.sealed, empty.Bytes(), nil)
	var e *attest.EvidenceError
	if !errors.As(err, &e) || e.Rule != attest.RuleEmpty || a != nil {
		t.Fatalf("got %v, want rule %s", err, attest.RuleEmpty)
	}
	if _, err := attest.Build(p.set, p.sealed, p.pack, nil); err != nil {
		t.Fatalf("control: %v", err)
	}
}

// Numbers that only the recorder gives are cut to what JSON carries exactly.
func TestStatementNumbersAreExact(t *testing.T) {
	s := honest
	s.Rows = append(s.Rows, Step{Do: "lost"}, Step{Do: "lost"})
	s.Final = Final{Unexplained: 1<<64 - 1}
	a := build(t, s, nil)
	parsed, err := attest.ParseStatement(a.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	r := parsed.Predicate.Reasons
	if len(r) != 2 || r[0] != a.Derivation.Reasons[0] || r[1] != a.Derivation.Reasons[1] || r[0].Count != 2 || r[1].Count != 1<<53-1 {
		t.Fatalf("got %v, derived %v", r, a.Derivation.Reasons)
	}
}

func TestStatementTooLarge(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed := []byte("sealed")
	for _, roots := range []int{10, 1000} {
		r := fixture.NewRun(set, sha256.Sum256(sealed), func(s *journal.Start) {
			for i := range roots {
				s.Roots = append(s.Roots, scope.Root{Path: fmt.Sprintf("/opt/tool%04d/bin", i), Class: scope.Toolchain})
			}
		})
		r.Close(journal.Final{})
		p, err := r.Pack()
		if err != nil {
			t.Fatal(err)
		}
		_, err = attest.Build(set, sealed, p.Bytes(), nil)
		var refused *attest.Refusal
		if large := roots == 1000; large != (errors.As(err, &refused) && refused.ID == attest.RefusedStatement) {
			t.Errorf("%d roots: got %v", roots, err)
		}
	}
}
