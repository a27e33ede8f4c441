package seal

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// A Summary is what sealing found, for the owner's eyes: it names sources and
// true counts, which the sealed set hides. It shows no content.
type Summary struct {
	Benchmark, Task string
	Groups          []GroupSummary // in the order of the task file
	Novel, Kept     int            // novel shingles and lines, before and after subtraction
	Allowed         int            // items that the prompt or the workspace holds
	Controls        int
	Uncovered       []contraband.Count
	TooSmall        bool
	Footprint       *contraband.Footprint // as sealed; nil if the task states none
	Expect          *contraband.Expect    // as sealed; nil if nothing is expected
	Warnings        []string
	Surroundings    []string // what in Footprint and Expect is probably not meant
}

// GroupSummary is one group with its true count.
type GroupSummary struct {
	Source    string // path, or item of the task file
	Kind      contraband.Kind
	Class     contraband.Class
	Items     int
	Padded    int
	Threshold int
}

func (s *Summary) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

func (s *Summary) finish(set *contraband.Set, allowed []bool) {
	for _, ok := range allowed {
		if ok {
			s.Allowed++
		}
	}
	s.Controls = len(set.Controls) / 32
	s.Uncovered = set.Uncovered
	s.Footprint, s.Expect = set.Footprint, set.Expect
	if s.TooSmall = set.TooSmall(); s.TooSmall {
		s.warn("too little to seal: no whole object and fewer than 8 items; no run of this task can be CLEAN")
	}
	if 2*s.Kept < s.Novel {
		s.warn("the workspace or prompt holds %d of %d novel items; no run of this task can be CLEAN", s.Novel-s.Kept, s.Novel)
	}
}

// warnUncovered says of one task what is too weak to seal.
func (s *Summary) warnUncovered() {
	for _, c := range s.Uncovered {
		if !c.Kind.OncePerTask() {
			what := "lines or files of kind %s are"
			if c.N == 1 {
				what = "line or file of kind %s is"
			}
			s.warn("%d "+what+" too short or too weak to seal; a run that reads nothing else is not noticed", c.N, c.Kind)
		}
	}
}

// Weak is how many lines or files of references and tests are too short or too
// weak to seal.
func (s *Summary) Weak() (n int) {
	for _, c := range s.Uncovered {
		if !c.Kind.OncePerTask() {
			n += int(c.N)
		}
	}
	return n
}
