package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// registered is the launcher's answer to a broker that asks to be registered.
type registered struct {
	Registration, Freshness *[]byte
	Failed                  bool // the launcher knows why
}

// maxAnswer bounds that answer as a packet: two values of 16 KiB in base64.
const maxAnswer = 1 << 16

// register asks the launcher, which alone has a network, and waits. A signal that
// would end the run ends the wait.
func (r *recording) register() error {
	send(message{Register: true})
	buf := make([]byte, maxAnswer)
	for {
		n, err := unix.Read(linkFD, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("the launcher is gone (%v)", err)
		}
		if n == 1 { // a signal, see forwardSignals
			if s := syscall.Signal(buf[0]); s == unix.SIGWINCH {
				continue
			}
			return errors.New("stopped before it was registered: nothing ran")
		}
		var a registered
		if err := json.Unmarshal(buf[:n], &a); err != nil {
			return fmt.Errorf("the launcher's answer: %w", err)
		}
		if a.Failed {
			return errors.New("it was not registered: nothing ran")
		}
		r.Start.Registration, r.Start.Freshness = a.Registration, a.Freshness
		return journal.CheckStart(&r.Start)
	}
}

// A registrar answers the broker for Config.Register.
type registrar struct {
	register func(context.Context, *journal.Start) error
	stop     context.CancelFunc
	done     sync.WaitGroup
	err      error // of register; read after end
}

// newRegistrar sorts the roots as the journal's writer does: what is registered is
// the start row as it will be.
func newRegistrar(c *Config, s *stage) *registrar {
	if c.Register == nil {
		return nil
	}
	s.Register = true
	scope.SortRoots(s.Keep.Secret.PathKey(), s.Start.Roots)
	return &registrar{register: c.Register, stop: func() {}}
}

// answer calls register beside the caller, who goes on reading what the broker says.
func (g *registrar) answer(ctx context.Context, start journal.Start, control *os.File) {
	ctx, g.stop = context.WithCancel(ctx)
	g.done.Go(func() {
		g.err = g.register(ctx, &start)
		a := registered{Registration: start.Registration, Freshness: start.Freshness}
		if g.err == nil {
			g.err = journal.CheckStart(&start)
		}
		if g.err != nil {
			a = registered{Failed: true}
		}
		b, err := json.Marshal(a)
		if err != nil { // no value of it can fail
			b = []byte("{}")
		}
		_, _ = control.Write(b) // a broker that has ended has said why
	})
}

// end waits for register and returns why the run was not registered, nil if it was or
// was not asked to be. The broker has ended.
func (g *registrar) end() error {
	if g == nil {
		return nil
	}
	g.stop()
	g.done.Wait()
	switch {
	case g.err == nil:
		return nil
	case errors.Is(g.err, context.Canceled):
		return &NotRegistered{errors.New("stopped before it began: nothing ran")}
	}
	return &NotRegistered{g.err}
}

// headRows and headEvery say when a head is due, see Config.Head. Tests shorten the time.
const headRows = 1000

var headEvery = 30 * time.Second

// tellHeads brings the rows to the disk when a head is due, and tells it.
func (r *recording) tellHeads() (stop func()) {
	if r.Heads == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(min(r.Heads, 200*time.Millisecond))
		defer tick.Stop()
		told, last := r.rec.Rows(), time.Now()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := r.rec.Rows(); n == told || n < told+headRows && time.Since(last) < r.Heads {
				continue
			}
			head, err := r.journal.Checkpoint()
			if err != nil {
				r.giveUp(err)
				return
			}
			told, last = head.Size, time.Now()
			send(message{Head: &head})
		}
	})
	return func() { close(done); group.Wait() }
}
