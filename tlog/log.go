// Package tlog keeps entries in a transparency log: an append-only Merkle tree of
// RFC 9162 whose checkpoints (c2sp.org/tlog-checkpoint) we sign ourselves,
// whatever backend holds the tree. The backend of this package is a folder
// (Embedded); tlog/trillian has the other one.
//
// The package knows entries as bytes. What they mean, and which of them
// contradict each other, is not its business. What a backend returns is not
// checked except where it says so: Prove, Check and package proof check.
package tlog

import (
	"context"
	"errors"
	"fmt"

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
	ErrNoSize    = errors.New("the log has not published a tree of that size")
	ErrInUse     = errors.New("another process has the log open")
	ErrNoLog     = errors.New("there is no log")
	ErrExists    = errors.New("the folder is not empty")
	ErrClosed    = errors.New("the log is closed")
	// ErrFull: there is no room on the disk. What was acknowledged before is kept, and adding goes on
	// by itself once there is room.
	ErrFull = errors.New("no room is left for the log")
	// ErrUnpublished: the entry is in the log, but no checkpoint came that holds it.
	ErrUnpublished = errors.New("the log publishes no new checkpoint")
	// ErrRollback: the tree is not one that grew out of the tree of the last checkpoint that was
	// signed. Nothing is signed from then on.
	ErrRollback = errors.New("the log's tree went back, or is another one")
)

// A Log is a log that is open for adding. Its methods may be called from many
// goroutines at a time.
type Log interface {
	// Add appends an entry of 1 to MaxEntry bytes and returns its index once it
	// is durable. After an error it is unknown whether the entry is in the log,
	// unless the error is ErrEntrySize or ErrClosed. Equal entries get an index
	// each in a folder, and one index on Trillian.
	Add(ctx context.Context, entry []byte) (index uint64, err error)
	// Wait returns a published checkpoint, a signed note, that holds the entry,
	// as soon as there is one. Errors: ErrNoEntry, ErrUnpublished.
	Wait(ctx context.Context, index uint64) (checkpoint []byte, err error)
	// Inclusion is the inclusion proof (RFC 9162, section 2.1.3) of an entry in
	// the tree of a size up to that of the newest published checkpoint, the
	// leaf's sibling first. Errors: ErrNoSize, ErrNoEntry.
	Inclusion(ctx context.Context, index, size uint64) (path [][32]byte, err error)
	// Consistency is the consistency proof (RFC 9162, section 2.1.4) of two
	// sizes up to that of the newest published checkpoint. It is empty if older
	// is 0 or newer. Error: ErrNoSize.
	Consistency(ctx context.Context, older, newer uint64) (path [][32]byte, err error)
	// Checkpoint is the newest published checkpoint, a signed note.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Entries calls f with each entry from index first to the end of the newest
	// published checkpoint, in order, and stops at the first error. The bytes
	// are f's to keep. They are what the backend returned: Check tells whether
	// they have the root that was signed.
	Entries(ctx context.Context, first uint64, f func(index uint64, entry []byte) error) error
	// Key is the log's key, under which its checkpoints verify.
	Key() receipt.PublicKey
	// Close waits for what was added to be published, and gives the log up.
	Close() error
}

// checkSize refuses what tlog-tiles cannot hold.
func checkSize(entry []byte) error {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return fmt.Errorf("%w: got %d bytes, want 1 to %d", ErrEntrySize, len(entry), MaxEntry)
	}
	return nil
}

// checkRange refuses sizes that do not follow each other.
func checkRange(older, newer uint64) error {
	if older > newer {
		return fmt.Errorf("%w: got a proof from size %d to %d, want the smaller first", ErrNoSize, older, newer)
	}
	return nil
}

// checkIndex refuses an index beyond a tree.
func checkIndex(index, size uint64) error {
	if index >= size {
		return fmt.Errorf("%w: got index %d, want less than %d", ErrNoEntry, index, size)
	}
	return nil
}

// hashes turns the hashes of a proof into arrays.
func hashes(path [][]byte) ([][32]byte, error) {
	out := make([][32]byte, len(path))
	for i, h := range path {
		if len(h) != 32 {
			return nil, fmt.Errorf("hash %d of a proof: got %d bytes, want 32", i, len(h))
		}
		out[i] = [32]byte(h)
	}
	return out, nil
}
