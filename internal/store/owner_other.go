//go:build !unix

package store

import "io/fs"

// owner is not known: these systems have no number for it.
func owner(fs.FileInfo) (int, bool) { return 0, false }
