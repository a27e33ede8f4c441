package reward

import (
	"bytes"
	"sync"
)

// An Output keeps the end of a grader's output. What was written before the
// grader's process ended is told from what others wrote afterwards. The zero value
// is ready.
type Output struct {
	mu   sync.Mutex
	n    uint64 // bytes so far
	mark uint64 // of these, when the process ended
	set  bool   // mark is known
	tail []byte // the last bytes before mark
	rest []byte // the first bytes after mark
	over bool   // rest is not all
}

// Write takes the next bytes.
func (o *Output) Write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += uint64(len(b))
	o.rest = append(o.rest, b...)
	if !o.set {
		o.advance(len(o.rest))
	}
	o.split()
	if len(o.rest) > MaxFile {
		o.rest, o.over = o.rest[:MaxFile], true
	}
}

// Mark says that the process has written n bytes by its end. A later call replaces
// an earlier one.
func (o *Output) Mark(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mark, o.set = n, true
	o.split()
}

// Unmark says that the process goes on: what ended was a thread.
func (o *Output) Unmark() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set = false
	if !o.over {
		o.advance(len(o.rest))
	}
}

// split moves what lies before the mark out of rest.
func (o *Output) split() {
	if start := o.n - uint64(len(o.rest)); o.set && !o.over && o.mark > start {
		o.advance(int(min(o.mark-start, uint64(len(o.rest)))))
	}
}

// advance moves n bytes from rest to tail.
func (o *Output) advance(n int) {
	o.tail = append(o.tail, o.rest[:n]...)
	o.rest = append(o.rest[:0], o.rest[n:]...)
	if cut := len(o.tail) - MaxFile; cut > 0 {
		o.tail = append(o.tail[:0], o.tail[cut:]...)
	}
}

// Last is the last line before the mark that is not blank, and whether anything
// but blanks came after the mark. A line that is longer than what is kept is none.
func (o *Output) Last() (line string, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed = o.over || len(bytes.TrimSpace(o.rest)) > 0
	text := bytes.TrimRight(o.tail, " \t\r\n\v\f")
	i := bytes.LastIndexByte(text, '\n')
	if i < 0 && len(o.tail) >= MaxFile {
		return "", changed
	}
	return string(text[i+1:]), changed
}
