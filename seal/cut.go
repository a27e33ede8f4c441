package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/views"
)

// minBits of a token; a weaker one could be guessed, and met by chance.
const minBits = 40

// A pile is the items of one source.
type pile struct {
	kind  contraband.Kind
	at    Text
	label string // for the owner
	items [contraband.ClassAtom + 1][]int32
	n     int // of all classes
}

// A cutter makes piles and counts what is too weak for one.
type cutter struct {
	f         *canon.Fingerprinter
	items     *items
	piles     []*pile
	sources   map[contraband.Kind]uint32
	uncovered map[contraband.Kind]uint32
	slim      bool // what may stand in two tasks, ids, titles and the like, and short shingles are left out
}

// A Pile is the items of one source of an answer.
type Pile struct {
	Kind  contraband.Kind
	Label string                        // for the owner
	Count [contraband.ClassAtom + 1]int // items, by class
	Items []PileItem                    // by class
}

// A PileItem is one item, as f digests it.
type PileItem struct {
	Class  contraband.Class
	Digest [32]byte
	Rank   uint32 // of a shingle
	Filter uint32 // value for a filter, if the class is filtered
}

// Piles cuts the ground truth of m with f, without what may stand in two tasks by
// nature: ids, titles, commands and the like, short shingles, and the lines of a
// source that has shingles enough.
func (b *Builder) Piles(m *Material, f *canon.Fingerprinter) ([]Pile, error) {
	c := newCutter(f, &b.mem)
	c.slim = true
	if err := c.all(m); err != nil {
		return nil, err
	}
	list := make([]Pile, 0, len(c.piles))
	for _, p := range c.piles {
		out := Pile{Kind: p.kind, Label: p.label, Items: make([]PileItem, 0, p.n)}
		for class, ids := range p.items {
			if !p.counted(contraband.Class(class)) {
				continue
			}
			out.Count[class] = len(ids)
			for _, id := range ids {
				it := &c.items.list[id]
				item := PileItem{Class: it.class, Digest: it.s, Rank: it.rank}
				if it.class.Filtered() {
					item.Filter = f.FilterValue(it.class, it.plain)
				}
				out.Items = append(out.Items, item)
			}
		}
		list = append(list, out)
	}
	return list, nil
}

// counted tells whether items of a class accuse: lines where they are all that
// the source has.
func (p *pile) counted(class contraband.Class) bool {
	return class != contraband.ClassLine || len(p.items[contraband.ClassShingle]) < 3
}

func newCutter(f *canon.Fingerprinter, m *scratch) *cutter {
	m.items.reset()
	return &cutter{f: f, items: &m.items, sources: map[contraband.Kind]uint32{}, uncovered: map[contraband.Kind]uint32{}}
}

func (c *cutter) pile(kind contraband.Kind, at Text, label string) *pile {
	p := &pile{kind: kind, at: at, label: label}
	c.piles = append(c.piles, p)
	c.sources[kind]++
	return p
}

// add puts an item into the last pile. plain is kept. rank is that of a shingle.
func (c *cutter) add(p *pile, class contraband.Class, plain []byte, rank uint32) {
	id := c.items.add(class, c.f.Digest(class, plain), plain, rank)
	if it := &c.items.list[id]; it.pile != len(c.piles) {
		it.pile = len(c.piles)
		p.items[class] = append(p.items[class], id)
		p.n++
	}
}

// A reading is what is cut out of a source without any key.
type reading struct {
	once           sync.Once
	runs           []run
	err            error
	raw, canonical [32]byte // SHA-256
	whole          bool     // it is long and varied enough to be a whole object
}

// read reads a source; one that is kept in memory, once.
func (s *source) read() *reading {
	r := s.reading
	if r == nil {
		r = new(reading)
	}
	r.once.Do(func() {
		r.runs, r.err = s.novel()
		form := canon.Canonical(s.content)
		r.raw, r.canonical = sha256.Sum256(s.content), sha256.Sum256(form)
		r.whole = len(form) >= canon.MinObject && !canon.Poor(form)
	})
	return r
}

// file cuts a reference file, a hidden test or a patch.
func (c *cutter) file(s *source) error {
	p := c.pile(s.kind, s.at, s.label)
	r := s.read()
	if r.err != nil {
		return r.err
	}
	if r.whole {
		c.add(p, contraband.ClassRaw, r.raw[:], 0)
		c.add(p, contraband.ClassCanonical, r.canonical[:], 0)
	}
	weak := c.runs(p, r.runs)
	if !s.patch && !s.changes {
		// What an archive or an encoded test holds is ground truth too. A view
		// that is the text over again, without its escapes, adds little, and its
		// short lines are not counted twice.
		views.Each(s.content, func(v views.View) {
			inner := source{content: v.Content}
			more, _ := inner.novel() // fails for patches only
			c.runs(p, more)
		})
	}
	if c.uncovered[s.kind] += weak; weak == 0 && p.n == 0 {
		c.uncovered[s.kind]++
	}
	return nil
}

// runs cuts novel runs: shingles of the long ones, lines of the short ones. It
// returns how many lines are too short to seal. Shingles wholly inside one run
// cannot also stand in what surrounds it.
func (c *cutter) runs(p *pile, runs []run) (weak uint32) {
	var short []run
	for _, r := range runs {
		form := r.form
		for _, class := range []contraband.Class{contraband.ClassShingle, contraband.ClassShingle24} {
			if class == contraband.ClassShingle24 && c.slim {
				continue
			}
			c.f.Shingles(class, form, func(s []byte, rank uint32) { c.add(p, class, s, rank) })
		}
		if len(form) < canon.Window(contraband.ClassShingle) {
			short = append(short, r)
		}
	}
	if len(p.items[contraband.ClassShingle]) < 3 {
		short = runs // its shingles alone could never reach their threshold
	}
	for _, r := range short {
		for _, form := range r.lines {
			switch {
			case len(form) > canon.MaxLine:
			case len(form) >= canon.MinLine && !canon.Poor(form):
				c.add(p, contraband.ClassLine, form, 0)
			default:
				weak++
			}
		}
	}
	return weak
}

// phrase cuts an id, title, signal, command or token: a line, an atom, and
// shingles of text fields where it is long enough.
func (c *cutter) phrase(kind contraband.Kind, t Text) {
	p := c.pile(kind, t, t.Item)
	form := canon.Canonical([]byte(t.Value))
	if len(form) >= canon.MinLine && len(form) <= canon.MaxLine && !canon.Poor(form) {
		c.add(p, contraband.ClassLine, form, 0)
	}
	if atom, ok := canon.Atom(t.Value); ok && bitsOf(atom) >= minBits {
		c.add(p, contraband.ClassAtom, atom, 0)
	}
	if !c.slim {
		c.f.Shingles(contraband.ClassShingle24, form, func(s []byte, rank uint32) { c.add(p, contraband.ClassShingle24, s, rank) })
	}
	if p.n == 0 {
		c.uncovered[kind]++
	}
}

// bitsOf estimates the strength of a token: its length by the logarithm of the
// smallest usual alphabet that has all its characters. A token of few different
// characters has none. Letters alone may be words: they count 2 bits each.
func bitsOf(atom []byte) float64 {
	digits, hex, letters := true, true, true
	distinct := map[byte]bool{}
	for _, b := range atom {
		distinct[b] = true
		digit := b >= '0' && b <= '9'
		digits = digits && digit
		letters = letters && !digit
		hex = hex && (digit || b <= 'f')
	}
	alphabet := 36.0
	switch {
	case len(distinct) < 5:
		return 0
	case letters:
		alphabet = 4
	case digits:
		alphabet = 10
	case hex:
		alphabet = 16
	}
	return float64(len(atom)) * math.Log2(alphabet)
}

// An item is one thing to be sealed. Its number is its place in the list.
type item struct {
	class contraband.Class
	s     [32]byte
	plain []byte // kept where a filter value is made of it
	rank  uint32 // of a shingle
	pile  int    // the last one that took it
}

// items are the distinct items of one task: one that two sources have is one
// item. Their keyed digests are spread evenly: a table that the leading bits
// point into finds them.
type items struct {
	list  []item
	table []int32 // number of the item and 1, at or after its place; 0 is none
	shift uint    // from the first 64 bits of a digest to its place
}

// manyItems is how many a table holds whose memory is kept for the next task.
const manyItems = 1 << 16

// reset empties t and keeps its memory.
func (t *items) reset() {
	if len(t.list) > manyItems {
		*t = items{}
		return
	}
	clear(t.list)
	t.list = t.list[:0]
	clear(t.table)
}

// add returns the number of an item, of a new one if it is not there.
func (t *items) add(class contraband.Class, s [32]byte, plain []byte, rank uint32) (id int32) {
	if 2*len(t.list) >= len(t.table) {
		t.grow()
	}
	at := t.place(&s)
	for ; t.table[at] != 0; at = (at + 1) % len(t.table) {
		if id := t.table[at] - 1; t.is(id, class, &s) {
			return id
		}
	}
	if !class.Filtered() {
		plain = nil
	}
	t.list = append(t.list, item{class: class, s: s, plain: plain, rank: rank, pile: -1})
	t.table[at] = int32(len(t.list))
	return int32(len(t.list)) - 1
}

func (t *items) find(class contraband.Class, s *[32]byte) (id int32, ok bool) {
	if len(t.list) == 0 {
		return 0, false
	}
	for at := t.place(s); t.table[at] != 0; at = (at + 1) % len(t.table) {
		if id := t.table[at] - 1; t.is(id, class, s) {
			return id, true
		}
	}
	return 0, false
}

func (t *items) is(id int32, class contraband.Class, s *[32]byte) bool {
	return t.list[id].s == *s && t.list[id].class == class
}

func (t *items) place(s *[32]byte) int { return int(binary.BigEndian.Uint64(s[:]) >> t.shift) }

func (t *items) grow() {
	size, shift := 1<<12, uint(64-12)
	for ; size < 4*(len(t.list)+1); size *= 2 {
		shift--
	}
	t.table, t.shift = make([]int32, size), shift
	for id := range t.list {
		at := t.place(&t.list[id].s)
		for ; t.table[at] != 0; at = (at + 1) % len(t.table) {
		}
		t.table[at] = int32(id) + 1
	}
}

// sortDigests sorts keyed digests, which are spread evenly: each is put near its
// place by its leading bits, and a pass of insertion does the rest. The result is
// in out's memory, as is start, if they are large enough.
func sortDigests(list, out [][32]byte, start []uint32) ([][32]byte, []uint32) {
	n := uint64(len(list))
	place := func(d *[32]byte) uint64 { return binary.BigEndian.Uint64(d[:]) >> 32 * n >> 32 }
	start = slices.Grow(start[:0], int(n)+1)[:n+1]
	clear(start)
	for i := range list {
		start[place(&list[i])+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	out = slices.Grow(out[:0], int(n))[:n]
	for i := range list {
		at := &start[place(&list[i])]
		out[*at] = list[i]
		*at++
	}
	for i := 1; i < len(out); i++ {
		if !less(&out[i], &out[i-1]) {
			continue
		}
		d := out[i]
		j := i
		for ; j > 0 && less(&d, &out[j-1]); j-- {
			out[j] = out[j-1]
		}
		out[j] = d
	}
	return out, start
}

func less(a, b *[32]byte) bool {
	for i := 0; i < 32; i += 8 {
		x, y := binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:])
		if x != y {
			return x < y
		}
	}
	return false
}
