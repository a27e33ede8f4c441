package rundir

import (
	"crypto/sha256"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/surface"
)

// content of a file at one moment.
type content struct {
	sum   [32]byte
	known bool // sum is
	size  uint64
	gap   surface.Reason // NotKept, SecretsRemoved, Changed
}

// A version is one content at one location.
type version struct {
	location string
	content
	event surface.Event
}

// A file is an inode, or what the baseline had at a path.
type file struct {
	number  uint32 // of the object, 0 if no row named it
	ours    bool   // the run made, emptied or wrote it
	pending bool   // it may be written, and was not dated since
	proc    uint32
	opened  uint64  // row of the last open for writing
	last    content // when it was dated last
	dated   bool    // last is there
	names   map[string]*name
	lost    []loss // names that went while it was pending
}

// A name of a file.
type name struct {
	since uint64 // row that gave it
	moved bool   // by a rename or link
	shown bool   // there is a version of the file's present content at it
}

// A loss is a name that went before the file's content was dated.
type loss struct {
	location   string
	since, end uint64
	fate       surface.Fate
	proc       uint32
	shown      bool // there is a version of what was dated before
}

var empty = content{sum: sha256.Sum256(nil), known: true}

// A tracker follows names and contents through the rows.
type tracker struct {
	at       surface.Location
	root     string // with a slash at its end
	tree     map[string]*file
	objects  map[uint32]*file
	versions []*version
	current  map[string]*version // by location: the version that it holds now
	prior    map[string]bool     // locations that held a file before
	used     map[string]bool     // locations that have a version
	links    map[string]bool     // locations at or below a symbolic link
	agent    bool                // the agent's phase has begun
}

func newTracker(s *Source, at surface.Location) *tracker {
	t := &tracker{at: at, root: strings.TrimSuffix(s.root(), "/") + "/", tree: map[string]*file{}, objects: map[uint32]*file{},
		current: map[string]*version{}, prior: map[string]bool{}, used: map[string]bool{}, links: map[string]bool{}}
	if s.Baseline == nil {
		return t
	}
	for _, e := range s.Baseline.Entries() {
		if e.Type != manifest.File {
			continue
		}
		p := path.Join(s.Start.Workspace, e.Path)
		f := &file{names: map[string]*name{}, last: content{e.SHA256, true, e.Size, surface.NotKept}, dated: true}
		t.give(f, p, 0, false)
	}
	for _, e := range s.Baseline.Entries() {
		if e.Type == manifest.Link {
			t.link(path.Join(s.Start.Workspace, e.Path), e.Target)
		}
	}
	return t
}

// locate is the location of a path, if it is one that is asked for.
func (t *tracker) locate(p string) (string, bool) {
	rel, ok := strings.CutPrefix(p, t.root)
	if !ok || rel == "" {
		return "", false
	}
	if !t.at.Glob && rel == spell(t.at.Path) {
		return t.at.Path, true
	}
	return rel, t.at.Glob && t.at.Matches(rel)
}

// spell writes a name as the journal does.
func spell(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// bind finds the file of a row's path and object.
func (t *tracker) bind(p string, object uint32, seq uint64) *file {
	f := t.objects[object]
	there := t.tree[p]
	if object == 0 || f == nil {
		f = there
		if f == nil || object != 0 && f.number != 0 {
			f = &file{names: map[string]*name{}}
		}
		if object != 0 {
			f.number = object
			t.objects[object] = f
		}
	}
	if p != "" && t.tree[p] != f {
		t.take(p, seq, surface.Rewrote)
		t.give(f, p, seq, f.ours)
	}
	return f
}

// give gives a file a name.
func (t *tracker) give(f *file, p string, seq uint64, moved bool) {
	t.tree[p] = f
	f.names[p] = &name{since: seq, moved: moved}
}

// take takes a path's name from its file.
func (t *tracker) take(p string, seq uint64, fate surface.Fate) *file {
	f := t.tree[p]
	if f == nil {
		return nil
	}
	n := f.names[p]
	// A name that this very row showed for the first time has no version of its own.
	if at, ok := t.locate(p); ok && t.agent && n.since < seq {
		switch {
		case f.pending && (fate == surface.Left || len(f.names) > 1):
			f.lost = append(f.lost, loss{at, max(n.since, f.opened), seq, fate, f.proc, n.shown})
		default:
			t.show(f, p)
		}
		t.over(at, seq, fate)
	}
	delete(f.names, p)
	delete(t.tree, p)
	return f
}

// over ends the version that a location holds.
func (t *tracker) over(at string, seq uint64, fate surface.Fate) {
	if v := t.current[at]; v != nil {
		v.event.Fate, v.event.End = fate, seq
		delete(t.current, at)
	}
}

// show makes a version of a file's dated content at a name that has none yet.
func (t *tracker) show(f *file, p string) {
	n := f.names[p]
	at, ok := t.locate(p)
	if !ok || n.shown || !t.agent || n.since == 0 {
		return
	}
	n.shown = true
	if !f.dated && f.ours {
		return
	}
	how := surface.Wrote
	if n.moved {
		how = surface.Moved
	}
	if !f.ours {
		if !n.moved {
			return // a foreign file at its own name: what was there before
		}
		how = surface.Linked
	}
	t.add(at, f.last, surface.Event{Seq: n.since, Process: f.proc, How: how})
}

// add makes a version the present one of its location.
func (t *tracker) add(at string, c content, e surface.Event) *version {
	e.Fate, e.Prior = surface.Kept, t.prior[at]
	v := &version{at, c, e}
	t.over(at, max(e.Seq, 1), surface.Rewrote)
	t.versions = append(t.versions, v)
	t.current[at], t.used[at] = v, true
	return v
}

// begin makes what the setup left, and the baseline, what was there before.
func (t *tracker) begin() {
	t.agent = true
	t.versions, t.current, t.used = nil, map[string]*version{}, map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(t.tree)) {
		f := t.tree[p]
		f.ours, f.pending, f.lost = false, false, nil
		f.names[p].shown = true
		if at, ok := t.locate(p); ok {
			t.found(at, f)
		}
	}
}

func (t *tracker) found(at string, f *file) {
	t.prior[at] = true
	t.add(at, f.last, surface.Event{How: surface.Found, Prior: true})
}
