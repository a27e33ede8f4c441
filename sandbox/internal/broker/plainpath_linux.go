package broker

import (
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// Without a process namespace the broker is in the /proc that it reads, and
// /proc/self, wherever a link hides it, would be the broker. So the kernel resolves
// no magic link for it, and what it finds in its own folder is looked up again, step
// by step, with the caller's number put in.

// A lookup is what a path leads to.
type lookup struct {
	fd   int    // of what is there, O_PATH, else -1
	dir  int    // where the last component is missing: its directory, O_PATH, else -1
	base string // and its name
}

func (l *lookup) close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	if l.dir >= 0 {
		unix.Close(l.dir)
	}
	l.fd, l.dir = -1, -1
}

// lookup resolves a path for the caller. With ENOENT the result may hold the directory
// in which the last component is missing. resolve are flags of openat2.
func (w *worker) lookup(c *call, p place, last bool, resolve uint64) (lookup, syscall.Errno) {
	none := lookup{fd: -1, dir: -1}
	if p.path == "" {
		return none, unix.ENOENT
	}
	fd, e := w.openNode(p.dir, p.path, last, resolve)
	if e == 0 && !w.insideOwn(fd) {
		return lookup{fd: fd, dir: -1}, 0
	}
	if e == 0 {
		unix.Close(fd)
	}
	if resolve != 0 && e != 0 {
		return none, e
	}
	if e == unix.ENOENT {
		if l, ok := w.missing(p, last); ok {
			return l, e
		}
	}
	if resolve != 0 || e != 0 && e != unix.ENOENT && e != unix.ELOOP && e != unix.EACCES && e != unix.ENOTDIR && e != unix.EXDEV {
		return none, e
	}
	return w.steps(c, p, last)
}

func (w *worker) openNode(dir int, p string, last bool, resolve uint64) (int, syscall.Errno) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve}
	if !last {
		how.Flags |= unix.O_NOFOLLOW
	}
	for {
		fd, err := unix.Openat2(dir, p, &how)
		if err != unix.EAGAIN { // a rename somewhere while .. was followed
			return fd, errnoOf(err)
		}
	}
}

// insideOwn tells whether a descriptor leads into the broker's own folder of /proc.
func (w *worker) insideOwn(fd int) bool {
	name := w.nameOf(fd)
	return strings.HasPrefix(name, "/proc/") && within(name, "/proc/"+strconv.Itoa(w.Plain.Self))
}

// missing is quick to say that a name is just not there. False: it may be there for
// the caller, by way of /proc/self or a link.
func (w *worker) missing(p place, last bool) (lookup, bool) {
	dir, base := path.Split(strings.TrimRight(p.path, "/"))
	if base == "" || base == "." || base == ".." {
		return lookup{}, false
	}
	if dir == "" {
		dir = "."
	}
	fd, e := w.openNode(p.dir, dir, true, 0)
	if e != 0 {
		return lookup{}, false
	}
	var b [1]byte
	if _, err := unix.Readlinkat(fd, base, b[:]); err == nil && last || strings.HasPrefix(w.nameOf(fd), "/proc") {
		unix.Close(fd)
		return lookup{}, false
	}
	return lookup{fd: -1, dir: fd, base: base}, true
}

// steps resolves a path component by component.
func (w *worker) steps(c *call, p place, last bool) (lookup, syscall.Errno) {
	none := lookup{fd: -1, dir: -1}
	todo, from := p.path, p.dir
	start := "."
	if strings.HasPrefix(todo, "/") {
		start, from = "/", unix.AT_FDCWD
	}
	cur, err := unix.Openat(from, start, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, errnoOf(err)
	}
	fail := func(e syscall.Errno) (lookup, syscall.Errno) {
		unix.Close(cur)
		return none, e
	}
	for links := 0; ; {
		todo = strings.TrimLeft(todo, "/")
		if todo == "" {
			return lookup{fd: cur, dir: -1}, 0
		}
		name, rest, more := strings.Cut(todo, "/")
		final := strings.Trim(rest, "/") == ""
		fd, err := unix.Openat(cur, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT && final && name != ".." {
			return lookup{fd: -1, dir: cur, base: name}, unix.ENOENT
		}
		if err != nil {
			return fail(errnoOf(err))
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return fail(errnoOf(err))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			unix.Close(cur)
			if cur = fd; more && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return fail(unix.ENOTDIR)
			}
			todo = rest
			continue
		}
		if final && !last && !more {
			unix.Close(cur)
			if w.insideOwn(fd) {
				unix.Close(fd)
				return none, unix.ENOENT
			}
			return lookup{fd: fd, dir: -1}, 0
		}
		if links++; links > maxLinks {
			unix.Close(fd)
			return fail(unix.ELOOP)
		}
		target, next, e := w.readStep(c, cur, fd, name)
		unix.Close(fd)
		if e != 0 {
			return fail(e)
		}
		switch {
		case next >= 0:
			unix.Close(cur)
			cur, todo = next, rest
			continue
		case strings.HasPrefix(target, "/"):
			unix.Close(cur)
			if cur, err = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
				return none, errnoOf(err)
			}
		}
		if todo = target; more {
			todo += "/" + rest
		}
	}
}

// readStep is where a link leads: a text, or for a magic link a descriptor. The link
// fd is name in the directory cur.
func (w *worker) readStep(c *call, cur, fd int, name string) (target string, next int, e syscall.Errno) {
	if w.onProc(fd) {
		var dir unix.Stat_t
		if err := unix.Fstat(cur, &dir); err != nil {
			return "", -1, errnoOf(err)
		}
		if dir.Ino == 1 && (name == "self" || name == "thread-self") {
			id, ok := w.selfOf(c, name)
			if !ok {
				return "", -1, unix.ESRCH
			}
			return id, -1, 0
		}
		if dir.Ino != 1 { // a magic link of a process: only the kernel can follow it
			if w.process(w.nameOf(cur), scope.Read) != 0 {
				return "", -1, unix.ENOENT
			}
			if w.procBeyond(c, w.nameOf(cur)) {
				return "", -1, unix.EACCES
			}
			next, err := unix.Openat(cur, name, unix.O_PATH|unix.O_CLOEXEC, 0)
			return "", next, errnoOf(err)
		}
	}
	var b [pathMax]byte
	n, err := unix.Readlinkat(fd, "", b[:])
	if err != nil {
		return "", -1, errnoOf(err)
	}
	if n == 0 {
		return "", -1, unix.ENOENT
	}
	return string(b[:n]), -1, 0
}

// plainName is name for a run without namespaces.
func (w *worker) plainName(c *call, p place, last bool) string {
	l, _ := w.lookup(c, p, last, 0)
	defer l.close()
	name := ""
	if l.fd >= 0 {
		name = w.nameOf(l.fd)
	} else if l.dir >= 0 {
		name = path.Clean(w.nameOf(l.dir) + "/" + l.base)
	}
	if name == "" {
		name = w.lexical(p)
	}
	return name
}

// plainDir opens the directory of a slot.
func (w *worker) plainDir(c *call, p place) (int, syscall.Errno) {
	l, e := w.lookup(c, p, true, 0)
	if e != 0 {
		l.close()
		return -1, e
	}
	var st unix.Stat_t
	if err := unix.Fstat(l.fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		l.close()
		return -1, unix.ENOTDIR
	}
	return l.fd, 0
}

// plainOpen is tryOpen: it looks before it opens, and opens what it looked at.
func (w *worker) plainOpen(c *call, o *opening) (syscall.Errno, bool) {
	const known = 1<<32 - 1
	if o.how && o.flags&^uint64(known) != 0 {
		return unix.EINVAL, false
	}
	for range 16 {
		e, slow, done := w.plainOnce(c, o)
		if done {
			return e, slow
		}
	}
	return unix.ELOOP, false
}

func (w *worker) plainOnce(c *call, o *opening) (e syscall.Errno, slow, done bool) {
	tmp := o.flags&unix.O_TMPFILE == unix.O_TMPFILE
	create, excl := o.flags&unix.O_CREAT != 0, o.flags&unix.O_EXCL != 0
	l, e := w.lookup(c, o.at, o.flags&unix.O_NOFOLLOW == 0 && !(create && excl), o.resolve)
	defer func() { l.close() }()
	if e == unix.ENOENT && l.dir >= 0 && create && !tmp {
		return w.plainCreate(o, &l, excl)
	}
	if e != 0 {
		return e, false, true
	}
	if err := unix.Fstat(l.fd, &o.st); err != nil {
		return errnoOf(err), false, true
	}
	name := w.nameOf(l.fd)
	need := scope.Read
	if o.writes() || o.flags&unix.O_TRUNC != 0 || tmp {
		need = scope.Write
	}
	subject := name
	if tmp { // what is made lies in the directory
		subject += "/#"
	}
	if e := w.decide(subject, &o.st, need); e != 0 {
		return e, false, true
	}
	kind := o.st.Mode & unix.S_IFMT
	switch {
	case create && excl:
		return unix.EEXIST, false, true
	case kind == unix.S_IFLNK:
		return unix.ELOOP, false, true
	case kind == unix.S_IFDIR && create && !tmp:
		return unix.EISDIR, false, true
	case kind != unix.S_IFDIR && strings.HasSuffix(o.at.path, "/"):
		return unix.ENOTDIR, false, true
	case kind == unix.S_IFCHR && o.st.Rdev == unix.Mkdev(5, 0):
		o.fd, e = w.controllingTerminal(c, int(o.flags))
		return e, false, true
	}
	o.node, l.fd = l.fd, -1
	if kind == unix.S_IFIFO && o.flags&unix.O_NONBLOCK == 0 {
		return 0, true, true
	}
	if o.writes() {
		w.dateBefore(&o.st)
	}
	e = w.openNow(o, -1, "")
	if e == unix.EAGAIN && o.flags&unix.O_NONBLOCK == 0 {
		return e, true, true
	}
	if e == 0 && kind == unix.S_IFCHR && o.st.Rdev == unix.Mkdev(5, 2) {
		w.newTerminal(o.fd)
	}
	unix.Close(o.node)
	o.node = -1
	return e, false, true
}

// plainCreate makes the file that is missing. If it is there by now, the path is looked up again.
func (w *worker) plainCreate(o *opening, l *lookup, excl bool) (e syscall.Errno, slow, done bool) {
	name := path.Clean(w.nameOf(l.dir) + "/" + l.base)
	switch {
	case strings.HasSuffix(o.at.path, "/"):
		return unix.EISDIR, false, true
	case tooLong(name):
		return unix.ENAMETOOLONG, false, true
	}
	if e := w.decideName(l.dir, l.base, name); e != 0 {
		return e, false, true
	}
	flags := int(o.flags)&^unix.O_TRUNC | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY
	fd, err := unix.Openat(l.dir, l.base, flags, w.mode(uint32(o.mode&07777)))
	if err == unix.EEXIST && !excl {
		return 0, false, false
	}
	if err != nil {
		return errnoOf(err), false, true
	}
	o.fd, o.absent = fd, true
	w.Plain.made(name)
	o.seen = unix.Fstat(fd, &o.st) == nil
	return 0, false, true
}

// newTerminal lets the run use the other end of a terminal that it opened.
func (w *worker) newTerminal(fd int) {
	if n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN); err == nil {
		w.Plain.Terminal(unix.Mkdev(136+uint32(n)>>8, uint32(n)&0xff))
	}
}
