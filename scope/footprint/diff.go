package footprint

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// Kind of a change.
type Kind uint8

const (
	Added Kind = iota + 1
	Modified
	Deleted
	Restored  // written or opened for writing, and as before at the end
	Transient // made and gone again
)

func (k Kind) String() string {
	return [...]string{"none", "added", "modified", "deleted", "restored", "transient"}[min(k, Transient)]
}

// MarshalText gives the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A Change is one path that differs.
type Change struct {
	Path string
	Kind Kind
	What string // what differs, of a Modified one
	Dir  bool   // an Added folder
}

// Differs says what differs between two entries of one path, "" if nothing does. Times
// do not count, nor the number of names of a folder. Of entries that were both not read
// the system's stamp stands for the content; of one that was read once there is a gap.
func Differs(before, after *Entry) string {
	var d []string
	add := func(name string, differs bool) {
		if differs {
			d = append(d, name)
		}
	}
	add("type", before.Mode.Type() != after.Mode.Type())
	add("mode", before.Mode&^fs.ModeType != after.Mode&^fs.ModeType)
	add("owner", before.UID != after.UID || before.GID != after.GID)
	add("size", before.Size != after.Size)
	add("target", before.Target != after.Target)
	switch {
	case before.Read && after.Read:
		add("content", before.Digest != after.Digest)
		add("attributes", before.Attrs != after.Attrs)
	case !before.Read && !after.Read && before.Mode.Type() != fs.ModeDir:
		add("content or attributes, by its time of change", before.Stamp != after.Stamp)
	}
	add("links", before.Links != after.Links)
	return strings.Join(d, ", ")
}

// Diff compares two manifests of one folder; the changes are sorted by path. The gaps are
// those of either: a path that was unreadable both times is no unchanged path. Below a
// folder that one of them could not list nothing is compared.
func Diff(before, after *Manifest) (changes []Change, gaps []Gap) {
	var d differ
	if len(before.top.facts) > 0 && len(after.top.facts) > 0 {
		d.deep(&before.top, &after.top, "")
	}
	return sorted(d.out), bothGaps(before.Gaps, after.Gaps)
}

// DiffAll is Diff against entries that come as All gives them, and that are not kept. They
// must be all that is there: entries do not say which folder a limit cut, so what one of
// them left out counts as gone. Compare knows.
func DiffAll(before *Manifest, after iter.Seq[Entry], gapsAfter []Gap) (changes []Change, gaps []Gap, err error) {
	var d differ
	if len(before.top.facts) == 0 {
		return nil, bothGaps(before.Gaps, gapsAfter), nil
	}
	top := &listing{kinds: newKinds()}
	err = fold(after, top, func(v *level) {
		d.level(before.was(v.path), v.draft.view(top.kinds, false), v.path, nil)
	})
	return sorted(d.out), bothGaps(before.Gaps, gapsAfter), err
}

// was is the listing of a folder, "" for the top: an empty one if there was no such folder,
// nil if nobody knows.
func (m *Manifest) was(folder string) *listing {
	if folder == "" {
		return &m.top
	}
	at := &m.top
	i, ok := at.find(".")
	for name := range strings.SplitSeq(folder, "/") {
		if name != "." {
			if at = at.under(i, ok); at == nil {
				return nil
			}
			i, ok = at.find(name)
		}
	}
	return at.under(i, ok)
}

// under is what was in entry i, or in a name that is not there.
func (l *listing) under(i int, there bool) *listing {
	switch {
	case there && l.isDir(i):
		return l.folder(i)
	case !there && l.part:
		return nil
	}
	return &listing{}
}

func sorted(changes []Change) []Change {
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

func bothGaps(before, after []Gap) (gaps []Gap) {
	at := map[string]int{}
	for _, of := range [][]Gap{before, after} {
		for _, g := range of {
			n, ok := at[g.Path]
			switch {
			case !ok:
				at[g.Path] = len(gaps)
				gaps = append(gaps, g)
			case gaps[n].Reason == g.Reason:
				gaps[n].Reason = fmt.Sprintf("before and after: %s", g.Reason)
			}
		}
	}
	return gaps
}

// A differ collects changes, in no order.
type differ struct{ out []Change }

// deep compares two listings of the folder at, "" for the top, and all below.
func (d *differ) deep(b, a *listing, at string) {
	d.level(b, a, at, func(j int, was *listing) {
		if now := a.folder(j); now != nil && was != nil {
			d.deep(was, now, pathIn(a, j, at))
		}
	})
}

func pathIn(l *listing, i int, at string) string {
	if name := string(l.name(i)); at != "" {
		return join(at, name)
	} else {
		return name
	}
}

// level compares the names of two listings, both sorted, and tells below of each folder that
// is there now and what was listed in it. What is gone is gone with all that was in it.
func (d *differ) level(b, a *listing, at string, below func(j int, was *listing)) {
	gone := func(i int) {
		if l := b.folder(i); l != nil {
			l.all(pathIn(b, i, at), func(e Entry) bool {
				d.out = append(d.out, Change{Path: e.Path, Kind: Deleted})
				return true
			})
		}
	}
	tell := func(i int, was bool, j int) {
		if below != nil && a.isDir(j) {
			below(j, b.under(i, was))
		}
	}
	if b == nil {
		for j := range a.facts {
			if below != nil && a.isDir(j) {
				below(j, nil)
			}
		}
		return
	}
	for i, j := 0, 0; i < len(b.facts) || j < len(a.facts); {
		order := 0
		switch {
		case j == len(a.facts):
			order = -1
		case i == len(b.facts):
			order = 1
		default:
			order = bytes.Compare(b.name(i), a.name(j))
		}
		switch {
		case order < 0:
			if !a.part {
				d.out = append(d.out, Change{Path: pathIn(b, i, at), Kind: Deleted})
				gone(i)
			}
			i++
		case order > 0:
			if !b.part {
				d.out = append(d.out, Change{Path: pathIn(a, j, at), Kind: Added, Dir: a.isDir(j)})
			}
			tell(0, false, j)
			j++
		default:
			before, after := b.entry(i), a.entry(j)
			if what := Differs(&before, &after); what != "" {
				d.out = append(d.out, Change{Path: pathIn(a, j, at), Kind: Modified, What: what})
			}
			if !a.isDir(j) {
				gone(i)
			}
			tell(i, true, j)
			i, j = i+1, j+1
		}
	}
}

func (l *listing) isDir(i int) bool { return l.kinds.list[l.facts[i].kind].mode.IsDir() }
