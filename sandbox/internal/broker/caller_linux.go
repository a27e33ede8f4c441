package broker

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pathMax = 4096

var pageSize = uint64(os.Getpagesize())

// untag removes the top byte, which arm64 ignores in addresses.
func untag(addr uint64) uint64 { return addr << 8 >> 8 }

// peek reads at most up to the end of addr's page.
func peek(pid int, addr uint64, buf []byte) (int, syscall.Errno) {
	n := min(int(pageSize-addr&(pageSize-1)), len(buf))
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(n)
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: n}
	k, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(k), e
}

// memory fills buf from the caller's memory, or returns an errno for it.
func (w *worker) memory(c *call, addr uint64, buf []byte) syscall.Errno {
	addr = untag(addr)
	for len(buf) > 0 {
		k, e := w.peek(c.tid, addr, buf)
		if e != 0 {
			return e
		}
		buf, addr = buf[k:], addr+uint64(k)
	}
	return 0
}

// text reads a NUL-terminated string of the caller, once: what is used is what
// is recorded, whatever its other threads do meanwhile.
func (w *worker) text(c *call, addr uint64, limit int) (string, syscall.Errno) {
	if addr == 0 {
		return "", unix.EFAULT
	}
	addr = untag(addr)
	var out []byte
	for len(out) < limit {
		buf := w.page[:min(len(w.page), limit-len(out))]
		k, e := w.peek(c.tid, addr, buf)
		if e != 0 {
			return "", e
		}
		if i := bytes.IndexByte(buf[:k], 0); i >= 0 {
			return string(append(out, buf[:i]...)), 0
		}
		out = append(out, buf[:k]...)
		addr += uint64(k)
	}
	return "", unix.ENAMETOOLONG
}

func (w *worker) path(c *call, addr uint64) (string, syscall.Errno) {
	return w.text(c, addr, pathMax)
}

// peek raises CAP_SYS_PTRACE for a caller that made itself undumpable.
func (w *worker) peek(pid int, addr uint64, buf []byte) (int, syscall.Errno) {
	k, e := peek(pid, addr, buf)
	if e == unix.EPERM {
		if err := w.rights.With(func() { k, e = peek(pid, addr, buf) }); err != nil {
			return 0, unix.EIO
		}
	}
	if e != 0 && e != unix.ESRCH {
		e = unix.EFAULT // also EPERM: no rights over its memory at all
	}
	if e == 0 && k == 0 {
		e = unix.EFAULT
	}
	return k, e
}

// vector reads an argument vector: at most limit bytes of strings.
func (w *worker) vector(c *call, addr uint64, limit int) ([]string, syscall.Errno) {
	var out []string
	for addr != 0 {
		var p [8]byte
		if e := w.memory(c, addr, p[:]); e != 0 {
			return nil, e
		}
		at := *(*uint64)(unsafe.Pointer(&p))
		if at == 0 {
			break
		}
		s, e := w.text(c, at, min(limit, 128<<10))
		if e == unix.ENAMETOOLONG {
			e = unix.E2BIG
		}
		if e != 0 {
			return nil, e
		}
		if limit -= len(s) + 9; limit <= 0 {
			return nil, unix.E2BIG
		}
		out = append(out, s)
		addr += 8
	}
	return out, 0
}

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
		if w.Plain != nil && w.Plain.device(&unix.Stat_t{Mode: unix.S_IFCHR, Rdev: device}) != 0 {
			return -1, unix.ENXIO
		}
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
