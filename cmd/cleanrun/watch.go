package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/eval"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
)

var watchOnce bool

var watchCommand = &cli.Command{
	Name:  "watch",
	Args:  "DIR",
	Short: "look at an eval or a run while it goes on",
	Long: `Shows how far an eval is and what its attempts do, or the phase, the number of events, their rate and the last one of a run folder. On a
terminal the view changes in place, else a line is printed when something changed. It ends with the eval or the run; of one that has
ended it says how. Watching changes nothing and takes no lock.`,
	JSON:  true,
	Flags: func(f *cli.Flags) { f.Bool(&watchOnce, "once", "say it once and end") },
	Run: func(e *cli.Env, args []string) error {
		dir, err := oneArg(args, "the folder of an eval or a run")
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		w, err := newWatcher(dir)
		if err != nil {
			return err
		}
		defer w.close()
		return watch(ctx, e, w, watchOnce || e.JSON)
	},
}

// A view is one look: lines for people, an object for -json.
type view struct {
	lines  []string
	object any
	ended  bool // nothing changes any more
}

type watcher interface {
	look() (view, error)
	close()
}

func newWatcher(dir string) (watcher, error) {
	if _, err := os.Lstat(filepath.Join(dir, eval.PlanFile)); err == nil {
		return &evalWatcher{dir: dir, runs: map[eval.Cell]*follower{}}, nil
	}
	f, err := follow(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.Failf(cli.ExitUsage, "", "%s: neither %s nor a journal in this folder; want one that cleanrun eval -o or cleanrun run -o wrote", dir, eval.PlanFile)
	}
	if err != nil {
		return nil, err
	}
	return &runWatcher{f}, nil
}

// watch shows views until the last.
func watch(ctx context.Context, e *cli.Env, w watcher, once bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := cli.Terminal(e.Stdout)
	shown := 0
	var last []string
	for {
		v, err := w.look()
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(v.object)
		}
		lines := make([]string, len(v.lines))
		for i, l := range v.lines {
			lines[i] = printable(l)
		}
		switch {
		case live:
			// Over the lines before: up, and each cleared to its end.
			if shown > 0 {
				fmt.Fprintf(e.Stdout, "\x1b[%dA\x1b[J", shown)
			}
			for _, l := range lines {
				fmt.Fprintln(e.Stdout, cutLine(l, e.Stdout))
			}
			shown = len(lines)
		case !slices.Equal(lines, last):
			if _, err := io.WriteString(e.Stdout, strings.Join(lines, "\n")+"\n"); err != nil {
				return err
			}
		}
		last = lines
		if v.ended || once {
			return nil
		}
		select {
		case <-ctx.Done():
			return cli.Exit(exitInterrupted)
		case <-tick.C:
		}
	}
}

// cutLine keeps a line from wrapping: the view is drawn again by counting lines.
func cutLine(s string, w io.Writer) string {
	if width := cli.Columns(w); width > 1 && len([]rune(s)) >= width {
		return string([]rune(s)[:width-1])
	}
	return s
}

// printable replaces what a terminal could act on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

type runWatcher struct{ f *follower }

func (w *runWatcher) close() { w.f.close() }

func (w *runWatcher) look() (view, error) {
	if _, err := w.f.poll(); err != nil {
		return view{}, err
	}
	v := view{object: w.f.state(), lines: []string{w.f.says()}, ended: w.f.final != nil}
	if !v.ended {
		on, known := w.f.running()
		v.ended = known && !on
		if v.ended { // what was written between the look and the end
			if _, err := w.f.poll(); err != nil {
				return view{}, err
			}
			v.lines, v.object = []string{w.f.says()}, w.f.state()
		}
	}
	return v, nil
}

type evalWatcher struct {
	dir  string
	runs map[eval.Cell]*follower
}

func (w *evalWatcher) close() {
	for _, f := range w.runs {
		f.close()
	}
}

func (w *evalWatcher) look() (view, error) {
	on, err := eval.Running(w.dir) // before the results: so that none is missed
	if err != nil {
		return view{}, err
	}
	s, err := eval.Read(w.dir)
	if err != nil {
		return view{}, err
	}
	loose, err := s.Loose()
	if err != nil {
		return view{}, err
	}
	type running struct {
		eval.Cell
		State followed `json:"state"`
	}
	object := struct {
		Running bool        `json:"running"`
		Table   *eval.Table `json:"table"`
		Now     []running   `json:"now"`
	}{on, eval.Tabulate(s, eval.DefaultRetries), []running{}}
	v := view{lines: []string{evalLine(s)}, ended: !on}
	for _, c := range loose {
		f := w.runs[c]
		if f == nil {
			if f, err = follow(filepath.Join(w.dir, c.RunDir())); err != nil {
				continue // it has only just begun
			}
			w.runs[c] = f
		}
		if _, err := f.poll(); err != nil {
			return view{}, err
		}
		v.lines = append(v.lines, fmt.Sprintf(" %v  %s", c, f.says()))
		object.Now = append(object.Now, running{c, f.state()})
	}
	for c, f := range w.runs {
		if !slices.Contains(loose, c) {
			f.close()
			delete(w.runs, c)
		}
	}
	v.object = object
	return v, nil
}

// A follower reads a journal that grows.
type follower struct {
	dir   string
	f     *os.File
	at    int64 // bytes of whole rows
	rows  uint64
	last  journal.Row
	start *journal.Start
	final *journal.Final
	rate  float64 // rows a second between the last two looks, -1 after the first
	seen  time.Time
}

// recordFrame is the length that stands before each row (spec/journal.md).
const recordFrame = 4

func follow(dir string) (*follower, error) {
	f, err := regular.At(filepath.Join(dir, journal.RowsFile), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &follower{dir: dir, f: f, rate: -1}, nil
}

func (f *follower) close() { f.f.Close() }

// poll reads what is new. A row that is not whole yet is read the next time.
func (f *follower) poll() (n uint64, err error) {
	for line, err := range journal.Rows(io.NewSectionReader(f.f, f.at, 1<<62)) {
		var rule *journal.RuleError
		if errors.As(err, &rule) && rule.Rule == journal.RuleFrame {
			break
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", f.dir, err)
		}
		f.at += recordFrame + int64(len(line.Raw))
		f.rows++
		n++
		f.last = line.Row
		if line.Row.Start != nil {
			f.start = line.Row.Start
		}
		if line.Row.Final != nil {
			f.final = line.Row.Final
		}
	}
	now := time.Now()
	if d := now.Sub(f.seen); !f.seen.IsZero() && d > 0 {
		f.rate = float64(n) / d.Seconds()
	}
	f.seen = now
	return n, nil
}

// running tells whether somebody holds the journal; known is false if that cannot
// be told here.
func (f *follower) running() (on, known bool) { return heldLock(f.f) }

// followed is the state of one journal.
type followed struct {
	Task    string `json:"task"`
	Trial   uint32 `json:"trial"`
	Attempt uint32 `json:"attempt"`
	Phase   string `json:"phase"`
	Events  uint64 `json:"events"`
	Last    string `json:"last"` // operation of the last event
	Nanos   uint64 `json:"ns"`   // of it, since the start
	Closed  bool   `json:"closed"`
	Outcome string `json:"outcome"` // "" while the journal is open
	Code    uint32 `json:"code"`
}

func (f *follower) state() followed {
	s := followed{Phase: f.last.Phase.String(), Events: f.rows, Nanos: f.last.Time}
	if f.rows > 0 {
		s.Last = f.last.Op.String()
	}
	if f.start != nil {
		s.Task, s.Trial, s.Attempt = f.start.Task, f.start.Trial, f.start.Attempt
	}
	if f.final != nil {
		s.Closed, s.Outcome, s.Code = true, f.final.Outcome.String(), f.final.Code
	}
	return s
}

func (f *follower) says() string {
	var s string
	if f.start != nil && f.start.Task != "" {
		s = fmt.Sprintf("%s/%s t%d-a%d, ", f.start.Benchmark, f.start.Task, f.start.Trial, f.start.Attempt)
	}
	s += fmt.Sprintf("%s in %.1f s", several(f.rows, "event", "events"), float64(f.last.Time)/1e9)
	switch {
	case f.final != nil:
		return s + fmt.Sprintf(", %s, exit code %d", f.final.Outcome, f.final.Code)
	case f.rows == 0:
		return s + ", not begun"
	}
	if on, known := f.running(); known && !on {
		return s + ", killed: the journal is open"
	}
	s += fmt.Sprintf(", phase %s, last %s", f.last.Phase, f.last.Op)
	if f.rate >= 0 {
		s += fmt.Sprintf(", %.0f a second", f.rate)
	}
	return s
}
