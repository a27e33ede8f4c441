package tlog

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// noteSigner makes the 0x01 signatures of c2sp.org/signed-note.
type noteSigner struct {
	receipt.Signer
	verifier note.Verifier
}

func (s noteSigner) Name() string    { return s.verifier.Name() }
func (s noteSigner) KeyHash() uint32 { return s.verifier.KeyHash() }

// cosigner makes the log's own cosignatures.
type cosigner struct {
	log receipt.Signer
	key *proof.Cosigner
}

func (c cosigner) Name() string    { return c.key.Key().Name() }
func (c cosigner) KeyHash() uint32 { return c.key.Key().ID() }

// Sign is given the text of a checkpoint. Only a checkpoint that the log signed can
// be cosigned, so that is done first.
func (c cosigner) Sign(text []byte) ([]byte, error) {
	var cp log.Checkpoint
	if rest, err := cp.Unmarshal(text); err != nil || len(rest) > 0 || len(cp.Hash) != 32 {
		return nil, fmt.Errorf("got %q to sign, want a checkpoint (%v)", text, err)
	}
	signed, err := proof.SignCheckpoint(c.log, proof.Checkpoint{Origin: cp.Origin, Size: cp.Size, Root: [32]byte(cp.Hash)})
	if err != nil {
		return nil, err
	}
	v, err := verifyNote(signed, c.log.Public())
	if err != nil {
		return nil, err
	}
	line, err := c.key.Cosign(v, uint64(time.Now().Unix()))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(line)
	blob, err := base64.StdEncoding.DecodeString(string(fields[len(fields)-1]))
	if err != nil {
		return nil, err
	}
	return blob[4:], nil // without the key id
}
