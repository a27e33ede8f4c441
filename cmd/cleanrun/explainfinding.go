package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// maxFinding bounds a file with findings, in bytes.
const maxFinding = 64 << 20

// An explainedFootprint is what of a footprint is explained.
type explainedFootprint struct {
	Outcome  string   `json:"outcome"`
	Gate     bool     `json:"gate"`
	Total    uint64   `json:"total"`    // paths out of it
	Unopened uint64   `json:"unopened"` // paths whose names a bundle does not show
	Paths    []traced `json:"paths"`    // the first of those out of it
}

// An explainedSurface is what of an answer about a surface is explained.
type explainedSurface struct {
	Outcome  string   `json:"outcome"`
	Location string   `json:"location"`
	Entries  []traced `json:"entries"`
}

// footprint explains the footprint of a bundle, as it was derived.
func (t *tracer) footprint(f *attest.FootprintClaim) *explainedFootprint {
	out := &explainedFootprint{Outcome: f.Outcome, Gate: f.Gate, Total: f.Outside.Total, Unopened: f.Unopened, Paths: []traced{}}
	for _, p := range f.Outside.First {
		out.Paths = append(out.Paths, t.trace(p.Path, "", t.refOf(p.Path), p.Event))
	}
	return out
}

// footprintFile is what explain reads of a report of scope (spec/footprint.md).
type footprintFile struct {
	Version   string          `json:"version"`
	Outcome   string          `json:"outcome"`
	Gate      bool            `json:"gate"`
	Code      int             `json:"code"`
	Cancelled bool            `json:"cancelled"`
	Allowed   []string        `json:"allowed"`
	Roots     []footprintRoot `json:"roots"`
	Left      []leftProcess   `json:"left"`
	Run       string          `json:"run"`
	Error     string          `json:"error"`
}

type footprintRoot struct {
	Root        string          `json:"root"`
	Changed     int             `json:"changed"`
	Outside     []footprintPath `json:"outside"`
	Compiled    []string        `json:"compiled"`
	Unexplained []string        `json:"unexplained"`
	Drift       []string        `json:"drift"`
	Gaps        []footprint.Gap `json:"gaps"`
}

type footprintPath struct {
	Path    string  `json:"path"`
	Kind    string  `json:"kind"`
	What    string  `json:"what"`
	Why     string  `json:"why"`
	Event   *uint64 `json:"event"`
	Process uint32  `json:"process"`
	Op      string  `json:"op"`
}

// explainTakes is the hint for a file that is none of these.
const explainTakes = "explain takes a bundle (out.cleanrun), a run folder, the report that cleanrun scope -o wrote, or what cleanrun surface -run -json printed"

// explainFinding explains what scope or surface found.
func explainFinding(name, event string) (*explanation, error) {
	if event != "" || explainPath != "" {
		return nil, cli.Failf(cli.ExitUsage, "give the run folder in its place", "%s: is a finding, which names its events and paths itself", name)
	}
	data, err := regular.ReadGiven(name, maxFinding)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Version string `json:"version"`
		Matcher string `json:"matcher"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, cli.Failf(cli.ExitUsage, explainTakes, "%s: %w", name, err)
	}
	switch {
	case kind.Version == footprint.Version:
		var f footprintFile
		if err := decodeFinding(data, &f); err != nil {
			return nil, cli.Failf(cli.ExitUsage, "give the file as scope -o wrote it", "%s: %w", name, err)
		}
		return f.explain(name)
	case kind.Matcher != "":
		var f surfaceJSON
		if err := decodeFinding(data, &f); err != nil {
			return nil, cli.Failf(cli.ExitUsage, "give the file as surface -json printed it", "%s: %w", name, err)
		}
		return f.explain(name)
	}
	return nil, cli.Failf(cli.ExitUsage, explainTakes, "%s: is no finding that can be explained: want version %q, or what surface says", name, footprint.Version)
}

// decodeFinding takes one object, and no member that it does not know.
func decodeFinding(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("got more after the object")
	}
	return nil
}

// recorded opens the recording that a finding is about.
func recorded(folder string) (*events, *tracer, error) {
	ev, err := readRunDir(folder, explainIdentity)
	if err != nil {
		return nil, nil, err
	}
	t, err := newTracer(ev)
	return ev, t, err
}

func (f *footprintFile) explain(name string) (*explanation, error) {
	folder := f.Run
	if explainDetail != "" {
		folder = explainDetail
	}
	if folder == "" {
		return nil, cli.Failf(cli.ExitUsage, "record it: cleanrun scope -record DIR; a recording that was kept is named with -detail", "%s: names no recording, so nobody knows who changed what", name)
	}
	ev, t, err := recorded(folder)
	if err != nil {
		return nil, err
	}
	out := &explainedFootprint{Outcome: f.Outcome, Gate: f.Gate, Paths: []traced{}}
	for n, root := range f.Roots {
		for _, one := range root.Outside {
			if out.Total++; out.Total > maxFindings {
				continue
			}
			inside, err := one.inside(root.Root, ev.summary.Start.Workspace)
			if err != nil {
				return nil, cli.Failf(cli.ExitUsage, "", "%s: %w", name, err)
			}
			if one.Event == nil || n > 0 {
				out.Paths = append(out.Paths, untraced(one.Path, one.says()))
				continue
			}
			ref := t.refOf(inside)
			seq := *one.Event
			if seq >= uint64(len(ev.rows)) || ev.rows[seq].Proc != one.Process || ev.rows[seq].Op.String() != one.Op || !t.changed(seq, inside, ref) {
				return nil, cli.Failf(cli.ExitUsage, "give the recording of this run with -detail", "%s: says that event %d, %s by process %d, changed %s; %s has no such event", name, seq, one.Op, one.Process, quotePath(one.Path), folder)
			}
			out.Paths = append(out.Paths, t.trace(one.Path, one.says(), ref, seq))
		}
	}
	return &explanation{Events: []explained{}, Footprint: out, ev: ev}, nil
}

// inside is the finding's path as the run saw it, and as a journal spells it.
func (p *footprintPath) inside(root, workspace string) (string, error) {
	name := p.Path
	if strings.HasPrefix(name, `"`) {
		raw, err := strconv.Unquote(name)
		if err != nil {
			return "", fmt.Errorf("path %.200s: %w", name, err)
		}
		name = spelled(raw)
	}
	rest, ok := strings.CutPrefix(name, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", fmt.Errorf("path %.200q: want one in %q", name, root)
	}
	return path.Join(workspace, rest), nil
}

func (p *footprintPath) says() string {
	s := "was " + p.Kind
	switch p.Kind {
	case footprint.Restored.String():
		s = "was changed and restored"
	case footprint.Transient.String():
		s = "was made and is gone again"
	}
	if p.What != "" {
		s += ": " + p.What
	}
	if p.Why != "" {
		s += "; " + p.Why
	}
	return s
}

func (f *surfaceJSON) explain(name string) (*explanation, error) {
	run, root, ok := strings.Cut(strings.TrimPrefix(f.Version, "run "), " in ")
	if f.Source != "journal" || !ok {
		return nil, cli.Failf(cli.ExitUsage, "ask a recorded run with cleanrun surface -run", "%s: is of source %q, which does not know who wrote", name, f.Source)
	}
	if explainDetail == "" {
		return nil, cli.Failf(cli.ExitUsage, "give its folder with -detail", "%s: is of run %s, whose recording is needed", name, run)
	}
	ev, t, err := recorded(explainDetail)
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%x", ev.summary.Start.Run); got != run {
		return nil, cli.Failf(cli.ExitUsage, "give the folder that surface was asked about", "%s: is run %s, want %s as in %s", explainDetail, got, run, name)
	}
	out := &explainedSurface{Outcome: f.Outcome, Location: f.Location, Entries: []traced{}}
	for _, e := range []*surfaceEntry{f.Entry, f.Dismissed} {
		if e == nil || e.Journal == nil {
			continue
		}
		at := strings.TrimSuffix(root, "/") + "/" + e.Location
		says := several(e.Size, "byte", "bytes") + ": " + e.Journal.says()
		if e == f.Dismissed {
			says += "; it does not count"
		}
		seq := e.Journal.Event
		if e.Journal.How == "found" {
			out.Entries = append(out.Entries, untraced(at, says))
			continue
		}
		ref := t.refOf(at)
		if seq >= uint64(len(ev.rows)) || !t.changed(seq, at, ref) {
			return nil, cli.Failf(cli.ExitUsage, "give the file as surface printed it", "%s: says that event %d changed %s; %s has no such event", name, seq, quotePath(at), explainDetail)
		}
		out.Entries = append(out.Entries, t.trace(at, says, ref, seq))
	}
	return &explanation{Events: []explained{}, Surface: out, ev: ev}, nil
}

func (e *surfaceEvent) says() string {
	s := map[string]string{"wrote": "the run wrote it", "moved": "the run wrote it, and it was moved or linked here",
		"linked": "a link or rename of what the run did not write", "found": "it was there before the run", "undated": "the run wrote it, and what it held then is not known"}[e.How]
	if e.End > 0 {
		s += fmt.Sprintf("; %s at event %d", e.Fate, e.End)
	}
	return s
}

func (x *explainedFootprint) text(b *strings.Builder, ev *events) {
	fmt.Fprintf(b, "\nfootprint %s: %s out of it", strings.ToUpper(x.Outcome), counted(int(x.Total), "path"))
	if x.Unopened > 0 {
		fmt.Fprintf(b, ", %s not shown", counted(int(x.Unopened), "name"))
	}
	if !x.Gate && x.Total > 0 {
		b.WriteString(", reported only")
	}
	b.WriteByte('\n')
	tracedText(b, ev, x.Paths)
	if more := x.Total - uint64(len(x.Paths)); more > 0 {
		fmt.Fprintf(b, "\n and %s; cleanrun explain -path, of the run folder, explains one\n", counted(int(more), "more path"))
	}
}

func (x *explainedSurface) text(b *strings.Builder, ev *events) {
	fmt.Fprintf(b, "\n%s  %s\n", strings.ToUpper(x.Outcome), quotePath(x.Location))
	if len(x.Entries) == 0 {
		b.WriteString(" nothing was found there that a row explains\n")
	}
	for i := range x.Entries {
		x.Entries[i].text(b, ev)
	}
}
