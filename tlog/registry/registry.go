// Package registry is a transparency log of cleanrun's entries: what spec/log.md
// says that is logged, checked before it is added, with proofs for what was. It
// is used in process over a log (Open, OpenDir) or over HTTP (Handler, Dial):
// both are a Registry.
//
// Limits first. A registry refuses what contradicts the log, so that honest
// users find out at once; whoever relies on the log checks proofs and cosignatures
// (package verify) and runs a monitor, and does not trust the registry. What a
// Registry returns over HTTP is what the server said, except where a method says
// that it was checked.
package registry

import (
	"context"
	"errors"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// Bounds of one request for proofs.
const (
	MaxIndexes = 4096 // entries proved in one request
	MaxFrom    = 2    // older sizes in one request
)

// Errors of a registry, to be asked for with errors.Is. A refusal is an
// *entry.Refusal instead.
var (
	// ErrUnavailable is wrapped when the log cannot take an entry or answer now.
	// An entry whose Add ended with it may be in the log or not: adding the same
	// bytes again is safe, and gives the index that it has.
	ErrUnavailable = errors.New("the log is not available")
	ErrNoEntry     = errors.New("the log has no such entry")
	ErrNoSeal      = errors.New("the log has no SEAL of this digest")
	// ErrChanged is of a log whose entries are not those of the tree that it signed:
	// somebody has changed them. Nothing can be added to it.
	ErrChanged = errors.New("the log's entries are not those that were signed")
)

// A Registry adds entries to a log and proves them. Its methods may be called
// from many goroutines at a time.
type Registry interface {
	// Add logs a statement (a COSE_Sign1 of spec/log.md) if it contradicts nothing
	// that the log holds, and returns when a published checkpoint holds it. The
	// bytes of an entry that is in the log already give its index again. Errors:
	// *entry.Refusal, ErrUnavailable.
	Add(ctx context.Context, statement []byte) (Logged, error)
	// Proofs proves entries in the newest published checkpoint, and that
	// checkpoint's consistency with older sizes. At most MaxIndexes and MaxFrom.
	// Errors: ErrNoEntry for an index or a size that the checkpoint does not
	// reach, ErrUnavailable.
	Proofs(ctx context.Context, indexes, from []uint64) (*Proofs, error)
	// Entry returns the statement at an index: ErrNoEntry.
	Entry(ctx context.Context, index uint64) ([]byte, error)
	// Seal finds the first SEAL entry over a digest: ErrNoSeal.
	Seal(ctx context.Context, digest [32]byte) (index uint64, err error)
	// Key is the log's key. Over HTTP it is what the server says, or the one that was pinned.
	Key() receipt.PublicKey
	Close() error
}

// Logged is the place of an entry, and the COSE receipt of its inclusion in the
// tree of a published checkpoint.
type Logged struct {
	Index   uint64
	Receipt []byte
}

// Proofs is what a newest checkpoint proves.
type Proofs struct {
	Checkpoint  []byte       // signed note with the cosignatures that the log collected
	Inclusion   [][][32]byte // a path for each index asked for, in that order
	Receipt     []byte       // COSE receipt of inclusion of the last index, in this checkpoint's tree; nil if none was asked for
	Consistency [][]byte     // a COSE receipt for each older size asked for, in that order
}

// Admit is an Options.Admit for the keys of a policy.
func Admit(owners, runners []receipt.PublicKey) func(entry.Role, [32]byte) (receipt.PublicKey, bool) {
	return func(role entry.Role, kid [32]byte) (receipt.PublicKey, bool) {
		keys := runners
		if role == entry.RoleOwner {
			keys = owners
		}
		for _, k := range keys {
			if k.Thumbprint() == kid {
				return k, true
			}
		}
		return receipt.PublicKey{}, false
	}
}
