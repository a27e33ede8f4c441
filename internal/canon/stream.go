package canon

import (
	"crypto/sha256"
	"hash"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

const (
	blockSize = 16 << 10 // content is worked through in blocks that stay in the cache
	// MinObject is how many canonical bytes make a whole object an item.
	MinObject = 64
	// MinLine and MaxLine bound a line item, in canonical bytes.
	MinLine, MaxLine = 24, 4096
)

// A Stream takes content in chunks of any size and emits the same digests as
// the whole at once. An item is emitted by the call that completes it. A letter
// at the very end of a chunk waits for the next byte, which may be a mark that
// composes with it.
type Stream struct {
	f     *Fingerprinter
	text  bool
	total uint64 // canonical bytes so far
	form  former
	tail  []byte // the last canonical bytes, as many as gram48 reaches back
	raw   []byte // the last raw bytes, as many as an atom reaches back
	line  []byte // canonical bytes of the open line
	long  bool   // the open line is too long to be an item
	last  [2]int64

	rawSum, canonSum hash.Hash // whole objects only
	known            []byte    // the raw object's SHA-256, if the caller has it
	wide             *wide     // second reading of content that begins with a UTF-16 mark
	begun            bool
}

func (f *Fingerprinter) newStream(text, whole bool) *Stream {
	s := &Stream{f: f, text: text, last: [2]int64{-1, -1}}
	if whole {
		s.rawSum, s.canonSum = sha256.New(), sha256.New()
	}
	return s
}

// Known spares a whole object's stream the SHA-256 of the content, where the
// caller has it. Call it before the first chunk.
func (s *Stream) Known(sha256 [32]byte) { s.known, s.rawSum = sha256[:], nil }

// Chunk takes the next bytes and returns how many canonical bytes they
// completed. p is not kept.
func (s *Stream) Chunk(p []byte, emit Emit) (canonical uint64) {
	if s.rawSum != nil {
		s.rawSum.Write(p)
	}
	before := s.total
	s.widen(p, emit)
	for len(p) > 0 {
		n := blockEnd(p)
		s.block(p[:n], false, emit)
		p = p[n:]
	}
	return s.total - before
}

// blockEnd is at most blockSize and, if it can be, after a byte that composes
// with nothing: then the former holds nothing back and need not join it to the
// next block.
func blockEnd(p []byte) int {
	if len(p) <= blockSize {
		return len(p)
	}
	for n := blockSize; n > blockSize-64; n-- {
		if c := p[n-1]; c < utf8.RuneSelf && !isLetter(c) {
			return n
		}
	}
	return blockSize
}

// End takes the end of the content: it emits what waited for more, and the only
// shingle of a content shorter than one window. What it emits and the
// canonical bytes that it returns belong to the last chunk. No call may follow.
func (s *Stream) End(emit Emit) (canonical uint64) {
	before := s.total
	s.block(nil, true, emit)
	s.only(0, gram48, emit)
	if s.text {
		s.only(1, gram24, emit)
	}
	if s.canonSum != nil && s.total >= MinObject {
		if s.rawSum != nil {
			s.known = s.rawSum.Sum(nil)
		}
		if s.known != nil {
			s.item(contraband.ClassRaw, s.known, emit)
		}
		s.item(contraband.ClassCanonical, s.canonSum.Sum(nil), emit)
	}
	if s.wide != nil {
		s.wide.end(emit)
	}
	return s.total - before
}

func (s *Stream) item(class contraband.Class, b []byte, emit Emit) {
	emit(class, s.f.digest(class, b))
}

// block works through at most blockSize raw bytes.
func (s *Stream) block(p []byte, last bool, emit Emit) {
	f := s.f
	old := len(s.tail)
	f.canon = append(f.canon[:0], s.tail...)
	f.canon, f.breaks = s.form.form(f.canon, f.breaks[:0], p, last)
	fresh := f.canon[old:]
	if s.canonSum != nil {
		s.canonSum.Write(fresh)
	}
	if len(f.t.filter) > 0 {
		s.canaries(old, emit)
		s.lines(fresh, old, last, emit)
		s.atoms(p, last, emit)
	}
	s.shingles(0, gram48, old, emit)
	if s.text {
		s.shingles(1, gram24, old, emit)
	}
	s.total += uint64(len(fresh))
	s.tail = append(s.tail[:0], f.canon[max(0, len(f.canon)-gram48.reach()):]...)
}

// shingles emits the picks of the windows that end in the fresh bytes, which
// are those of f.canon from old on.
func (s *Stream) shingles(which int, g gram, old int, emit Emit) {
	f := s.f
	if len(f.canon) == old {
		return
	}
	from := max(0, old-g.reach())
	c := f.canon[from:]
	o := &f.t.orders[which]
	f.ranks = o.roll(f.ranks, c)
	if f.t.everywhere != nil {
		f.everywhere(which, g, c, old-from, emit)
		return
	}
	f.picks = winnow(f.picks, f.ranks, g.w)
	base := int64(s.total) - int64(old-from)
	for _, i := range f.picks {
		// The first pick may be the last one of the block before.
		if at := base + int64(i); at != s.last[which] {
			s.last[which] = at
			if gram := c[i : i+g.k]; !poor(gram) {
				s.item(g.class, gram, emit)
			}
		}
	}
}

// only emits the shingle of a content that is shorter than one window.
func (s *Stream) only(which int, g gram, emit Emit) {
	if s.total < uint64(g.k) || s.total > uint64(g.reach()) || s.f.t.everywhere != nil {
		return
	}
	f := s.f
	f.ranks = f.t.orders[which].roll(f.ranks, s.tail)
	i := rightmost(f.ranks, 0, len(f.ranks))
	if gram := s.tail[i : i+g.k]; !poor(gram) {
		s.item(g.class, gram, emit)
	}
}

// lines emits the lines that end in the fresh bytes; f.breaks are relative to
// f.canon.
func (s *Stream) lines(fresh []byte, old int, last bool, emit Emit) {
	start := 0
	end := func(line []byte) {
		if len(line) >= MinLine && len(line) <= MaxLine && s.f.t.pass(contraband.ClassLine, line) {
			s.item(contraband.ClassLine, line, emit)
		}
	}
	for _, b := range s.f.breaks {
		part := fresh[start : b-old]
		start = b - old
		switch {
		case s.long:
		case len(s.line) == 0:
			end(part)
		default:
			end(append(s.line, part...))
		}
		s.line, s.long = s.line[:0], false
	}
	rest := fresh[start:]
	if s.long = s.long || len(s.line)+len(rest) > MaxLine; !s.long {
		s.line = append(s.line, rest...)
	}
	if last && !s.long {
		end(s.line)
	}
}

// canaries looks at every position whose window ends in the fresh bytes.
func (s *Stream) canaries(old int, emit Emit) {
	f := s.f
	const k = contraband.CanarySize
	if len(f.canon) == old {
		return
	}
	c := f.canon[max(0, old-(k-1)):]
	f.t.canaries(c, func(window []byte) { s.item(contraband.ClassCanary, window, emit) })
}
