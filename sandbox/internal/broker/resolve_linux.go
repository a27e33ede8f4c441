package broker

import (
	"path"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A place is where a path starts: a directory descriptor (or AT_FDCWD, for
// absolute paths only: the worker's own directory means nothing) and the rest.
type place struct {
	dir  int
	path string
	own  bool // dir is to be closed
}

func (p *place) close() {
	if p.own {
		unix.Close(p.dir)
		p.own = false
	}
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return unix.EIO
}

// start is the place that a path argument means for the caller.
func (w *worker) start(c *call, dirfd int32, p string) (place, syscall.Errno) {
	if strings.HasPrefix(p, "/") {
		return place{dir: unix.AT_FDCWD, path: p}, 0
	}
	link := strconv.AppendInt(w.scratch[:0], int64(c.tid), 10)
	if dirfd == unix.AT_FDCWD {
		link = append(link, "/cwd\x00"...)
	} else if dirfd < 0 {
		return place{}, unix.EBADF
	} else {
		link = append(strconv.AppendInt(append(link, "/fd/"...), int64(dirfd), 10), 0)
	}
	fd, err := openLink(w.proc, link)
	if err == unix.EACCES || err == unix.EPERM {
		if e := w.rights.With(func() { fd, err = openLink(w.proc, link) }); e != nil {
			return place{}, unix.EIO
		}
	}
	if dirfd != unix.AT_FDCWD && err != 0 {
		return place{}, unix.EBADF
	}
	if err == unix.EACCES || err == unix.EPERM {
		err = unix.ENOENT // a refusal would need a path, and there is none
	}
	if err != 0 {
		return place{}, err
	}
	return place{dir: fd, path: p, own: true}, 0
}

// follow runs f on a place. The broker has no process of its own in the
// sandbox's /proc, so a path through /proc/self ends in ENOENT: it is walked,
// the caller's id is put in, and f runs again.
func (w *worker) follow(c *call, p *place, last bool, f func(dir int, path string) syscall.Errno) syscall.Errno {
	e := f(p.dir, p.path)
	for range 8 {
		if e != unix.ENOENT || p.path == "" {
			break
		}
		next, ok := w.crossProc(c, *p, last)
		if !ok {
			break
		}
		p.close()
		*p = next
		e = f(p.dir, p.path)
	}
	return e
}

// crossProc is quick to say no: a name that is just missing from a directory
// outside /proc needs no walk.
func (w *worker) crossProc(c *call, p place, last bool) (place, bool) {
	dir, base := path.Split(strings.TrimRight(p.path, "/"))
	if base != "" && base != "." && base != ".." {
		if dir == "" {
			dir = "."
		}
		if fd, err := unix.Openat(p.dir, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			var b [1]byte
			_, err := unix.Readlinkat(fd, base, b[:])
			unix.Close(fd)
			if err != nil || !last { // no link, or one that is not followed
				return place{}, false
			}
		}
	}
	found, _ := w.walk(c, p, last)
	return found, found.own
}

const maxLinks = 40 // MAXSYMLINKS of Linux

// walk follows a path component by component. If it crosses /proc/self or
// /proc/thread-self it returns the place there, with the caller's id put in.
// Else it returns the name of what the path leads to, or of what is missing.
func (w *worker) walk(c *call, p place, last bool) (place, string) {
	return w.walkTo(c, p, last, false)
}

// walkTo is walk, and with magic it also returns the place of the first link that
// leads to what a process has open.
func (w *worker) walkTo(c *call, p place, last, magic bool) (place, string) {
	at, todo := "/", p.path
	if strings.HasPrefix(todo, "/") {
		at = "/"
	} else {
		at = "."
	}
	from := p.dir
	if at == "/" {
		from = unix.AT_FDCWD
	}
	cur, err := unix.Openat(from, at, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{}, path.Clean("/" + todo)
	}
	defer func() {
		if cur >= 0 {
			unix.Close(cur)
		}
	}()
	links := 0
	for todo != "" {
		var name string
		name, todo, _ = strings.Cut(todo, "/")
		if name == "" || name == "." {
			continue
		}
		final := strings.Trim(todo, "/") == ""
		fd, err := unix.Openat(cur, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return place{}, path.Clean(w.nameOf(cur) + "/" + name + "/" + todo)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			unix.Close(cur)
			cur = fd
			continue
		}
		if final && !last {
			unix.Close(fd)
			return place{}, path.Clean(w.nameOf(cur) + "/" + name)
		}
		if w.onProc(fd) {
			unix.Close(fd)
			var dir unix.Stat_t
			if err := unix.Fstat(cur, &dir); err == nil && dir.Ino == 1 && (name == "self" || name == "thread-self") {
				id, ok := w.selfOf(c, name)
				if !ok {
					return place{}, path.Clean(w.nameOf(cur) + "/" + name)
				}
				found := place{dir: cur, path: id + "/" + todo, own: true}
				if final {
					found.path = id
				}
				cur = -1
				return found, ""
			}
			if dir.Ino != 1 && magic {
				found := place{dir: cur, path: name + "/" + todo, own: true}
				cur = -1
				return found, ""
			}
			if dir.Ino != 1 { // a magic link: only the kernel can follow it
				next, err := unix.Openat(cur, name, unix.O_PATH|unix.O_CLOEXEC, 0)
				if err != nil {
					return place{}, path.Clean(w.nameOf(cur) + "/" + name)
				}
				unix.Close(cur)
				cur = next
				continue
			}
			if fd, err = unix.Openat(cur, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
				return place{}, path.Clean(w.nameOf(cur) + "/" + name)
			}
		}
		var b [pathMax]byte
		n, err := unix.Readlinkat(fd, "", b[:])
		unix.Close(fd)
		if links++; err != nil || links > maxLinks {
			return place{}, path.Clean(w.nameOf(cur) + "/" + name)
		}
		target := string(b[:n])
		if strings.HasPrefix(target, "/") {
			unix.Close(cur)
			if cur, err = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
				cur = -1
				return place{}, path.Clean(target)
			}
		}
		if todo == "" { // no slash at the end: it would demand a directory
			todo = target
		} else {
			todo = target + "/" + todo
		}
	}
	return place{}, w.nameOf(cur)
}

func (w *worker) onProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// selfOf is what /proc/self or /proc/thread-self would be for the caller.
func (w *worker) selfOf(c *call, name string) (string, bool) {
	field, err := record.Status(w.proc, c.tid)
	if err != nil {
		return "", false
	}
	id := strconv.Itoa(record.Inner(field("NStgid")))
	if name == "thread-self" {
		id += "/task/" + strconv.Itoa(record.Inner(field("NSpid")))
	}
	return id, true
}

// nameOf is the path of a descriptor's object inside the sandbox: the broker
// has the run's root. "" if it has none (a pipe, a memfd).
func (w *worker) nameOf(fd int) string {
	link := append(strconv.AppendInt(append(w.scratch[:0], "self/fd/"...), int64(fd), 10), 0)
	n, err := readLink(w.proc, link, w.page[:])
	if err == unix.ENAMETOOLONG {
		return overlong
	}
	if err != 0 || n == 0 || w.page[0] != '/' {
		return ""
	}
	name := string(w.page[:n])
	if plain, gone := strings.CutSuffix(name, " (deleted)"); gone {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Nlink == 0 {
			name = plain
		}
	}
	if strings.HasPrefix(name, "/memfd:") {
		return ""
	}
	return name
}

// overlong stands for a name that the kernel does not tell, because it is longer
// than PATH_MAX: a program gets so deep with relative calls. No row can hold it,
// so operations there are refused with ENAMETOOLONG.
var overlong = "/" + strings.Repeat("x", scope.MaxPath)

func tooLong(name string) bool { return len(name) > scope.MaxPath }

// shorten cuts an overlong name to one of its ancestors, for the row of a refusal.
func shorten(name string) string {
	if !tooLong(name) {
		return name
	}
	name = name[:scope.MaxPath]
	return name[:max(1, strings.LastIndexByte(name, '/'))]
}

// lexical is the name of a place when nothing better is known.
func (w *worker) lexical(p place) string {
	if strings.HasPrefix(p.path, "/") {
		return path.Clean(p.path)
	}
	return path.Clean("/" + w.nameOf(p.dir) + "/" + p.path)
}

// name is the resolved path of a place that an operation failed on.
func (w *worker) name(c *call, p place, last bool) string {
	if p.path == "" {
		return w.lexical(p)
	}
	if w.Plain != nil {
		return w.plainName(c, p, last)
	}
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !last {
		flags |= unix.O_NOFOLLOW
	}
	if fd, err := unix.Openat(p.dir, p.path, flags, 0); err == nil {
		defer unix.Close(fd)
		if s := w.nameOf(fd); s != "" {
			return s
		}
		return w.lexical(p)
	}
	dir, base := path.Split(strings.TrimRight(p.path, "/"))
	if base != "" && base != "." && base != ".." {
		if dir == "" {
			dir = "."
		}
		if fd, err := unix.Openat(p.dir, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(fd)
			var b [1]byte
			if _, err := unix.Readlinkat(fd, base, b[:]); err != nil || !last {
				return path.Clean(w.nameOf(fd) + "/" + base)
			}
		}
	}
	if _, s := w.walk(c, p, last); s != "" {
		return s
	}
	return w.lexical(p)
}

// target opens what a path leads to, without access to its content.
func (w *worker) target(c *call, p *place, last bool) (int, syscall.Errno) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !last {
		flags |= unix.O_NOFOLLOW
	}
	fd := -1
	var e syscall.Errno
	if w.Plain != nil {
		var l lookup
		if l, e = w.lookup(c, *p, last, 0); e != 0 {
			l.close()
		}
		fd = l.fd
	} else {
		e = w.follow(c, p, last, func(d int, path string) syscall.Errno {
			var err error
			fd, err = unix.Openat(d, path, flags, 0)
			return errnoOf(err)
		})
	}
	if e == 0 && tooLong(w.nameOf(fd)) {
		unix.Close(fd)
		return -1, unix.ENAMETOOLONG
	}
	return fd, e
}

// openLink is openat with O_PATH of a name that ends with NUL. Each call of the
// program needs it: it allocates nothing.
func openLink(dir int, name []byte) (int, syscall.Errno) {
	fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), unix.O_PATH|unix.O_CLOEXEC, 0, 0, 0)
	return int(fd), e
}

// readLink is readlinkat of a name that ends with NUL.
func readLink(dir int, name, to []byte) (int, syscall.Errno) {
	n, _, e := unix.Syscall6(unix.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)), 0, 0)
	return int(n), e
}

// again is the path of an open descriptor below the outer procfs: opening it
// opens the same inode once more.
func again(fd int) string { return "self/fd/" + strconv.Itoa(fd) }
