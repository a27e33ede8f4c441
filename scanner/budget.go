package scanner

import (
	"context"
	"sync"
)

// A budget is a number of bytes that may be under way.
type budget struct {
	mu   sync.Mutex
	free int64
	more chan struct{}
}

func newBudget(n int64) *budget { return &budget{free: n, more: make(chan struct{}, 1)} }

// take waits until n bytes are free. Only one goroutine takes.
func (b *budget) take(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.free >= n {
			b.free -= n
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		select {
		case <-b.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.free += n
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}
