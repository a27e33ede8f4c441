package broker

import (
	"math"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// object opens what a path argument leads to, so that the change is made to
// what is recorded. False: the call is answered.
func (w *worker) object(c *call, e *record.Event, dirfd int32, addr uint64, flags int) (int, bool) {
	var p string
	var err syscall.Errno
	if addr == 0 && flags&unix.AT_EMPTY_PATH != 0 {
		p = ""
	} else {
		p, err = w.path(c, addr)
	}
	var at place
	if err == 0 {
		at, err = w.start(c, dirfd, p)
	}
	if err != 0 {
		w.fail(c, e, err)
		return -1, false
	}
	last := flags&unix.AT_SYMLINK_NOFOLLOW == 0
	fd := -1
	if p == "" && flags&unix.AT_EMPTY_PATH != 0 && at.own {
		fd = at.dir
	} else {
		defer at.close()
		if fd, err = w.target(c, &at, last); err != 0 {
			e.Path = w.name(c, at, last)
			w.asked(e, p)
			w.fail(c, e, err)
			return -1, false
		}
	}
	if e.Path = w.nameOf(fd); e.Path == "" {
		e.Path = w.lexical(at)
	}
	w.asked(e, p)
	if err := w.permit(fd, w.nameOf(fd), scope.Write); err != 0 {
		unix.Close(fd)
		w.fail(c, e, err)
		return -1, false
	}
	w.mark(e, fd)
	w.Recorder.Touched(e.Path)
	return fd, true
}

// mark notes type and number of an object in its row.
func (w *worker) mark(e *record.Event, fd int) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Flags |= journal.FlagDirectory
	case unix.S_IFREG:
		if f := w.Recorder.Known(&st); f != nil {
			e.Object = f.Number
			f.Handled()
		}
	}
}

// change performs one metadata operation on the opened object.
func (w *worker) change(c *call, e *record.Event, dirfd int32, addr uint64, flags int, f func(fd int) error) {
	fd, ok := w.object(c, e, dirfd, addr, flags)
	if !ok {
		return
	}
	defer unix.Close(fd)
	if w.gone(c, e) {
		return
	}
	w.fail(c, e, errnoOf(f(fd)))
}

func (w *worker) chmod(c *call, dirfd int32, addr, mode uint64, flags int) {
	e := &record.Event{Op: journal.OpChmod, Detail: journal.Detail{Mode: uint32(mode)}}
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		w.fail(c, e, unix.EINVAL)
		return
	}
	w.change(c, e, dirfd, addr, flags, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.EOPNOTSUPP
		}
		return unix.Fchmodat(w.proc, again(fd), uint32(mode)&0o7777, 0)
	})
}

func (w *worker) chown(c *call, dirfd int32, addr, uid, gid uint64, flags int) {
	e := &record.Event{Op: journal.OpChown}
	e.Detail.Args = map[string]uint64{"uid": uint64(uint32(uid)), "gid": uint64(uint32(gid))}
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		w.fail(c, e, unix.EINVAL)
		return
	}
	w.change(c, e, dirfd, addr, flags, func(fd int) error {
		return unix.Fchownat(fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH)
	})
}

func sysTruncate(w *worker, c *call) {
	e := &record.Event{Op: journal.OpTruncate}
	length := int64(c.Args[1])
	e.Detail.Args = map[string]uint64{"length": c.Args[1]}
	fd, ok := w.object(c, e, noDir, c.Args[0], 0)
	if !ok {
		return
	}
	defer unix.Close(fd)
	if w.gone(c, e) {
		return
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && !w.pseudo(fd, &st) {
		w.truncateFile(c, e, fd, &st, length)
		return
	}
	if err == nil {
		err = w.truncate(fd, length)
	}
	w.fail(c, e, errnoOf(err))
}

// truncateFile exposes what a foreign file held, like an open for writing.
func (w *worker) truncateFile(c *call, e *record.Event, fd int, st *unix.Stat_t, length int64) {
	f := w.Recorder.File(st)
	f.Lock()
	defer f.Unlock()
	e.Object = f.Number
	if unix.Faccessat2(fd, "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS) == nil {
		if err := w.expose(c, e, f, fd, false); err != nil {
			w.fatal(err)
		}
	}
	result := errnoOf(w.truncate(fd, length))
	if result == 0 {
		result = errnoOf(w.Recorder.Writable(f, c.proc, e.Path, fd))
	}
	if result != 0 {
		undone(e)
	}
	w.fail(c, e, result)
}

// truncate has no form on O_PATH descriptors: the thread's own directory is the
// outer procfs for the moment.
func (w *worker) truncate(fd int, length int64) error {
	return w.inProc(func() error { return unix.Truncate(again(fd), length) })
}

func (w *worker) inProc(f func() error) error {
	if w.Plain != nil { // it is there for good
		return f()
	}
	if err := unix.Fchdir(w.proc); err != nil {
		return err
	}
	err := f()
	if e := unix.Chdir("/"); err == nil {
		err = e
	}
	return err
}

func sysUtime(w *worker, c *call) {
	w.utime(c, noDir, c.Args[0], c.Args[1], 0, 2, func(v []int64) []unix.Timespec {
		return []unix.Timespec{{Sec: v[0]}, {Sec: v[1]}}
	})
}

func micro(v []int64) []unix.Timespec {
	return []unix.Timespec{{Sec: v[0], Nsec: v[1] * 1000}, {Sec: v[2], Nsec: v[3] * 1000}}
}

func sysUtimes(w *worker, c *call) { w.utime(c, noDir, c.Args[0], c.Args[1], 0, 4, micro) }

func sysFutimesat(w *worker, c *call) {
	w.utime(c, int32(c.Args[0]), c.Args[1], c.Args[2], 0, 4, micro)
}

func sysUtimensat(w *worker, c *call) {
	flags := int(int32(c.Args[3]))
	w.utime(c, int32(c.Args[0]), c.Args[1], c.Args[2], flags, 4, func(v []int64) []unix.Timespec {
		return []unix.Timespec{{Sec: v[0], Nsec: v[1]}, {Sec: v[2], Nsec: v[3]}}
	})
}

func (w *worker) utime(c *call, dirfd int32, addr, times uint64, flags, fields int, read func([]int64) []unix.Timespec) {
	e := &record.Event{Op: journal.OpUtime}
	if addr == 0 && w.Plain != nil {
		flags |= unix.AT_EMPTY_PATH
	}
	if addr == 0 && flags&unix.AT_EMPTY_PATH == 0 {
		// No path: the descriptor's own file. Only times are read from memory.
		w.byDescriptor(c, e, dirfd)
		return
	}
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		w.fail(c, e, unix.EINVAL)
		return
	}
	var ts []unix.Timespec
	if times != 0 {
		b := make([]byte, 8*fields)
		if err := w.memory(c, times, b); err != 0 {
			w.fail(c, e, err)
			return
		}
		ts = read(unsafe.Slice((*int64)(unsafe.Pointer(&b[0])), fields))
		if fields == 4 && c.name != "utimensat" && (ts[0].Nsec < 0 || ts[0].Nsec >= 1e9 || ts[1].Nsec < 0 || ts[1].Nsec >= 1e9) {
			w.fail(c, e, unix.EINVAL)
			return
		}
	}
	w.change(c, e, dirfd, addr, flags, func(fd int) error {
		var at unsafe.Pointer
		if ts != nil {
			at = unsafe.Pointer(&ts[0])
		}
		var none byte
		_, _, err := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), uintptr(unsafe.Pointer(&none)), uintptr(at), unix.AT_EMPTY_PATH, 0, 0)
		if err != 0 {
			return err
		}
		return nil
	})
}

func sysSetxattr(w *worker, c *call) {
	const most = 64 << 10 // XATTR_SIZE_MAX
	e := &record.Event{Op: journal.OpXattr}
	name, err := w.text(c, c.Args[1], 256)
	var value []byte
	switch {
	case err == unix.ENAMETOOLONG:
		err = unix.ERANGE
	case err != 0:
	case c.Args[3] > most:
		err = unix.E2BIG
	default:
		value = make([]byte, c.Args[3])
		if len(value) > 0 {
			err = w.memory(c, c.Args[2], value)
		}
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	w.change(c, e, noDir, c.Args[0], nofollow(c), func(fd int) error {
		return w.inProc(func() error { return unix.Setxattr(again(fd), name, value, int(int32(c.Args[4]))) })
	})
}

func sysRemovexattr(w *worker, c *call) {
	e := &record.Event{Op: journal.OpXattr}
	name, err := w.text(c, c.Args[1], 256)
	if err == unix.ENAMETOOLONG {
		err = unix.ERANGE
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	w.change(c, e, noDir, c.Args[0], nofollow(c), func(fd int) error {
		return w.inProc(func() error { return unix.Removexattr(again(fd), name) })
	})
}

func nofollow(c *call) int {
	if strings.HasPrefix(c.name, "l") {
		return unix.AT_SYMLINK_NOFOLLOW
	}
	return 0
}

// onDescriptor records a change of metadata through a descriptor. Its arguments
// are registers or values, so it may continue.
func onDescriptor(op journal.Op) handler {
	return func(w *worker, c *call) {
		w.byDescriptor(c, &record.Event{Op: op}, int32(c.Args[0]))
	}
}

func (w *worker) byDescriptor(c *call, e *record.Event, fd int32) {
	if fd < 0 {
		w.fail(c, e, unix.EBADF)
		return
	}
	own, err := w.start(c, fd, "")
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer own.close()
	if e.Path = w.nameOf(own.dir); tooLong(e.Path) {
		w.fail(c, e, unix.ENAMETOOLONG)
		return
	}
	if w.Plain != nil {
		w.plainDescriptor(c, e, own.dir)
		return
	}
	e.Detail.Args = map[string]uint64{"fd": uint64(fd) & math.MaxInt32}
	w.mark(e, own.dir)
	if e.Path == "" {
		e.Detail.Note = "descriptor " + strconv.Itoa(int(fd)) + " has no name"
	} else {
		w.Recorder.Touched(e.Path)
	}
	w.proceed(c, e)
}
