package benchmark

import (
	"cmp"
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// overlaps finds what the tasks of one benchmark give away of each other. Items
// of two tasks cannot be compared once they are sealed, since their keys differ:
// here all are cut under one key that is used for nothing else, and compared by
// hashes that this process keeps for itself.
//
// All ground truth is added first. Then each task's workspace is searched for
// the items of all others, in the same pass as for its own; what stands in many
// workspaces is read once.
type overlaps struct {
	base *canon.Fingerprinter // to cut with

	mu     sync.Mutex
	owners []owner // ascending by item after freeze
	piles  []sharedPile
	ranks  []uint32 // of shingles
	values []uint32 // of lines, atoms and canaries

	f     *canon.Fingerprinter // to search with; made by freeze
	start []uint32             // where in owners the items with these leading bits begin
	shift uint                 // from an item to its leading bits
	seen  map[string]*content
	held  []holding
}

// An owner is one pile that has an item.
type owner struct {
	item  uint64 // hash
	pile  int32
	class contraband.Class
}

// A sharedPile is what is kept of a pile: no item of it.
type sharedPile struct {
	task  int32 // number of the task
	kind  contraband.Kind
	label string
	count classCounts
}

// content is one content that some workspace or prompt holds. hits, the first
// owners of the items in it, may be read when done is closed.
type content struct {
	done chan struct{}
	hits []int32
}

// A holding is a content with items in it that one task's run is given.
type holding struct {
	task int32
	name string
	hits []int32
}

func newOverlaps(bench contraband.BenchmarkKey) *overlaps {
	key := bench.Task("cleanrun/overlap", [32]byte{}, [32]byte{})
	return &overlaps{base: canon.New(key, nil).Plain(), seen: map[string]*content{}}
}

// add cuts one task's ground truth with f, a clone of o.base.
func (o *overlaps) add(task int, m *seal.Material, f *canon.Fingerprinter, mem *seal.Builder) error {
	piles, err := mem.Piles(m, f)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range piles {
		p := &piles[i]
		n := int32(len(o.piles))
		o.piles = append(o.piles, sharedPile{task: int32(task), kind: p.Kind, label: p.Label, count: p.Count})
		for j := range p.Items {
			it := &p.Items[j]
			o.owners = append(o.owners, owner{binary.BigEndian.Uint64(it.Digest[:]), n, it.Class})
			switch {
			case it.Class == contraband.ClassShingle:
				o.ranks = append(o.ranks, it.Rank)
			case it.Class.Filtered():
				o.values = append(o.values, it.Filter)
			}
		}
	}
	return nil
}

// freeze ends the adding. The items are spread evenly: they are put in order by
// their leading bits, and then where several have the same.
func (o *overlaps) freeze() {
	o.f = o.base.Everywhere(nil, o.values, o.ranks, nil)
	o.ranks, o.values = nil, nil
	bits := max(1, mathbits.Len(uint(len(o.owners)))-2)
	o.shift = uint(64 - bits)
	o.start = make([]uint32, 1<<bits+1)
	for i := range o.owners {
		o.start[o.owners[i].item>>o.shift+1]++
	}
	for i := range 1 << bits {
		o.start[i+1] += o.start[i]
	}
	next := slices.Clone(o.start)
	sorted := make([]owner, len(o.owners))
	for _, e := range o.owners {
		at := &next[e.item>>o.shift]
		sorted[*at] = e
		*at++
	}
	o.owners = sorted
	for i := range 1 << bits {
		slices.SortFunc(sorted[o.start[i]:o.start[i+1]], func(a, b owner) int {
			return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.pile, b.pile), cmp.Compare(a.class, b.class))
		})
	}
}

// first is the first owner of an item.
func (o *overlaps) first(item uint64) (head int32, ok bool) {
	lo, hi := o.start[item>>o.shift], o.start[item>>o.shift+1]
	for ; lo < hi && o.owners[lo].item <= item; lo++ {
		if o.owners[lo].item == item {
			return int32(lo), true
		}
	}
	return 0, false
}

// end is behind the last owner of the item whose first owner is head.
func (o *overlaps) end(head int32) (end int32) {
	for end = head + 1; int(end) < len(o.owners) && o.owners[end].item == o.owners[head].item; end++ {
	}
	return end
}

// A holder searches what one task's run is given. It is used by one goroutine.
// nil searches nothing.
type holder struct {
	o    *overlaps
	f    *canon.Fingerprinter
	task int32
}

func (o *overlaps) holder() *holder {
	if o == nil {
		return nil
	}
	return &holder{o: o, f: o.f.Clone()}
}

// of sets the task whose turn it is.
func (h *holder) of(task int) *holder {
	if h != nil {
		h.task = int32(task)
	}
	return h
}

// A look is the search of one object. nil searches nothing.
type look struct {
	h      *holder
	name   string
	c      *content
	stream *canon.Stream // nil if another look searches the same content
	hits   map[int32]bool
}

// Begin starts the search of an object. Contents of one id are one content.
func (h *holder) Begin(name string, id []byte) seal.Look {
	if h == nil {
		return (*look)(nil)
	}
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	c, ok := h.o.seen[string(id)]
	l := &look{h: h, name: name, c: c}
	if !ok {
		l.c = &content{done: make(chan struct{})}
		h.o.seen[string(id)] = l.c
		l.stream = h.f.Whole(false)
	}
	return l
}

func (l *look) emit(_ contraband.Class, s [32]byte) {
	if head, ok := l.h.o.first(binary.BigEndian.Uint64(s[:])); ok {
		if l.hits == nil {
			l.hits = map[int32]bool{}
		}
		l.hits[head] = true
	}
}

// Chunk searches the next bytes of the object.
func (l *look) Chunk(p []byte) {
	if l != nil && l.stream != nil {
		l.stream.Chunk(p, l.emit)
	}
}

// End is the end of the object itself; views of it may follow.
func (l *look) End() {
	if l != nil && l.stream != nil {
		l.stream.End(l.emit)
	}
}

// Object searches a view of it.
func (l *look) Object(content []byte) {
	if l != nil && l.stream != nil {
		l.h.f.Object(content, false, l.emit)
	}
}

// Done notes what was found. A content waits only for what it holds itself, so
// two looks never wait for each other.
func (l *look) Done() {
	if l == nil {
		return
	}
	if l.stream != nil {
		for head := range l.hits { // sorted below
			l.c.hits = append(l.c.hits, head)
		}
		slices.Sort(l.c.hits)
		close(l.c.done)
	}
	<-l.c.done
	if len(l.c.hits) > 0 {
		l.h.o.mu.Lock()
		l.h.o.held = append(l.h.o.held, holding{l.h.task, l.name, l.c.hits})
		l.h.o.mu.Unlock()
	}
}

// An OverlapError says that one task gives another's answer away, or that two
// have the same.
type OverlapError struct {
	Other     string // the other task
	Object    string // what holds it: "the prompt", a path in the workspace, a git object; "" if both have it as ground truth
	Source    string // of the other task
	What      string // "a whole object", "fragments", ...
	Hits      int
	Threshold int
	More      int // further tasks that it concerns
}

func (e *OverlapError) Error() string {
	more := ""
	if e.More > 0 {
		more = fmt.Sprintf("; and so for %d more tasks", e.More)
	}
	if e.Object == "" {
		return fmt.Sprintf("it has the answer of task %q: got %d in common with %s of that (%s), want fewer than %d (give them different answers, or leave one out)%s", e.Other, e.Hits, e.Source, e.What, e.Threshold, more)
	}
	return fmt.Sprintf("it gives away the answer of task %q: %s holds %s of %s of that: got %d, want fewer than %d (take it out, or say overlap: report if it must be so)%s",
		e.Other, e.Object, e.What, e.Source, e.Hits, e.Threshold, more)
}

// counts is how many items of one pile were met, by class.
type classCounts [contraband.ClassAtom + 1]int

// over is the first class of which n reaches the threshold of p.
func (p *sharedPile) over(n *classCounts) (class contraband.Class, limit int, ok bool) {
	for class := contraband.ClassCanary; class <= contraband.ClassAtom; class++ {
		limit := int(contraband.Threshold(class, seal.Padded(p.count[class]), p.count[class]))
		if p.count[class] > 0 && n[class] >= limit {
			return class, limit, true
		}
	}
	return 0, 0, false
}
