package scope

import (
	"fmt"
	"slices"
	"strings"
)

// Access that a path has under the roots.
type Access uint8

const (
	None  Access = iota // outside every root
	Read                // may be read, listed and executed
	Write               // may also be changed
)

func (a Access) String() string {
	switch a {
	case None:
		return "none"
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("access %d", uint8(a))
}

// access and tree of the modes.
func (m Mode) access() Access {
	switch m {
	case WriteTree, WriteOne:
		return Write
	case NoTree:
		return None
	}
	return Read
}

func (m Mode) tree() bool { return m == ReadTree || m == WriteTree || m == NoTree }

// fixed lists. They are part of the format: a start row may leave entries out,
// never add to them.
var (
	systemRoots = []Root{
		{Path: "/", Mode: ReadOne}, // its listing names nothing that is hidden
		{Path: "/bin"}, {Path: "/etc"}, {Path: "/lib"}, {Path: "/lib32"}, {Path: "/lib64"},
		{Path: "/libx32"}, {Path: "/opt"}, {Path: "/sbin"}, {Path: "/usr"},
	}
	kernelRoots = []Root{{Path: "/dev", Mode: WriteTree}, {Path: "/proc", Mode: WriteTree}, {Path: "/sys"}}
)

// SystemRoots returns the read-only system directories that every run may use,
// sorted, without keys. "/" itself may be listed.
func SystemRoots() []Root { return classed(systemRoots, System) }

// KernelRoots returns /dev, /proc and /sys, sorted, without keys. What may be
// changed below them is the sandbox's business.
func KernelRoots() []Root { return classed(kernelRoots, Kernel) }

func classed(list []Root, c Class) []Root {
	list = slices.Clone(list)
	for i := range list {
		list[i].Class = c
	}
	return list
}

// SortRoots sorts roots by path and sets their keys: the order and content that
// a start row needs.
func SortRoots(k PathKey, roots []Root) {
	slices.SortFunc(roots, func(a, b Root) int { return strings.Compare(a.Path, b.Path) })
	keyer := newKeyer(k)
	for i := range roots {
		keyer.key(roots[i].Path, &roots[i].Key)
	}
}

// MaxRoots bounds the allow list.
const MaxRoots = 4096

// CheckRoots refuses a list that is empty, unsorted or repeated, that lacks
// "/", that holds a path that is not clean, an unknown mode or class, a System
// or Kernel root that is not in the fixed lists, or a Toolchain root that may be
// written.
func CheckRoots(roots []Root) error {
	if len(roots) == 0 || roots[0].Path != "/" {
		return fmt.Errorf("got %d roots without \"/\" first, want \"/\" as the first of the sorted roots", len(roots))
	}
	if len(roots) > MaxRoots {
		return fmt.Errorf("got %d roots, want at most %d", len(roots), MaxRoots)
	}
	for i, r := range roots {
		if err := CheckPath(r.Path); err != nil {
			return fmt.Errorf("root %d: %w", i, err)
		}
		if i > 0 && roots[i-1].Path >= r.Path {
			return fmt.Errorf("root %d: got %q after %q, want sorted and unique paths", i, r.Path, roots[i-1].Path)
		}
		if r.Mode > NoTree || r.Class > Closed {
			return fmt.Errorf("root %q: got mode %d, class %d, want at most %d and %d", r.Path, r.Mode, r.Class, NoTree, Closed)
		}
		if (r.Mode == NoTree) != (r.Class == Closed) {
			return fmt.Errorf("root %q: got mode %d with class %d, want mode %d exactly with class %d", r.Path, r.Mode, r.Class, NoTree, Closed)
		}
		switch r.Class {
		case System:
			if !fixed(systemRoots, r) {
				return fmt.Errorf("root %q: got class system with mode %d, want an entry of the fixed list (spec/journal.md)", r.Path, r.Mode)
			}
		case Kernel:
			if !fixed(kernelRoots, r) {
				return fmt.Errorf("root %q: got class kernel with mode %d, want an entry of the fixed list (spec/journal.md)", r.Path, r.Mode)
			}
		case Toolchain:
			if r.Mode.access() != Read {
				return fmt.Errorf("root %q: got a writable toolchain, want a read-only one", r.Path)
			}
		}
	}
	return nil
}

func fixed(list []Root, r Root) bool {
	return slices.ContainsFunc(list, func(f Root) bool { return f.Path == r.Path && f.Mode == r.Mode })
}

// A Table decides the access of path digests: the verifier's side. Directories
// are added in the order of their numbers.
type Table struct {
	roots map[[32]byte]Root
	dirs  []dir
	known map[[32]byte]struct{} // digests of declared directories
	root  [32]byte
}

// dir is what a directory gives to the paths below it: the mode of the deepest
// tree root at or above it.
type dir struct {
	access Access
	class  Class
}

// NewTable returns a table of the roots, which must pass CheckRoots. It holds
// directory 0, "/".
func NewTable(roots []Root) (*Table, error) {
	if err := CheckRoots(roots); err != nil {
		return nil, err
	}
	t := &Table{roots: make(map[[32]byte]Root, len(roots)), known: map[[32]byte]struct{}{}}
	for _, r := range roots {
		t.roots[Digest(r.Key, r.Path)] = r
	}
	t.root = Digest(roots[0].Key, "/")
	t.known[t.root] = struct{}{}
	t.dirs = []dir{t.below(dir{}, t.root)}
	return t, nil
}

// below returns what a directory of this digest in parent gives to its entries.
func (t *Table) below(parent dir, digest [32]byte) dir {
	if r, ok := t.roots[digest]; ok && r.Mode.tree() {
		return dir{r.Mode.access(), r.Class}
	}
	return parent
}

// Dirs returns how many directories the table holds, "/" included: the number
// that the next declaration must have.
func (t *Table) Dirs() uint32 { return uint32(len(t.dirs)) }

// AddDir declares directory number, with its parent and digest. The number must
// be the next, the parent declared, the digest new.
func (t *Table) AddDir(number, parent uint32, digest [32]byte) error {
	if number != t.Dirs() {
		return fmt.Errorf("got directory number %d, want %d", number, t.Dirs())
	}
	if parent >= number {
		return fmt.Errorf("got parent %d of directory %d, want one that was declared before", parent, number)
	}
	if _, ok := t.known[digest]; ok {
		return fmt.Errorf("got a second number, %d, for one directory, want one", number)
	}
	t.known[digest] = struct{}{}
	t.dirs = append(t.dirs, t.below(t.dirs[parent], digest))
	return nil
}

// Access returns the access of the path with this digest in directory dir, and
// the class of the root that gives it (meaningless for None). The deepest root
// decides: one that is the path itself, else the nearest tree root above. A
// root's name alone is no prefix: "/work" gives nothing to "/workspace2".
func (t *Table) Access(dir uint32, digest [32]byte) (Access, Class, error) {
	if dir >= t.Dirs() {
		return None, 0, fmt.Errorf("got directory number %d, want one below %d, declared before", dir, t.Dirs())
	}
	if r, ok := t.roots[digest]; ok {
		return r.Mode.access(), r.Class, nil
	}
	d := t.dirs[dir]
	return d.access, d.class, nil
}
