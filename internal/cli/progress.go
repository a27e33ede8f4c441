package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
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
	p.put(s)
}

// Show shows a text of the caller's in place of a count.
func (p *Progress) Show(text string) {
	if p == nil || !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.start) >= 500*time.Millisecond && now.Sub(p.last) >= 100*time.Millisecond {
		p.last = now
		p.put(p.label + "  " + text)
	}
}

// Clear takes the line away until the next Update, so that another line can be
// written.
func (p *Progress) Clear() {
	if p == nil || !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put("")
	fmt.Fprint(p.w, "\r")
}

// put writes the line over the one before, cut to the terminal's width: a longer
// one would scroll.
func (p *Progress) put(s string) {
	if width := Columns(p.w); width > 0 && len(s) >= width {
		s = strings.ToValidUTF8(s[:width-1], "")
	}
	pad := max(0, p.width-len(s))
	p.width = len(s)
	fmt.Fprintf(p.w, "\r%s%s", s, strings.Repeat(" ", pad))
}

// Columns is the width of a terminal, 0 if it is not known.
func Columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
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
