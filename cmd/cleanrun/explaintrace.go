package main

import (
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
	fmt.Fprintf(b, "\n%s", quotePath(x.Path))
	if x.Says != "" {
		fmt.Fprintf(b, "  %s", printable(x.Says))
	}
	b.WriteByte('\n')
	if x.Event == nil {
		return
	}
	fmt.Fprintf(b, "  event %d, %s after the start, phase %s: %s by process %d", x.Event.Event, time.Duration(x.Event.Nanos).Round(time.Millisecond), x.Event.Phase, x.Event.Op, x.Event.Process)
	if p := x.Program; p != nil {
		if p.Path != "" {
			fmt.Fprintf(b, ", %s", quotePath(p.Path))
		} else {
			fmt.Fprintf(b, ", whose program is that of event %d", p.Event)
		}
		if len(p.Argv) > 0 {
			fmt.Fprintf(b, " %q", p.Argv)
		}
	}
	b.WriteByte('\n')
	part := func(title string, list []eventJSON) {
		if len(list) == 0 {
			return
		}
		fmt.Fprintf(b, " %s\n", title)
		for _, e := range list {
			fmt.Fprintln(b, eventLine(ev, e.Event))
		}
	}
	part("how its process came to be", x.Started)
	title := "all that changed it"
	if x.Earlier > 0 {
		title = fmt.Sprintf("what changed it, after %d earlier changes", x.Earlier)
	}
	part(title, x.Changes)
	x.readBefore.text(b, ev)
}

func (x *readBefore) text(b *strings.Builder, ev *events) {
	if len(x.Read)+x.System == 0 {
		b.WriteString(" nothing had been read before\n")
		return
	}
	title := "what had been read before, newest last"
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
