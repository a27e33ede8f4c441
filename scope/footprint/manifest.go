package footprint

import (
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// An Entry is one path of a watched folder.
type Entry struct {
	Path     string      // relative to the folder, with slashes; "." is the folder itself
	Mode     fs.FileMode // type and permissions
	UID, GID uint32      // 0 where the system has no numbers
	Links    uint64      // names of a file; 0 for folders, and where the system does not say
	Size     int64       // bytes of a regular file
	Digest   [32]byte    // of a regular file's content, if Read (see Take)
	Attrs    [32]byte    // digest of the extended attributes, if Read; zero for none
	Target   string      // of a symbolic link
	Read     bool        // content and attributes were read
	Stamp    int64       // if not Read: when the system last changed it (ctime), in nanoseconds; 0 where none is kept
}

// A Gap is a path of which nothing can be said, with the reason.
type Gap struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// A Manifest lists a folder at one time, in some 60 bytes and its name for each path.
type Manifest struct {
	Gaps []Gap // what could not be listed or read, sorted by path

	top listing // one entry, "."
}

// A listing holds the names of one folder, sorted.
type listing struct {
	kinds *kinds
	names []byte   // one after the other
	ends  []uint32 // where each name ends
	facts []fact
	below []child
	part  bool // there may be more names
}

// A child is a folder in a listing.
type child struct {
	at uint32   // its index
	to *listing // nil if it was not listed: there is a gap
}

// A fact is an entry without its name.
type fact struct {
	kind uint32 // index of kinds.list
	more uint32 // index of kinds.more, from 1; 0 for none
	size int64
	sum  [32]byte // the digest if the entry was read, else the stamp
}

// A kind is what many entries have in common.
type kind struct {
	mode     fs.FileMode
	uid, gid uint32
	links    uint64
	read     bool
}

// more is what few entries have.
type more struct {
	target string
	attrs  [32]byte
}

// kinds holds them once; one goroutine fills it.
type kinds struct {
	list []kind
	at   map[kind]uint32
	more []more
}

func newKinds() *kinds { return &kinds{at: map[kind]uint32{}} }

// fact makes e small.
func (k *kinds) fact(e *Entry) fact {
	one := kind{e.Mode, e.UID, e.GID, e.Links, e.Read}
	i, ok := k.at[one]
	if !ok {
		i = uint32(len(k.list))
		k.list = append(k.list, one)
		k.at[one] = i
	}
	f := fact{kind: i, size: e.Size, sum: e.Digest}
	if !e.Read {
		f.sum = [32]byte{}
		for j := range 8 {
			f.sum[j] = byte(e.Stamp >> (8 * j))
		}
	}
	if rest := (more{e.Target, e.Attrs}); rest != (more{}) {
		k.more = append(k.more, rest)
		f.more = uint32(len(k.more))
	}
	return f
}

func (l *listing) name(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = l.ends[i-1]
	}
	return l.names[from:l.ends[i]]
}

// folder gives what is listed below entry i, nil if nothing is.
func (l *listing) folder(i int) *listing {
	k, ok := slices.BinarySearchFunc(l.below, uint32(i), func(c child, at uint32) int { return int(c.at) - int(at) })
	if !ok {
		return nil
	}
	return l.below[k].to
}

// entry gives entry i without its path.
func (l *listing) entry(i int) Entry {
	f := &l.facts[i]
	k := &l.kinds.list[f.kind]
	e := Entry{Mode: k.mode, UID: k.uid, GID: k.gid, Links: k.links, Size: f.size, Read: k.read}
	if f.more > 0 {
		e.Target, e.Attrs = l.kinds.more[f.more-1].target, l.kinds.more[f.more-1].attrs
	}
	if e.Read {
		e.Digest = f.sum
		return e
	}
	for j := range 8 {
		e.Stamp |= int64(f.sum[j]) << (8 * j)
	}
	return e
}

// find gives the index of a name.
func (l *listing) find(name string) (int, bool) {
	lo, hi := 0, len(l.facts)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if string(l.name(mid)) < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(l.facts) && string(l.name(lo)) == name
}

// join gives the path of a name in a folder.
func join(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "/" + name
}

// place finds the listing that holds path, and its index there.
func (m *Manifest) place(path string) (*listing, int) {
	if len(m.top.facts) == 0 {
		return nil, 0
	}
	l, i := &m.top, 0
	if path == "." {
		return l, i
	}
	for name := range strings.SplitSeq(path, "/") {
		if l = l.folder(i); l == nil {
			return nil, 0
		}
		var ok bool
		if i, ok = l.find(name); !ok {
			return nil, 0
		}
	}
	return l, i
}

// Find returns the entry of path, nil if there is none.
func (m *Manifest) Find(path string) *Entry {
	l, i := m.place(path)
	if l == nil {
		return nil
	}
	e := l.entry(i)
	e.Path = path
	return &e
}

// Has tells whether path is there.
func (m *Manifest) Has(path string) bool {
	l, _ := m.place(path)
	return l != nil
}

// All gives the entries: a folder, then what is in it, names sorted by their bytes.
func (m *Manifest) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) { m.top.all("", yield) }
}

// Below gives the entries below the folder, without its own.
func (m *Manifest) Below(folder string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if l, i := m.place(folder); l != nil && l.folder(i) != nil {
			l.folder(i).all(folder, yield)
		}
	}
}

// all gives the entries of a listing whose folder has the path at, "" for the top.
func (l *listing) all(at string, yield func(Entry) bool) bool {
	for i := range l.facts {
		e := l.entry(i)
		e.Path = string(l.name(i))
		if at != "" {
			e.Path = join(at, e.Path)
		}
		if !yield(e) {
			return false
		}
		if below := l.folder(i); below != nil && !below.all(e.Path, yield) {
			return false
		}
	}
	return true
}

// A draft is a listing that is being written. Its room is used again.
type draft struct {
	names   []byte
	ends    []uint32
	facts   []fact
	folders []uint32
}

func (d *draft) reset() {
	d.names, d.ends, d.facts, d.folders = d.names[:0], d.ends[:0], d.facts[:0], d.folders[:0]
}

func (d *draft) add(name string, f fact, folder bool) {
	if folder {
		d.folders = append(d.folders, uint32(len(d.facts)))
	}
	d.names = append(d.names, name...)
	d.ends = append(d.ends, uint32(len(d.names)))
	d.facts = append(d.facts, f)
}

// view is the draft as a listing, until it changes.
func (d *draft) view(k *kinds, part bool) *listing {
	return &listing{kinds: k, names: d.names, ends: d.ends, facts: d.facts, part: part}
}

// into copies the draft, without room to grow.
func (d *draft) into(l *listing) {
	l.names, l.ends, l.facts = fit(d.names), fit(d.ends), fit(d.facts)
	l.below = make([]child, len(d.folders))
	for i, at := range d.folders {
		l.below[i].at = at
	}
}

func fit[T any](from []T) []T {
	to := make([]T, len(from))
	copy(to, from)
	return to
}

// Build makes a manifest of entries that somebody else saw. They come as All gives them,
// "." first; every folder counts as listed.
func Build(entries iter.Seq[Entry], gaps []Gap) (*Manifest, error) {
	m := &Manifest{Gaps: gaps, top: listing{kinds: newKinds()}}
	return m, fold(entries, &m.top, func(v *level) {
		v.draft.into(v.to)
		for i, l := range v.below {
			v.to.below[i].to = l
		}
	})
}

// fold calls end for each folder when all its names are known, for those in it first.
func fold(entries iter.Seq[Entry], top *listing, end func(*level)) error {
	levels := []level{{to: top}} // from the top down to the open folder
	depth := 0
	for e := range entries {
		dir, name := "", e.Path
		if e.Path != "." {
			dir = "."
			if i := strings.LastIndexByte(e.Path, '/'); i >= 0 {
				dir, name = e.Path[:i], e.Path[i+1:]
			}
		}
		for depth > 0 && levels[depth].path != dir {
			end(&levels[depth])
			depth--
		}
		v := &levels[depth]
		first := len(v.draft.facts) == 0
		if v.path != dir || name == "" || name == ".." || dir == "" && !first || dir != "" && (name == "." || join(dir, name) != e.Path || !first && name <= v.last) {
			return fmt.Errorf("entry %q: got it out of order, want each folder followed by what is in it, sorted by name", e.Path)
		}
		v.last = name
		v.draft.add(name, top.kinds.fact(&e), e.Mode.IsDir())
		if !e.Mode.IsDir() {
			continue
		}
		below := &listing{kinds: top.kinds}
		v.below = append(v.below, below)
		if depth++; depth == len(levels) {
			levels = append(levels, level{})
		}
		levels[depth].begin(e.Path, below)
	}
	for ; depth >= 0; depth-- {
		end(&levels[depth])
	}
	return nil
}

// A level is a folder of fold that is not complete. Its room is used again.
type level struct {
	path, last string
	to         *listing
	below      []*listing
	draft      draft
}

func (v *level) begin(path string, to *listing) {
	v.path, v.last, v.to, v.below = path, "", to, v.below[:0]
	v.draft.reset()
}
