package reward

import (
	"bytes"
	"math"
	"sync"
)

// An Output keeps the end of a grader's output. What was written before the
// grader's process ended is told from what others wrote afterwards. The zero value
// is ready.
type Output struct {
	mu    sync.Mutex
	n     uint64 // bytes so far
	mark  uint64 // bytes when the process ended, 0: not known yet
	set   bool
	tail  []byte // the last ones before mark
	after bool   // something that is not blank came after it
}

// Write takes the next bytes.
func (o *Output) Write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	mark := uint64(math.MaxUint64)
	if o.set {
		mark = o.mark
	}
	before := b
	if o.n+uint64(len(b)) > mark {
		before = b[:max(mark, o.n)-o.n]
	}
	o.n += uint64(len(b))
	o.after = o.after || len(bytes.TrimSpace(b[len(before):])) > 0
	o.tail = append(o.tail, before...)
	if cut := len(o.tail) - MaxFile; cut > 0 {
		o.tail = append(o.tail[:0], o.tail[cut:]...)
	}
}

// Mark says that the process has written n bytes by its end. A later call replaces
// an earlier one.
func (o *Output) Mark(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mark, o.set = n, true
}

// Last is the last line before the mark that is not blank, and whether anything
// but blanks came after the mark. A line that is longer than what is kept is none.
func (o *Output) Last() (line string, changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := bytes.TrimRight(o.tail, " \t\r\n\v\f")
	i := bytes.LastIndexByte(text, '\n')
	if i < 0 && o.n > uint64(len(o.tail)) && len(o.tail) >= MaxFile {
		return "", o.after
	}
	return string(text[i+1:]), o.after
}
