package attest

import (
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
)

func parseRow(raw []byte) (*journal.Row, error) {
	row := new(journal.Row)
	return row, dcbor.Unmarshal(raw, row)
}

type chain struct{}

func newChain() *chain                                  { return &chain{} }
func (c *chain) add(row *journal.Row, raw []byte) error { return nil }
func (c *chain) finish() error                          { return nil }
func (ev *Evidence) checkDigests() error                { return nil }
func (ev *Evidence) checkTree() error                   { return nil }
