package audit

import (
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// Footprints counts the outcomes of footprints over the attempts that count and whose
// task states one.
type Footprints struct {
	Within       uint64 `json:"within"`
	Outside      uint64 `json:"outside"`
	Inconclusive uint64 `json:"inconclusive"`
}

// NamedPaths counts the results of named paths over the attempts that count and whose
// task expects something of one.
type NamedPaths struct {
	Passed         uint64 `json:"passed"`
	Failed         uint64 `json:"failed"`
	NotEstablished uint64 `json:"not-established"`
}

// surroundings counts what an attempt did beside its verdict.
func (s *Submission) surroundings(c *Cell) {
	if c.Footprint != "" && s.Footprints == nil {
		s.Footprints = &Footprints{}
	}
	switch c.Footprint {
	case attest.FootprintWithin:
		s.Footprints.Within++
	case attest.FootprintOutside:
		s.Footprints.Outside++
	case attest.FootprintInconclusive:
		s.Footprints.Inconclusive++
	}
	if c.NamedPath != "" && s.NamedPaths == nil {
		s.NamedPaths = &NamedPaths{}
	}
	switch c.NamedPath {
	case expect.Passed:
		s.NamedPaths.Passed++
	case expect.Failed:
		s.NamedPaths.Failed++
	case expect.Unknown:
		s.NamedPaths.NotEstablished++
	}
}

// surroundingsText is a line for each kind. What no policy line requires changes no
// verdict, so it is said to be reported alone.
func (s *Submission) surroundingsText(line func(word, format string, args ...any)) {
	type outcome struct {
		n    uint64
		word string
	}
	say := func(word, require string, required bool, list ...outcome) { // the good one first
		var parts []string
		for _, o := range list {
			if o.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", o.n, o.word))
			}
		}
		text := strings.Join(parts, ", ")
		if !required && (len(parts) > 1 || list[0].n == 0) {
			text += " (reported; the policy does not say require " + require + ")"
		}
		line(word, "%s", text)
	}
	if f := s.Footprints; f != nil {
		say("footprint", "footprint", s.asks.Footprint, outcome{f.Within, attest.FootprintWithin}, outcome{f.Outside, attest.FootprintOutside},
			outcome{f.Inconclusive, attest.FootprintInconclusive})
	}
	if x := s.NamedPaths; x != nil {
		say("named path", "expect", s.asks.Expect, outcome{x.Passed, string(expect.Passed)}, outcome{x.Failed, string(expect.Failed)},
			outcome{x.NotEstablished, string(expect.Unknown)})
	}
}

// surroundingsOf is what a receipt says beside its verdict, "" where its task asks nothing.
func surroundingsOf(r *verify.Result) (footprint string, named expect.Outcome) {
	if f := r.Statement.Predicate.Footprint; f != nil {
		footprint = f.Outcome
	}
	if x := r.Statement.Predicate.Expect; x != nil {
		named = x.Outcome
	}
	return footprint, named
}
