package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress is one line on a terminal that says how far a long job is. Off a
// terminal it is silent.
type Progress struct {
	w     io.Writer
	label string
	on    bool

	mu    sync.Mutex
	start time.Time
	last  time.Time
	width int
}

// NewProgress starts a line on w. It appears only after half a second: short
// work stays silent.
func NewProgress(w io.Writer, label string) *Progress {
	return &Progress{w: w, label: label, on: Terminal(w), start: time.Now()}
}

// Update shows done of total; a total of 0 is unknown.
func (p *Progress) Update(done, total uint64, unit string) {
	if p == nil || !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.start) < 500*time.Millisecond || now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last = now
	s := fmt.Sprintf("%s  %d %s", p.label, done, unit)
	if total > 0 {
		s = fmt.Sprintf("%s  %d of %d %s, %d%%", p.label, done, total, unit, done*100/total)
		if done > 0 && done < total {
			left := time.Duration(float64(now.Sub(p.start)) * float64(total-done) / float64(done))
			s += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	pad := max(0, p.width-len(s))
	p.width = len(s)
	fmt.Fprintf(p.w, "\r%s%s", s, strings.Repeat(" ", pad))
}

// Done clears the line.
func (p *Progress) Done() {
	if p == nil || !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
	}
	p.on = false
}
