package footprint

import (
	"fmt"
	"io/fs"
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
	SHA256   [32]byte    // of a regular file, if Read
	Attrs    [32]byte    // digest of the extended attributes, if Read; zero for none
	Target   string      // of a symbolic link
	Read     bool        // content and attributes were read
	Stamp    int64       // when the system last changed it (ctime), in nanoseconds; 0 where none is kept
}

// A Gap is a path of which nothing can be said, with the reason.
type Gap struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// A Manifest lists a folder at one time.
type Manifest struct {
	Entries []Entry // sorted by path
	Gaps    []Gap   // what could not be listed or read
}

// Find returns the entry of path, nil if there is none.
func (m *Manifest) Find(path string) *Entry {
	i, ok := slices.BinarySearchFunc(m.Entries, path, func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return nil
	}
	return &m.Entries[i]
}

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
// do not count, nor the number of names of a folder. Of entries that were not read the
// system's stamp stands for the content.
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
	if before.Read && after.Read {
		add("content", before.SHA256 != after.SHA256)
		add("attributes", before.Attrs != after.Attrs)
	} else if before.Mode.Type() != fs.ModeDir {
		add("content or attributes, by its time of change", before.Stamp != after.Stamp)
	}
	add("links", before.Links != after.Links)
	return strings.Join(d, ", ")
}

// Diff compares two manifests of one folder. The gaps are those of either: a path that
// was unreadable both times is no unchanged path.
func Diff(before, after *Manifest) (changes []Change, gaps []Gap) {
	i, j := 0, 0
	b, a := before.Entries, after.Entries
	for i < len(b) || j < len(a) {
		switch {
		case j == len(a) || i < len(b) && b[i].Path < a[j].Path:
			changes = append(changes, Change{Path: b[i].Path, Kind: Deleted})
			i++
		case i == len(b) || a[j].Path < b[i].Path:
			changes = append(changes, Change{Path: a[j].Path, Kind: Added, Dir: a[j].Mode.IsDir()})
			j++
		default:
			if what := Differs(&b[i], &a[j]); what != "" {
				changes = append(changes, Change{Path: b[i].Path, Kind: Modified, What: what})
			}
			i, j = i+1, j+1
		}
	}
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
