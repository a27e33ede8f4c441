package runlog

import (
	"context"
	"errors"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// Times of the CHECKPOINTs of a run. Tests shorten them.
var (
	askFor    = 2 * time.Minute // one request
	pauseMin  = time.Second     // after a failure, doubled up to pauseMax
	pauseMax  = 15 * time.Second
	slowEvery = 30 * time.Second // between CHECKPOINTs after the first slowAfter
)

// slowAfter bounds how many CHECKPOINTs a run logs as fast as it can: a bundle has
// room for MaxCheckpoints.
const slowAfter = 1000

// again calls try until it does not fail for an unavailable log, or patience is over.
func again(ctx context.Context, patience time.Duration, try func(context.Context) error) error {
	end := time.Now().Add(patience)
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		once, cancel := context.WithTimeout(ctx, askFor)
		err := try(once)
		cancel()
		if err == nil || !errors.Is(err, registry.ErrUnavailable) || time.Until(end) <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(pause, max(time.Until(end), 0))):
		}
	}
}

// Head takes the newest head of the journal: sandbox.Config.Head. It does not wait.
// Heads of a run that was not registered are dropped.
func (r *Run) Head(h journal.Head) {
	r.mu.Lock()
	r.next = &h
	r.mu.Unlock()
	r.nudge()
}

func (r *Run) nudge() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// stream logs a CHECKPOINT of the newest head, one at a time, until Stop.
func (r *Run) stream(ctx context.Context) {
	pause := pauseMin
	var last time.Time
	for {
		select {
		case <-r.stopping:
			return
		case <-r.wake:
		}
		done := r.acknowledged()
		if done >= MaxCheckpoints {
			continue
		}
		if done >= slowAfter && !r.sleep(slowEvery-time.Since(last)) {
			return
		}
		h := r.take()
		if h == nil {
			continue
		}
		last = time.Now()
		err := r.checkpoint(ctx, *h)
		if err == nil {
			pause = pauseMin
			continue
		}
		r.missing(*h, err)
		if !errors.Is(err, registry.ErrUnavailable) || !r.sleep(pause) {
			return // refused, which it would be again; or stopped
		}
		pause = min(2*pause, pauseMax)
		r.nudge()
	}
}

func (r *Run) acknowledged() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.state.Checkpoints)
}

// take returns the newest head that was not tried, nil if there is none.
func (r *Run) take() *journal.Head {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.next
	r.next = nil
	return h
}

// missing remembers a failure. The head is tried again unless there is a newer one.
func (r *Run) missing(h journal.Head, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.missed = err, r.missed+1
	if r.next == nil {
		r.next = &h
	}
}

// sleep returns false if Stop came before.
func (r *Run) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.stopping:
		return false
	case <-t.C:
		return true
	}
}

func (r *Run) checkpoint(ctx context.Context, h journal.Head) error {
	statement, err := entry.SignCheckpoint(r.c.Signer, h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	logged, err := r.c.Registry.Add(ctx, statement)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Checkpoints = append(r.state.Checkpoints, Item{Statement: statement, Index: &logged.Index})
	return r.state.write(r.c.Dir)
}

// Stop ends the CHECKPOINTs: the run has ended. A request that is under way goes on
// until ctx ends. It returns how many were logged, how often that failed, and the last reason.
func (r *Run) Stop(ctx context.Context) (logged, failed int, why error) {
	close(r.stopping)
	if r.cancel != nil {
		free := context.AfterFunc(ctx, r.cancel)
		r.worker.Wait()
		free()
		r.cancel()
	}
	return len(r.state.Checkpoints), r.missed, r.failed
}
