package surface

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// An Outcome of a judgement. There is no fourth, and none stands for another: what
// could not be told is not a no.
type Outcome uint8

// The outcomes.
const (
	Undetermined Outcome = iota // the zero value claims nothing
	False
	True
)

// String is the outcome's name.
func (o Outcome) String() string { return [...]string{"undetermined", "false", "true"}[min(o, True)] }

// A Basis says what a True rests on.
type Basis string

// The bases, weakest first.
const (
	ByLocation Basis = "location" // the location held it when it was read; not since when, nor by whom
	ByTime     Basis = "time"     // and its times lie in the window
	ByJournal  Basis = "journal"  // the recorder saw the run write it
)

// A Result is the answer to a condition.
type Result struct {
	Outcome Outcome
	Entry   *Entry // True: the first entry that matches, by location, then event
	Basis   Basis  // True: what that rests on
	Reasons []Gap  // Undetermined: why, sorted by reason; never empty then
	// Dismissed is the first entry of a journal that matches and does not count,
	// because the run did not write it.
	Dismissed *Entry
	// NotApplied are keys of the scope that the source could not apply: a True may
	// be another attempt's.
	NotApplied []Key
}

// A DifferentLocationError refuses to judge an observation of one location by a
// condition on another: what was not looked at is not known.
type DifferentLocationError struct{ Observed, Asked Location }

func (e *DifferentLocationError) Error() string {
	return fmt.Sprintf("the observation is of %v, and the condition asks for %v: observe that location", e.Observed, e.Asked)
}

// Judge answers a condition from an observation, in the same way whenever it is asked.
// The error is a *DifferentLocationError, or the observation's own.
func Judge(c Condition, o *Observation) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	if c.Matcher.Kind == Regex && c.re == nil {
		return Result{}, fmt.Errorf("a condition that NewCondition did not make")
	}
	if c.Location != o.Location {
		return Result{}, &DifferentLocationError{o.Location, c.Location}
	}
	r := Result{NotApplied: slices.Clone(o.NotApplied)}
	why := gaps{}
	for i := range o.Entries {
		e := &o.Entries[i]
		if e.Event != nil && e.Event.How == Undated {
			if c.match(e) != no {
				why.add(NotDated, e.Location)
			}
			continue
		}
		if e.Event != nil && e.Event.How > Moved {
			if r.Dismissed == nil && c.match(e) == yes {
				r.Dismissed = e
			}
			continue
		}
		switch c.match(e) {
		case unknown:
			why.add(e.Gap, e.Location)
		case yes:
			if o.timing(e) == unproven {
				why.add(TimeUnproven, e.Location)
				continue
			}
			r.Outcome, r.Entry, r.Basis = True, e, ByLocation
			if o.Scope.Window != nil && !slices.Contains(o.NotApplied, KeyWindow) {
				r.Basis = ByTime
			}
			if e.Event != nil {
				r.Basis = ByJournal
			}
			return r, nil
		}
	}
	for _, g := range o.Gaps {
		why[g.Reason] = g
	}
	// A key that was not applied selects among what is there. Where nothing is, there is
	// nothing to select; else what the attempt wrote may have been another's to replace.
	if len(o.NotApplied) > 0 && len(o.Entries)+len(o.Outside) > 0 {
		why.add(ScopeNotApplied, "")
	}
	if len(why) == 0 && o.complete() {
		r.Outcome = False
		return r, nil
	}
	r.Reasons = why.sorted()
	return r, nil
}

// gaps by reason.
type gaps map[Reason]Gap

func (g gaps) add(r Reason, location string) {
	old, ok := g[r]
	if !ok || location < old.Location {
		old.Reason, old.Location = r, location
	}
	old.Count++
	g[r] = old
}

func (g gaps) sorted() []Gap {
	return slices.SortedFunc(maps.Values(g), func(a, b Gap) int { return cmp.Compare(a.Reason, b.Reason) })
}
