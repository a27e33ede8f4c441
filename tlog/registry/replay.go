package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/witness"
)

// atOnce is how many entries are read before their signatures are checked, by
// all processors.
const atOnce = 512

var errEnough = errors.New("enough entries")

// replay reads the whole log into the ledger. Entries that contradict those before
// them, or that nobody who is admitted has signed, are faults: what is logged
// cannot be taken back, and one bad entry must not end the log. But entries that are
// not those of the signed tree do end it: a ledger of others would let in what
// contradicts the log.
func (s *Service) replay(ctx context.Context) error {
	log := s.log
	if c, ok := log.(*witness.Cosigned); ok {
		log = c.Log // a log can start while its witnesses do not answer
	}
	note, err := log.Checkpoint(ctx)
	if err != nil {
		return err
	}
	cp, err := s.open(note)
	if err != nil {
		return err
	}
	var tree merkle.Tree
	next, root := uint64(0), tree.Root()
	batch := make([][]byte, 0, atOnce)
	flush := func() {
		for i, c := range s.checked(batch) {
			if c.err == nil {
				c.err = s.ledger.Check(c.entry)
			}
			s.enter(c.entry, c.err, next-uint64(len(batch))+uint64(i))
		}
		batch = batch[:0]
	}
	err = s.log.Entries(ctx, 0, func(i uint64, statement []byte) error {
		if i != next {
			return fmt.Errorf("got entry %d, want %d", i, next)
		}
		next++
		if tree.Push(receipt.LeafHash(statement)); next == cp.Size {
			root = tree.Root()
		}
		if batch = append(batch, statement); len(batch) == atOnce {
			flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if next < cp.Size {
		return fmt.Errorf("got %d entries, want the %d that are signed", next, cp.Size)
	}
	if root != cp.Root {
		return fmt.Errorf("%w: got root %x of %d entries, want %x", ErrChanged, root, cp.Size, cp.Root)
	}
	flush()
	return nil
}

type checkedEntry struct {
	entry *entry.Entry
	err   error
}

// checked parses statements and checks their signatures.
func (s *Service) checked(statements [][]byte) []checkedEntry {
	out := make([]checkedEntry, len(statements))
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(statements))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(statements); i += workers {
				out[i].entry, out[i].err = Verify(statements[i], s.admit)
			}
		})
	}
	wg.Wait()
	return out
}

// catchUp reads the entries before index that were not added here, if there are
// any: who shares a log with others must know what they have added.
func (s *Service) catchUp(ctx context.Context, index uint64) error {
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	if next > index {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), addWithin)
	defer stop()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := s.log.Wait(ctx, index); err != nil {
		return err
	}
	s.mu.Lock()
	next = s.next
	s.mu.Unlock()
	if next > index {
		return nil
	}
	err := s.log.Entries(ctx, next, func(i uint64, statement []byte) error {
		if i >= index {
			return errEnough
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ours := s.ahead[i]; ours || i < s.next {
			return nil
		}
		e, err := Verify(statement, s.admit)
		if err == nil {
			err = s.ledger.Check(e)
		}
		s.enter(e, err, i)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return err
}
