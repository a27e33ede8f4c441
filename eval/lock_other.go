//go:build !linux

package eval

import (
	"fmt"
	"os"
	"runtime"
)

// Evals run where the recorder does.
func takeLock(name string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: an eval needs Linux, this is %s", name, runtime.GOOS)
}

// Elsewhere a folder can only be a copy: nobody runs in it.
func locked(string) (bool, error) { return false, nil }
