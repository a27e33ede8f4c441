package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/cause"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A traced is a path with who changed it and what had been read before.
type traced struct {
	Path    string      `json:"path"`
	Says    string      `json:"says,omitempty"`    // what the finding says of it
	Event   *eventJSON  `json:"event,omitempty"`   // the change that is explained, none if no row made one
	Program *eventJSON  `json:"program,omitempty"` // that its process executed then
	Started []eventJSON `json:"started"`           // what led to the process: forks and execs, oldest first
	Changes []eventJSON `json:"changes"`           // all of the path, oldest first; the last ones if there are many
	Earlier int         `json:"earlier"`           // changes before those
	readBefore
}

// readBefore is what had been read before an event.
type readBefore struct {
	Read   []readJSON `json:"read"`   // newest last
	More   bool       `json:"more"`   // there is more
	System int        `json:"system"` // names of the system and of toolchains that were read; they are not in the list
}

// A readJSON is a read by the process that made a change, or by one around it.
type readJSON struct {
	eventJSON
	By cause.Relation `json:"by"`
}

// maxReads are shown of the process and its line, and as many of the processes beside.
const maxReads = 8

// maxFindings are explained at a time.
const maxFindings = 32

// A tracer answers from the rows of one run.
type tracer struct {
	ev  *events
	run *cause.Run
}

func newTracer(ev *events) (*tracer, error) {
	run, err := cause.New(ev.rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ev.path, err)
	}
	return &tracer{ev, run}, nil
}

func (t *tracer) events(list []uint64) []eventJSON {
	out := []eventJSON{}
	for _, seq := range list {
		out = append(out, eventOf(t.ev, seq))
	}
	return out
}

// trace explains the change of a path by row seq. ref is nil if no row names the path.
func (t *tracer) trace(path, says string, ref *journal.PathRef, seq uint64) traced {
	one := eventOf(t.ev, seq)
	process := t.ev.rows[seq].Proc
	out := traced{Path: path, Says: says, Event: &one, Started: t.events(t.run.Lineage(process, seq)), Changes: []eventJSON{}, readBefore: t.before(process, seq)}
	if exec, ok := t.run.Program(process, seq); ok {
		program := eventOf(t.ev, exec)
		out.Program = &program
	}
	if ref != nil {
		list := t.run.History(*ref)
		out.Earlier = max(0, len(list)-2*around)
		out.Changes = t.events(list[out.Earlier:])
	}
	return out
}

func (t *tracer) before(process uint32, seq uint64) readBefore {
	before := t.run.Before(process, seq, maxReads)
	out := readBefore{[]readJSON{}, before.More, before.System}
	for _, r := range before.Rows {
		out.Read = append(out.Read, readJSON{eventOf(t.ev, r.Event), r.By})
	}
	return out
}

// untraced is a finding that no row explains.
func untraced(path, says string) traced {
	return traced{Path: path, Says: says, Started: []eventJSON{}, Changes: []eventJSON{}, readBefore: readBefore{Read: []readJSON{}}}
}

// path explains the last change of a path that the user names.
func (t *tracer) path(name string) (traced, error) {
	if !path.IsAbs(name) {
		name = path.Join(t.ev.summary.Start.Workspace, name)
	}
	name = path.Clean(name)
	ref, ok := t.ev.find(name)
	if !ok {
		hint := "cleanrun inspect -events lists the paths that it names"
		if !t.ev.known {
			hint = "a bundle shows few paths; give the run folder with -detail"
		}
		return traced{}, cli.Failf(cli.ExitUsage, hint, "%s: no event of %s is known to name this path", name, t.ev.path)
	}
	list := t.run.History(ref)
	if len(list) == 0 {
		return untraced(name, "nothing changed it"), nil
	}
	return t.trace(name, "", &ref, list[len(list)-1]), nil
}

// refOf is how the rows name a path, nil if they do not.
func (t *tracer) refOf(path string) *journal.PathRef {
	if ref, ok := t.ev.find(path); ok {
		return &ref
	}
	return nil
}

// changed tells whether row seq changed a path: it names it, a folder above it, or
// another name of the file.
func (t *tracer) changed(seq uint64, path string, ref *journal.PathRef) bool {
	row := &t.ev.rows[seq]
	if !attest.Changes(row) && row.Op != journal.OpUtime && row.Op != journal.OpWrote {
		return false
	}
	one, two := t.ev.names(seq)
	for _, p := range []string{one, two} {
		if p != "" && (p == path || row.Op == journal.OpRename && strings.HasPrefix(path, p+"/")) {
			return true
		}
	}
	return ref != nil && slices.Contains(t.run.History(*ref), seq)
}

// text prints it.
func (x *traced) text(b *strings.Builder, ev *events) {
	b.WriteByte('\n')
	x.named(b)
	if x.Event == nil {
		return
	}
	x.changed(b, x.program())
	eventList(b, ev, "how its process came to be", x.Started)
	x.history(b, ev)
	x.readBefore.text(b, ev, "")
}

// named is the path and what the finding says of it.
func (x *traced) named(b *strings.Builder) {
	b.WriteString(quotePath(x.Path))
	if x.Says != "" {
		fmt.Fprintf(b, "  %s", printable(x.Says))
	}
	b.WriteByte('\n')
}

// changed is the change that is explained.
func (x *traced) changed(b *strings.Builder, program string) {
	fmt.Fprintf(b, "  event %d, %s after the start, phase %s: %s by process %d%s\n", x.Event.Event, time.Duration(x.Event.Nanos).Round(time.Millisecond), x.Event.Phase, x.Event.Op, x.Event.Process, program)
}

// program is what the process executed then, after a comma.
func (x *traced) program() (s string) {
	p := x.Program
	switch {
	case p == nil:
		return ""
	case p.Path != "":
		s = ", " + quotePath(p.Path)
	default:
		s = fmt.Sprintf(", whose program is that of event %d", p.Event)
	}
	if len(p.Argv) > 0 {
		s += fmt.Sprintf(" %q", p.Argv)
	}
	return s
}

// history is all that changed the path.
func (x *traced) history(b *strings.Builder, ev *events) {
	title := "all that changed it"
	if x.Earlier > 0 {
		title = fmt.Sprintf("what changed it, after %s", counted(x.Earlier, "earlier change"))
	}
	eventList(b, ev, title, x.Changes)
}

func eventList(b *strings.Builder, ev *events, title string, list []eventJSON) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, " %s\n", title)
	for _, e := range list {
		fmt.Fprintln(b, eventLine(ev, e.Event))
	}
}

// tracedText prints many. What led to a process, and what had been read before, stands
// once above all paths that it changed.
func tracedText(b *strings.Builder, ev *events, list []traced) {
	for _, group := range byProcess(list) {
		if len(group) == 1 {
			group[0].text(b, ev)
			continue
		}
		last := slices.MaxFunc(group, func(x, y *traced) int { return cmp.Compare(x.Event.Event, y.Event.Event) })
		fmt.Fprintf(b, "\n%s changed by process %d%s\n", counted(len(group), "path"), last.Event.Process, last.program())
		eventList(b, ev, "how this process came to be", last.Started)
		last.readBefore.text(b, ev, fmt.Sprintf(" event %d, the last of them", last.Event.Event))
		for _, x := range group {
			x.named(b)
			x.changed(b, "")
			if len(x.Changes) > 1 { // a single one was just named
				x.history(b, ev)
			}
		}
	}
}

// byProcess puts together what one process changed while it executed one program. Both
// the groups and their members keep their order. What no row explains stands alone.
func byProcess(list []traced) (groups [][]*traced) {
	type by struct {
		process uint32
		program uint64
	}
	place := map[by]int{}
	for i := range list {
		x := &list[i]
		if x.Event == nil {
			groups = append(groups, []*traced{x})
			continue
		}
		key := by{process: x.Event.Process}
		if x.Program != nil {
			key.program = x.Program.Event
		}
		at, ok := place[key]
		if !ok {
			at = len(groups)
			place[key], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], x)
	}
	return groups
}

// text prints it; event, which may be "", says before which one.
func (x *readBefore) text(b *strings.Builder, ev *events, event string) {
	if len(x.Read)+x.System == 0 {
		fmt.Fprintf(b, " nothing had been read before%s\n", event)
		return
	}
	title := "what had been read before" + event + ", newest last"
	if x.More {
		title += "; there is more"
	}
	fmt.Fprintf(b, " %s\n", title)
	for _, r := range x.Read {
		line := eventLine(ev, r.Event)
		switch r.By {
		case cause.Itself:
			line += "  by the same process"
		case cause.Ancestor, cause.Descendant:
			line += "  by its " + string(r.By)
		case cause.Tree:
			line += "  by a process beside it"
		}
		if r.Origin == journal.OriginRun.String() {
			line += ", which the run wrote"
		}
		fmt.Fprintln(b, line)
	}
	if x.System > 0 {
		fmt.Fprintf(b, "%7s %s of the system and its toolchains\n", "and", counted(x.System, "name"))
	}
}
