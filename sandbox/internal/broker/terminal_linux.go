package broker

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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
