package audit

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/cleanrun-dev/cleanrun/submission"
)

// The JUnit XML that continuous integration reads: a test suite for each
// submission, a test case for each cell and for each finding that is of no cell.
// A DIRTY cell is a failure; everything else that is not CLEAN is an error, since
// a skipped test would look as if nothing were wrong.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure"`
		Errors  *junitProblem `xml:"error"`
	}
	junitProblem struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the report as JUnit XML.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junitSuites
	for _, s := range r.Submissions {
		suite := s.junit()
		all.Suites = append(all.Suites, suite)
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *Submission) junit() junitSuite {
	suite := junitSuite{Name: printable(s.Dir)}
	add := func(c junitCase) {
		suite.Cases = append(suite.Cases, c)
		suite.Tests++
		if c.Failure != nil {
			suite.Failures++
		}
		if c.Errors != nil {
			suite.Errors++
		}
	}
	ofCell := map[int][]Finding{}
	for _, f := range s.Findings {
		if f.cell >= 0 && f.cell < len(s.Cells) {
			ofCell[f.cell] = append(ofCell[f.cell], f)
			continue
		}
		name := f.ID
		if f.Where != "" {
			name += " " + f.Where
		}
		add(junitCase{Class: "submission", Name: printable(name), Errors: problem(f.ID, f.Detail)})
	}
	for i := range s.Cells {
		c := &s.Cells[i]
		test := junitCase{Class: printable(c.Task), Name: fmt.Sprintf("trial %d attempt %d", c.Trial, c.Attempt)}
		why := strings.Join(c.Reasons, ", ")
		switch found := ofCell[i]; {
		case len(found) > 0:
			test.Errors = problem(found[0].ID, found[0].Detail)
		case c.State == submission.Dirty:
			test.Failure = problem(string(c.State), why)
		case c.State == submission.Clean:
		case !c.Counts:
			// It was replaced, and nothing is to be said against that.
		default:
			test.Errors = problem(string(c.State), why)
		}
		add(test)
	}
	if suite.Tests == 0 {
		add(junitCase{Class: "submission", Name: "folder", Errors: problem(s.Verdict, "")})
	}
	return suite
}

func problem(kind, message string) *junitProblem {
	return &junitProblem{Type: kind, Message: printable(message)}
}
