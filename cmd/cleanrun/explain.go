package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var explainDetail, explainIdentity string

var explainCommand = &cli.Command{
	Name:  "explain",
	Args:  "out.cleanrun [EVENT]",
	Short: "say why a run is not CLEAN: who opened what, in which order, what led to it",
	Long: `Shows for each reason the event, the process, what started that process and what it did before and after. With EVENT, one event.

A bundle shows no paths and no command lines. Whoever has the run folder gives it with -detail: each of its details is checked against
the event's commitment in the bundle.

The reasons are derived from the evidence again; who signed it is not checked here (cleanrun verify does).`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		f.String(&explainDetail, "detail", "run `folder` that holds paths and command lines")
		f.String(&explainIdentity, "identity", identityUsage)
	},
	Run: func(e *cli.Env, args []string) error {
		if len(args) == 0 || len(args) > 2 {
			_, err := oneArg(args, "the bundle (out.cleanrun)")
			if err == nil {
				err = cli.Failf(cli.ExitUsage, "", "unexpected argument %q", args[2])
			}
			return err
		}
		if st, err := os.Stat(args[0]); err == nil && st.IsDir() {
			return cli.Failf(cli.ExitUsage, "cleanrun attest makes a bundle of a run folder; cleanrun inspect -events "+args[0]+" lists what it recorded", "%s: is a folder, want a bundle", args[0])
		}
		report, err := verifyFile(args[0], "")
		if err != nil {
			return err
		}
		if c := report.FailedCheck(); c != nil {
			return cli.Failf(report.Exit, c.Hint, "%s: %s: check %s failed: %s", args[0], report.Verdict, c.ID, c.Detail)
		}
		ev, err := readEvents(args[0], "")
		if err != nil {
			return err
		}
		if explainDetail != "" {
			run, err := readRunDir(explainDetail, explainIdentity)
			if err != nil {
				return err
			}
			if run.summary.Head != ev.summary.Head {
				return cli.Failf(cli.ExitUsage, "use the folder that attest was given", "%s: belongs to run %x with %d events, want run %x with %d", explainDetail,
					run.summary.Head.Run, run.summary.Head.Size, ev.summary.Head.Run, ev.summary.Head.Size)
			}
			ev.details, ev.known = run.details, true
		}
		x := explanation{Verdict: string(report.Derived), Events: []explained{}}
		if len(args) == 2 {
			seq, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || seq >= uint64(len(ev.rows)) {
				return cli.Failf(cli.ExitUsage, "", "got event %q, want a number from 0 to %d", args[1], len(ev.rows)-1)
			}
			x.Events = append(x.Events, explainEvent(ev, report, seq))
		} else {
			for _, w := range report.Why {
				if w.Event == 0 {
					x.Run = append(x.Run, w)
					continue
				}
				if !slices.ContainsFunc(x.Events, func(o explained) bool { return o.Event.Event == w.Event }) {
					x.Events = append(x.Events, explainEvent(ev, report, w.Event))
				}
			}
		}
		if e.JSON {
			return e.PrintJSON(x)
		}
		fmt.Fprint(e.Stdout, x.text(report, ev))
		return nil
	},
}

type explanation struct {
	Verdict string       `json:"verdict"`
	Run     []verify.Why `json:"run"` // reasons that concern the whole run
	Events  []explained  `json:"events"`
}

type explained struct {
	Event   eventJSON    `json:"event"`
	Why     []verify.Why `json:"why"`
	Started []eventJSON  `json:"started"` // what led to the process: forks and execs, oldest first
	Before  []eventJSON  `json:"before"`  // of the same process
	After   []eventJSON  `json:"after"`
	Object  []eventJSON  `json:"object"` // other events on the same file

	lines map[string][]uint64
}

// around is how many events before and after are shown.
const around = 6

func explainEvent(ev *events, r *verify.Report, seq uint64) explained {
	row := &ev.rows[seq]
	x := explained{Event: eventOf(ev, seq), Why: []verify.Why{}, lines: map[string][]uint64{}}
	for _, w := range r.Why {
		if w.Event == seq {
			x.Why = append(x.Why, w)
		}
	}
	add := func(list *[]eventJSON, name string, seq uint64) {
		*list = append(*list, eventOf(ev, seq))
		x.lines[name] = append(x.lines[name], seq)
	}
	for _, s := range lineage(ev, row.Proc, seq) {
		add(&x.Started, "started", s)
	}
	var before []uint64
	for i := int(seq) - 1; i >= 0 && len(before) < around; i-- {
		if o := &ev.rows[i]; o.Proc == row.Proc && o.Op != journal.OpDir {
			before = append(before, uint64(i))
		}
	}
	slices.Reverse(before)
	for _, s := range before {
		add(&x.Before, "before", s)
	}
	for i := int(seq) + 1; i < len(ev.rows) && len(x.After) < around; i++ {
		if o := &ev.rows[i]; o.Proc == row.Proc && o.Op != journal.OpDir {
			add(&x.After, "after", uint64(i))
		}
	}
	for i := range ev.rows {
		if o := &ev.rows[i]; sameFile(row, o) && uint64(i) != seq && o.Op != journal.OpVoid && len(x.Object) < 2*around {
			add(&x.Object, "object", uint64(i))
		}
	}
	return x
}

// sameFile tells whether a row is of the same file as another. A guard row knows
// its file by its path.
func sameFile(row, other *journal.Row) bool {
	if row.Op == journal.OpGuard {
		for _, p := range []*journal.PathRef{other.Path, other.Path2} {
			if p != nil && *p == *row.Path {
				return true
			}
		}
	}
	return row.Object != 0 && other.Object == row.Object
}

// lineage is how process proc came to be what it was at event seq: for it and
// each of its ancestors the fork, and the last exec before the next step.
func lineage(ev *events, proc uint32, seq uint64) []uint64 {
	var out []uint64
	for at := seq; proc != 0; {
		exec, fork := -1, -1
		for i := int(at); i >= 0; i-- {
			r := &ev.rows[i]
			if exec < 0 && r.Proc == proc && r.Op == journal.OpExec && r.Result == 0 && uint64(i) != seq {
				exec = i
			}
			if r.Op == journal.OpFork && r.Child == proc {
				fork = i
				break
			}
		}
		if exec >= 0 {
			out = append(out, uint64(exec))
		}
		if fork < 0 {
			break
		}
		out = append(out, uint64(fork))
		proc, at = ev.rows[fork].Proc, uint64(fork)
	}
	slices.Reverse(out)
	return out
}

func (x explanation) text(r *verify.Report, ev *events) string {
	var b strings.Builder
	b.WriteString(x.Verdict)
	if r.Run != nil {
		fmt.Fprintf(&b, "  %s/%s  trial %d, attempt %d", r.Run.Benchmark, r.Run.Task, r.Run.Trial, r.Run.Attempt)
	}
	fmt.Fprint(&b, "  (derived from the evidence; the signer is not checked here)\n")
	if !ev.known {
		fmt.Fprint(&b, " paths and command lines are not in a bundle; give the run folder with -detail to see them\n")
	}
	for _, w := range x.Run {
		fmt.Fprintf(&b, "\n the run as a whole: %s: %s\n", w.Reason, w.Detail)
	}
	for _, o := range x.Events {
		fmt.Fprintf(&b, "\nevent %d, %s after the start, phase %s\n", o.Event.Event, time.Duration(o.Event.Nanos).Round(time.Millisecond), o.Event.Phase)
		fmt.Fprintf(&b, "  %s\n", strings.TrimLeft(eventLine(ev, o.Event.Event), " "))
		for _, w := range o.Why {
			fmt.Fprintf(&b, "  why: %s: %s\n", w.Reason, w.Detail)
		}
		for _, part := range []struct{ name, title string }{{"started", "how its process came to be"}, {"before", "what it did before"},
			{"object", "other events on the same file"}, {"after", "what it did next"}} {
			if len(o.lines[part.name]) == 0 {
				continue
			}
			fmt.Fprintf(&b, " %s\n", part.title)
			for _, s := range o.lines[part.name] {
				fmt.Fprintln(&b, eventLine(ev, s))
			}
		}
	}
	if len(x.Run) == 0 && len(x.Events) == 0 {
		b.WriteString(" no reason: nothing sealed came in and nothing was out of scope\n")
	}
	return b.String()
}
