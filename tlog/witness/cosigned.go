package witness

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// refreshAfter is how old cosignatures may get while the log does not grow.
const refreshAfter = time.Minute

// Cosigned is a log whose published checkpoints have the cosignatures that a
// policy asks for: a checkpoint that no quorum cosigned is not published.
// Otherwise it is the log that it was made from. With the quorum none, it is that log.
type Cosigned struct {
	tlog.Log
	client *Client

	mu      sync.Mutex
	newest  *published
	next    *round // that will start
	running bool
	closed  bool
	ended   sync.WaitGroup
}

// published is a checkpoint with its cosignatures.
type published struct {
	note []byte
	size uint64
	at   time.Time
}

// A round asks the witnesses once, for all who wait.
type round struct {
	done chan struct{}
	got  *published
	err  error
}

var _ tlog.Log = (*Cosigned)(nil)

// NewCosigned makes a log of l and the witnesses of a client. Close closes both.
func NewCosigned(l tlog.Log, c *Client) *Cosigned { return &Cosigned{Log: l, client: c} }

// Wait implements tlog.Log. Error: a *QuorumError, if too few witnesses cosign a
// checkpoint that holds the entry.
func (c *Cosigned) Wait(ctx context.Context, index uint64) ([]byte, error) {
	if p := c.last(); p != nil && index < p.size {
		return p.note, nil
	}
	if _, err := c.Log.Wait(ctx, index); err != nil {
		return nil, err
	}
	if p := c.last(); p != nil && index < p.size {
		return p.note, nil
	}
	// A round that starts from now on has the entry.
	p, err := c.round(ctx)
	if err != nil {
		return nil, err
	}
	return p.note, nil
}

// Checkpoint implements tlog.Log. If the witnesses do not cosign now, it is the
// last one that they did cosign.
func (c *Cosigned) Checkpoint(ctx context.Context) ([]byte, error) {
	note, err := c.Log.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	v, err := verify(note, c.Key())
	if err != nil {
		return nil, err
	}
	p := c.last()
	if p != nil && p.size == v.Checkpoint().Size && time.Since(p.at) < refreshAfter {
		return p.note, nil
	}
	fresh, err := c.round(ctx)
	switch {
	case err == nil:
		return fresh.note, nil
	case p != nil && errors.Is(err, ErrNoQuorum):
		return p.note, nil
	}
	return nil, err
}

func (c *Cosigned) last() *published {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// round waits for a round that has not started yet.
func (c *Cosigned) round(ctx context.Context) (*published, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, tlog.ErrClosed
	}
	if c.next == nil {
		c.next = &round{done: make(chan struct{})}
	}
	r := c.next
	if !c.running {
		c.running = true
		c.ended.Go(c.rounds)
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return r.got, r.err
	}
}

// rounds runs one round after the other while somebody waits for one.
func (c *Cosigned) rounds() {
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		if r == nil {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		r.got, r.err = c.cosign()
		if r.err == nil {
			c.mu.Lock()
			c.newest = r.got
			c.mu.Unlock()
		}
		close(r.done)
	}
}

// cosign asks for the newest checkpoint of the log.
func (c *Cosigned) cosign() (*published, error) {
	ctx, done := context.WithTimeout(c.client.ctx, 2*askWithin)
	defer done()
	note, err := c.Log.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	note, _, err = c.client.Cosign(ctx, note, c.Consistency)
	if err != nil {
		return nil, err
	}
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	return &published{note, u.Checkpoint().Size, time.Now()}, nil
}

// Close implements tlog.Log.
func (c *Cosigned) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.client.stop() // who waits for a round gets an error
	c.ended.Wait()
	c.client.Close()
	return c.Log.Close()
}
