package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/surface"
)

type surfaceGap struct {
	Reason   string `json:"reason"`
	Location string `json:"location,omitempty"`
	Count    uint64 `json:"count"`
}

type surfaceEvent struct {
	Event   uint64 `json:"event"`
	Process uint32 `json:"process"`
	How     string `json:"how"`
	Fate    string `json:"fate"`
	End     uint64 `json:"end,omitempty"`
	Prior   bool   `json:"prior"`
}

// A location in JSON is text: a byte that is no UTF-8 stands as \xNN, and then hex
// has the bytes.
type surfaceEntry struct {
	Location string        `json:"location"`
	Hex      string        `json:"hex,omitempty"`
	Size     uint64        `json:"size"`
	SHA256   string        `json:"sha256,omitempty"`
	Modified string        `json:"modified,omitempty"`
	Links    uint32        `json:"links,omitempty"`
	Gap      string        `json:"gap,omitempty"`
	Journal  *surfaceEvent `json:"journal,omitempty"`
}

type surfaceJSON struct {
	Outcome     string        `json:"outcome"`
	Basis       string        `json:"basis,omitempty"`
	Location    string        `json:"location"`
	Glob        bool          `json:"glob"`
	Matcher     string        `json:"matcher"`
	Source      string        `json:"source"`
	Version     string        `json:"version"`
	Acquisition string        `json:"acquisition"`
	Entries     int           `json:"entries"`
	Outside     []surfaceGap  `json:"outside"`
	NotApplied  []string      `json:"notApplied"`
	Reasons     []surfaceGap  `json:"reasons"`
	Entry       *surfaceEntry `json:"entry,omitempty"`
	Dismissed   *surfaceEntry `json:"dismissed,omitempty"`
}

func surfaceReport(c surface.Condition, o *surface.Observation, r surface.Result) surfaceJSON {
	out := surfaceJSON{Outcome: r.Outcome.String(), Basis: string(r.Basis), Location: spelled(o.Location.Path), Glob: o.Location.Glob, Matcher: c.Matcher.Kind.String(),
		Source: o.Source.Kind, Version: o.Source.Version, Acquisition: o.Acquisition.String(), Entries: len(o.Entries), Outside: []surfaceGap{}, NotApplied: []string{}, Reasons: []surfaceGap{}}
	for _, x := range o.Outside {
		out.Outside = append(out.Outside, surfaceGap{Reason: x.Key.String(), Count: x.Count})
	}
	for _, k := range r.NotApplied {
		out.NotApplied = append(out.NotApplied, k.String())
	}
	for _, g := range r.Reasons {
		out.Reasons = append(out.Reasons, surfaceGap{string(g.Reason), spelled(g.Location), g.Count})
	}
	out.Entry, out.Dismissed = entryJSON(r.Entry), entryJSON(r.Dismissed)
	return out
}

// spelled is a name as text.
func spelled(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r == '\uFFFD' && !strings.HasPrefix(name[i:], "\uFFFD") {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func entryJSON(e *surface.Entry) *surfaceEntry {
	if e == nil {
		return nil
	}
	out := &surfaceEntry{Location: spelled(e.Location), Size: e.Size, Links: e.Links, Gap: string(e.Gap)}
	if out.Location != e.Location {
		out.Hex = hex.EncodeToString([]byte(e.Location))
	}
	if e.SHA256 != nil {
		out.SHA256 = hex.EncodeToString(e.SHA256[:])
	}
	if e.Modified != nil {
		out.Modified = time.Unix(0, *e.Modified).UTC().Format(time.RFC3339Nano)
	}
	if v := e.Event; v != nil {
		out.Journal = &surfaceEvent{v.Seq, v.Process, v.How.String(), v.Fate.String(), v.End, v.Prior}
	}
	return out
}

var basisText = map[surface.Basis]string{
	surface.ByLocation: "it stood there when it was read; not since when, nor who wrote it",
	surface.ByTime:     "it stood there when it was read, and its times lie in the window; not who wrote it",
	surface.ByJournal:  "the recorder saw the run write it",
}

func surfaceText(c surface.Condition, o *surface.Observation, r surface.Result) string {
	var b strings.Builder
	matcher := "any content"
	if k := c.Matcher.Kind; k != surface.None {
		matcher = fmt.Sprintf("%v %.60q", k, c.Matcher.Text)
	}
	fmt.Fprintf(&b, "%s  %v, %s\n", strings.ToUpper(r.Outcome.String()), o.Location, matcher)
	fmt.Fprintf(&b, " source      %s", o.Source.Kind)
	if o.Source.Version != "" {
		fmt.Fprintf(&b, ", %s", o.Source.Version)
	}
	fmt.Fprintf(&b, "\n seen        %s, acquisition %v\n", several(len(o.Entries), "entry", "entries"), o.Acquisition)
	for _, x := range o.Outside {
		fmt.Fprintf(&b, " outside     %s, by %v\n", several(x.Count, "entry", "entries"), x.Key)
	}
	for _, k := range r.NotApplied {
		fmt.Fprintf(&b, " NOT applied %v: this source cannot tell\n", k)
	}
	if r.Entry != nil {
		fmt.Fprintf(&b, " entry       %s\n rests on    %s: %s\n", entryText(r.Entry), r.Basis, basisText[r.Basis])
		if r.Entry.Links > 1 {
			fmt.Fprintf(&b, " note        the file has %d names: it can have been written elsewhere\n", r.Entry.Links)
		}
	}
	for _, g := range r.Reasons {
		fmt.Fprintf(&b, " reason      %v\n", g)
	}
	if r.Dismissed != nil {
		fmt.Fprintf(&b, " does not count: %s\n", entryText(r.Dismissed))
	}
	return b.String()
}

func entryText(e *surface.Entry) string {
	s := fmt.Sprintf("%s, %s", quotePath(e.Location), several(e.Size, "byte", "bytes"))
	if e.SHA256 != nil {
		s += fmt.Sprintf(", SHA-256 %x", *e.SHA256)
	}
	if e.Gap != "" {
		s += ", " + string(e.Gap)
	}
	v := e.Event
	if v == nil {
		return s
	}
	switch v.How {
	case surface.Wrote:
		s += fmt.Sprintf("; process %d wrote it, event %d", v.Process, v.Seq)
	case surface.Moved:
		s += fmt.Sprintf("; process %d wrote it, and it was moved or linked here, event %d", v.Process, v.Seq)
	case surface.Linked:
		s += fmt.Sprintf("; a link or rename of what the run did not write, event %d", v.Seq)
	case surface.Found:
		s += "; it was there before the run"
	}
	if v.Fate != surface.Kept {
		s += fmt.Sprintf("; %v, event %d", v.Fate, v.End)
	}
	return s
}
