//go:build !unix

package tlog

import (
	"errors"
	"fmt"
	"io"
	"runtime"
)

// LockFolder needs a system with POSIX locks.
func LockFolder(dir string) (io.Closer, error) {
	return nil, fmt.Errorf("%s: a lock on a folder on %s: %w", dir, runtime.GOOS, errors.ErrUnsupported)
}
