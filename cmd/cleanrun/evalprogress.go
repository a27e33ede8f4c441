package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// evalProgress tells how far an eval is: one line that changes on a terminal, else
// one line for each attempt that ended.
type evalProgress struct {
	hinted bool // where the words of a failed agent are
	e      *cli.Env
	line   *cli.Progress
	d      *eval.Dir
	v      evalOptions

	mu      sync.Mutex
	running map[eval.Cell]bool
	total   int
	ended   int // trials
	walls   []time.Duration
	states  map[string]int
	stop    chan struct{}
	group   sync.WaitGroup
	once    sync.Once
}

func newEvalProgress(e *cli.Env, d *eval.Dir, v evalOptions) *evalProgress {
	p := &evalProgress{e: e, line: cli.NewProgress(e.Stderr, "eval"), d: d, v: v, running: map[eval.Cell]bool{}, states: map[string]int{},
		total: int(d.Plan.Cells()), stop: make(chan struct{})}
	if cli.Terminal(e.Stderr) {
		p.group.Go(p.tick)
	}
	return p
}

// tick shows the line also while nothing ends.
func (p *evalProgress) tick() {
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			p.mu.Lock()
			if p.total > 0 && p.ended+len(p.running) > 0 {
				p.line.Show(p.text())
			}
			p.mu.Unlock()
		}
	}
}

func (p *evalProgress) text() string {
	s := fmt.Sprintf("%d of %d trials", p.ended, p.total)
	for _, state := range []string{"CLEAN", "DIRTY", "INCONCLUSIVE", eval.Unattested} {
		if n := p.states[state]; n > 0 {
			s += fmt.Sprintf(", %d %s", n, state)
		}
	}
	if left := eval.Left(p.walls, p.total-p.ended, int(p.v.jobs)); left > 0 {
		s += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	var names []string
	for _, c := range slices.SortedFunc(maps.Keys(p.running), func(a, b eval.Cell) int { return strings.Compare(a.String(), b.String()) }) {
		names = append(names, c.String())
	}
	if len(names) > 2 {
		names = append(names[:2], fmt.Sprintf("%d more", len(names)-2))
	}
	if len(names) > 0 {
		s += "; running " + strings.Join(names, ", ")
	}
	return s
}

// begin counts what is there already.
func (p *evalProgress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := eval.Tabulate(p.d.Snapshot(), p.v.retries)
	maps.Copy(p.states, t.States)
	p.ended = len(t.Trials) - t.States[eval.Missing]
}

func (p *evalProgress) recovering(done, total int) {
	p.line.Update(uint64(done), uint64(total), "earlier attempts")
}

func (p *evalProgress) event(ev eval.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ev.Started != nil:
		p.running[ev.Cell] = true
	case ev.Failed != nil:
		delete(p.running, ev.Cell)
		p.print("%v: not run: %v", ev.Cell, ev.Failed)
	case ev.Ended != nil:
		r := *ev.Ended
		delete(p.running, ev.Cell)
		if r.Wall > 0 {
			p.walls = append(p.walls, time.Duration(r.Wall))
		}
		if !ev.Again {
			p.ended++
			p.states[state(r)]++
		}
		if !cli.Terminal(p.e.Stderr) {
			p.print("%d of %d  %v  %s", p.ended, p.total, ev.Cell, resultLine(r))
		} else if r.Note != "" {
			p.print("%v: %s", ev.Cell, r.Note)
		}
		if r.Outcome == eval.Failed && !p.hinted {
			p.hinted = true
			p.print("what the agent said: cleanrun inspect -stderr %s", p.d.Path(ev.Cell.RunDir()))
		}
	}
}

func state(r eval.Result) string {
	if r.Verdict == "" {
		return eval.Unattested
	}
	return r.Verdict
}

// resultLine says in one line how an attempt ended.
func resultLine(r eval.Result) string {
	s := r.Verdict
	if s == "" {
		s = r.Outcome
	}
	if len(r.Reasons) > 0 {
		s += " [" + strings.Join(r.Reasons, " ") + "]"
	}
	if r.Score != nil {
		s += fmt.Sprintf("  %s %s", r.Score.Value, r.Score.Source)
	}
	if r.Wall > 0 {
		s += fmt.Sprintf("  %.1f s", time.Duration(r.Wall).Seconds())
	}
	if r.Outcome == eval.Failed {
		s += fmt.Sprintf("  exit code %d", r.Code)
	}
	if r.Retry != "" {
		s += "  the machinery failed: " + r.Retry
	}
	if r.Note != "" {
		s += "  (" + r.Note + ")"
	}
	return s
}

func (p *evalProgress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(format, args...)
}

func (p *evalProgress) print(format string, args ...any) {
	p.line.Clear()
	fmt.Fprintf(p.e.Stderr, "cleanrun: "+format+"\n", args...)
}

func (p *evalProgress) done() {
	p.once.Do(func() {
		close(p.stop)
		p.group.Wait()
		p.line.Done()
	})
}
