package tlog

import (
	"fmt"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

const (
	// publishEvery is the least time between two checkpoints that Tessera takes.
	publishEvery = 100 * time.Millisecond
	// collectFor is how long a batch waits for more entries.
	collectFor = 20 * time.Millisecond
	batchSize  = 256
	// publishWithin is how long Wait waits: a disk that is full or very slow.
	publishWithin = 30 * time.Second
	// closeWithin bounds how long Close waits for the last checkpoint.
	closeWithin = 30 * time.Second

	folderMode = 0o755 // a log is public
)

// CheckKeys refuses keys with which a log could not sign. A log's further
// signatures are cosignatures under its own name.
func CheckKeys(s receipt.Signer, also []*proof.Cosigner) error {
	key := s.Public()
	if key.Alg() != receipt.Ed25519 {
		return fmt.Errorf("key %s: got %v, want Ed25519: witnesses take no other signature of a log", key.Name(), key.Alg())
	}
	for _, c := range also {
		if c.Key().Name() != key.Name() {
			return fmt.Errorf("key %s: got a second key of the log named %s, want the log's own name", key.Name(), c.Key().Name())
		}
		if c.Key().Type() != proof.TypeMLDSA44 {
			return fmt.Errorf("key %s: got a second key of type 0x%02x, want ML-DSA-44 (0x06)", key.Name(), c.Key().Type())
		}
	}
	return nil
}
