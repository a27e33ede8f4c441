package oci

import (
	"archive/tar"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// maxLinks on the way to one file.
const maxLinks = 40

// A node is what a name of the merged archive is.
type node struct {
	kind     byte // tar.TypeReg, TypeDir, TypeSymlink; 0 for all else
	layer    int
	index    int
	target   string
	children map[string]*node // of a folder
}

func newFolder() *node { return &node{kind: tar.TypeDir, children: map[string]*node{}} }

type tree struct {
	at      surface.Location
	c       *surface.Collector
	top     *node
	layered bool
}

// clean is a member's name as a location. A leading slash is dropped, as by all who
// unpack.
func clean(name string) (string, bool) {
	if strings.IndexByte(name, 0) >= 0 || slices.Contains(strings.Split(name, "/"), "..") {
		return "", false
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	return name, len(name) <= surface.MaxLocation
}

// add lays one member over what is there.
func (t *tree) add(layer int, m *member) error {
	if m.kind == tar.TypeXGlobalHeader {
		return nil
	}
	name, ok := clean(m.name)
	if !ok {
		t.c.Gap(surface.UnsafeName, "")
		return nil
	}
	if name == "" {
		return nil // the root itself
	}
	dir, base := path.Split(name)
	if hidden, ok := strings.CutPrefix(base, ".wh."); ok && t.layered {
		t.whiteout(layer, strings.TrimSuffix(dir, "/"), hidden)
		return nil
	}
	at := t.folder(layer, dir, name)
	if at == nil {
		return nil
	}
	n := &node{layer: layer, index: m.index}
	switch m.kind {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		n.kind = tar.TypeReg
	case tar.TypeDir:
		if old := at.children[base]; old != nil && old.kind == tar.TypeDir {
			old.layer = layer
			return nil
		}
		n = newFolder()
		n.layer = layer
	case tar.TypeSymlink:
		n.kind, n.target = tar.TypeSymlink, m.target
	case tar.TypeLink:
		to, ok := clean(m.target)
		if old := t.exactly(to); ok && old != nil && old.kind != tar.TypeDir {
			n.kind, n.layer, n.index, n.target = old.kind, old.layer, old.index, old.target
		} else if t.at.Matches(name) {
			t.c.Gap(surface.LinkDangling, name)
		}
	}
	at.children[base] = n
	return nil
}

// folder is the folder that a member lies in, made if need be. nil if a link stands in the
// way: where the member lands depends on who unpacks.
func (t *tree) folder(layer int, dir, name string) *node {
	n := t.top
	for s := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if s == "" {
			continue
		}
		next := n.children[s]
		if next != nil && next.kind == tar.TypeSymlink {
			t.c.Gap(surface.LinkNotFollowed, name)
			return nil
		}
		if next != nil && next.kind != tar.TypeDir {
			t.c.Gap(surface.UnsafeName, name) // below a file: who unpacks decides which of them stays
		}
		if next == nil || next.kind != tar.TypeDir {
			next = newFolder()
			next.layer = layer
			n.children[s] = next
		}
		n = next
	}
	return n
}

// exactly is the node of a clean name, without following links.
func (t *tree) exactly(name string) *node {
	n := t.top
	for s := range strings.SplitSeq(name, "/") {
		if n = n.children[s]; n == nil {
			return nil
		}
	}
	return n
}

// whiteout removes what lower layers hold.
func (t *tree) whiteout(layer int, dir, hidden string) {
	at := t.top
	if dir != "" {
		at = t.exactly(dir)
	}
	if at == nil || at.children == nil {
		return
	}
	if hidden != ".wh..opq" {
		at.drop(layer, hidden)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(at.children)) {
		at.drop(layer, name)
	}
}

// drop removes a name's nodes of layers below. What the same layer put there stays.
func (n *node) drop(layer int, name string) {
	c := n.children[name]
	if c == nil {
		return
	}
	for _, below := range slices.Collect(maps.Keys(c.children)) {
		c.drop(layer, below)
	}
	if c.layer < layer && len(c.children) == 0 {
		delete(n.children, name)
	}
}

// A wanted is a location and the member that has its content.
type wanted struct {
	location     string
	layer, index int
}

// find lists what is at the location, and notes what cannot be followed.
func (t *tree) find() (out []wanted) {
	take := func(p string, n *node) { out = append(out, wanted{p, n.layer, n.index}) }
	if !t.at.Glob {
		n, reason := t.follow(t.at.Path)
		switch {
		case reason != "":
			t.c.Gap(reason, t.at.Path)
		case n == nil:
		case n.kind == tar.TypeReg:
			take(t.at.Path, n)
		default:
			t.c.Gap(surface.NotAFile, t.at.Path)
		}
		return out
	}
	var walk func(dir string, n *node)
	walk = func(dir string, n *node) {
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			p, c := path.Join(dir, name), n.children[name]
			file := t.at.Matches(p)
			switch {
			case len(p) > surface.MaxLocation:
				t.c.Gap(surface.UnsafeName, "")
			case c.kind == tar.TypeDir:
				if t.at.MayLieBelow(p) {
					walk(p, c)
				}
			case c.kind == tar.TypeSymlink:
				to, reason := t.follow(p)
				switch {
				case reason != "" && (file || reason == surface.LinkOutside && t.at.MayLieBelow(p)):
					t.c.Gap(reason, p)
				case reason != "":
				case to.kind == tar.TypeReg && file:
					take(p, to)
				case to.kind == tar.TypeDir && t.at.MayLieBelow(p):
					t.c.Gap(surface.LinkNotFollowed, p)
				case to.kind == 0 && file:
					t.c.Gap(surface.NotAFile, p)
				}
			case file && c.kind == tar.TypeReg:
				take(p, c)
			case file:
				t.c.Gap(surface.NotAFile, p)
			}
		}
	}
	walk("", t.top)
	return out
}

// follow finds the node of a path, links resolved inside the archive. nil without a
// reason is that nothing is there; a link that leads to nothing has one.
func (t *tree) follow(p string) (*node, surface.Reason) {
	left := strings.Split(p, "/")
	var done []string // the folders that were gone through
	linked := 0
	absent := func() (*node, surface.Reason) {
		if linked > 0 {
			return nil, surface.LinkDangling
		}
		return nil, ""
	}
	at := []*node{t.top}
	for len(left) > 0 {
		s := left[0]
		left = left[1:]
		switch s {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				if !t.layered {
					return nil, surface.LinkOutside
				}
				continue // above the root of an image is its root
			}
			done, at = done[:len(done)-1], at[:len(at)-1]
			continue
		}
		n := at[len(at)-1].children[s]
		switch {
		case n == nil:
			return absent()
		case n.kind == tar.TypeSymlink:
			if linked++; linked > maxLinks {
				return nil, surface.LinkDangling
			}
			if strings.HasPrefix(n.target, "/") {
				if !t.layered {
					return nil, surface.LinkOutside
				}
				done, at = nil, at[:1]
			}
			left = append(strings.Split(n.target, "/"), left...)
			if len(left) > surface.MaxLocation {
				return nil, surface.LinkDangling
			}
		case len(left) == 0:
			return n, ""
		case n.kind != tar.TypeDir:
			return absent()
		default:
			done, at = append(done, s), append(at, n)
		}
	}
	return at[len(at)-1], ""
}
