package opening

import (
	"crypto/sha256"
	"strings"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// A content of a file, as the last row that showed it says.
type content struct {
	sum   [32]byte
	size  uint64
	known bool // else the recorder could not read it, or kept something else
}

var empty = content{sum: sha256.Sum256(nil), known: true}

// files follows names and contents through the rows that succeeded, up to the end of the
// agent's phase. A content is exact as soon as it is dated, which the end of the phase
// does. Two names that were exchanged look like a rename: the first is taken as gone.
type files struct {
	root    *node
	objects map[uint32]*content
}

// A node is a name.
type node struct {
	below map[string]*node
	file  *content // by its object, nil if no row told of a file here
	cut   bool     // what the baseline has here, and below, is not here any more
}

func newFiles() *files { return &files{root: &node{}, objects: map[uint32]*content{}} }

// find returns the node of a name, nil if there is none and it is not to be made.
func (f *files) find(name string, make bool) *node {
	n := f.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		next := n.below[part]
		if next == nil {
			if !make {
				return nil
			}
			next = &node{}
			n.put(part, next)
		}
		n = next
	}
	return n
}

func (n *node) put(part string, below *node) {
	if n.below == nil {
		n.below = map[string]*node{}
	}
	n.below[part] = below
}

// set puts a node in the place of a name, and returns what was there.
func (f *files) set(name string, with *node) *node {
	i := strings.LastIndexByte(name, '/')
	dir := f.root
	if i > 0 {
		dir = f.find(name[:i], true)
	}
	old := dir.below[name[i+1:]]
	dir.put(name[i+1:], with)
	return old
}

// object is the content of a row's object.
func (f *files) object(r *journal.Row) *content {
	c := f.objects[r.Object]
	if c == nil {
		c = &content{}
		if r.Object != 0 {
			f.objects[r.Object] = c
		}
	}
	return c
}

func (f *files) row(r *journal.Row, d *journal.Detail) {
	if r.Result != 0 {
		return
	}
	switch r.Op {
	case journal.OpOpen, journal.OpExec, journal.OpInterp, journal.OpTruncate:
		if r.Object == 0 || d.Path == "" || r.Flags&(journal.FlagDirectory|journal.FlagPseudo|journal.FlagPath) != 0 {
			return
		}
		c := f.object(r)
		if r.Flags&(journal.FlagCreate|journal.FlagTrunc) != 0 {
			*c = empty
		}
		c.show(r, d)
		f.find(d.Path, true).file = c
	case journal.OpWrote:
		f.object(r).show(r, d)
	case journal.OpUnlink, journal.OpSymlink, journal.OpMknod, journal.OpBind:
		if d.Path != "" {
			f.set(d.Path, &node{cut: true})
		}
	case journal.OpLink:
		if d.Path2 == "" {
			return
		}
		n := &node{cut: true}
		if r.Object != 0 {
			n.file = f.object(r)
			if d.Path != "" {
				f.find(d.Path, true).file = n.file
			}
		}
		f.set(d.Path2, n)
	case journal.OpRename:
		if d.Path == "" || d.Path2 == "" || d.Path == d.Path2 {
			return
		}
		f.rename(r, d)
	}
}

func (f *files) rename(r *journal.Row, d *journal.Detail) {
	from, to := f.find(d.Path, false), f.find(d.Path2, false)
	if from != nil && to != nil && from.file != nil && from.file == to.file {
		return // two names of one file: rename does nothing
	}
	n := f.set(d.Path, &node{cut: true})
	if n == nil {
		n = &node{}
	}
	n.cut = true
	if r.Object != 0 {
		n.file = f.object(r)
	}
	f.set(d.Path2, n)
}

// show takes what a row with content says. What it removed or could not read is not the
// file's content. What is written after a row with flag live gets a row of its own.
func (c *content) show(r *journal.Row, d *journal.Detail) {
	const other = journal.FlagUnreadable | journal.FlagUnstable | journal.FlagRemoved
	switch {
	case r.Flags&journal.FlagUnreadable != 0:
		*c = content{}
	case len(d.SHA256) == len(c.sum):
		*c = content{[32]byte(d.SHA256), r.Size, r.Flags&other == 0}
	}
}

// at is the content at a name, and whether a file is there. base has the workspace's
// files, by their names in it.
func (f *files) at(name, workspace string, base map[string]content) (content, bool) {
	n, cut := f.root, false
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if n = n.below[part]; n == nil {
			break
		}
		cut = cut || n.cut
	}
	if n != nil && n.file != nil {
		return *n.file, true
	}
	if rel, ok := below(workspace, name); ok && !cut {
		c, ok := base[rel]
		return c, ok
	}
	return content{}, false
}
