package broker

import (
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// sysSocket gives a socket of the unix family in place of one of inet: then connect and
// bind of inet addresses come here and are refused, and what does not come here, such as
// a name in sendmsg, means nothing to the socket.
func sysSocket(w *worker, c *call) {
	e := &record.Event{Op: journal.OpDenied, Result: unix.EAFNOSUPPORT}
	e.Detail.Args = map[string]uint64{"number": uint64(uint32(c.Nr)), "family": c.Args[0] & 0xffffffff}
	e.Detail.Note = "an inet socket; a stand-in without a network was given"
	kind, flags := int(c.Args[1]&0xf), int(c.Args[1])&(unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch kind {
	case unix.SOCK_STREAM:
	case unix.SOCK_DGRAM:
		kind = unix.SOCK_SEQPACKET
	default:
		w.fail(c, e, unix.EPERM)
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		w.fail(c, e, errnoOf(err))
		return
	}
	w.handOver(c, e, &opening{fd: fd, flags: uint64(flags & unix.SOCK_CLOEXEC)})
	unix.Close(fd)
}

// plainConnect connects the caller's socket itself, and only to sockets in the run's own places.
func (w *worker) plainConnect(c *call, e *record.Event, a address) {
	switch {
	case a.inet:
		w.fail(c, e, unix.ENETUNREACH)
	case a.path == "":
		w.fail(c, e, unix.EACCES) // abstract: anybody's
	default:
		at, err := w.start(c, noDir, a.path)
		if err != 0 {
			w.fail(c, e, err)
			return
		}
		defer at.close()
		fd, err := w.target(c, &at, true)
		if err == 0 {
			defer unix.Close(fd)
			e.Path = w.nameOf(fd)
			err = w.permit(fd, e.Path, scope.Write)
		} else {
			e.Path = w.name(c, at, true)
		}
		w.asked(e, a.path)
		if err != 0 {
			w.fail(c, e, err)
			return
		}
		w.connectFor(c, e, fd)
	}
}

func sysSendto(w *worker, c *call) {
	e := &record.Event{Op: journal.OpConnect}
	b := make([]byte, min(c.Args[5]&0xffffffff, 128))
	if err := w.memory(c, c.Args[4], b); err != 0 {
		w.fail(c, e, err)
		return
	}
	a := parseAddress(b)
	e.Detail.Address = a.text
	if a.inet {
		w.fail(c, e, unix.ENETUNREACH)
		return
	}
	w.fail(c, e, unix.EISCONN) // what a stream socket says
}

// plainBind binds the caller's socket itself: the name that it looked at is the name
// that appears.
func (w *worker) plainBind(c *call, e *record.Event, a address) {
	if a.path == "" { // inet, or abstract
		w.fail(c, e, unix.EACCES)
		return
	}
	at, err := w.start(c, noDir, a.path)
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer at.close()
	w.names.Lock() // so that no folder on the way is exchanged
	defer w.names.Unlock()
	s, err := w.slot(c, &at)
	if err != 0 {
		e.Path = w.name(c, at, false)
		w.fail(c, e, err)
		return
	}
	defer s.close()
	e.Path = s.name
	w.asked(e, a.path)
	err = w.decideName(s.dir, s.base, s.name)
	if err == 0 {
		err = w.takeUmask(c)
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	socket, replaced, err := w.ownSocket(c)
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer unix.Close(socket)
	if w.gone(c, e) {
		return
	}
	w.Recorder.Touched(path.Clean(e.Path))
	result := errnoOf(w.bindAt(socket, s, a.path))
	if result == 0 {
		w.Plain.made(s.name)
		if replaced {
			result = w.replace(c, socket)
		}
	}
	w.fail(c, e, result)
}

// bindAt uses the program's spelling if it is the plain one: getsockname tells it.
func (w *worker) bindAt(socket int, s slot, asked string) error {
	at := again(s.dir) + "/" + s.base
	if asked == s.name {
		at = asked
	}
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: at}); err != nil {
		return err
	}
	return unix.Fchmodat(s.dir, s.base, w.mode(0o777), 0)
}

// ownSocket is the caller's socket, or where the kernel or a container gives no second
// descriptor of it, a new one to take its place.
func (w *worker) ownSocket(c *call) (fd int, replaced bool, e syscall.Errno) {
	fd, err := w.socketOf(c)
	if err == nil {
		return fd, false, 0
	}
	if err != unix.EPERM && err != unix.ENOSYS {
		return -1, false, errnoOf(err)
	}
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fd, true, errnoOf(err)
}

// replace puts a socket where the caller has its own, with its flags.
func (w *worker) replace(c *call, socket int) syscall.Errno {
	n := strconv.Itoa(int(int32(c.Args[0])))
	info, err := readAll(w.proc, strconv.Itoa(c.tid)+"/fdinfo/"+n)
	if err != nil {
		return unix.EBADF
	}
	flags := uint64(0)
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, _ = strconv.ParseUint(strings.TrimSpace(v), 8, 64)
		}
	}
	if err := unix.SetNonblock(socket, flags&unix.O_NONBLOCK != 0); err != nil {
		return errnoOf(err)
	}
	if err := w.Listener.Replace(c.ID, socket, int(int32(c.Args[0])), flags&unix.O_CLOEXEC != 0); err != nil && !isGone(err) {
		return unix.EIO
	}
	return 0
}

// sequenced connects to a socket of the other kind.
func (w *worker) sequenced(c *call, target int) syscall.Errno {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(socket)
	result := errnoOf(w.inProc(func() error {
		return unix.Connect(socket, &unix.SockaddrUnix{Name: again(target)})
	}))
	if result == 0 {
		result = w.replace(c, socket)
	}
	return result
}
