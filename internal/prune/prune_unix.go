//go:build unix

package prune

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// lock keeps a recorder and attest away, as long as the journal is there.
func lock(root *os.Root) (unlock func(), err error) {
	st, err := root.Lstat(journal.RowsFile)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: journal.RowsFile, Err: syscall.EINVAL}
	}
	f, err := root.OpenFile(journal.RowsFile, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := journal.Lock(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// allocated is what a file takes on the disk.
func allocated(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		if s.Nlink > 1 { // other runs of an eval keep it too
			return 0
		}
		return uint64(s.Blocks) * 512
	}
	return uint64(st.Size())
}
