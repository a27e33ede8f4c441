package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// States of closing. They only go up.
const (
	running     = iota
	closing     // nothing of the run is left: its files are dated and compared
	sealing     // the final row is written
	interrupted // in place of sealing: the process ends
)

// interrupt ends this process if it is closing, which can take as long as it takes
// to read all that the run wrote. The journal then stays open. Once the final row
// is being written it does nothing.
func (r *recording) interrupt() {
	if r.closing.CompareAndSwap(closing, interrupted) {
		report(errors.New("stopped while the recording was being closed: the journal stays open"))
		os.Exit(OwnFailure)
	}
}

// seal keeps interrupt from ending the process once the final row may be on the
// disk.
func (r *recording) seal() {
	if !r.closing.CompareAndSwap(closing, sealing) {
		select {} // interrupted
	}
}

// finish waits until nothing of the run is left and closes the journal.
func (r *recording) finish(failure error) error {
	began := time.Now()
	r.closing.CompareAndSwap(running, closing)
	if err := r.ground.end(); err != nil {
		r.giveUp(err)
	}
	_ = unix.Shutdown(r.link, unix.SHUT_RDWR) // whoever is left has no more to say
	for range r.words {
	}
	f, note := r.final()
	r.seal()
	synced := make(chan error, 1)
	go func() { synced <- r.store.Sync() }()
	note, _ = r.remove.String(note, false)
	limits, args := r.Limits.names(r.Cgroup)
	head, err := r.journal.Final(f, &journal.Detail{Note: note, Args: args})
	err = errors.Join(err, <-synced)
	if failure == nil {
		failure = r.reason
	}
	if failure == nil {
		failure = err
	}
	if err := r.setAside(); failure == nil {
		failure = err
	}
	if failure != nil {
		return failure
	}
	r.cost.Close += time.Since(began)
	if r.broker != nil {
		r.cost.Answer = time.Duration(r.broker.Busy.Load())
	}
	res := &Result{
		Code: int(f.Code), Outcome: f.Outcome, Rows: head.Size, Root: head.Root, Skipped: r.Skipped, Phases: r.ends, Rewards: r.rewards,
		Cost: r.cost, Backend: r.Start.Backend, Limits: append(limits, r.met...),
	}
	res.KeysLeft = r.rec.KeysLeft()
	for _, g := range r.rec.Guards() {
		res.Guards = append(res.Guards, GuardHit{g.Path, g.Guard})
	}
	if sum := r.journal.Summary(); sum.Final != nil {
		res.Final = *sum.Final
	}
	send(message{Result: res})
	return nil
}

// final collects what the closing row binds. Whatever does not add up makes the
// run abandoned, with the reason.
func (r *recording) final() (journal.Final, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := journal.Final{Outcome: journal.Abandoned}
	if b := r.broker; b != nil {
		f.Received, f.Answered, f.Void = b.Received.Load(), b.Answered.Load(), b.Void.Load()
		if r.reason == nil && f.Received != f.Answered+f.Void {
			r.reason = fmt.Errorf("%d notifications received, %d answered, %d void", f.Received, f.Answered, f.Void)
		}
	}
	if n := r.rec.Alive(); r.reason == nil && n != 0 {
		r.reason = fmt.Errorf("%d processes without an end", n)
	}
	if r.reason == nil {
		r.reason = r.rec.DateAll()
	}
	if r.reason == nil {
		r.reason = r.rec.CheckInputs()
	}
	if r.reason == nil {
		r.reason = r.checkPlanted()
	}
	if r.reason == nil {
		f.Delta, r.reason = r.delta()
	}
	switch {
	case r.reason != nil:
		return f, r.reason.Error()
	case r.cancel.Load() && !r.exited:
		f.Outcome, f.Code = journal.Cancelled, 128+uint32(unix.SIGKILL)
		return f, stopped
	case !r.exited:
		r.reason = errors.New("pid 1 ended without telling how the program ended")
		return f, r.reason.Error()
	}
	f.Code = r.code
	if r.cancel.Load() {
		f.Outcome = journal.Cancelled
		return f, stopped
	}
	f.Outcome = journal.Completed
	if f.Code != 0 {
		f.Outcome = journal.Failed
	}
	return f, ""
}

// stopped is the note of a cancelled run's final row.
const stopped = "stopped by the user"

func (r *recording) differences() ([]overlay.Change, error) {
	if r.Plain != nil {
		return r.plainDelta()
	}
	return overlay.Changes(r.tree.Upper, r.tree.Lower)
}

// delta compares the upper layer with the journaled writes.
func (r *recording) delta() (journal.DeltaResult, error) {
	changes, err := r.differences()
	if err != nil {
		return journal.DeltaResult{}, err
	}
	var d journal.DeltaResult
	for _, c := range changes {
		d.Changed++
		if !r.rec.Explained(path.Join(r.Workspace, c.Path)) {
			d.Unexplained++
		}
	}
	return d, nil
}

// hidden tells whether a path that is absent inside names something outside,
// below one of the hints.
func (r *recording) hidden(p string) bool {
	if within(p, r.RunDir) {
		return false
	}
	for _, h := range r.Hints {
		if !within(p, h) {
			continue
		}
		fd, err := unix.Openat2(r.tree.Outer, p, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err == nil {
			unix.Close(fd)
			return true
		}
		return false
	}
	return false
}

func (r *recording) reportProgress() (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		var last uint64
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := r.rec.Rows(); n != last {
				last = n
				send(message{Rows: n, Phase: r.rec.Phase()})
			}
		}
	})
	return func() { close(done); group.Wait() }
}
