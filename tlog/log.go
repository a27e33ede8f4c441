// Package tlog keeps entries in a transparency log: an append-only Merkle tree of
// RFC 9162 whose checkpoints (c2sp.org/tlog-checkpoint) we sign ourselves,
// whatever backend holds the tree.
//
// The package knows entries as bytes. What they mean, and which of them
// contradict each other, is not its business.
package tlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// MaxEntry is the largest entry in bytes: c2sp.org/tlog-tiles puts a 16-bit
// length before each.
const MaxEntry = 65535

const perBundle = 256 // entries in a full bundle, hashes in a full tile

// Errors of a log, to be asked for with errors.Is.
var (
	ErrEntrySize = errors.New("the entry has a size that no log takes")
	ErrNoEntry   = errors.New("the log has no such entry")
	ErrInUse     = errors.New("another process has the log open")
	ErrNoLog     = errors.New("there is no log")
	ErrExists    = errors.New("the folder is not empty")
)

// A Log is a log that is open for adding. Its methods may be called from many
// goroutines at a time.
type Log interface {
	// Add appends an entry of 1 to MaxEntry bytes and returns its index once it
	// is durable. Equal entries get an index each. After an error it is unknown
	// whether the entry is in the log, unless the error is ErrEntrySize.
	Add(ctx context.Context, entry []byte) (index uint64, err error)
	// Prove waits until a published checkpoint holds the entry and returns the
	// proof, which it has checked.
	Prove(ctx context.Context, index uint64) (Proof, error)
	// Checkpoint is the newest published checkpoint, a signed note.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Entries calls f with each entry from index first to the end of the newest
	// published checkpoint, in order, and stops at the first error. The bytes
	// are f's to keep. They are what the backend returned: Check tells whether
	// they have the root that was signed.
	Entries(ctx context.Context, first uint64, f func(index uint64, entry []byte) error) error
	// Close waits for what was added to be published, and gives the log up.
	Close() error
}

// A Proof says that an entry is in the tree of a checkpoint.
type Proof struct {
	Index      uint64
	Hashes     [][]byte // inclusion proof of RFC 9162, 32 bytes each, the leaf's sibling first
	Checkpoint []byte   // signed note
}

// checkSize refuses what tlog-tiles cannot hold.
func checkSize(entry []byte) error {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return fmt.Errorf("%w: got %d bytes, want 1 to %d", ErrEntrySize, len(entry), MaxEntry)
	}
	return nil
}

// noteSigner makes the 0x01 signatures of c2sp.org/signed-note.
type noteSigner struct {
	receipt.Signer
	verifier note.Verifier
}

func newNoteSigner(s receipt.Signer) (*noteSigner, error) {
	key := s.Public()
	if key.Alg() != receipt.Ed25519 {
		return nil, fmt.Errorf("key %s: got %v, want Ed25519: witnesses take no other signature of a log", key.Name(), key.Alg())
	}
	v, err := note.NewVerifier(key.String())
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", key.Name(), err)
	}
	return &noteSigner{s, v}, nil
}

func (s *noteSigner) Name() string    { return s.verifier.Name() }
func (s *noteSigner) KeyHash() uint32 { return s.verifier.KeyHash() }

// splitBundle takes an entry bundle of tlog-tiles apart. It returns the first
// want entries, which may be fewer than there are: a bundle that is still filling can be ahead of a
// checkpoint, but only by whole entries.
func splitBundle(b []byte, want int) ([][]byte, error) {
	entries := make([][]byte, 0, perBundle)
	for len(b) > 0 {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return nil, fmt.Errorf("entry %d of a bundle is cut off", len(entries))
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		entries = append(entries, b[2:n:n])
		b = b[n:]
	}
	if len(entries) < want {
		return nil, fmt.Errorf("got %d entries in a bundle, want %d", len(entries), want)
	}
	return entries[:want], nil
}
