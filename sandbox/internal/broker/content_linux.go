package broker

import (
	"errors"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// openedFile adds the content of a regular file to the row.
func (w *worker) openedFile(c *call, e *record.Event, o *opening) {
	if e.Path == w.Control && w.Recorder.Phase() == journal.PhaseSetup && !w.Commanded() {
		e.Flags |= journal.FlagControl
	}
	tmp := o.flags&unix.O_TMPFILE == unix.O_TMPFILE
	created := tmp || o.flags&unix.O_CREAT != 0 && o.absent && o.st.Size == 0
	var f *record.File
	if created {
		f, created = w.Recorder.Create(&o.st)
	} else {
		f = w.Recorder.File(&o.st)
	}
	f.Lock()
	defer f.Unlock()
	defer o.close() // before the next look at the file: it would take us for a writer
	e.Object = f.Number
	if o.nameless {
		f.Nameless(c.proc)
	}
	cut := o.flags&unix.O_TRUNC != 0 && !created
	if created || cut {
		w.Recorder.Touched(e.Path)
	}
	switch {
	case created:
		e.Flags |= journal.FlagCreate
		newName(e, path.Base(e.Path))
	case cut:
		e.Flags |= journal.FlagTrunc
		if result, err := w.cut(f, o); err != nil {
			w.fatal(err)
			undone(e)
			w.fail(c, e, unix.EIO)
			return
		} else if result != 0 {
			undone(e)
			w.fail(c, e, result)
			return
		}
	default:
		if err := w.expose(c, e, f, o.fd, e.Flags&journal.FlagRead != 0); err != nil {
			w.fatal(err)
		}
	}
	if o.writes() {
		if err := w.Recorder.Writable(f, c.proc, e.Path, o.fd); err != nil {
			undone(e)
			w.fail(c, e, errnoOf(err))
			return
		}
	}
	if o.named != "" && e.Flags&journal.FlagRead != 0 && w.Recorder.Hook(f, e.Path, o.named) {
		if err := w.Recorder.Guard(c.proc, e.Path, journal.Guard{Kind: journal.GuardHook}); err != nil {
			w.fatal(err)
		}
	}
	w.handOver(c, e, o)
}

// undone takes back what a row says of an operation that failed in the end.
func undone(e *record.Event) {
	e.Flags &^= journal.FlagCreate | journal.FlagTrunc | journal.FlagText |
		journal.FlagLive | journal.FlagUnstable | journal.FlagUnreadable
	e.Dir, e.Origin, e.Size, e.Detail.SHA256, e.Detail.Text = 0, 0, 0, nil, nil
}

func newName(e *record.Event, name string) {
	e.Flags |= journal.FlagText
	e.Dir, e.Origin = journal.DirOut, journal.OriginRun
	e.Size, e.Detail.Text = uint64(len(name)), []byte(name)
}

// expose puts the file's present version into the row. Opening for writing
// alone exposes it too unless the run wrote it: appending to a foreign file must
// not make it the run's own.
func (w *worker) expose(c *call, e *record.Event, f *record.File, fd int, read bool) error {
	if !read && f.Ours() && !f.Pending() {
		return nil
	}
	f.Exposed(e.Path)
	v, err := w.version(f, fd, read)
	if err != nil {
		return err
	}
	e.Flags |= v.Flags
	if !read && f.Ours() {
		e.Flags &^= v.Flags // nothing is exposed, the version was only dated
		return nil
	}
	if v.Flags&journal.FlagUnreadable != 0 {
		return nil
	}
	e.Dir, e.Origin, e.Size = journal.DirIn, v.Origin, v.Size
	e.Detail.SHA256 = v.SHA256[:]
	if v.Flags&journal.FlagLive != 0 {
		f.Reading(c.proc)
	}
	return nil
}

// version reads a file through fd, or through a second descriptor with rights in
// reserve if fd is not for reading.
func (w *worker) version(f *record.File, fd int, readable bool) (record.Version, error) {
	if !readable {
		var err error
		var second int
		if e := w.rights.With(func() {
			second, err = unix.Openat(w.proc, again(fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		}); e != nil {
			return record.Version{}, e
		}
		if err != nil {
			return record.Version{Flags: journal.FlagUnreadable, Origin: journal.OriginInput}, nil
		}
		defer unix.Close(second)
		fd = second
	}
	return w.Recorder.Version(f, fd)
}

// cut dates what the run wrote and truncates.
func (w *worker) cut(f *record.File, o *opening) (syscall.Errno, error) {
	if f.Pending() {
		if _, err := w.version(f, o.fd, false); err != nil {
			return 0, err
		}
	}
	if o.writes() {
		if err := unix.Ftruncate(o.fd, 0); err != nil {
			return errnoOf(err), nil
		}
	} else { // O_RDONLY|O_TRUNC cuts as well
		fd, err := unix.Openat(w.proc, again(o.fd), unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
		if err != nil {
			return errnoOf(err), nil
		}
		unix.Close(fd)
	}
	f.Emptied()
	return 0, nil
}

// dateBefore dates a version before this open becomes a writer itself: then a
// lease tells whether there are others. A path that changes meanwhile costs
// nothing: the version is dated after the open too.
func (w *worker) dateBefore(st *unix.Stat_t) {
	f := w.Recorder.Known(st)
	if f == nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	f.Lock()
	defer f.Unlock()
	if !f.Pending() {
		return
	}
	var err error
	if e := w.rights.With(func() { err = w.Recorder.Date(f) }); e != nil || err != nil {
		w.fatal(errors.Join(e, err))
	}
}

// pseudo tells a file system whose files have no content of their own.
func (w *worker) pseudo(fd int, st *unix.Stat_t) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.devices[st.Dev]
	if ok {
		return known
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, binfmtMagic, nsfsMagic:
		known = true
	}
	w.devices[st.Dev] = known
	return known
}

const (
	binfmtMagic = 0x42494e4d
	nsfsMagic   = 0x6e736673
)
