package broker

import (
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// calls is what the broker performs or examines, by name: the numbers differ
// between architectures, and arm64 lacks the calls without an *at form.
var calls = map[string]handler{
	"open": sysOpen, "creat": sysCreat, "openat": sysOpenat, "openat2": sysOpenat2,
	"execve": func(w *worker, c *call) { w.exec(c, noDir, c.Args[0], c.Args[1], c.Args[2], 0) },
	"execveat": func(w *worker, c *call) {
		w.exec(c, int32(c.Args[0]), c.Args[1], c.Args[2], c.Args[3], int(int32(c.Args[4])))
	},
	"connect": sysConnect, "bind": sysBind,
	"socket": sysSocket, "sendto": sysSendto,
	"kill": sysKill, "tkill": onSignal(1, 0), "tgkill": onSignal(2, 0, 1), "rt_sigqueueinfo": onSignal(1, 0), "rt_tgsigqueueinfo": onSignal(2, 0, 1),
	"pidfd_open": onProcess(0), "pidfd_send_signal": sysPidfdSignal, "fcntl": sysOwner,
	"prlimit64": sysPrlimit, "sched_setaffinity": onSchedule, "sched_setscheduler": onSchedule,
	"sched_setparam": onSchedule, "sched_setattr": onSchedule, "setpriority": priority(0), "ioprio_set": priority(1),
	"unlink":    func(w *worker, c *call) { w.unlink(c, noDir, c.Args[0], 0) },
	"rmdir":     func(w *worker, c *call) { w.unlink(c, noDir, c.Args[0], unix.AT_REMOVEDIR) },
	"unlinkat":  func(w *worker, c *call) { w.unlink(c, int32(c.Args[0]), c.Args[1], int(int32(c.Args[2]))) },
	"mkdir":     func(w *worker, c *call) { w.mkdir(c, noDir, c.Args[0], c.Args[1]) },
	"mkdirat":   func(w *worker, c *call) { w.mkdir(c, int32(c.Args[0]), c.Args[1], c.Args[2]) },
	"mknod":     func(w *worker, c *call) { w.mknod(c, noDir, c.Args[0], c.Args[1], c.Args[2]) },
	"mknodat":   func(w *worker, c *call) { w.mknod(c, int32(c.Args[0]), c.Args[1], c.Args[2], c.Args[3]) },
	"symlink":   func(w *worker, c *call) { w.symlink(c, c.Args[0], noDir, c.Args[1]) },
	"symlinkat": func(w *worker, c *call) { w.symlink(c, c.Args[0], int32(c.Args[1]), c.Args[2]) },
	"link":      func(w *worker, c *call) { w.link(c, noDir, c.Args[0], noDir, c.Args[1], 0) },
	"linkat": func(w *worker, c *call) {
		w.link(c, int32(c.Args[0]), c.Args[1], int32(c.Args[2]), c.Args[3], int(int32(c.Args[4])))
	},
	"rename":   func(w *worker, c *call) { w.rename(c, noDir, c.Args[0], noDir, c.Args[1], 0) },
	"renameat": func(w *worker, c *call) { w.rename(c, int32(c.Args[0]), c.Args[1], int32(c.Args[2]), c.Args[3], 0) },
	"renameat2": func(w *worker, c *call) {
		w.rename(c, int32(c.Args[0]), c.Args[1], int32(c.Args[2]), c.Args[3], uint(uint32(c.Args[4])))
	},
	"truncate": sysTruncate,
	"chmod":    func(w *worker, c *call) { w.chmod(c, noDir, c.Args[0], c.Args[1], 0) },
	"fchmodat": func(w *worker, c *call) { w.chmod(c, int32(c.Args[0]), c.Args[1], c.Args[2], 0) },
	"fchmodat2": func(w *worker, c *call) {
		w.chmod(c, int32(c.Args[0]), c.Args[1], c.Args[2], int(int32(c.Args[3])))
	},
	"chown":  func(w *worker, c *call) { w.chown(c, noDir, c.Args[0], c.Args[1], c.Args[2], 0) },
	"lchown": func(w *worker, c *call) { w.chown(c, noDir, c.Args[0], c.Args[1], c.Args[2], unix.AT_SYMLINK_NOFOLLOW) },
	"fchownat": func(w *worker, c *call) {
		w.chown(c, int32(c.Args[0]), c.Args[1], c.Args[2], c.Args[3], int(int32(c.Args[4])))
	},
	"utime": sysUtime, "utimes": sysUtimes, "futimesat": sysFutimesat, "utimensat": sysUtimensat,
	"setxattr": sysSetxattr, "lsetxattr": sysSetxattr, "removexattr": sysRemovexattr, "lremovexattr": sysRemovexattr,
	"fchmod": onDescriptor(journal.OpChmod), "fchown": onDescriptor(journal.OpChown),
	"fsetxattr": onDescriptor(journal.OpXattr), "fremovexattr": onDescriptor(journal.OpXattr),
	"ioctl": onDescriptor(journal.OpXattr),
}

// at opens the directory of a path argument. False: the call is answered.
func (w *worker) at(c *call, e *record.Event, dirfd int32, addr uint64) (slot, bool) {
	p, err := w.path(c, addr)
	var at place
	if err == 0 {
		at, err = w.start(c, dirfd, p)
	}
	if err != 0 {
		w.fail(c, e, err)
		return slot{}, false
	}
	defer at.close()
	s, err := w.slot(c, &at)
	if err != 0 {
		e.Path = w.name(c, at, false)
		w.asked(e, p)
		w.fail(c, e, err)
		return slot{}, false
	}
	e.Path = s.name
	w.asked(e, p)
	return s, true
}

// mine is at for a name that the run may change.
func (w *worker) mine(c *call, e *record.Event, dirfd int32, addr uint64) (slot, bool) {
	s, ok := w.at(c, e, dirfd, addr)
	if !ok {
		return s, false
	}
	if err := w.decideName(s.dir, s.base, s.name); err != 0 {
		s.close()
		w.fail(c, e, err)
		return slot{}, false
	}
	return s, true
}

// named finishes an operation that makes a name: the name is content.
func (w *worker) named(c *call, e *record.Event, name string, result syscall.Errno) {
	if result == 0 {
		newName(e, name)
		if w.Plain != nil {
			w.Plain.made(e.Path)
			w.Plain.made(e.Path2)
		}
	}
	w.fail(c, e, result)
}

func (w *worker) mkdir(c *call, dirfd int32, addr, mode uint64) {
	e := &record.Event{Op: journal.OpMkdir, Detail: journal.Detail{Mode: uint32(mode)}}
	s, ok := w.mine(c, e, dirfd, addr)
	if !ok {
		return
	}
	defer s.close()
	if err := w.takeUmask(c); err != 0 {
		w.fail(c, e, err)
		return
	}
	if w.gone(c, e) {
		return
	}
	w.Recorder.Touched(s.name)
	w.named(c, e, path.Base(s.name), errnoOf(unix.Mkdirat(s.dir, s.base, w.mode(uint32(mode)))))
}

func (w *worker) mknod(c *call, dirfd int32, addr, mode, dev uint64) {
	e := &record.Event{Op: journal.OpMknod, Detail: journal.Detail{Mode: uint32(mode)}}
	s, ok := w.mine(c, e, dirfd, addr)
	if !ok {
		return
	}
	defer s.close()
	if err := w.takeUmask(c); err != 0 {
		w.fail(c, e, err)
		return
	}
	if w.gone(c, e) {
		return
	}
	w.Recorder.Touched(s.name)
	w.named(c, e, path.Base(s.name), errnoOf(unix.Mknodat(s.dir, s.base, w.mode(uint32(mode)), int(uint32(dev)))))
}

func (w *worker) symlink(c *call, target uint64, dirfd int32, addr uint64) {
	e := &record.Event{Op: journal.OpSymlink}
	to, err := w.path(c, target)
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	s, ok := w.mine(c, e, dirfd, addr)
	if !ok {
		return
	}
	defer s.close()
	if w.gone(c, e) {
		return
	}
	w.Recorder.Touched(s.name)
	w.named(c, e, path.Base(s.name)+"\n"+to, errnoOf(unix.Symlinkat(to, s.dir, s.base)))
}

func (w *worker) unlink(c *call, dirfd int32, addr uint64, flags int) {
	e := &record.Event{Op: journal.OpUnlink}
	s, ok := w.mine(c, e, dirfd, addr)
	if !ok {
		return
	}
	defer s.close()
	if w.gone(c, e) {
		return
	}
	if flags&unix.AT_REMOVEDIR != 0 {
		e.Flags |= journal.FlagDirectory
	}
	w.names.Lock()
	defer w.names.Unlock()
	p, err := w.lastName(s, e)
	if err != nil {
		w.fatal(err)
	}
	w.Recorder.Touched(s.name)
	result := errnoOf(unix.Unlinkat(s.dir, s.base, flags))
	w.parted(p)
	w.fail(c, e, result)
}

// A parting is a file that is about to lose a name.
type parting struct {
	file *record.File // locked, or nil
	fd   int          // keeps the inode until parted
}

// lastName dates what the run wrote to a file that is about to lose its last
// name. The caller holds names, so that the name leads to the same file until
// parted.
func (w *worker) lastName(s slot, e *record.Event) (parting, error) {
	fd, err := unix.Openat(s.dir, s.base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return parting{}, nil
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return parting{}, nil
	}
	p := parting{w.Recorder.Known(&st), fd}
	if p.file == nil {
		unix.Close(fd)
		return p, nil
	}
	e.Object = p.file.Number
	p.file.Handled()
	p.file.Lock()
	if st.Nlink != 1 || !p.file.Pending() {
		return p, nil
	}
	if e := w.rights.With(func() { err = w.Recorder.Date(p.file) }); e != nil {
		err = e
	}
	return p, err
}

// parted notes that a file lost its last name, before its inode number is free.
func (w *worker) parted(p parting) {
	if p.file == nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(p.fd, &st) == nil && st.Nlink == 0 {
		w.Recorder.Unnamed(p.file, true)
	}
	p.file.Unlock()
	unix.Close(p.fd)
}

func (w *worker) rename(c *call, dir1 int32, addr1 uint64, dir2 int32, addr2 uint64, flags uint) {
	e := &record.Event{Op: journal.OpRename}
	from, ok := w.at(c, e, dir1, addr1)
	if !ok {
		return
	}
	defer from.close()
	to, ok := w.at(c, e, dir2, addr2)
	if !ok {
		return
	}
	defer to.close()
	e.Path, e.Path2, e.Detail.Asked = from.name, to.name, ""
	for _, end := range []slot{from, to} {
		if err := w.decideName(end.dir, end.base, end.name); err != 0 {
			w.fail(c, e, err)
			return
		}
	}
	if w.gone(c, e) {
		return
	}
	var st unix.Stat_t
	moved := unix.Fstatat(from.dir, strings.TrimRight(from.base, "/"), &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	w.names.Lock()
	defer w.names.Unlock()
	var over parting
	if flags&(unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE) == 0 {
		var err error
		var gone record.Event
		if over, err = w.lastName(to, &gone); err != nil {
			w.fatal(err)
		}
	}
	dir := moved && st.Mode&unix.S_IFMT == unix.S_IFDIR
	if flags&unix.RENAME_EXCHANGE != 0 {
		var other unix.Stat_t
		dir = dir || unix.Fstatat(to.dir, strings.TrimRight(to.base, "/"), &other, unix.AT_SYMLINK_NOFOLLOW) == nil && other.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	if dir { // what is below it moves too
		e.Flags |= journal.FlagDirectory
	}
	if dir || flags&unix.RENAME_EXCHANGE != 0 {
		w.Recorder.Moved(from.name, to.name)
	}
	w.Recorder.Touched(from.name, to.name)
	result := errnoOf(unix.Renameat2(from.dir, from.base, to.dir, to.base, flags))
	if result == unix.EXDEV && flags&^unix.RENAME_NOREPLACE == 0 {
		result = moveDir(from.dir, strings.TrimRight(from.base, "/"), to.dir, strings.TrimRight(to.base, "/"), flags == 0, 0)
	}
	w.parted(over)
	if result == 0 && moved && st.Mode&unix.S_IFMT == unix.S_IFREG {
		if f := w.Recorder.Known(&st); f != nil {
			f.Handled()
			f.Lock()
			f.Renamed(to.name)
			f.Unlock()
			if !dir { // a row of a folder has no object
				e.Object = f.Number
			}
		}
	}
	w.named(c, e, path.Base(to.name), result)
}

// A slot is a name in a directory: what operations on names act on.
type slot struct {
	dir  int
	base string // as the program spelled it, trailing slashes included
	name string // resolved path
}

func (s *slot) close() { unix.Close(s.dir) }

// slot opens the directory of a path and leaves the last component alone.
func (w *worker) slot(c *call, p *place) (slot, syscall.Errno) {
	if p.path == "" {
		return slot{}, unix.ENOENT
	}
	trimmed := strings.TrimRight(p.path, "/")
	dir, base := path.Split(trimmed)
	slashes := p.path[len(trimmed):]
	switch {
	case trimmed == "":
		dir, base, slashes = "/", ".", ""
	case dir == "":
		dir = "."
	}
	var s slot
	parent := place{dir: p.dir, path: dir}
	var e syscall.Errno
	if w.Plain != nil {
		s.dir, e = w.plainDir(c, parent)
	} else {
		e = w.follow(c, &parent, true, func(d int, path string) syscall.Errno {
			fd, err := unix.Openat(d, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			s.dir = fd
			return errnoOf(err)
		})
	}
	parent.close()
	if e != 0 {
		return slot{}, e
	}
	s.base = base + slashes
	s.name = path.Clean("/" + w.nameOf(s.dir) + "/" + base)
	if tooLong(s.name) {
		s.close()
		return slot{}, unix.ENAMETOOLONG
	}
	return s, 0
}
