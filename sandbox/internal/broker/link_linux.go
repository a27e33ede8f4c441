package broker

import (
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

func (w *worker) link(c *call, dir1 int32, addr1 uint64, dir2 int32, addr2 uint64, flags int) {
	e := &record.Event{Op: journal.OpLink}
	p, err := w.path(c, addr1)
	var from place
	if err == 0 {
		from, err = w.start(c, dir1, p)
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer from.close()
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		w.fail(c, e, unix.EINVAL)
		return
	}
	follow := flags&unix.AT_SYMLINK_FOLLOW != 0
	fd := -1
	if p == "" && flags&unix.AT_EMPTY_PATH != 0 && from.own {
		fd, from.own = from.dir, false
	} else if fd, err = w.target(c, &from, follow); err != 0 {
		e.Path = w.name(c, from, follow)
		w.asked(e, p)
		w.fail(c, e, err)
		return
	}
	defer unix.Close(fd)
	source := w.nameOf(fd)
	named := source
	if source == "" {
		source = w.lexical(from)
	}
	s, ok := w.at(c, e, dir2, addr2)
	if !ok {
		return
	}
	defer s.close()
	e.Path, e.Path2, e.Detail.Asked = source, s.name, ""
	if w.permit(fd, named, scope.Write) != 0 {
		// A name of a foreign file in a place of the run's own would make it writable.
		w.fail(c, e, w.foreignLink(fd, named))
		return
	}
	if err := w.decideName(s.dir, s.base, s.name); err != 0 {
		w.fail(c, e, err)
		return
	}
	if w.gone(c, e) {
		return
	}
	w.names.Lock()
	defer w.names.Unlock()
	var before, st, second unix.Stat_t
	var f *record.File
	_ = unix.Fstat(fd, &before)
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		if f = w.Recorder.Known(&st); f != nil && st.Nlink == 0 {
			w.Recorder.Unnamed(f, false) // O_TMPFILE: this may be its first name
		}
	}
	// The descriptor, not the path again: what is linked is what is recorded.
	result := errnoOf(unix.Linkat(w.proc, again(fd), s.dir, s.base, unix.AT_SYMLINK_FOLLOW))
	if f != nil && st.Nlink == 0 && result != 0 {
		w.Recorder.Unnamed(f, true)
	}
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		f := w.Recorder.File(&st)
		e.Object = f.Number
		f.Handled()
		// Equal times, down to ctime, show that it is the same file still: who opened
		// the new name meanwhile holds this file.
		if result == 0 && unix.Fstatat(s.dir, s.base, &second, unix.AT_SYMLINK_NOFOLLOW) == nil && sameVersion(&st, &second) {
			w.Recorder.Alias(f, &second)
		}
	}
	if result == 0 {
		result = keepLink(s, &before)
	}
	w.Recorder.Touched(source, s.name)
	w.named(c, e, path.Base(s.name), result)
}

// keepLink takes a new name back that is no link to look at: on an overlay the new
// name of a lower file gets another inode number, which programs take for another
// file (git clone ends with an error). They copy if told that a link cannot be made.
// The caller holds w.names, so the name is the one just made.
func keepLink(s slot, source *unix.Stat_t) syscall.Errno {
	var made unix.Stat_t
	if err := unix.Fstatat(s.dir, s.base, &made, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return errnoOf(err)
	}
	if made.Ino == source.Ino && made.Dev == source.Dev {
		return 0
	}
	if err := unix.Unlinkat(s.dir, s.base, 0); err != nil {
		return errnoOf(err)
	}
	return unix.EXDEV
}

// foreignLink is the errno for a link to what is not the run's own: that of another
// mount, if the run may know of it.
func (w *worker) foreignLink(fd int, name string) syscall.Errno {
	if e := w.permit(fd, name, scope.Read); e != 0 {
		return e
	}
	return unix.EXDEV
}

func sameVersion(a, b *unix.Stat_t) bool {
	return a.Mode == b.Mode && a.Nlink == b.Nlink && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim && a.Uid == b.Uid
}
