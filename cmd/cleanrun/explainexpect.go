package main

import (
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// An explainedExpect is what the result of a named path rests on.
type explainedExpect struct {
	Result     expect.Outcome       `json:"result"`
	Read       string               `json:"read"` // the named path
	Dimensions []explainedDimension `json:"dimensions"`
}

type explainedDimension struct {
	expect.Dimension
	Says     string      `json:"says,omitempty"`    // the reason in words
	Row      *eventJSON  `json:"row,omitempty"`     // the event that shows it
	Program  *eventJSON  `json:"program,omitempty"` // that the event's process executed then
	Started  []eventJSON `json:"started"`           // what led to the process of one that is missed
	Searched []eventJSON `json:"searched"`          // of nothing-else-searched: all that was out of scope, the first ones if there is much
}

// expectation explains a report's result of a named path.
func (t *tracer) expectation(r *verify.Report) *explainedExpect {
	out := &explainedExpect{Result: r.Expect.Outcome, Read: r.NamedPath, Dimensions: []explainedDimension{}}
	for _, d := range r.Expect.Dimensions {
		one := explainedDimension{Dimension: d, Says: d.Why.Says(), Started: []eventJSON{}, Searched: []eventJSON{}}
		if d.Event > 0 {
			row, process := eventOf(t.ev, d.Event), t.ev.rows[d.Event].Proc
			one.Row = &row
			if exec, ok := t.run.Program(process, d.Event); ok {
				program := eventOf(t.ev, exec)
				one.Program = &program
			}
			if d.State == expect.Missed {
				one.Started = t.events(t.run.Lineage(process, d.Event))
			}
		}
		if d.Name == expect.NotSearched && d.State == expect.Missed {
			for i := range t.ev.rows {
				if row := &t.ev.rows[i]; row.Flags&journal.FlagOutOfScope != 0 && row.Phase != journal.PhaseGrade && len(one.Searched) < 2*around {
					one.Searched = append(one.Searched, eventOf(t.ev, uint64(i)))
				}
			}
		}
		out.Dimensions = append(out.Dimensions, one)
	}
	return out
}

func (x *explainedExpect) text(b *strings.Builder, ev *events) {
	fmt.Fprintf(b, "\nnamed path %s: %s\n", quotePath(x.Read), strings.ToUpper(string(x.Result)))
	shown := map[uint64]bool{} // events whose command line stands there already: many dimensions rest on one
	for _, d := range x.Dimensions {
		fmt.Fprintf(b, " %s: %s", d.Name, d.State)
		if d.Says != "" {
			fmt.Fprintf(b, ", %s", d.Says)
		}
		b.WriteByte('\n')
		list := func(title string, list []eventJSON) {
			if len(list) > 0 {
				fmt.Fprintf(b, "   %s\n", title)
			}
			for _, e := range list {
				fmt.Fprintln(b, eventLine(ev, e.Event))
			}
		}
		switch {
		case len(d.Searched) > 0:
			list("out of scope", d.Searched)
		case d.Row != nil:
			line := eventLine(ev, d.Row.Event)
			if p := d.Program; p != nil && p.Path != "" && !shown[d.Row.Event] {
				shown[d.Row.Event] = true
				line += fmt.Sprintf("  by %s %q", quotePath(p.Path), p.Argv)
			}
			fmt.Fprintln(b, line)
		}
		list("how its process came to be", d.Started)
	}
}
