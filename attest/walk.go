package attest

import (
	"fmt"
	"iter"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Evidence is a pack whose structure holds: rows that form a journal with the
// head that the header names, entries that cover every byte of the rows'
// contents and have the roots that they name, and the tree over all digests.
// Nothing says yet who made it: that is the signature's business. It keeps the
// pack's bytes, which must not change, and beside them what grows with the
// distinct contents and paths of the run, but not with its rows: those are read
// again where they are needed.
type Evidence struct {
	pack    []byte
	header  Header
	trailer Trailer
	start   *journal.Start
	final   *journal.Final // nil if the journal is open
	summary journal.Summary
	first   []byte // bytes of row 0
	entries merkle.Tree
	graded  graded
	named   named

	marks   []int               // where in pack each stride-th item begins
	bases   []base              // entries that hold digests of their own, in order
	baseOf  map[uint64]int32    // their rows
	empties map[uint64][32]byte // rows without digests of their own that others refer to, and the root that they state
	opened  []int32             // bases of control rows, each once
	kept    []event             // all, of a journal of at most keptRows rows

	partial bool     // only some rows are known
	numbers []uint64 // these

	origins map[uint64]journal.Origin // that tests put in place of the rows'
}

// A base is an entry that holds digests of its own.
type base struct {
	seq     uint64
	dir     journal.Direction
	root    [32]byte
	digests []byte
}

// stride is how many items are read to find one.
const stride = 64

// keptRows is up to how many rows a journal's events are kept: reading the rows
// again takes longer than they take memory.
const keptRows = 1024

// noBase is the base of a row without content or without digests.
const noBase = -1

// An event is what the verdict needs of a row. Where rows are read again it lives
// until the next one.
type event struct {
	phase  journal.Phase
	op     journal.Op
	dir    journal.Direction
	origin journal.Origin
	flags  journal.Flags
	size   uint64
	entry  *Entry // nil without content
	base   int32  // number in bases
}

// Start is row 0's content.
func (e *Evidence) Start() *journal.Start { return e.start }

// Final is the closing row's content, nil if the journal is open.
func (e *Evidence) Final() *journal.Final { return e.final }

// Summary is what the journal's rules counted over all rows.
func (e *Evidence) Summary() journal.Summary { return e.summary }

// Size is the number of rows, at least 1.
func (e *Evidence) Size() uint64 { return e.header.Rows }

// Digests is the number of distinct digests in the entries.
func (e *Evidence) Digests() uint64 { return e.trailer.Digests }

// Root is the RFC 9162 root over the rows: with Size, the journal head.
func (e *Evidence) Root() [32]byte { return e.header.Root }

// Entries is the RFC 9162 root over EntryLeaf of each row.
func (e *Evidence) Entries() [32]byte { return e.entries.Root() }

// Row returns row seq and its entry (nil without content). It panics if there is
// no such row, or it is not shown.
func (e *Evidence) Row(seq uint64) (*journal.Row, *Entry) {
	it := e.at(seq)
	if it == nil {
		panic(fmt.Sprintf("attest: row %d of %d", seq, e.header.Rows))
	}
	return parsed(it.row), it.entry.clone()
}

// Rows returns all rows with their entries, in order.
func (e *Evidence) Rows() iter.Seq2[*journal.Row, *Entry] {
	return func(yield func(*journal.Row, *Entry) bool) {
		e.items(0, func(_ uint64, it *item) bool { return yield(parsed(it.row), it.entry.clone()) })
	}
}

// walk visits all rows in order.
func (e *Evidence) walk(visit func(seq uint64, ev *event)) {
	var ev event
	one := func(seq uint64) {
		if o, ok := e.origins[seq]; ok {
			ev.origin = o
		}
		visit(seq, &ev)
	}
	for seq := range e.kept {
		ev = e.kept[seq]
		one(uint64(seq))
	}
	if e.kept != nil {
		return
	}
	e.items(0, func(seq uint64, it *item) bool {
		ev = eventOf(parsed(it.row), it.entry, e.base(seq, it.entry))
		one(seq)
		return true
	})
}

func eventOf(row *journal.Row, entry *Entry, base int32) event {
	return event{row.Phase, row.Op, row.Dir, row.Origin, row.Flags, row.Size, entry, base}
}

// at reads item seq. It lives until the next one is read.
func (e *Evidence) at(seq uint64) (found *item) {
	if e.partial {
		e.items(0, func(n uint64, it *item) bool {
			if n == seq {
				found = it
			}
			return n < seq
		})
		return found
	}
	if seq >= e.header.Rows {
		return nil
	}
	e.items(seq/stride*stride, func(n uint64, it *item) bool {
		found = it
		return n < seq
	})
	return found
}

// items reads the pack again from item seq on, a multiple of stride.
func (e *Evidence) items(seq uint64, visit func(seq uint64, it *item) bool) {
	if e.partial {
		e.shown(visit)
		return
	}
	s, it := &sequence{data: e.pack, at: e.marks[seq/stride]}, new(item)
	for ; seq < e.header.Rows; seq++ {
		if err := s.item(it); err != nil {
			panic("attest: an item that was read cannot be read again: " + err.Error())
		}
		if !visit(seq, it) {
			return
		}
	}
}

// shown reads the rows of partial evidence.
func (e *Evidence) shown(visit func(seq uint64, it *item) bool) {
	s, it := &sequence{data: e.pack}, new(item)
	for _, seq := range e.numbers {
		if err := s.item(it); err != nil {
			panic("attest: an item that was written cannot be read again: " + err.Error())
		}
		if !visit(seq, it) {
			return
		}
	}
}

func parsed(raw []byte) *journal.Row {
	row, err := journal.ParseRow(raw)
	if err != nil {
		panic("attest: a row that was read cannot be read again: " + err.Error())
	}
	return &row
}

// base is the number of the entry that holds the digests of a row's entry.
func (e *Evidence) base(seq uint64, entry *Entry) int32 {
	if entry == nil {
		return noBase
	}
	if entry.Same != nil {
		seq = *entry.Same
	}
	if n, ok := e.baseOf[seq]; ok {
		return n
	}
	return noBase
}
