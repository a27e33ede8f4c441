//go:build !unix

package journal

import "errors"

// Recover needs the lock of a Unix system: here it refuses, so that a journal in
// use is never cut.
func Recover(dir string) (Tail, error) {
	return Tail{}, errors.ErrUnsupported
}
