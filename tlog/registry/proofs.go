package registry

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// openedNote remembers the checkpoint of the last note whose signature was checked:
// all that wait for one checkpoint get the same note.
type openedNote struct {
	mu   sync.Mutex
	note []byte
	cp   proof.Checkpoint
}

// open checks that a note is a checkpoint of this log.
func (s *Service) open(note []byte) (proof.Checkpoint, error) {
	s.opened.mu.Lock()
	defer s.opened.mu.Unlock()
	if bytes.Equal(note, s.opened.note) {
		return s.opened.cp, nil
	}
	cp, err := openNote(note, s.key.Public())
	if err == nil {
		s.opened.note, s.opened.cp = bytes.Clone(note), cp
	}
	return cp, err
}

func openNote(note []byte, key receipt.PublicKey) (proof.Checkpoint, error) {
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return proof.Checkpoint{}, err
	}
	v, err := u.Verify(key)
	if err != nil {
		return proof.Checkpoint{}, err
	}
	return v.Checkpoint(), nil
}

// checkpoint is the newest published one.
func (s *Service) checkpoint(ctx context.Context) ([]byte, proof.Checkpoint, error) {
	note, err := s.log.Checkpoint(ctx)
	if err != nil {
		return nil, proof.Checkpoint{}, unavailable(err)
	}
	cp, err := s.open(note)
	return note, cp, unavailable(err)
}

// Checkpoint is the newest published checkpoint, a signed note.
func (s *Service) Checkpoint(ctx context.Context) ([]byte, error) {
	note, _, err := s.checkpoint(ctx)
	return note, err
}

// await waits until a checkpoint holds the entry, and proves it there.
func (s *Service) await(ctx context.Context, index uint64, leaf [32]byte, sub string) ([]byte, error) {
	note, err := s.log.Wait(ctx, index)
	if err != nil {
		return nil, err
	}
	cp, err := s.open(note)
	if err != nil {
		return nil, err
	}
	return s.inclusionReceipt(ctx, index, leaf, sub, cp)
}

// inclusionReceipt proves an entry in the tree of a checkpoint and signs that. It
// checks the path first: a damaged log must not sign wrong answers.
func (s *Service) inclusionReceipt(ctx context.Context, index uint64, leaf [32]byte, sub string, cp proof.Checkpoint) ([]byte, error) {
	path, err := s.log.Inclusion(ctx, index, cp.Size)
	if err != nil {
		return nil, err
	}
	if err := proof.Inclusion(index, cp.Size, leaf, path, cp.Root); err != nil {
		return nil, fmt.Errorf("entry %d is not what was signed at size %d: look at the log with cleanrun log check: %w", index, cp.Size, err)
	}
	return receipt.SignInclusion(s.key, sub, receipt.Inclusion{Size: cp.Size, Index: index, Path: path}, cp.Root)
}

// Receipt proves the entry at index in the newest published checkpoint.
func (s *Service) Receipt(ctx context.Context, index uint64) ([]byte, error) {
	_, cp, err := s.checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return s.receiptIn(ctx, index, cp)
}

func (s *Service) receiptIn(ctx context.Context, index uint64, cp proof.Checkpoint) ([]byte, error) {
	statement, err := s.entryIn(ctx, index, cp.Size)
	if err != nil {
		return nil, err
	}
	u, err := entry.Parse(statement)
	if err != nil {
		return nil, fmt.Errorf("%w: entry %d is none that this log takes: %w", ErrNoEntry, index, err)
	}
	r, err := s.inclusionReceipt(ctx, index, receipt.LeafHash(statement), u.Subject(), cp)
	return r, unavailable(err)
}

// Entry implements Registry.
func (s *Service) Entry(ctx context.Context, index uint64) ([]byte, error) {
	_, cp, err := s.checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return s.entryIn(ctx, index, cp.Size)
}

func (s *Service) entryIn(ctx context.Context, index, size uint64) ([]byte, error) {
	if index >= size {
		return nil, fmt.Errorf("%w: got index %d, want less than %d", ErrNoEntry, index, size)
	}
	statement, err := tlog.Entry(ctx, s.log, index)
	return statement, unavailable(err)
}

// Seal implements Registry.
func (s *Service) Seal(_ context.Context, digest [32]byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index, ok := s.ledger.Seal(digest); ok {
		return index, nil
	}
	return 0, fmt.Errorf("%w: %x", ErrNoSeal, digest)
}

// checkCounts refuses a request for more proofs than one may ask for.
func checkCounts(indexes, from []uint64) error {
	if len(indexes) > MaxIndexes || len(from) > MaxFrom {
		return fmt.Errorf("got %d indexes and %d sizes, want at most %d and %d", len(indexes), len(from), MaxIndexes, MaxFrom)
	}
	return nil
}

// Proofs implements Registry.
func (s *Service) Proofs(ctx context.Context, indexes, from []uint64) (*Proofs, error) {
	if err := checkCounts(indexes, from); err != nil {
		return nil, err
	}
	note, cp, err := s.checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	p := &Proofs{Checkpoint: note}
	for _, i := range indexes {
		if i >= cp.Size {
			return nil, fmt.Errorf("%w: got index %d, want less than %d", ErrNoEntry, i, cp.Size)
		}
		path, err := s.log.Inclusion(ctx, i, cp.Size)
		if err != nil {
			return nil, unavailable(err)
		}
		p.Inclusion = append(p.Inclusion, path)
	}
	if len(indexes) > 0 {
		if p.Receipt, err = s.receiptIn(ctx, indexes[len(indexes)-1], cp); err != nil {
			return nil, err
		}
	}
	for _, older := range from {
		if older == 0 || older > cp.Size {
			return nil, fmt.Errorf("%w: got size %d, want 1 to %d", ErrNoEntry, older, cp.Size)
		}
		c := receipt.Consistency{Older: older, Newer: cp.Size}
		if older < cp.Size {
			if c.Path, err = s.log.Consistency(ctx, older, cp.Size); err != nil {
				return nil, unavailable(err)
			}
		}
		r, err := receipt.SignConsistency(s.key, c, cp.Root)
		if err != nil {
			return nil, err
		}
		p.Consistency = append(p.Consistency, r)
	}
	return p, nil
}
