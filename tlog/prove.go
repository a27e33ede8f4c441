package tlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Entry returns the entry at an index of the newest published checkpoint: ErrNoEntry.
func Entry(ctx context.Context, l Log, index uint64) (entry []byte, err error) {
	found := errors.New("found")
	if err := l.Entries(ctx, index, func(i uint64, e []byte) error {
		if i != index {
			return fmt.Errorf("entry %d: the log gave entry %d", index, i)
		}
		entry = e
		return found
	}); err == nil {
		return nil, fmt.Errorf("%w: got index %d, want one that a checkpoint holds", ErrNoEntry, index)
	} else if !errors.Is(err, found) {
		return nil, err
	}
	return entry, nil
}

// Prove waits until a published checkpoint holds the entry at an index, and
// returns the entry with its proof in that checkpoint, which it has checked.
func Prove(ctx context.Context, l Log, index uint64) (entry []byte, p *proof.LogProof, err error) {
	signed, err := l.Wait(ctx, index)
	if err != nil {
		return nil, nil, err
	}
	v, err := verifyNote(signed, l.Key())
	if err != nil {
		return nil, nil, err
	}
	cp := v.Checkpoint()
	path, err := l.Inclusion(ctx, index, cp.Size)
	if err != nil {
		return nil, nil, err
	}
	if entry, err = Entry(ctx, l, index); err != nil {
		return nil, nil, err
	}
	if err := proof.Inclusion(index, cp.Size, [32]byte(rfc6962.DefaultHasher.HashLeaf(entry)), path, cp.Root); err != nil {
		return nil, nil, fmt.Errorf("entry %d does not lead to the root that was signed at size %d, look at the whole log (log check): %w", index, cp.Size, err)
	}
	return entry, &proof.LogProof{Index: index, Path: path, Checkpoint: signed}, nil
}
