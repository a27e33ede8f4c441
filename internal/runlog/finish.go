package runlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Finish logs the end of a run that has ended, and takes the closing checkpoint. What
// was done before is not done again, so it may be called again later. Errors:
// ErrNotRegistered, ErrOpen, *entry.Refusal, registry.ErrUnavailable; fs.ErrNotExist for
// a registered run whose registration.cbor is gone.
func (c *Config) Finish(ctx context.Context) error {
	return again(ctx, c.Patience, c.finish)
}

func (c *Config) finish(ctx context.Context) error {
	start, final, head, err := readJournal(c.Dir)
	if err != nil {
		return err
	}
	s, err := c.stateOf(start)
	if err != nil {
		return err
	}
	if final == nil {
		return ErrOpen
	}
	if s.Final == nil {
		statement, err := entry.SignFinal(c.Signer, entry.FinalOf(final, head, uint64(len(s.Checkpoints))))
		if err != nil {
			return err
		}
		s.Final = &Item{Statement: statement}
		if err := s.write(c.Dir); err != nil {
			return err
		}
	}
	if s.Final.Index == nil {
		logged, err := c.Registry.Add(ctx, s.Final.Statement)
		if err != nil {
			return err
		}
		s.Final.Index = &logged.Index
		if err := s.check(); err != nil {
			return fmt.Errorf("the log's answer for FINAL: %w", err)
		}
		if err := s.write(c.Dir); err != nil {
			return err
		}
	}
	if s.Closing != nil {
		return nil
	}
	fresh, err := c.freshness(start)
	if err != nil {
		return err
	}
	p, err := c.Registry.Proofs(ctx, nil, []uint64{fresh.Checkpoint().Size})
	if err != nil {
		return err
	}
	closing, err := c.verified(p.Checkpoint)
	if err != nil {
		return err
	}
	if err := consistent(p.Consistency, fresh, closing); err != nil {
		return fmt.Errorf("closing checkpoint: %w", err)
	}
	if at := *s.Final.Index; at >= closing.Checkpoint().Size {
		return fmt.Errorf("the log's newest checkpoint has %d entries, want FINAL in it, at index %d", closing.Checkpoint().Size, at)
	}
	s.Closing, s.ToClosing = &p.Checkpoint, &p.Consistency[0]
	return s.write(c.Dir)
}

// stateOf reads the state of a registered run and holds it to the run's start row and
// to this log and key.
func (c *Config) stateOf(start *journal.Start) (*State, error) {
	if start.Registration == nil {
		return nil, ErrNotRegistered
	}
	s, err := Read(c.Dir)
	if err != nil {
		return nil, err
	}
	if key := c.Registry.Key().String(); s.Key != key {
		return nil, fmt.Errorf("the run was registered in the log %s (%s), want that one and not %s", s.Key, s.Log, key)
	}
	u, err := entry.Parse(s.Register.Statement)
	if err != nil {
		return nil, err
	}
	e, err := u.Verify(c.Signer.Public())
	if err != nil {
		return nil, fmt.Errorf("REGISTER: %w; the key must be the one that the run was registered with", err)
	}
	if s.Register.Index == nil {
		return nil, errors.New("the log never acknowledged the registration that the start row holds")
	}
	return s, entry.CompareRegister(e.Register(), start)
}

// freshness is the checkpoint in the start row. Its quorum is for verify to judge.
func (c *Config) freshness(start *journal.Start) (*proof.Verified, error) {
	u, err := proof.ParseCheckpoint(*start.Freshness)
	if err != nil {
		return nil, fmt.Errorf("freshness in the start row: %w", err)
	}
	return u.Verify(c.Registry.Key())
}

// consistent checks the one COSE receipt that an older checkpoint was asked for with.
func consistent(receipts [][]byte, older, newer *proof.Verified) error {
	if len(receipts) != 1 {
		return fmt.Errorf("got %d consistency receipts, want 1", len(receipts))
	}
	u, err := receipt.ParseLogReceipt(receipts[0])
	if err != nil {
		return err
	}
	a, b := older.Checkpoint(), newer.Checkpoint()
	got, err := u.VerifyConsistency(newer.Log(), a.Root, b.Root)
	if err != nil {
		return err
	}
	if s := got.Consistency(); s.Older != a.Size || s.Newer != b.Size {
		return fmt.Errorf("got a consistency receipt from %d to %d entries, want from %d to %d", s.Older, s.Newer, a.Size, b.Size)
	}
	return nil
}

// Members logs the receipt of a run that Finish was done with, and returns the bundle's
// members log.tlog-proof and log.cbor, both of the newest checkpoint. Errors are those of
// Finish.
func (c *Config) Members(ctx context.Context, cose []byte) (logProof, member []byte, err error) {
	err = again(ctx, c.Patience, func(ctx context.Context) (err error) {
		logProof, member, err = c.members(ctx, cose)
		return err
	})
	return logProof, member, err
}

func (c *Config) members(ctx context.Context, cose []byte) (logProof, member []byte, err error) {
	start, _, _, err := readJournal(c.Dir)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.stateOf(start)
	if err != nil {
		return nil, nil, err
	}
	if s.Closing == nil {
		return nil, nil, errors.New("the run's end is not logged")
	}
	logged, err := c.Registry.Add(ctx, cose)
	if err != nil {
		return nil, nil, err
	}
	items := append([]Item{s.Seal, s.Register}, s.Checkpoints...)
	items = append(items, *s.Final, Item{Statement: cose, Index: &logged.Index})
	var indexes []uint64
	for _, i := range items {
		indexes = append(indexes, *i.Index)
	}
	u, err := proof.ParseCheckpoint(*s.Closing)
	if err != nil {
		return nil, nil, err
	}
	closing, err := u.Verify(c.Registry.Key())
	if err != nil {
		return nil, nil, err
	}
	p, err := c.Registry.Proofs(ctx, indexes, []uint64{closing.Checkpoint().Size})
	if err != nil {
		return nil, nil, err
	}
	newest, err := c.verified(p.Checkpoint)
	if err != nil {
		return nil, nil, err
	}
	if err := consistent(p.Consistency, closing, newest); err != nil {
		return nil, nil, fmt.Errorf("newest checkpoint: %w", err)
	}
	if len(p.Inclusion) != len(items) {
		return nil, nil, fmt.Errorf("got %d inclusion proofs, want %d", len(p.Inclusion), len(items))
	}
	entries := make([]receipt.LogEntry, len(items))
	at := newest.Checkpoint()
	for n, i := range items {
		if err := proof.Inclusion(*i.Index, at.Size, receipt.LeafHash(i.Statement), p.Inclusion[n], at.Root); err != nil {
			return nil, nil, fmt.Errorf("entry %d: %w", *i.Index, err)
		}
		entries[n] = receipt.LogEntry{Statement: i.Statement, Index: *i.Index, Path: p.Inclusion[n]}
	}
	if err := included(p.Receipt, cose, logged.Index, newest); err != nil {
		return nil, nil, fmt.Errorf("ATTEST: %w", err)
	}
	last := len(entries) - 1
	heads, err := c.heads(entries[2 : last-1])
	if err != nil {
		return nil, nil, err
	}
	member, err = receipt.FormatLog(&receipt.LogMember{
		Receipt: p.Receipt, Seal: entries[0], Register: entries[1], Checkpoints: entries[2 : last-1], Final: entries[last-1],
		Closing: *s.Closing, ToClosing: *s.ToClosing, ToNewest: p.Consistency[0], Heads: heads,
	})
	if err != nil {
		return nil, nil, err
	}
	return proof.FormatLogProof(&proof.LogProof{Index: logged.Index, Path: entries[last].Path, Checkpoint: p.Checkpoint}), member, nil
}
