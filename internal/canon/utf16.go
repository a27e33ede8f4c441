package canon

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// wide reads content that begins with a UTF-16 byte order mark a second time,
// as UTF-16. The first reading, as UTF-8, goes on beside it: else two bytes in
// front would hide a file. It adds no canonical bytes to the count.
type wide struct {
	s     *Stream
	order binary.ByteOrder
	odd   []byte // an incomplete unit or pair
}

// widen starts and feeds the second reading.
func (s *Stream) widen(p []byte, emit Emit) {
	if !s.begun {
		// A mark that is cut by a chunk border is put together in odd.
		if s.wide == nil && len(p) > 0 && (p[0] == 0xff || p[0] == 0xfe) {
			s.wide = &wide{}
		}
		s.begun = len(p) > 0
	}
	if s.wide == nil {
		return
	}
	w := s.wide
	if w.order == nil {
		w.odd = append(w.odd, p...)
		if len(w.odd) < 2 {
			return
		}
		switch [2]byte(w.odd) {
		case [2]byte{0xff, 0xfe}:
			w.order = binary.LittleEndian
		case [2]byte{0xfe, 0xff}:
			w.order = binary.BigEndian
		default:
			s.wide = nil
			return
		}
		w.s = s.f.newStream(s.text, s.canonSum != nil)
		w.s.rawSum = nil // the raw object is one
		w.s.begun = true
		p, w.odd = w.odd[2:], nil
	}
	w.feed(p, emit)
}

func (w *wide) feed(p []byte, emit Emit) {
	if len(w.odd) > 0 {
		p = append(w.odd, p...)
	}
	out := make([]byte, 0, 2*blockSize)
	i := 0
	for ; i+2 <= len(p); i += 2 {
		r := rune(w.order.Uint16(p[i:]))
		if utf16.IsSurrogate(r) {
			if i+4 > len(p) {
				break
			}
			if r = utf16.DecodeRune(r, rune(w.order.Uint16(p[i+2:]))); r != utf8.RuneError {
				i += 2
			}
		}
		if out = utf8.AppendRune(out, r); len(out) >= blockSize {
			w.s.Chunk(out, emit)
			out = out[:0]
		}
	}
	w.odd = append([]byte(nil), p[i:]...)
	w.s.Chunk(out, emit)
}

// end ends the second reading; an incomplete unit is no letter.
func (w *wide) end(emit Emit) {
	if w.s != nil {
		w.s.End(emit)
	}
}
