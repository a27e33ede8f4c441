package footprint

import (
	"path"
	"strings"
)

// A trail follows the journaled writes by name. What is written to a file by one of its
// hard links is written to all names that it had.
type trail struct {
	last    map[string]*Write // the last write of each path; if only times were set, the last of those
	written map[string]bool   // more than its times
	moved   map[string]*Write // by rename: what is below moved too
	file    map[string]int    // of names that are links of one file
	names   []map[string]bool // that the file ever had
}

func newTrail(writes []Write) *trail {
	t := &trail{last: map[string]*Write{}, written: map[string]bool{}, moved: map[string]*Write{}, file: map[string]int{}}
	for i := range writes {
		t.add(&writes[i])
	}
	return t
}

func (t *trail) note(p string, w *Write) {
	if !w.Times || !t.written[p] { // times that are set after a write do not say who wrote
		t.last[p] = w
	}
	t.written[p] = t.written[p] || !w.Times
}

func (t *trail) add(w *Write) {
	t.note(w.Path, w)
	switch w.Op {
	case "link":
		if w.Of == "" {
			return
		}
		id, ok := t.file[w.Of]
		if !ok {
			id = len(t.names)
			t.names = append(t.names, map[string]bool{w.Of: true})
			t.file[w.Of] = id
		}
		t.file[w.Path] = id
		t.names[id][w.Path] = true
	case "rename":
		t.moved[w.Path] = w
		if w.To != "" {
			t.rename(w.Path, w.To)
		}
	case "unlink":
		delete(t.file, w.Path)
	default:
		if id, ok := t.file[w.Path]; ok {
			for name := range t.names[id] {
				t.note(name, w)
			}
		}
	}
}

func (t *trail) rename(from, to string) {
	delete(t.file, to)
	for name, id := range t.file {
		rest, ok := strings.CutPrefix(name, from)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		delete(t.file, name)
		t.file[to+rest] = id
		t.names[id][to+rest] = true
	}
}

// why is the last write that explains a change at p: of p, or a rename of a folder above.
func (t *trail) why(p string) *Write {
	if w := t.last[p]; w != nil {
		return w
	}
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if w := t.moved[d]; w != nil {
			return w
		}
	}
	return nil
}
