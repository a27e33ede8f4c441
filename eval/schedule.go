package eval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config of one run of the scheduler.
type Config struct {
	Jobs    int    // attempts at a time
	Retries uint32 // further attempts of a trial after infrastructure failures

	// Attempt makes one attempt and says how it ended. It returns an error if
	// nothing was recorded: then the attempt's number is free. If ctx is canceled
	// it kills the attempt.
	Attempt func(ctx context.Context, c Cell) (Result, error)

	Event func(Event) // nil for none; called by one goroutine at a time
}

// An Event is a change during a run of the scheduler.
type Event struct {
	Started *Cell   // an attempt began
	Ended   *Result // an attempt ended and is on record
	Again   bool    // Ended calls for another attempt, which follows
	Failed  error   // an attempt could not be made, of Cell
	Cell    Cell
}

// A Summary is what one run of the scheduler did.
type Summary struct {
	Made   int // attempts on record
	Errors int // attempts that could not be made
	Wall   time.Duration
}

// ErrHopeless says that one attempt after the other could not be made.
var ErrHopeless = errors.New("no attempt could be made")

// hopeless is after how many failures in a row, with no attempt made, the rest is
// not tried.
const hopeless = 3

// Run makes all attempts that are due, trial by trial, Jobs at a time. It goes on
// after a failed attempt. The error is ctx's, ErrHopeless with the last cause, or
// that of a folder that cannot be written.
func Run(ctx context.Context, d *Dir, c Config) (Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{Config: c, d: d, cancel: cancel, begin: time.Now()}
	s := d.Snapshot()
	had := map[Cell][]Result{} // by trial; Attempt is 0
	for _, a := range s.Results {
		k := Cell{Task: a.Task, Trial: a.Trial}
		had[k] = append(had[k], a)
	}
	for trial := uint32(1); trial <= s.Plan.Trials; trial++ {
		for _, task := range s.Plan.Tasks {
			k := Cell{Task: task, Trial: trial}
			if n := Due(had[k], c.Retries); n > 0 {
				r.queue = append(r.queue, job{Cell{task, trial, n}, had[k]})
			}
		}
	}
	var group sync.WaitGroup
	for range max(1, min(c.Jobs, len(r.queue))) {
		group.Go(func() {
			for {
				j, ok := r.next(ctx)
				if !ok {
					return
				}
				r.do(ctx, j)
			}
		})
	}
	group.Wait()
	r.sum.Wall = time.Since(r.begin)
	return r.sum, context.Cause(ctx)
}

type job struct {
	Cell
	before []Result // attempts of the same trial
}

type runner struct {
	Config
	d      *Dir
	cancel context.CancelCauseFunc
	begin  time.Time

	mu    sync.Mutex
	queue []job
	sum   Summary
}

func (r *runner) next(ctx context.Context) (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || ctx.Err() != nil {
		return job{}, false
	}
	j := r.queue[0]
	r.queue = r.queue[1:]
	r.event(Event{Started: &j.Cell, Cell: j.Cell})
	return j, true
}

func (r *runner) event(e Event) {
	if r.Event != nil {
		r.Event(e)
	}
}

// do makes one attempt, and those that follow from it.
func (r *runner) do(ctx context.Context, j job) {
	for {
		res, err := r.Attempt(ctx, j.Cell)
		if err == nil {
			err = r.keep(&res, j.Cell)
		}
		if err != nil {
			r.failed(ctx, j.Cell, err)
			return
		}
		j.before = append(j.before, res)
		n := Due(j.before, r.Retries)
		r.mu.Lock()
		r.sum.Made++
		r.event(Event{Ended: &res, Cell: j.Cell, Again: n > 0})
		if n == 0 || ctx.Err() != nil {
			r.mu.Unlock()
			return
		}
		j.Attempt = n
		r.event(Event{Started: &j.Cell, Cell: j.Cell})
		r.mu.Unlock()
	}
}

// keep puts a result on record. A folder that cannot be written ends all: what is
// not on record would be made again.
func (r *runner) keep(res *Result, c Cell) error {
	if res.Cell != c {
		err := fmt.Errorf("got a result of %v, want one of %v", res.Cell, c)
		r.cancel(err)
		return err
	}
	if err := r.d.Append(*res); err != nil {
		r.cancel(err)
		return err
	}
	return nil
}

func (r *runner) failed(ctx context.Context, c Cell, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return // stopped before anything was recorded
	}
	r.sum.Errors++
	r.event(Event{Failed: err, Cell: c})
	if r.sum.Made == 0 && r.sum.Errors >= hopeless {
		r.cancel(fmt.Errorf("%w, %d of %d failed: %w", ErrHopeless, r.sum.Errors, r.sum.Errors, err))
	}
}
