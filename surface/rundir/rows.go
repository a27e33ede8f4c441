package rundir

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/surface"
)

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
