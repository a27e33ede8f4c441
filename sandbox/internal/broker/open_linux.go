package broker

import (
	"errors"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// An opening is one open call on its way.
type opening struct {
	asked   string // path as the program spelled it
	named   string // in the grade phase: that path, absolute and clean
	at      place
	flags   uint64
	mode    uint64
	resolve uint64
	how     bool // openat2: flags are checked by the kernel
	fd      int
	st      unix.Stat_t
	seen    bool // st is of fd; else of the name, before
	absent  bool // nothing had the name before
	// nameless: what was opened has no path (a memfd, by way of /proc).
	nameless bool
	fixed    bool // no link of /proc is followed
	node     int  // O_PATH descriptor of what is opened again, -1: it is opened by its path
}

const noDir = int32(unix.AT_FDCWD)

func sysOpen(w *worker, c *call) {
	w.open(c, noDir, c.Args[0], &opening{flags: uint64(uint32(c.Args[1])), mode: c.Args[2]})
}

func sysCreat(w *worker, c *call) {
	w.open(c, noDir, c.Args[0], &opening{flags: unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC, mode: c.Args[1]})
}

func sysOpenat(w *worker, c *call) {
	w.open(c, int32(c.Args[0]), c.Args[1], &opening{flags: uint64(uint32(c.Args[2])), mode: c.Args[3]})
}

func sysOpenat2(w *worker, c *call) {
	size := c.Args[3]
	e := &record.Event{Op: journal.OpOpen, Flags: journal.FlagRead}
	if size < unix.SizeofOpenHow || size > pageSize {
		result := syscall.Errno(unix.EINVAL)
		if size > pageSize {
			result = unix.E2BIG
		}
		w.fail(c, e, result)
		return
	}
	b := make([]byte, size)
	if err := w.memory(c, c.Args[2], b); err != 0 {
		w.fail(c, e, err)
		return
	}
	for _, x := range b[unix.SizeofOpenHow:] {
		if x != 0 { // fields of a newer kernel
			w.fail(c, e, unix.E2BIG)
			return
		}
	}
	h := (*unix.OpenHow)(unsafe.Pointer(&b[0]))
	w.open(c, int32(c.Args[0]), c.Args[1], &opening{flags: h.Flags, mode: h.Mode, resolve: h.Resolve, how: true})
}

func (o *opening) creates() bool {
	return o.flags&unix.O_CREAT != 0 || o.flags&unix.O_TMPFILE == unix.O_TMPFILE
}

func (o *opening) close() {
	if o.fd >= 0 {
		unix.Close(o.fd)
		o.fd = -1
	}
}

func (o *opening) writes() bool { return o.flags&unix.O_ACCMODE != unix.O_RDONLY }

func (o *opening) rowFlags() (f journal.Flags) {
	if o.flags&unix.O_PATH != 0 {
		return journal.FlagPath
	}
	if o.flags&unix.O_ACCMODE != unix.O_WRONLY {
		f |= journal.FlagRead
	}
	if o.writes() {
		f |= journal.FlagWrite
	}
	return f
}

func (w *worker) open(c *call, dirfd int32, addr uint64, o *opening) {
	e := &record.Event{Op: journal.OpOpen, Flags: o.rowFlags()}
	e.Detail.Args = map[string]uint64{"flags": o.flags}
	o.fd, o.node = -1, -1
	var err syscall.Errno
	if o.asked, err = w.path(c, addr); err == 0 {
		o.at, err = w.start(c, dirfd, o.asked)
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer o.at.close()
	if w.phase == journal.PhaseGrade {
		o.named = w.lexical(o.at)
	}
	if err := w.throughProc(c, o, o.flags&unix.O_NOFOLLOW == 0 && o.flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL); err != 0 {
		e.Path = o.named
		w.fail(c, e, err)
		return
	}
	if o.flags&unix.O_PATH != 0 {
		w.openPath(c, e, o)
		return
	}
	if !o.how && !o.creates() {
		o.mode = 0
	}
	if o.creates() {
		if tooLong(w.lexical(o.at)) { // before it exists
			e.Path = w.lexical(o.at)
			w.fail(c, e, unix.ENAMETOOLONG)
			return
		}
		e.Detail.Mode = uint32(o.mode & 07777)
		if err := w.takeUmask(c); err != 0 {
			w.fail(c, e, err)
			return
		}
	}
	if (o.writes() || o.creates() || o.flags&unix.O_TRUNC != 0) && w.gone(c, e) {
		return
	}
	if o.writes() && w.Recorder.Full() {
		var err error
		if e := w.rights.With(func() { err = w.Recorder.MakeRoom() }); e != nil || err != nil {
			w.fatal(errors.Join(e, err))
		}
	}
	last := o.flags&unix.O_NOFOLLOW == 0
	slow := false
	if w.Plain != nil {
		err, slow = w.plainOpen(c, o)
	} else {
		err = w.follow(c, &o.at, last, func(d int, p string) syscall.Errno {
			var e syscall.Errno
			e, slow = w.tryOpen(c, o, d, p)
			return e
		})
	}
	if slow {
		w.wait(c, e, o)
		return
	}
	w.opened(c, e, o, err)
}

// openPath lets the kernel perform an open with O_PATH: such a descriptor cannot
// be handed over, and gives no content. Every later use of it is a call of its
// own.
func (w *worker) openPath(c *call, e *record.Event, o *opening) {
	last := o.flags&unix.O_NOFOLLOW == 0
	fd, err := w.target(c, &o.at, last)
	if err != 0 {
		e.Path = w.name(c, o.at, last)
		w.asked(e, o.asked)
		w.fail(c, e, err)
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		e.Flags |= journal.FlagDirectory
	}
	if e.Path = w.nameOf(fd); e.Path == "" {
		e.Path = w.lexical(o.at)
	}
	w.asked(e, o.asked)
	if o.how { // its flags stand in memory: it must not continue
		w.fail(c, e, unix.ENOSYS)
		return
	}
	w.proceed(c, e)
}

func (w *worker) asked(e *record.Event, p string) {
	if p != e.Path {
		e.Detail.Asked = p
	}
}

// tryOpen opens with the program's rights, without O_TRUNC: what a cut destroys
// is dated first. slow: the open waits for a peer (FIFO).
func (w *worker) tryOpen(c *call, o *opening, d int, p string) (e syscall.Errno, slow bool) {
	if o.writes() || o.flags&unix.O_CREAT != 0 || o.flags&(unix.O_NONBLOCK|unix.O_DIRECTORY) == 0 {
		nofollow := 0
		if o.flags&unix.O_NOFOLLOW != 0 {
			nofollow = unix.AT_SYMLINK_NOFOLLOW
		}
		err := unix.Fstatat(d, p, &o.st, nofollow)
		o.absent = err == unix.ENOENT
		if err == nil && o.st.Mode&unix.S_IFMT == unix.S_IFIFO && o.flags&unix.O_NONBLOCK == 0 {
			return 0, true
		}
		if err == nil && o.st.Mode&unix.S_IFMT == unix.S_IFCHR && o.st.Rdev == unix.Mkdev(5, 0) {
			o.fd, e = w.controllingTerminal(c, int(o.flags))
			return e, false
		}
	}
	if o.writes() && !o.absent {
		w.dateBefore(&o.st)
	}
	e = w.openNow(o, d, p)
	return e, e == unix.EAGAIN && o.flags&unix.O_NONBLOCK == 0
}

// openNow never waits: a path that turns into a FIFO after the look at it would
// hold up the worker for ever. EAGAIN: it is one, or somebody has a lease.
func (w *worker) openNow(o *opening, d int, p string) syscall.Errno {
	if o.flags&unix.O_NONBLOCK != 0 {
		return w.reallyOpen(o, d, p, 0)
	}
	const kept = unix.O_APPEND | unix.O_ASYNC | unix.O_DIRECT | unix.O_NOATIME // that F_SETFL would take away
	if e := w.reallyOpen(o, d, p, unix.O_NONBLOCK); e != 0 {
		return e
	}
	err := unix.Fstat(o.fd, &o.st)
	if err == nil && o.st.Mode&unix.S_IFMT == unix.S_IFIFO {
		err = unix.EAGAIN
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(o.fd), unix.F_SETFL, int(o.flags&kept))
	}
	if err != nil {
		unix.Close(o.fd)
	}
	o.seen = err == nil
	return errnoOf(err)
}

func (w *worker) reallyOpen(o *opening, d int, p string, more uint64) syscall.Errno {
	flags := o.flags&^unix.O_TRUNC | unix.O_CLOEXEC | unix.O_NOCTTY | more
	var err error
	if o.node >= 0 {
		flags &^= unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
		o.fd, err = unix.Openat(w.proc, again(o.node), int(flags), w.mode(uint32(o.mode&07777)))
	} else if o.how || o.fixed {
		h := unix.OpenHow{Flags: flags, Mode: o.mode, Resolve: o.resolve}
		if o.fixed {
			h.Resolve |= unix.RESOLVE_NO_MAGICLINKS
		}
		if !o.how { // open takes what it does not know
			h.Flags &= openFlags
			if h.Mode &= 0o7777; !o.creates() {
				h.Mode = 0
			}
		}
		o.fd, err = unix.Openat2(d, p, &h)
	} else {
		o.fd, err = unix.Openat(d, p, int(flags), uint32(o.mode&07777))
	}
	return errnoOf(err)
}

// openFlags are what open knows: openat2 refuses others.
const openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC | unix.O_APPEND | unix.O_NONBLOCK | unix.O_SYNC |
	unix.O_ASYNC | unix.O_DIRECT | unix.O_LARGEFILE | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC | unix.O_TMPFILE

// opened looks at what was opened, writes the rows and hands it over.
func (w *worker) opened(c *call, e *record.Event, o *opening, result syscall.Errno) {
	if result != 0 {
		e.Path = w.name(c, o.at, o.flags&unix.O_NOFOLLOW == 0)
		w.asked(e, o.asked)
		w.unwritten(e, result, o.named)
		w.fail(c, e, result)
		return
	}
	defer o.close()
	if !o.seen {
		if err := unix.Fstat(o.fd, &o.st); err != nil {
			w.fail(c, e, errnoOf(err))
			return
		}
	}
	if e.Path = w.nameOf(o.fd); e.Path == "" {
		e.Path, o.nameless = w.lexical(o.at), true
	}
	w.asked(e, o.asked)
	if tooLong(e.Path) {
		w.fail(c, e, unix.ENAMETOOLONG)
		return
	}
	if w.isReward(o.named) && e.Path != o.named { // a link led the write away
		w.unwritten(e, unix.ELOOP, o.named)
	}
	switch kind := o.st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		e.Flags |= journal.FlagDirectory
	case kind == unix.S_IFIFO && onReadOnly(o.fd):
		// Who is at its other end is not of the run: what comes in would be no
		// row's content.
		w.fail(c, e, unix.EACCES)
		return
	case kind != unix.S_IFREG || w.pseudo(o.fd, &o.st):
		if w.foreignMemory(c, e.Path) || w.procBeyond(c, e.Path) && (o.writes() || strings.Contains(e.Path, "/fdinfo/")) {
			w.fail(c, e, unix.EACCES)
			return
		}
		e.Flags |= journal.FlagPseudo
	default:
		w.openedFile(c, e, o)
		return
	}
	w.handOver(c, e, o)
}

// onReadOnly tells a file of the host: what a run can make lies on writable mounts.
func onReadOnly(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) != nil || fs.Flags&unix.ST_RDONLY != 0
}

func (w *worker) handOver(c *call, e *record.Event, o *opening) {
	err := w.finish(c, e, func() error {
		return w.Listener.AddFD(c.ID, o.fd, o.flags&unix.O_CLOEXEC != 0)
	})
	if err == nil {
		return
	}
	// The program's own limit (EMFILE): the row stays, as an upper bound.
	en := syscall.Errno(unix.EMFILE)
	errors.As(err, &en)
	w.unwritten(e, en, e.Path, o.named)
	if err := w.reply(c, 0, func() error { return w.Listener.Fail(c.ID, en) }); err != nil {
		w.fatal(err)
	}
}

// wait opens what blocks until a peer comes, on a thread of its own.
func (w *worker) wait(c *call, e *record.Event, o *opening) {
	mine, second := *c, *o
	mine.waits = true
	if second.at.own {
		fd, err := unix.FcntlInt(uintptr(o.at.dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			w.fail(c, e, errnoOf(err))
			return
		}
		second.at.dir = fd
	}
	e.Path = w.name(c, o.at, true)
	e.Flags |= journal.FlagPseudo
	umask := w.umask
	w.apart(c, e, func(t *worker) func() {
		if t.Plain == nil {
			unix.Umask(umask)
		}
		t.umask = umask
		result := t.reallyOpen(&second, second.at.dir, second.at.path, 0)
		e.Flags &^= journal.FlagPseudo
		return func() {
			t.opened(&mine, e, &second, result)
			second.at.close()
			if second.node >= 0 {
				unix.Close(second.node)
			}
		}
	})
}
