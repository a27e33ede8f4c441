//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

// owner is the user whose file it is.
func owner(st fs.FileInfo) (int, bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
