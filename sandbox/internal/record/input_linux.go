package record

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
)

// A row tells what a file held when the run opened it. Whoever changes the file
// afterwards, outside, gives the run what no row tells. So each file is looked at
// again at the end.

// stamp says which version of a file was exposed.
type stamp struct {
	set          bool
	settled      bool // a change shows in the times
	size         int64
	mtime, ctime unix.Timespec
}

// maxRehash is the size up to which a file is read again to learn whether its
// content changed, in bytes.
const maxRehash = 64 << 20

// maxChanged bounds the rows that name changed files.
const maxChanged = 64

// stamp notes the version that was read just now. f.last is of the one before.
func (f *File) stamp(s *objects.Stored) {
	now := stamp{true, s.Settled, int64(s.Size), s.Mtim, s.Ctim}
	if f.seen.set && !f.ours && !f.pending && (s.Raw != f.last || now.mtime != f.seen.mtime && !f.handled.Load()) {
		f.changed = true
	}
	f.seen = now
}

// Exposed notes where the run found what it got. The file is locked.
func (f *File) Exposed(path string) {
	if !f.pending {
		f.path = path
	}
}

// Handled notes that the run is about to change the file's times, mode or names,
// so that these do not show that somebody else changed the content.
func (f *File) Handled() { f.handled.Store(true) }

// CheckInputs writes a lost row for each input file that was changed from outside
// after the run got what it held: the new content may have reached the run through
// a descriptor or a mapping it had. A file that is gone, or another file under its
// name, is not looked at. All versions are dated and no process of the run is
// left.
func (r *Recorder) CheckInputs() error {
	changed := 0
	for _, f := range r.byNumber() {
		if f == nil {
			continue
		}
		f.Lock()
		why := ""
		if f.seen.set && !f.ours && !f.pending {
			why = r.differs(f)
		}
		path := f.path
		f.Unlock()
		if why == "" {
			continue
		}
		if changed++; changed > maxChanged {
			continue
		}
		if err := r.Lost(0, "input file "+strconv.Quote(path)+" "+why); err != nil {
			return err
		}
	}
	if changed > maxChanged {
		return r.Lost(0, fmt.Sprintf("%d more input files changed outside while the run could read them", changed-maxChanged))
	}
	return nil
}

const changedOutside = "changed outside while the run could read it"

// differs says how a file is not what was exposed, "" if it is.
func (r *Recorder) differs(f *File) string {
	if f.changed {
		return changedOutside
	}
	if f.path == "" {
		return ""
	}
	var st unix.Stat_t
	switch err := unix.Lstat(f.path, &st); err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return ""
	default:
		return "cannot be looked at again: " + err.Error()
	}
	if r.Known(&st) != f {
		return ""
	}
	handled := f.handled.Load()
	switch {
	case st.Size != f.seen.size, st.Mtim != f.seen.mtime && !handled:
		return changedOutside
	case st.Mtim == f.seen.mtime && st.Ctim == f.seen.ctime && f.seen.settled:
		return ""
	case !handled && f.seen.settled && st.Size > maxRehash:
		return changedOutside
	}
	// Only the content says more: the mode or the number of names changed, the run
	// set the times, or the file was so new that two changes have the same times.
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "cannot be read again: " + err.Error()
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil || r.Known(&st) != f {
		return "" // gone meanwhile
	}
	if sum, err := r.store.Digest(fd); err != nil {
		return "cannot be read again: " + err.Error()
	} else if sum != f.last {
		return changedOutside
	}
	return ""
}
