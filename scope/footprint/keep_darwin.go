package footprint

import (
	"io/fs"
	"syscall"
)

// kept takes what the system keeps of a file beside what Go shows.
func (s *status) kept(fi fs.FileInfo) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.uid, s.gid, s.links = st.Uid, st.Gid, uint64(st.Nlink)
		s.stamp = st.Ctimespec.Nano()
	}
}
