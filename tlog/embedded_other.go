//go:build !unix

package tlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Embedded is a log in a folder. It needs a system with POSIX locks.
type Embedded struct{ Log }

func unsupported() error {
	return fmt.Errorf("a log in a folder on %s: %w; use a log over HTTP", runtime.GOOS, errors.ErrUnsupported)
}

// Init needs a POSIX system.
func Init(_ context.Context, _ string, s receipt.Signer, also ...*proof.Cosigner) error {
	if err := CheckKeys(s, also); err != nil {
		return err
	}
	return unsupported()
}

// Open needs a POSIX system.
func Open(_ context.Context, _ string, s receipt.Signer, also ...*proof.Cosigner) (*Embedded, error) {
	if err := CheckKeys(s, also); err != nil {
		return nil, err
	}
	return nil, unsupported()
}
