package footprint

import (
	"io/fs"
	"os"
	"syscall"
)

// kept takes what the system keeps of a file beside what Go shows.
func kept(e *Entry, st fs.FileInfo) {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID, e.Links = s.Uid, s.Gid, uint64(s.Nlink)
		e.Stamp = s.Ctimespec.Nano()
	}
}

// attributes are not compared on this system.
func attributes(*os.File) (sum [32]byte, err error) { return sum, nil }
