package attest

import "github.com/cleanrun-dev/cleanrun/journal"

// Changes tells whether a row says that something with a name was changed, as a
// footprint counts it: an operation that succeeded, and more than a file's times. A
// file that is opened for writing counts as written; a device, pipe or socket that is
// opened does not.
func Changes(r *journal.Row) bool {
	if r.Result != 0 {
		return false
	}
	switch r.Op {
	case journal.OpOpen:
		return r.Flags&journal.FlagCreate != 0 || r.Flags&(journal.FlagWrite|journal.FlagTrunc) != 0 && r.Flags&journal.FlagPseudo == 0
	case journal.OpUnlink, journal.OpRename, journal.OpLink, journal.OpSymlink, journal.OpMkdir, journal.OpMknod, journal.OpTruncate,
		journal.OpChmod, journal.OpChown, journal.OpXattr, journal.OpBind:
		return true
	}
	return false
}
