package redact

import "bytes"

// keep is how many bytes a Pass holds back: no match is longer, and each is seen
// with what follows it.
const keep = MaxBlock + 512

// context is how many bytes before a position decide whether a key begins there.
const context = 64

// A Pass removes secrets from one content that comes in pieces.
type Pass struct {
	r     *Redactor
	row   *int
	buf   []byte // context, then what was not given out yet, unchanged
	ready int    // bytes of context in buf
	cover int    // bytes after the context that an earlier match removes
	total Result
}

// Pass begins a content.
func (r *Redactor) Pass() *Pass {
	p := &Pass{r: r}
	if !r.Empty() {
		p.row = r.row()
	}
	return p
}

// Next takes the next piece and returns the next bytes of the result, which may
// be fewer or more. They are valid until the next call. After the last piece all
// bytes have been returned.
func (p *Pass) Next(b []byte, last bool) []byte {
	if p.row == nil {
		return b
	}
	p.buf = append(p.buf, b...)
	end := len(p.buf)
	if !last {
		end = max(p.ready, len(p.buf)-keep)
	}
	if end == p.ready {
		return nil
	}
	found := p.r.find(p.buf, p.ready == 0, false)
	out := bytes.Clone(p.buf[p.ready:end])
	cover := 0 // of what comes after out
	if p.cover > 0 {
		n := min(p.cover, len(out))
		p.total.add(p.r.apply(out, span{0, n, true}, p.row))
		cover = p.cover - n
	}
	for _, f := range found {
		if f.to <= p.ready+p.cover || f.from >= end || f.from < p.ready && !f.value {
			continue // given out, or seen again with the next piece
		}
		// A key is counted as a whole, where it begins.
		if n := f.to - f.from; !f.value && !p.r.take(p.row, n) {
			p.total.Over = true
			continue
		}
		p.total.add(p.r.apply(out, span{f.from - p.ready, f.to - p.ready, true}, p.row))
		cover = max(cover, f.to-end)
	}
	p.cover = cover
	from := max(0, end-context)
	p.buf = append(p.buf[:0], p.buf[from:]...)
	p.ready = end - from
	return out
}

// Result is what was removed so far.
func (p *Pass) Result() Result { return p.total }
