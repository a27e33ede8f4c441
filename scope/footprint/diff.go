package footprint

import (
	"bytes"
	"fmt"
	"io/fs"
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
	if len(before.top.facts) > 0 && len(after.top.facts) > 0 {
		changes = diff(nil, &before.top, &after.top, "")
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	at := map[string]int{}
	for _, m := range []*Manifest{before, after} {
		for _, g := range m.Gaps {
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
	return changes, gaps
}

// diff merges two listings of the folder at, "" for the top. Both are sorted.
func diff(out []Change, b, a *listing, at string) []Change {
	path := func(l *listing, i int) string {
		if name := string(l.name(i)); at != "" {
			return join(at, name)
		} else {
			return name
		}
	}
	whole := func(l *listing, i int, k Kind) {
		p := path(l, i)
		add := func(e Entry) bool {
			c := Change{Path: e.Path, Kind: k}
			c.Dir = k == Added && e.Mode.IsDir()
			out = append(out, c)
			return true
		}
		e := l.entry(i)
		e.Path = p
		add(e)
		if below := l.folder(i); below != nil {
			below.all(p, add)
		}
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
				whole(b, i, Deleted)
			}
			i++
		case order > 0:
			if !b.part {
				whole(a, j, Added)
			}
			j++
		default:
			before, after := b.entry(i), a.entry(j)
			if what := Differs(&before, &after); what != "" {
				out = append(out, Change{Path: path(b, i), Kind: Modified, What: what})
			}
			out = diffBelow(out, b, a, i, j, path)
			i, j = i+1, j+1
		}
	}
	return out
}

// diffBelow compares what is in one name of both listings.
func diffBelow(out []Change, b, a *listing, i, j int, path func(*listing, int) string) []Change {
	under, over := b.folder(i), a.folder(j)
	wasDir, isDir := b.kinds.list[b.facts[i].kind].mode.IsDir(), a.kinds.list[a.facts[j].kind].mode.IsDir()
	empty := &listing{}
	switch {
	case !wasDir && isDir: // all of it is new
		under = empty
	case wasDir && !isDir:
		over = empty
	}
	if under == nil || over == nil {
		return out
	}
	return diff(out, under, over, path(b, i))
}
