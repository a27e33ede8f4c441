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
	"github.com/cleanrun-dev/cleanrun/journal"
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

// row follows one row that succeeded, of setup or agent.
func (t *tracker) row(r *journal.Row, d *journal.Detail) {
	if r.Phase == journal.PhaseAgent && !t.agent {
		t.begin()
	}
	switch r.Op {
	case journal.OpOpen, journal.OpMknod, journal.OpTruncate:
		if r.Flags&(journal.FlagDirectory|journal.FlagPseudo|journal.FlagPath) == 0 && d.Path != "" {
			t.open(r, d)
		}
	case journal.OpWrote:
		t.wrote(r, d)
	case journal.OpUnlink:
		t.take(d.Path, r.Seq, surface.Deleted)
		t.unlink(d.Path)
	case journal.OpRename:
		t.rename(r, d)
	case journal.OpLink:
		f := t.bind(d.Path, r.Object, r.Seq)
		t.take(d.Path2, r.Seq, surface.Rewrote)
		t.named(f, d.Path2, r)
	case journal.OpSymlink:
		_, target, _ := strings.Cut(string(d.Text), "\n")
		t.take(d.Path, r.Seq, surface.Rewrote)
		t.link(d.Path, target)
	}
}

func (t *tracker) open(r *journal.Row, d *journal.Detail) {
	before := t.tree[d.Path]
	f := t.bind(d.Path, r.Object, r.Seq)
	made := r.Op == journal.OpMknod || r.Flags&(journal.FlagCreate|journal.FlagTrunc) != 0
	if r.Origin == journal.OriginInput && r.Dir == journal.DirIn && len(d.SHA256) == 32 && !f.ours {
		known := f.dated
		f.last, f.dated = contentOf(r, d), true
		at, ok := t.locate(d.Path)
		if n := f.names[d.Path]; ok && t.agent && !n.moved && !n.shown {
			n.shown = true
			if !known && before == nil && !t.used[at] {
				t.found(at, f)
			}
		}
	}
	if r.Origin == journal.OriginRun && r.Dir == journal.DirIn && r.Flags&journal.FlagLive == 0 {
		f.pending = false // it was dated just now, and had not changed
		for _, p := range slices.Sorted(maps.Keys(f.names)) {
			t.show(f, p)
		}
	}
	if r.Op == journal.OpOpen && !made && r.Flags&journal.FlagWrite == 0 {
		return
	}
	f.pending, f.proc, f.opened = true, r.Proc, r.Seq
	if at, ok := t.locate(d.Path); ok && t.agent && before == nil && r.Op == journal.OpOpen && r.Flags&journal.FlagCreate == 0 && !t.used[at] {
		t.prior[at] = true
	}
	if made {
		f.ours, f.last, f.dated = true, empty, true
		for _, n := range f.names {
			n.shown, n.since, n.moved = false, r.Seq, false
		}
	}
}

func contentOf(r *journal.Row, d *journal.Detail) content {
	c := content{size: r.Size}
	if len(d.SHA256) == 32 {
		c.sum, c.known = [32]byte(d.SHA256), true
	}
	switch {
	case r.Flags&journal.FlagUnreadable != 0 || !c.known:
		c.gap = surface.NotKept
	case r.Flags&journal.FlagRemoved != 0:
		c.gap = surface.SecretsRemoved
	case r.Flags&journal.FlagUnstable != 0:
		c.gap = surface.Changed
	}
	return c
}

func (t *tracker) wrote(r *journal.Row, d *journal.Detail) {
	f := t.objects[r.Object]
	if f == nil {
		if d.Path == "" {
			return // it never had a name
		}
		f = t.bind(d.Path, r.Object, r.Seq)
	}
	f.ours, f.last, f.dated, f.proc = true, contentOf(r, d), true, r.Proc
	f.pending = r.Flags&journal.FlagLive != 0
	t.losses(f, surface.Undated)
	for _, p := range slices.Sorted(maps.Keys(f.names)) {
		f.names[p].shown = true
		if at, ok := t.locate(p); ok && t.agent {
			t.add(at, f.last, surface.Event{Seq: r.Seq, Process: r.Proc, How: surface.Wrote})
		}
	}
}

// losses are the versions at names that went before the content was dated.
func (t *tracker) losses(f *file, how surface.How) {
	for _, l := range f.lost {
		if how == surface.Wrote && l.shown {
			continue
		}
		t.versions = append(t.versions, &version{l.location, f.last,
			surface.Event{Seq: l.since, Process: l.proc, How: how, Fate: l.fate, End: l.end, Prior: t.prior[l.location]}})
	}
	f.lost = nil
}

// named gives a file its new name by rename or link.
func (t *tracker) named(f *file, p string, r *journal.Row) {
	if p == "" {
		return
	}
	t.give(f, p, r.Seq, true)
	if !f.ours {
		f.proc = r.Proc
	}
	if !f.ours || !f.pending {
		t.show(f, p)
	}
}

func (t *tracker) rename(r *journal.Row, d *journal.Detail) {
	if d.Path == d.Path2 || d.Path == "" {
		return
	}
	if r.Object == 0 && t.tree[d.Path] == nil {
		below := d.Path + "/"
		moved := false
		for _, p := range slices.Sorted(maps.Keys(t.tree)) {
			if rest, ok := strings.CutPrefix(p, below); ok {
				moved = true
				f := t.take(p, r.Seq, surface.Left)
				t.take(d.Path2+"/"+rest, r.Seq, surface.Rewrote)
				t.named(f, d.Path2+"/"+rest, r)
			}
		}
		if moved {
			return
		}
	}
	f := t.bind(d.Path, r.Object, r.Seq)
	if t.tree[d.Path2] == f {
		return // two names of one file: rename does nothing
	}
	t.take(d.Path, r.Seq, surface.Left)
	t.take(d.Path2, r.Seq, surface.Rewrote)
	t.unlink(d.Path2)
	t.named(f, d.Path2, r)
}

// link notes a symbolic link at p: what is written through it stands at its target, so
// of locations at and below it nothing is said.
func (t *tracker) link(p, target string) {
	rel, ok := strings.CutPrefix(p, t.root)
	if !ok {
		return
	}
	if at, ok := t.locate(p); ok {
		t.links[at] = true
		return
	}
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(p), target)
	}
	if t.tree[target] != nil {
		return // a file has nothing below it
	}
	if t.below(rel) {
		t.links[rel] = true
	}
}

// unlink forgets a link that is gone. It stays noted while the agent runs: what was
// written through it was written to the location all the same.
func (t *tracker) unlink(p string) {
	if rel, ok := strings.CutPrefix(p, t.root); ok && !t.agent {
		delete(t.links, rel)
	}
}

// below tells whether the location can lie below a folder.
func (t *tracker) below(rel string) bool {
	if !t.at.Glob {
		return strings.HasPrefix(spell(t.at.Path), rel+"/")
	}
	return t.at.MayLieBelow(rel)
}

// end dates what was never dated again: it held what it held before. In a journal that
// breaks off, what may have been written since is not known.
func (t *tracker) end(broken bool) {
	if !t.agent {
		t.begin()
	}
	seen := map[*file]bool{}
	finish := func(f *file) {
		if seen[f] || broken && f.pending {
			return
		}
		seen[f] = true
		if f.dated {
			t.losses(f, surface.Wrote)
		}
		for _, p := range slices.Sorted(maps.Keys(f.names)) {
			t.show(f, p)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(t.objects)) {
		finish(t.objects[n])
	}
	for _, p := range slices.Sorted(maps.Keys(t.tree)) {
		finish(t.tree[p])
	}
}
