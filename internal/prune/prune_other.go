//go:build !unix

package prune

import (
	"io/fs"
	"os"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// lock looks for the journal only: no recorder runs on these systems.
func lock(root *os.Root) (unlock func(), err error) {
	_, err = root.Lstat(journal.RowsFile)
	return func() {}, err
}

// allocated is the size of a file.
func allocated(st fs.FileInfo) uint64 { return uint64(st.Size()) }
