package scanner

import (
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/views"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A stream is one of stdin, stdout, stderr.
type stream struct {
	whole  *canon.Stream
	phase  journal.Phase
	buf    []byte  // bytes of this phase that were not yet looked at together
	single finding // bounds and opaque bytes of the chunks in buf, each taken by itself
}

// overlap is what two pieces of a long stream share for views.
const overlap = 64 << 10

// chunk fingerprints the next chunk of s. last says that it ends the stream, end
// that it ends the stream's part of its phase.
func (w *worker) chunk(s *stream, c *content, b []byte, last, end bool) (*finding, error) {
	only := contraband.Class(0)
	if declared(&c.row) {
		only = contraband.ClassCanary
	}
	set, emit := w.collector(only)
	f := new(finding)
	if s.whole == nil {
		s.whole = w.fp.Stream(false)
	}
	f.canonical = s.whole.Chunk(b, emit)
	if last {
		f.canonical += s.whole.End(emit)
	}
	w.fp.Object(b, false, emit)
	w.together(s, c.row.Phase, b, end, f, emit)
	if only == 0 && f.canonical >= least(false) && set.empty() {
		emit(contraband.ClassRaw, w.mac.Digest(contraband.ClassRaw, c.sum[:]))
	}
	return f, w.seal(f, set)
}

// together derives views of the chunk by itself and, at the end of the phase, of
// all its chunks. A chunk out of the middle of a compressed stream looks cut off
// or opaque; if the whole is one container, what the whole reports counts.
func (w *worker) together(s *stream, phase journal.Phase, b []byte, end bool, f *finding, emit canon.Emit) {
	if s.phase != phase {
		s.phase, s.buf, s.single = phase, s.buf[:0], finding{}
	}
	alone := len(s.buf) == 0
	r := views.Each(b, w.viewer(false, emit))
	s.single.bounds |= r.Bounds
	s.single.opaque = max(s.single.opaque, r.Opaque)
	s.buf = append(s.buf, b...)
	if !end && len(s.buf) < small {
		return
	}
	if !alone {
		r = views.Each(s.buf, w.viewer(false, emit))
	}
	if !r.Packed {
		r.Bounds |= s.single.bounds
		r.Opaque = max(r.Opaque, s.single.opaque)
	}
	f.look(r)
	s.single = finding{}
	if end {
		s.buf = nil
	} else {
		s.buf = append(s.buf[:0], s.buf[len(s.buf)-overlap:]...)
	}
}
