// Package canon cuts content into the items that sealed sets hold: whole
// objects, shingles, lines, atoms and canary windows of the canonical form
// canon-text/1 (spec/sealed-set.md, "Canonical form" and "Items").
//
// Limits: it opens no archive or encoding (internal/views does), it knows no
// language's comments or synonyms, and a copy of fewer than 96 canonical bytes
// may be missed (48 in text fields), unless it is a whole line, an atom or a
// canary.
package canon

import (
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// The Unicode version of x/text and of package unicode follows the Go release.
// The digests must not: under another version the two entries below have one
// key, and the build fails. Then contraband.Profile needs a new name.
var _ = map[bool]string{false: "", norm.Version == "15.0.0" && unicode.Version == "15.0.0": "unicode-15.0.0"}

// Emit takes one layer-1 digest. A digest may be emitted more than once.
type Emit func(class contraband.Class, s [32]byte)

// A Fingerprinter derives layer-1 digests under one task key. It holds scratch
// memory: it and its streams are used by one goroutine at a time, and emit
// functions must not call it. Clone is cheap.
type Fingerprinter struct {
	t *tables
	d *contraband.Digester
	*memory
}

// memory is scratch.
type memory struct {
	canon, raw  []byte
	atom        [MaxAtom]byte
	breaks      []int
	ranks       []uint32
	picks       []int
	runs, words []uint64
}

// New returns a fingerprinter that emits lines, atoms and canary windows only
// where their keyed value stands in filter, which is Set.Filter. An empty
// filter leaves the three classes out.
func New(key contraband.TaskKey, filter []uint32) *Fingerprinter {
	return &Fingerprinter{newTables(key, filter), key.Digester(), new(memory)}
}

// Again is New without a filter that takes the memory of old, a fingerprinter
// that is used no more; nil is none.
func Again(old *Fingerprinter, key contraband.TaskKey) *Fingerprinter {
	f := New(key, nil)
	if old != nil {
		f.memory = old.memory
	}
	return f
}

// Clone returns a fingerprinter of the same key and filter for another
// goroutine.
func (f *Fingerprinter) Clone() *Fingerprinter {
	return &Fingerprinter{f.t, f.t.key.Digester(), new(memory)}
}

// Object emits the digests of a whole object: raw, canonical, shingles, lines,
// atoms and canaries, and with text also ClassShingle24. It returns the number
// of canonical bytes. Memory beyond content is bounded.
func (f *Fingerprinter) Object(content []byte, text bool, emit Emit) (canonical uint64) {
	s := f.Whole(text)
	n := s.Chunk(content, emit)
	return n + s.End(emit)
}

// Whole returns a stream for an object that is read piece by piece. It emits
// what Object emits, the classes of whole objects at End.
func (f *Fingerprinter) Whole(text bool) *Stream { return f.newStream(text, true) }

// Stream returns a stream for a channel such as stdin: as Whole, without the
// classes of whole objects.
func (f *Fingerprinter) Stream(text bool) *Stream { return f.newStream(text, false) }
