package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/compiled"
	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// scopeReport is what scope says (spec/footprint.md).
type scopeReport struct {
	Version   string             `json:"version"`
	Outcome   footprint.Outcome  `json:"outcome"`
	Gate      bool               `json:"gate"`
	Code      int                `json:"code"` // CMD's
	Cancelled bool               `json:"cancelled"`
	Allowed   []string           `json:"allowed"`
	Roots     []footprint.Result `json:"roots"`
	Left      []leftProcess      `json:"left"`
	Run       string             `json:"run,omitempty"`   // folder of the recording
	Error     string             `json:"error,omitempty"` // why there is no last look
}

// leftProcess was still there when CMD had ended.
type leftProcess struct {
	Process uint32 `json:"process"`
	Program string `json:"program"`
}

func newScopeReport(p footprint.Policy, gate bool) *scopeReport {
	return &scopeReport{Version: footprint.Version, Gate: gate, Allowed: p.Allowed(), Roots: []footprint.Result{}, Left: []leftProcess{}}
}

// finalState is the last look at the workspace, before anything is applied.
type finalState struct {
	workspace string
	first     *footprint.Manifest // by stat alone
	changes   []footprint.Change
	drift     []footprint.Change
	gaps      []footprint.Gap
	unread    []footprint.Gap // in the run's layer
	err       error
}

// look compares the run's upper layer with the workspace. It tries twice.
func (s *finalState) look(runDir string) {
	for range 2 {
		if s.err = s.compare(runDir); s.err == nil {
			break
		}
	}
	var err error
	if s.drift, s.gaps, err = since(s.first, s.workspace, false); err != nil {
		s.err = cmp.Or(s.err, err)
	}
	s.gaps = append(s.gaps, s.unread...)
}

func (s *finalState) compare(runDir string) error {
	s.changes, s.unread = nil, nil
	list, err := sandbox.Changes(runDir, s.workspace)
	if err != nil {
		return err
	}
	lower, err := os.OpenRoot(s.workspace)
	if err != nil {
		return err
	}
	defer lower.Close()
	upper, err := os.OpenRoot(sandbox.UpperPath(runDir))
	if err != nil {
		return err
	}
	defer upper.Close()
	for _, c := range list {
		out := footprint.Change{Path: c.Path}
		switch c.Kind {
		case overlay.Added:
			out.Kind, out.Dir = footprint.Added, c.Mode.IsDir()
		case overlay.Deleted:
			out.Kind = footprint.Deleted
		case overlay.Modified, overlay.Metadata, overlay.Replaced:
			out.Kind = footprint.Modified
			var whole bool
			if out.What, whole, err = layersDiffer(lower, upper, c.Path); err != nil {
				return err
			}
			if c.Kind == overlay.Modified && c.Mode.IsRegular() {
				out.What = strings.TrimPrefix(out.What+", content", ", ")
			}
			if out.What == "" && !whole { // a time, or attributes that nobody may read
				s.unread = append(s.unread, footprint.Gap{Path: c.Path, Reason: footprint.GapUnreadable})
			}
			if out.What == "" {
				continue // a time, or a folder made anew
			}
		}
		s.changes = append(s.changes, out)
		if old := s.first.Find(c.Path); old != nil && old.Mode.IsDir() && (c.Kind == overlay.Deleted || !c.Mode.IsDir()) {
			s.changes = append(s.changes, s.gone(c.Path)...)
		}
	}
	return nil
}

// gone lists what was below a folder that is gone.
func (s *finalState) gone(dir string) (out []footprint.Change) {
	for e := range s.first.Below(dir) {
		out = append(out, footprint.Change{Path: e.Path, Kind: footprint.Deleted})
	}
	return out
}

// layersDiffer says what of a path differs, and whether all of it could be read.
func layersDiffer(lower, upper *os.Root, p string) (what string, whole bool, err error) {
	var both [2]*footprint.Entry
	for i, root := range []*os.Root{lower, upper} {
		e, err := footprint.Look(context.Background(), root, p)
		if err != nil {
			return "", false, err
		}
		if e == nil {
			return "", false, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
		}
		e.Links = 0 // a layer's numbers of names are its own
		both[i] = e
	}
	return footprint.Differs(both[0], both[1]), both[0].Read && both[1].Read, nil
}

// judge judges the workspace.
func (r *scopeReport) judge(p footprint.Policy, s *finalState, record string) {
	ev, err := readRunDir(record, "")
	if err != nil {
		r.Error = cmp.Or(r.Error, fmt.Sprintf("the journal cannot be read: %v", err))
		return
	}
	r.Left = leftIn(ev)
	if s.err != nil {
		// Without the final state nobody knows what was restored: no finding would be sure.
		why := fmt.Sprintf("the workspace could not be looked at after the run, twice: %v", s.err)
		r.Error = cmp.Or(r.Error, why)
		r.Roots = append(r.Roots, footprint.Judge(p, footprint.Evidence{Root: s.workspace, Gaps: []footprint.Gap{{Path: ".", Reason: why}}}))
		return
	}
	inside := ev.summary.Start.Workspace // as the run saw it: without namespaces, a copy
	writes := writesIn(ev, inside)
	s.unspell(writes)
	seen := footprint.Evidence{Root: s.workspace, Existed: s.first.Has, Changes: s.changes, Writes: writes, Drift: s.drift, Gaps: s.gaps}
	python := compiled.NewChecker(os.Getenv("PATH"), s.workspace, record)
	if root, err := os.OpenRoot(s.workspace); err == nil {
		defer root.Close()
		seen.Compiled = func(c footprint.Compiled) string { return python.CheckIn(root, inside, c) }
	} else {
		seen.Compiled = func(footprint.Compiled) string { return err.Error() }
	}
	sum := &ev.summary
	if !sum.Closed() || sum.Lost > 0 {
		seen.Gaps = append(seen.Gaps, footprint.Gap{Path: ".", Reason: "events were lost, or the journal is open"})
	}
	res := footprint.Judge(p, seen)
	if sum.Final != nil && sum.Final.Delta.Unexplained > 0 && len(res.Unexplained) == 0 {
		res.Gaps = append(res.Gaps, footprint.Gap{Path: s.workspace, Reason: fmt.Sprintf("the recorder found %d changes that no write explains", sum.Final.Delta.Unexplained)})
	}
	r.Roots = append(r.Roots, res)
}

// unspell gives writes the names that files have: the journal spells a byte that is no
// UTF-8 as \xNN. Of a name that was not there before and is gone again only that is known.
func (s *finalState) unspell(writes []footprint.Write) {
	if !slices.ContainsFunc(writes, func(w footprint.Write) bool { return strings.Contains(w.Path+w.To+w.Of, `\x`) }) {
		return
	}
	names := map[string]string{}
	note := func(p string) {
		if !utf8.ValidString(p) {
			names[spelled(p)] = p
		}
	}
	for _, c := range s.changes {
		note(c.Path)
	}
	for e := range s.first.All() {
		note(e.Path)
	}
	for i := range writes {
		w := &writes[i]
		for _, p := range []*string{&w.Path, &w.To, &w.Of} {
			if name, ok := names[*p]; ok {
				*p = name
			}
		}
	}
}

// walked judges a folder that the run cannot change.
func (r *scopeReport) walked(p footprint.Policy, w watched) {
	var drift []footprint.Change
	var gaps []footprint.Gap
	var err error
	for range 2 {
		if drift, gaps, err = since(w.before, w.path, true); err == nil {
			break
		}
	}
	if err != nil {
		r.Error = cmp.Or(r.Error, fmt.Sprintf("-root %s could not be looked at after the run, twice: %v", w.path, err))
		return
	}
	r.Roots = append(r.Roots, footprint.Judge(p, footprint.Evidence{Root: w.path, Drift: drift, Gaps: gaps}))
}

func (r *scopeReport) conclude() {
	r.Outcome = footprint.Conclude(r.Roots)
	if r.Error != "" && r.Outcome == footprint.Within {
		r.Outcome = footprint.Inconclusive
	}
}

// writesIn are the journaled operations on names below root that succeeded.
func writesIn(ev *events, root string) (out []footprint.Write) {
	rel := func(p string) (string, bool) {
		if p == root {
			return ".", true
		}
		return strings.CutPrefix(p, root+"/")
	}
	for i := range ev.rows {
		r, d := &ev.rows[i], ev.detail(uint64(i))
		times := r.Op == journal.OpUtime && r.Result == 0
		if d == nil || !times && !attest.Changes(r) {
			continue
		}
		w := footprint.Write{Event: r.Seq, Process: r.Proc, Op: r.Op.String(), Times: times}
		from, in := rel(d.Path)
		to, toIn := rel(d.Path2)
		if r.Op == journal.OpLink && toIn {
			w.Path = to
			if in {
				w.Of = from
			}
			out = append(out, w)
			continue
		}
		if in {
			old := w
			if old.Path = from; r.Op == journal.OpRename && toIn {
				old.To = to
			}
			out = append(out, old)
		}
		if toIn && r.Op == journal.OpRename {
			w.Path = to
			out = append(out, w)
		}
	}
	return out
}

// leftIn lists the processes that were killed after CMD, process 1, had ended.
func leftIn(ev *events) []leftProcess {
	out := []leftProcess{}
	program := map[uint32]string{}
	over := false
	for i := range ev.rows {
		r, d := &ev.rows[i], ev.detail(uint64(i))
		switch {
		case d == nil || r.Result != 0:
		case r.Op == journal.OpFork:
			program[r.Child] = program[r.Proc]
		case r.Op == journal.OpExec:
			program[r.Proc] = d.Path
		case r.Op == journal.OpExit && r.Proc == 1:
			over = true
		case r.Op == journal.OpExit && over:
			out = append(out, leftProcess{r.Proc, program[r.Proc]})
		}
	}
	return out
}

func (r *scopeReport) encode() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// maxLines of each list are shown; the report holds all.
const maxLines = 20

func (r *scopeReport) text(out io.Writer) {
	var b strings.Builder
	n := 0
	for _, root := range r.Roots {
		n += len(root.Outside)
	}
	fmt.Fprintf(&b, "cleanrun: footprint %s", strings.ToUpper(r.Outcome.String()))
	if n > 0 {
		fmt.Fprintf(&b, ": %s out of it", several(n, "path", "paths"))
	}
	b.WriteByte('\n')
	lines := func(title string, items []string) {
		for i, it := range items {
			if i == maxLines {
				fmt.Fprintf(&b, " %-12s and %d more; -o writes all\n", "", len(items)-i)
				break
			}
			fmt.Fprintf(&b, " %-12s %s\n", title, it)
		}
	}
	for _, root := range r.Roots {
		var outside, gaps []string
		for _, f := range root.Outside {
			s := fmt.Sprintf("%-9s %s", f.Kind, quotePath(f.Path))
			if about := strings.Join(slices.DeleteFunc([]string{f.What, f.Why}, func(s string) bool { return s == "" }), "; "); about != "" {
				s += "  (" + about + ")"
			}
			if f.Event != nil {
				s += fmt.Sprintf("  event %d, %s by p%d", *f.Event, f.Op, f.Process)
			}
			outside = append(outside, s)
		}
		for _, g := range root.Gaps {
			gaps = append(gaps, quotePath(g.Path)+"  "+g.Reason)
		}
		quoted := func(in []string) (out []string) {
			for _, p := range in {
				out = append(out, quotePath(p))
			}
			return out
		}
		lines("outside", outside)
		lines("unexplained", quoted(root.Unexplained))
		lines("by others", quoted(root.Drift))
		lines("not seen", gaps)
	}
	var left []string
	for _, p := range r.Left {
		left = append(left, fmt.Sprintf("p%d %s", p.Process, quotePath(p.Program)))
	}
	lines("ended", left)
	if r.Error != "" && r.Code != 0 { // else it is the command's own error
		lines("error", []string{r.Error})
	}
	io.WriteString(out, b.String())
}
