package broker

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// address is a socket address of the caller.
type address struct {
	text     string // for the detail
	path     string // AF_UNIX with a name
	loopback bool   // of an inet address: also the unspecified one
	inet     bool
}

// parseAddress reads a sockaddr. Families that the filter lets through are
// AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK.
func parseAddress(b []byte) address {
	if len(b) < 2 {
		return address{text: "short"}
	}
	family := binary.NativeEndian.Uint16(b)
	body := b[2:]
	switch {
	case family == unix.AF_UNIX && len(body) == 0:
		return address{text: "unix"}
	case family == unix.AF_UNIX && body[0] == 0:
		return address{text: "unix @" + strconv.QuoteToASCII(string(body[1:]))}
	case family == unix.AF_UNIX:
		name, _, _ := bytes.Cut(body, []byte{0})
		return address{text: "unix", path: string(name)}
	case family == unix.AF_INET && len(body) >= 6:
		a := netip.AddrFrom4([4]byte(body[2:6]))
		return inet(a, binary.BigEndian.Uint16(body))
	case family == unix.AF_INET6 && len(body) >= 22:
		a := netip.AddrFrom16([16]byte(body[6:22]))
		return inet(a, binary.BigEndian.Uint16(body))
	}
	return address{text: "family " + strconv.Itoa(int(family))}
}

// inet spells an address in one way: IPv4 within IPv6 (RFC 4291, section 2.5.5.2) as IPv4,
// to which the kernel connects.
func inet(a netip.Addr, port uint16) address {
	family := "inet"
	if a = a.Unmap(); a.Is6() {
		family = "inet6"
	}
	return address{
		text: family + " " + netip.AddrPortFrom(a, port).String(),
		inet: true, loopback: a.IsLoopback() || a.IsUnspecified(),
	}
}

func (w *worker) socket(c *call, op journal.Op) (*record.Event, address, bool) {
	e := &record.Event{Op: op}
	b := make([]byte, min(c.Args[2]&0xffffffff, 128))
	if err := w.memory(c, c.Args[1], b); err != 0 {
		w.fail(c, e, err)
		return nil, address{}, false
	}
	a := parseAddress(b)
	e.Detail.Address = a.text
	return e, a, true
}

// sysConnect records and lets the kernel connect: emulating it would put the
// broker's identity into SO_PEERCRED. The namespace holds only loopback, so an
// address that changes meanwhile leads nowhere else. A socket by name is
// different: it could lead to a service outside, see connectPath.
func sysConnect(w *worker, c *call) {
	e, a, ok := w.socket(c, journal.OpConnect)
	if !ok {
		return
	}
	switch {
	case w.Plain != nil:
		w.plainConnect(c, e, a)
	case a.path != "":
		w.connectPath(c, e, a.path)
	case a.inet && !a.loopback:
		w.fail(c, e, unix.ENETUNREACH)
	default:
		w.proceed(c, e)
	}
}

// connectPath resolves a socket's name. One on a read-only mount belongs to a
// service of the host and is refused.
func (w *worker) connectPath(c *call, e *record.Event, p string) {
	at, err := w.start(c, noDir, p)
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer at.close()
	fd, err := w.target(c, &at, true)
	if err != 0 {
		e.Path = w.name(c, at, true)
		w.asked(e, p)
		w.fail(c, e, err)
		return
	}
	defer unix.Close(fd)
	e.Path = w.nameOf(fd)
	w.asked(e, p)
	if onReadOnly(fd) {
		w.fail(c, e, unix.EACCES)
		return
	}
	if !w.Observe {
		w.proceed(c, e)
		return
	}
	// The host's own sockets are visible: an address that changes after our look
	// could lead to one.
	w.connectFor(c, e, fd)
}

// connectFor connects the caller's socket itself, to the very socket that it
// looked at. The peer sees this process, not the caller, in SO_PEERCRED. A full
// queue blocks, so it has a thread of its own.
func (w *worker) connectFor(c *call, e *record.Event, target int) {
	socket, replaced, errno := w.ownSocket(c)
	if errno != 0 {
		w.fail(c, e, errno)
		return
	}
	path, err := unix.FcntlInt(uintptr(target), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(socket)
		w.fail(c, e, errnoOf(err))
		return
	}
	mine := *c
	mine.waits = true
	w.apart(c, e, func(t *worker) func() {
		defer unix.Close(path)
		defer unix.Close(socket)
		result := errnoOf(t.inProc(func() error {
			return unix.Connect(socket, &unix.SockaddrUnix{Name: again(path)})
		}))
		if replaced && result == unix.EPROTOTYPE {
			result = t.sequenced(&mine, path)
		} else if replaced && result == 0 {
			result = t.replace(&mine, socket)
		}
		return func() { t.fail(&mine, e, result) }
	})
}

// socketOf takes a second descriptor of the caller's socket.
func (w *worker) socketOf(c *call) (int, error) {
	field, err := record.Status(w.proc, c.tid)
	if err != nil {
		return -1, unix.ESRCH
	}
	leader, err := strconv.Atoi(field("Tgid"))
	if err != nil {
		return -1, unix.ESRCH
	}
	pidfd, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	fd := -1
	if e := w.rights.With(func() { fd, err = unix.PidfdGetfd(pidfd, int(int32(c.Args[0])), 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

func sysBind(w *worker, c *call) {
	e, a, ok := w.socket(c, journal.OpBind)
	if !ok {
		return
	}
	if w.Plain != nil {
		w.plainBind(c, e, a)
		return
	}
	if a.path != "" {
		at, err := w.start(c, noDir, a.path)
		if err != 0 {
			w.fail(c, e, err)
			return
		}
		defer at.close()
		s, err := w.slot(c, &at)
		if err != 0 {
			e.Path = w.name(c, at, false)
			w.fail(c, e, err)
			return
		}
		e.Path = s.name
		s.close()
		w.asked(e, a.path)
		w.Recorder.Touched(path.Clean(e.Path))
	}
	w.proceed(c, e)
}
