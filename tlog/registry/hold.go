package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// A hold keeps entries away that could contradict one which is being added: its
// outcome decides about them. So many entries are on their way to the backend at a
// time, and share its batches, and yet each is checked against all before it.
type hold struct {
	keys  [][32]byte
	done  chan struct{} // closed when the add has ended, in doubt or not
	doubt *doubt        // set before done is closed
}

// A doubt is an entry of which the backend did not say whether it is in the log.
// It holds its keys until that is found out.
type doubt struct {
	entry     *entry.Entry
	statement []byte
	from      uint64        // the entry is not before this index
	settling  chan struct{} // has room for one: who is finding out
}

// maxDoubts bounds the statements that are kept for entries in doubt. Above it
// nothing is added before one is settled.
const maxDoubts = 64

// acquire waits until nothing else holds what e could contradict, and holds it. The
// caller owes a release, or a doubt, and then adding.Done.
func (s *Service) acquire(ctx context.Context, e *entry.Entry) (*hold, error) {
	keys := append(e.Conflicts(), e.Leaf())
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, fmt.Errorf("%w: it is being closed", ErrUnavailable)
		}
		var other *hold
		for _, k := range keys {
			if other = s.held[k]; other != nil {
				break
			}
		}
		if other == nil {
			h := &hold{keys: keys, done: make(chan struct{})}
			for _, k := range keys {
				s.held[k] = h
			}
			s.adding.Add(1)
			s.mu.Unlock()
			return h, nil
		}
		doubt := other.doubt
		s.mu.Unlock()
		if doubt != nil {
			if err := s.settle(ctx, other, doubt); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, unavailable(ctx.Err())
		}
	}
}

// release gives the keys of a hold up.
func (s *Service) release(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range h.keys {
		delete(s.held, k)
	}
	delete(s.doubts, h)
	if h.doubt == nil {
		close(h.done)
	}
}

// doubt turns a hold into one of an entry whose fate is not known.
func (s *Service) doubt(h *hold, d *doubt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.settling = make(chan struct{}, 1)
	h.doubt = d
	s.doubts[h] = struct{}{}
	s.failed = err
	close(h.done)
}

// settle finds out whether a doubtful entry is in the log, by reading it. If it
// is not, it is added again: it was checked, it still holds its place, and its bytes
// are the ones that may turn up. Equal bytes twice in a log are one entry.
func (s *Service) settle(ctx context.Context, h *hold, d *doubt) error {
	select {
	case d.settling <- struct{}{}:
		defer func() { <-d.settling }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	s.mu.Lock()
	if s.held[h.keys[0]] != h || s.closed { // somebody else was faster, or must not add any more
		s.mu.Unlock()
		return nil
	}
	s.adding.Add(1)
	index, found := s.ledger.Index(d.entry.Leaf()) // it was read with entries that were not added here
	s.mu.Unlock()
	defer s.adding.Done()
	if found {
		s.release(h)
		return nil
	}
	reading, stop := context.WithTimeout(context.WithoutCancel(ctx), addWithin)
	defer stop()
	err := s.log.Entries(reading, d.from, func(i uint64, statement []byte) error {
		if receipt.LeafHash(statement) == d.entry.Leaf() {
			index, found = i, true
			return errEnough
		}
		return nil
	})
	if !found && err == nil {
		index, err = s.add(reading, h, d.statement)
		found = err == nil
	}
	if found {
		err = s.account(reading, h, d.entry, index)
	}
	if _, refused := errors.AsType[*entry.Refusal](err); err == nil || refused {
		return nil // refused: others were before it in the log
	}
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
	return fmt.Errorf("%w: an entry that was not acknowledged may be in the log or not, and this one may contradict it: %w", ErrUnavailable, err)
}

// settleAll settles what is in doubt, in one batch of the backend. It returns an
// error if one of them stays so.
func (s *Service) settleAll(ctx context.Context) error {
	s.mu.Lock()
	holds := slices.Collect(maps.Keys(s.doubts))
	s.mu.Unlock()
	errs := make([]error, len(holds))
	var wg sync.WaitGroup
	for i, h := range holds {
		wg.Go(func() { errs[i] = s.settle(ctx, h, h.doubt) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// few keeps the number of doubts bounded.
func (s *Service) few(ctx context.Context) error {
	s.mu.Lock()
	many := len(s.doubts) >= maxDoubts
	s.mu.Unlock()
	if many {
		return s.settleAll(ctx)
	}
	return nil
}
