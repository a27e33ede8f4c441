//go:build unix

package tlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LockFolder keeps other processes out of a folder that two must not write to at
// once: ErrInUse. The kernel releases the lock with the last descriptor, so a
// killed process leaves nothing that must be cleaned up.
func LockFolder(dir string) (io.Closer, error) {
	name := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}
