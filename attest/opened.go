package attest

import "github.com/cleanrun-dev/cleanrun/journal"

// OpenedPath is the path of a digest in the rows, if the pack shows it.
func (e *Evidence) OpenedPath(digest [32]byte) (path string, ok bool) {
	if p := e.named.paths[digest]; p != nil {
		return p.Path, true
	}
	return "", false
}

// OpenedDetail is the detail of a row, if the pack shows it.
func (e *Evidence) OpenedDetail(seq uint64) (d journal.Detail, ok bool) {
	o, ok := e.named.rows[seq]
	return o.detail, ok
}
