package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var explainDetail, explainIdentity, explainPath string

var explainCommand = &cli.Command{
	Name:  "explain",
	Args:  "out.cleanrun|RUNDIR|FINDING.json [EVENT]",
	Short: "say why a run is not CLEAN, or who changed a file: who did what, in which order, what led to it",
	Long: `Of a bundle: shows for each reason the event, the process, what started that process and what it did before and after; for each path
out of the task's footprint who changed it, when, and what had been read before; and what an expectation rests on. With EVENT, one event.

Of a finding: the file that cleanrun scope -o wrote, or what cleanrun surface -run -json printed. Shows who changed or wrote what it names. The
recording is the one that scope -record named, or the one that -detail names; the finding is held to it.

Of a run folder: give EVENT, or -path.

"What had been read before" lists the files that the process, those around it and the run's stdin had brought in by then, each once. It is no
proof of a cause: the recorder does not see what processes tell each other.

A bundle shows few paths, those that its task asks for, and no command lines. Whoever has the run folder gives it with -detail: each of its
details is checked against the event's commitment in the bundle.

The reasons are derived from the evidence again; who signed it is not checked here (cleanrun verify does). A finding is nobody's signed word.

  cleanrun scope -allow out.txt -record R -o report.json -- ./agent.sh
  cleanrun explain report.json

  cleanrun explain R -path keys/private.key`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		f.String(&explainDetail, "detail", "run `folder` that holds paths and command lines")
		f.String(&explainIdentity, "identity", identityUsage)
		f.String(&explainPath, "path", "`path` whose last change is explained, as the run saw it or relative to its workspace")
	},
	Run: func(e *cli.Env, args []string) error {
		if len(args) == 0 || len(args) > 2 {
			_, err := oneArg(args, "the bundle (out.cleanrun), run folder or finding")
			if err == nil {
				err = cli.Failf(cli.ExitUsage, "", "unexpected argument %q", args[2])
			}
			return err
		}
		event := ""
		if len(args) == 2 {
			event = args[1]
		}
		if event != "" && explainPath != "" {
			return cli.Failf(cli.ExitUsage, "", "got an event and -path, want one of them")
		}
		x, err := explain(args[0], event)
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(x)
		}
		fmt.Fprint(e.Stdout, x.text())
		return nil
	},
}

// explain reads what it is given and explains it.
func explain(name, event string) (*explanation, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return explainRun(name, event)
	}
	start, err := readStart(name)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(start), "{") {
		return explainFinding(name, event)
	}
	return explainBundle(name, event)
}

// explainRun explains an event or a path of a run folder.
func explainRun(name, event string) (*explanation, error) {
	if explainDetail != "" {
		return nil, cli.Failf(cli.ExitUsage, "leave out -detail", "%s: is a run folder, which holds its own details", name)
	}
	if event == "" && explainPath == "" {
		return nil, cli.Failf(cli.ExitUsage, "give an event or -path; cleanrun inspect -events "+name+" lists what it recorded, and cleanrun attest makes a bundle, which has reasons",
			"%s: is a run folder, and which event is to be explained is not said", name)
	}
	ev, err := readRunDir(name, explainIdentity)
	if err != nil {
		return nil, err
	}
	t, err := newTracer(ev)
	if err != nil {
		return nil, err
	}
	x := &explanation{Events: []explained{}, ev: ev}
	return x, x.ask(t, &verify.Report{}, event)
}

// explainBundle explains the reasons of a bundle, or an event or path of it.
func explainBundle(name, event string) (*explanation, error) {
	report, err := verifyFile(name, "")
	if err != nil {
		return nil, err
	}
	if c := report.FailedCheck(); c != nil {
		hint := c.Hint
		if report.Verdict == verify.Unusable {
			hint = explainTakes
		}
		return nil, cli.Failf(report.Exit, hint, "%s: %s: check %s failed: %s", name, report.Verdict, c.ID, c.Detail)
	}
	ev, err := readEvents(name, "")
	if err != nil {
		return nil, err
	}
	if explainDetail != "" {
		run, err := readRunDir(explainDetail, explainIdentity)
		if err != nil {
			return nil, err
		}
		if run.summary.Head != ev.summary.Head {
			return nil, cli.Failf(cli.ExitUsage, "use the folder that attest was given", "%s: belongs to run %x with %d events, want run %x with %d", explainDetail,
				run.summary.Head.Run, run.summary.Head.Size, ev.summary.Head.Run, ev.summary.Head.Size)
		}
		ev.details, ev.known = run.details, true
	}
	t, err := newTracer(ev)
	if err != nil {
		return nil, err
	}
	x := &explanation{Verdict: string(report.Derived), Events: []explained{}, ev: ev, of: report}
	if event != "" || explainPath != "" {
		return x, x.ask(t, report, event)
	}
	if f := report.Footprint; f != nil {
		x.Footprint = t.footprint(f)
	}
	if report.Expect != nil {
		x.Expect = t.expectation(report)
	}
	for _, w := range report.Why {
		if w.Event == 0 {
			x.Run = append(x.Run, w)
			continue
		}
		if w.Reason == attest.ReasonFootprint {
			continue // its paths are explained
		}
		if !slices.ContainsFunc(x.Events, func(o explained) bool { return o.Event.Event == w.Event }) {
			x.Events = append(x.Events, explainEvent(t, report, w.Event))
		}
	}
	return x, nil
}

// ask explains the one event or path that was asked for.
func (x *explanation) ask(t *tracer, r *verify.Report, event string) error {
	if event != "" {
		seq, err := strconv.ParseUint(event, 10, 64)
		if err != nil || seq >= uint64(len(x.ev.rows)) {
			return cli.Failf(cli.ExitUsage, "", "got event %q, want a number from 0 to %d", event, len(x.ev.rows)-1)
		}
		x.Events = append(x.Events, explainEvent(t, r, seq))
		return nil
	}
	found, err := t.path(explainPath)
	if err != nil {
		return err
	}
	x.Path = &found
	return nil
}

type explanation struct {
	Verdict   string              `json:"verdict,omitempty"` // of a bundle
	Run       []verify.Why        `json:"run"`               // reasons that concern the whole run
	Events    []explained         `json:"events"`
	Path      *traced             `json:"path,omitempty"`      // that was asked for
	Footprint *explainedFootprint `json:"footprint,omitempty"` // of a report of scope, or of a bundle whose task states one
	Expect    *explainedExpect    `json:"expect,omitempty"`
	Surface   *explainedSurface   `json:"surface,omitempty"`

	ev *events
	of *verify.Report // of a bundle
}

type explained struct {
	Event       eventJSON    `json:"event"`
	Why         []verify.Why `json:"why"`
	Started     []eventJSON  `json:"started"` // what led to the process: forks and execs, oldest first
	Before      []eventJSON  `json:"before"`  // of the same process
	After       []eventJSON  `json:"after"`
	Object      []eventJSON  `json:"object"` // other events on the same file
	*readBefore              // of an event that changes something

	lines map[string][]uint64
}

// around is how many events before and after are shown.
const around = 6

func explainEvent(t *tracer, r *verify.Report, seq uint64) explained {
	ev := t.ev
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
	for _, s := range t.run.Lineage(row.Proc, seq) {
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
	if attest.Changes(row) {
		before := t.before(row.Proc, seq)
		x.readBefore = &before
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

func (x *explanation) text() string {
	var b strings.Builder
	ev := x.ev
	if r := x.of; r != nil {
		b.WriteString(x.Verdict)
		if r.Run != nil {
			fmt.Fprintf(&b, "  %s/%s  trial %d, attempt %d", r.Run.Benchmark, r.Run.Task, r.Run.Trial, r.Run.Attempt)
		}
		fmt.Fprint(&b, "  (derived from the evidence; the signer is not checked here)\n")
		switch {
		case ev.known:
		case len(ev.paths) > 0:
			fmt.Fprint(&b, " of the paths only those that the task asks for are in a bundle, and no command lines; give the run folder with -detail to see them\n")
		default:
			fmt.Fprint(&b, " paths and command lines are not in a bundle; give the run folder with -detail to see them\n")
		}
	}
	for _, w := range x.Run {
		fmt.Fprintf(&b, "\n the run as a whole: %s: %s\n", w.Reason, w.Detail)
	}
	for _, o := range x.Events {
		o.text(&b, ev)
	}
	if x.Footprint != nil {
		x.Footprint.text(&b, ev)
	}
	if x.Surface != nil {
		x.Surface.text(&b, ev)
	}
	if x.Expect != nil {
		x.Expect.text(&b, ev)
	}
	if x.Path != nil {
		x.Path.text(&b, ev)
	}
	if x.of != nil && len(x.Run) == 0 && len(x.Events) == 0 && x.Path == nil && (x.Footprint == nil || len(x.Footprint.Paths) == 0) {
		b.WriteString(" no reason: nothing sealed came in and nothing was out of scope\n")
	}
	return strings.TrimPrefix(b.String(), "\n")
}

func (o *explained) text(b *strings.Builder, ev *events) {
	fmt.Fprintf(b, "\nevent %d, %s after the start, phase %s\n", o.Event.Event, time.Duration(o.Event.Nanos).Round(time.Millisecond), o.Event.Phase)
	fmt.Fprintf(b, "  %s\n", strings.TrimLeft(eventLine(ev, o.Event.Event), " "))
	for _, w := range o.Why {
		fmt.Fprintf(b, "  why: %s: %s\n", w.Reason, w.Detail)
	}
	for _, part := range []struct{ name, title string }{{"started", "how its process came to be"}, {"before", "what it did before"},
		{"object", "other events on the same file"}, {"after", "what it did next"}} {
		if len(o.lines[part.name]) == 0 {
			continue
		}
		fmt.Fprintf(b, " %s\n", part.title)
		for _, s := range o.lines[part.name] {
			fmt.Fprintln(b, eventLine(ev, s))
		}
	}
	if o.readBefore != nil {
		o.readBefore.text(b, ev, "")
	}
}
