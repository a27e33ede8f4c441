package broker

import (
	"errors"
	"path"
	"strconv"
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
	at      place
	flags   uint64
	mode    uint64
	resolve uint64
	how     bool // openat2: flags are checked by the kernel
	fd      int
	st      unix.Stat_t
	absent  bool // nothing had the name before
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
	var err syscall.Errno
	if o.asked, err = w.path(c, addr); err == 0 {
		o.at, err = w.start(c, dirfd, o.asked)
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer o.at.close()
	if o.flags&unix.O_PATH != 0 {
		w.openPath(c, e, o)
		return
	}
	if !o.how && !o.creates() {
		o.mode = 0
	}
	if o.creates() {
		e.Detail.Mode = uint32(o.mode & 07777)
		if err := w.takeUmask(c); err != 0 {
			w.fail(c, e, err)
			return
		}
	}
	if (o.writes() || o.creates() || o.flags&unix.O_TRUNC != 0) && w.gone(c, e) {
		return
	}
	last := o.flags&unix.O_NOFOLLOW == 0
	slow := false
	err = w.follow(c, &o.at, last, func(d int, p string) syscall.Errno {
		var e syscall.Errno
		e, slow = w.tryOpen(c, o, d, p)
		return e
	})
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
	return w.reallyOpen(o, d, p), false
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

func (w *worker) reallyOpen(o *opening, d int, p string) syscall.Errno {
	flags := o.flags&^unix.O_TRUNC | unix.O_CLOEXEC | unix.O_NOCTTY
	var err error
	if o.how {
		h := unix.OpenHow{Flags: flags, Mode: o.mode, Resolve: o.resolve}
		o.fd, err = unix.Openat2(d, p, &h)
	} else {
		o.fd, err = unix.Openat(d, p, int(flags), uint32(o.mode&07777))
	}
	return errnoOf(err)
}

// opened looks at what was opened, writes the rows and hands it over.
func (w *worker) opened(c *call, e *record.Event, o *opening, result syscall.Errno) {
	if result != 0 {
		e.Path = w.name(c, o.at, o.flags&unix.O_NOFOLLOW == 0)
		w.asked(e, o.asked)
		w.fail(c, e, result)
		return
	}
	defer unix.Close(o.fd)
	if err := unix.Fstat(o.fd, &o.st); err != nil {
		w.fail(c, e, errnoOf(err))
		return
	}
	if e.Path = w.nameOf(o.fd); e.Path == "" {
		e.Path = w.lexical(o.at)
	}
	w.asked(e, o.asked)
	switch kind := o.st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		e.Flags |= journal.FlagDirectory
	case kind != unix.S_IFREG || w.pseudo(o.fd, &o.st):
		e.Flags |= journal.FlagPseudo
	default:
		w.openedFile(c, e, o)
		return
	}
	w.handOver(c, e, o)
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
	if err := w.reply(c, 0, func() error { return w.Listener.Fail(c.ID, en) }); err != nil {
		w.fatal(err)
	}
}

// openedFile adds the content of a regular file to the row.
func (w *worker) openedFile(c *call, e *record.Event, o *opening) {
	if e.Path == w.Control && w.Recorder.Phase() == journal.PhaseSetup {
		e.Flags |= journal.FlagControl
	}
	tmp := o.flags&unix.O_TMPFILE == unix.O_TMPFILE
	created := tmp || o.flags&unix.O_CREAT != 0 && o.absent && o.st.Size == 0
	f := w.Recorder.File(&o.st, created)
	f.Lock()
	defer f.Unlock()
	e.Object = f.Number
	if w.nameOf(o.fd) == "" {
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
			w.fail(c, e, unix.EIO)
			return
		} else if result != 0 {
			e.Flags &^= journal.FlagTrunc
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
			w.fail(c, e, errnoOf(err))
			return
		}
	}
	w.handOver(c, e, o)
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

// wait opens what blocks until a peer comes, on a thread of its own.
func (w *worker) wait(c *call, e *record.Event, o *opening) {
	const most = 512 // threads
	mine := *c
	at := o.at
	if at.own {
		fd, err := unix.FcntlInt(uintptr(at.dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			w.fail(c, e, errnoOf(err))
			return
		}
		at.dir = fd
	}
	e.Proc = c.proc
	e.Detail.Syscall = c.name
	pending := *e
	pending.Path = w.name(c, o.at, true)
	pending.Flags |= journal.FlagPseudo
	w.mu.Lock()
	full := len(w.stuck) >= most
	if !full {
		w.stuck[c.ID] = &pending
	}
	w.mu.Unlock()
	if full {
		at.close()
		w.fail(c, e, unix.ENFILE)
		return
	}
	second := *o
	second.at = at
	umask := w.umask
	go func() {
		defer second.at.close()
		t, err := w.thread()
		if err != nil {
			w.fatal(err)
			return
		}
		unix.Umask(umask)
		t.umask = umask
		result := t.reallyOpen(&second, at.dir, at.path)
		w.mu.Lock()
		_, waiting := w.stuck[mine.ID]
		delete(w.stuck, mine.ID)
		w.mu.Unlock()
		if !waiting { // the run is over, the call is void already
			if result == 0 {
				unix.Close(second.fd)
			}
			return
		}
		t.opened(&mine, e, &second, result)
	}()
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

// controllingTerminal opens the caller's terminal: /dev/tty would be the
// broker's. It is found among the caller's descriptors by its number.
func (w *worker) controllingTerminal(c *call, flags int) (int, syscall.Errno) {
	device := w.terminalOf(c)
	if device == 0 {
		return -1, unix.ENXIO
	}
	flags = flags&(unix.O_ACCMODE|unix.O_NONBLOCK) | unix.O_NOCTTY | unix.O_CLOEXEC
	for i := range 64 {
		link := strconv.Itoa(c.tid) + "/fd/" + strconv.Itoa(i)
		var st unix.Stat_t
		if unix.Fstatat(w.proc, link, &st, 0) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != device {
			continue
		}
		if fd, err := unix.Openat(w.proc, link, flags, 0); err == nil {
			return fd, 0
		}
	}
	if unix.Major(device) >= 136 && unix.Major(device) <= 143 { // a pty of the sandbox
		minor := (unix.Major(device)-136)<<20 | unix.Minor(device)
		if fd, err := unix.Open("/dev/pts/"+strconv.Itoa(int(minor)), flags, 0); err == nil {
			return fd, 0
		}
	}
	return -1, unix.ENXIO
}

func (w *worker) terminalOf(c *call) uint64 {
	fd, err := unix.Openat(w.proc, strconv.Itoa(c.tid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0
	}
	text := string(b[:n])
	// The name of the program stands in parentheses and may hold anything.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 5 {
		return 0
	}
	number, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		return 0
	}
	nr := uint32(number)
	return unix.Mkdev(nr>>8&0xfff, nr&0xff|nr>>12&0xfff00)
}
