package footprint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Policy says what a run may change. It is made before the run and does not change.
type Policy struct{ allowed []Pattern }

// NewPolicy reads the allowed footprint. Without a pattern nothing is allowed.
func NewPolicy(allowed []string) (Policy, error) {
	var p Policy
	for _, s := range allowed {
		one, err := ParsePattern(s)
		if err != nil {
			return Policy{}, err
		}
		if slices.ContainsFunc(p.allowed, func(q Pattern) bool { return q.text == s }) {
			return Policy{}, fmt.Errorf("pattern %q: got it twice, want it once", s)
		}
		p.allowed = append(p.allowed, one)
	}
	return p, nil
}

// Allows tells whether path, relative to the watched folder root, may change.
func (p Policy) Allows(root, rel string) bool {
	return slices.ContainsFunc(p.allowed, func(q Pattern) bool {
		if q.absolute {
			return q.Match(path.Join(root, rel))
		}
		return q.Match(rel)
	})
}

// Allowed lists the patterns.
func (p Policy) Allowed() []string {
	out := []string{}
	for _, q := range p.allowed {
		out = append(out, q.text)
	}
	return out
}

// A Write is one journaled operation that changes a path, in the order of the journal.
type Write struct {
	Event   uint64
	Process uint32
	Op      string
	Path    string // relative to the watched folder
	To      string // of a rename, "" if it leads out of the folder
	Of      string // of a link: the file's other name, "" if that is not in the folder
	Times   bool   // only times were set: it explains, and is no finding
}

// Evidence is what was seen of one watched folder.
type Evidence struct {
	Root    string              // absolute path
	Existed func(p string) bool // whether a path was there before
	Changes []Change            // the final state against the first
	Writes  []Write             // by the run; nil also if it cannot write there
	Drift   []Change            // what changed in the real folder while the run was on, by whomever
	Gaps    []Gap
	// Compiled says why a cached module is not what its source compiles to, "" if it is.
	Compiled func(Compiled) string
}

// A Finding is a path out of the footprint.
type Finding struct {
	rel     string
	Path    string  `json:"path"` // absolute
	Kind    Kind    `json:"kind"`
	What    string  `json:"what,omitempty"`  // what differs
	Why     string  `json:"why,omitempty"`   // why a cached module counts
	Event   *uint64 `json:"event,omitempty"` // the last journaled write that explains it
	Process uint32  `json:"process,omitempty"`
	Op      string  `json:"op,omitempty"`
}

// A Result is what is said of one watched folder.
type Result struct {
	Root        string    `json:"root"`
	Changed     int       `json:"changed"`     // paths that differ
	Outside     []Finding `json:"outside"`     // of the footprint
	Compiled    []string  `json:"compiled"`    // cached modules that are what their source compiles to
	Unexplained []string  `json:"unexplained"` // differ, and no journaled write says why
	Drift       []string  `json:"drift"`       // changed in the real folder while the run was on
	Gaps        []Gap     `json:"gaps"`
}

// Conclusive tells whether everything was seen and explained.
func (r *Result) Conclusive() bool { return len(r.Unexplained)+len(r.Drift)+len(r.Gaps) == 0 }

// Judge compares evidence with the policy. Whatever cannot be told is in Unexplained,
// Drift or Gaps, never left out.
func Judge(p Policy, ev Evidence) Result {
	r := Result{Root: ev.Root, Changed: len(ev.Changes), Outside: []Finding{}, Compiled: []string{}, Unexplained: []string{}, Drift: []string{}, Gaps: []Gap{}}
	abs := func(rel string) string { return spell(path.Join(ev.Root, rel)) }
	t := newTrail(ev.Writes)
	why := t.why
	changed := map[string]bool{}
	verified := map[string]bool{}
	counts := map[string]string{}
	var folders []Change
	for _, c := range ev.Changes {
		changed[c.Path] = true
		w := why(c.Path)
		if w == nil {
			r.Unexplained = append(r.Unexplained, abs(c.Path))
		}
		if m, ok := ParseCompiled(c.Path); ok && c.Kind != Deleted && !p.Allows(ev.Root, c.Path) {
			if reason := ev.Compiled(m); reason == "" {
				verified[c.Path] = true
				r.Compiled = append(r.Compiled, abs(c.Path))
				continue
			} else {
				counts[c.Path] = reason
			}
		}
		if c.Kind == Added && c.Dir && path.Base(c.Path) == cacheFolder && w != nil {
			folders = append(folders, c)
			continue
		}
		r.out(p, ev.Root, c, w, counts[c.Path])
	}
	// What is gone again, or as it was. The folder itself changes with what is in it.
	names := []string{}
	for name := range t.last {
		if !changed[name] && name != "." && t.written[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c := Change{Path: name, Kind: Transient}
		if ev.Existed(name) {
			c.Kind = Restored
		}
		m, temporary := ParseTemporary(name)
		if c.Kind == Transient && temporary && verified[m.Path] && t.last[name].To == m.Path {
			continue // how the import system writes the file
		}
		r.out(p, ev.Root, c, t.last[name], "")
	}
	// A __pycache__ folder that holds nothing but what its sources compile to.
	for _, c := range folders {
		if slices.ContainsFunc(r.Outside, func(f Finding) bool { return strings.HasPrefix(f.rel, c.Path+"/") }) {
			r.out(p, ev.Root, c, why(c.Path), "it holds files that count")
		}
	}
	for _, c := range ev.Drift {
		r.Drift = append(r.Drift, abs(c.Path))
	}
	for _, g := range ev.Gaps {
		r.Gaps = append(r.Gaps, Gap{abs(g.Path), g.Reason})
	}
	slices.SortFunc(r.Outside, func(a, b Finding) int { return strings.Compare(a.Path, b.Path) })
	return r
}

// spell makes a path a JSON string. A name that is not UTF-8 is quoted as Go quotes it; an
// absolute path never begins with a quote.
func spell(p string) string {
	if utf8.ValidString(p) {
		return p
	}
	return strconv.Quote(p)
}

// out adds a finding if the policy does not allow the change.
func (r *Result) out(p Policy, root string, c Change, w *Write, why string) {
	if p.Allows(root, c.Path) {
		return
	}
	f := Finding{rel: c.Path, Path: spell(path.Join(root, c.Path)), Kind: c.Kind, What: c.What, Why: why}
	if w != nil {
		event := w.Event
		f.Event, f.Process, f.Op = &event, w.Process, w.Op
	}
	r.Outside = append(r.Outside, f)
}

// Outcome of all watched folders.
type Outcome uint8

const (
	Inconclusive Outcome = iota // something was not seen or is not explained
	Outside                     // a path out of the footprint was changed
	Within
)

func (o Outcome) String() string {
	return [...]string{"inconclusive", "outside", "within"}[min(o, Within)]
}

// MarshalText gives the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Conclude joins the results: a path out of the footprint is one whatever else was not
// seen. No result at all concludes nothing.
func Conclude(results []Result) Outcome {
	out := Within
	for i := range results {
		if len(results[i].Outside) > 0 {
			return Outside
		}
		if !results[i].Conclusive() {
			out = Inconclusive
		}
	}
	if len(results) == 0 {
		return Inconclusive
	}
	return out
}
