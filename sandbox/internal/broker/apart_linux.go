package broker

import (
	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// maxApart bounds the threads that wait for a peer.
const maxApart = 512

// apart does what may block on a thread of its own, so that the workers go on.
// e is the row as it stands if no peer ever comes. f does the waiting and
// returns what is to be done then, which is left out if the run has ended
// meanwhile: the call is void already.
func (w *worker) apart(c *call, e *record.Event, f func(t *worker) func()) {
	id := c.ID
	e.Proc = c.proc
	e.Detail.Syscall = c.name
	pending := *e
	w.mu.Lock()
	full := len(w.stuck) >= maxApart
	if !full {
		w.stuck[id] = &pending
	}
	w.mu.Unlock()
	if full {
		w.fail(c, e, unix.ENFILE)
		return
	}
	go func() {
		t, err := w.thread()
		if err != nil {
			w.fatal(err)
			return
		}
		then := f(t)
		w.mu.Lock()
		_, waiting := w.stuck[id]
		delete(w.stuck, id)
		w.late.Add(1)
		w.mu.Unlock()
		if waiting {
			then()
		}
		w.late.Done()
	}()
}

// settle makes the calls void that still wait for a peer when no caller is
// left.
func (b *Broker) settle() {
	b.mu.Lock()
	stuck := b.stuck
	b.stuck = map[uint64]*record.Event{}
	b.mu.Unlock()
	b.late.Wait()
	for len(stuck) > 0 {
		var next *record.Event
		var id uint64
		for i, e := range stuck {
			// Rows of one process differ by nothing but the number of the call.
			if next == nil || e.Proc < next.Proc || e.Proc == next.Proc && i < id {
				next, id = e, i
			}
		}
		delete(stuck, id)
		next.Result = unix.EINTR
		b.Void.Add(1)
		seq, err := b.Recorder.Add(next)
		if err == nil {
			err = b.Recorder.Void(next.Proc, seq)
		}
		if err != nil {
			b.fatal(err)
		}
	}
}
