package redact

import "bytes"

// leastPart is the length from which the beginning of a value is removed at the
// end of a chunk, before the rest is known.
const leastPart = 4

// A Stream removes secrets from the chunks of one stream. A chunk must be stored
// before the next is known, so what may become a secret is removed at once: at the
// end of a chunk the first bytes of a value (four or more), and of a key whose
// prefix is there. Of a value that is written in pieces at most three bytes
// remain; of a match of a pattern what stood in earlier chunks.
type Stream struct {
	r    *Redactor
	past []byte // the end of the earlier chunks, unchanged
	cut  bool   // past is not all of them
}

// Stream begins a stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Chunk returns the chunk to store: b itself, or a copy if something was removed.
func (s *Stream) Chunk(b []byte) ([]byte, Result) {
	var res Result
	if s.r.Empty() || len(b) == 0 {
		return b, res
	}
	row := s.r.row()
	all := append(s.past, b...)
	start := len(s.past)
	found := s.r.find(all, !s.cut, true)
	for _, v := range s.r.values {
		if n := part(all, v); n >= leastPart {
			found = append(found, span{len(all) - n, len(all), true})
		}
	}
	out := b
	for _, f := range found {
		if f.to <= start {
			continue
		}
		if len(out) > 0 && &out[0] == &b[0] {
			out = bytes.Clone(b)
		}
		res.add(s.r.apply(out, span{f.from - start, f.to - start, f.value}, row))
	}
	if res.Bytes == 0 {
		out = b
	}
	if from := len(all) - keep; from > 0 {
		s.past, s.cut = append(s.past[:0], all[from:]...), true
	} else {
		s.past = all
	}
	return out, res
}

// part is the length of the longest proper beginning of v that ends b.
func part(b, v []byte) int {
	for n := min(len(v)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, v[:n]) {
			return n
		}
	}
	return 0
}
