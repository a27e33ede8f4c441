package stdio

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openPair makes a terminal pair with the modes and the size of the outer
// terminal. full says that the inner one is the only line discipline; otherwise
// the outer one, still in its own mode, has echoed and translated already.
func openPair(ptmx string, outer int, full bool) (master, slave *os.File, err error) {
	fd, err := unix.Open(ptmx, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", ptmx, err)
	}
	master = os.NewFile(uintptr(fd), ptmx)
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock terminal: %w", err)
	}
	// By descriptor: the slave's name means another file outside.
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, nil, fmt.Errorf("open terminal slave: %w", errno)
	}
	s := int(r)
	slave = os.NewFile(r, "terminal")
	mode, err := unix.IoctlGetTermios(outer, unix.TCGETS)
	if err != nil {
		slave.Close()
		return nil, nil, fmt.Errorf("terminal mode: %w", err)
	}
	if !full {
		mode.Lflag &^= unix.ECHO
		mode.Oflag &^= unix.OPOST
	}
	if err := unix.IoctlSetTermios(s, unix.TCSETS, mode); err != nil {
		slave.Close()
		return nil, nil, fmt.Errorf("terminal mode: %w", err)
	}
	copySize(outer, s)
	return master, slave, nil
}

// TakeTerminal starts a session in the calling process and makes fd its
// controlling terminal. Without one (fd -1) it only starts the session, so that
// getsid and getpgid have answers inside the sandbox.
func TakeTerminal(fd int) error {
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	if fd < 0 {
		return nil
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("controlling terminal: %w", err)
	}
	return nil
}

// Resize gives the inner terminal the size of the outer one: to be called on
// SIGWINCH. The kernel tells the program.
func (r *Relay) Resize() {
	if r.master != nil {
		r.withMaster(func(fd int) { copySize(r.term, fd) })
	}
}

// Interrupt types the interrupt character (Ctrl-C) on the inner terminal, for a
// SIGINT that the outer terminal sent to us. It returns false if there is no inner
// terminal.
func (r *Relay) Interrupt() bool {
	if r.master == nil {
		return false
	}
	_, err := r.master.Write([]byte{r.control(unix.VINTR, 3)})
	return err == nil
}

// hangUp tells the session that the terminal is gone, as when a window is closed:
// the kernel sends SIGHUP when the master closes.
func (r *Relay) hangUp() { r.master.Close() }

// control is a control character as the inner terminal has it now.
func (r *Relay) control(which int, otherwise byte) byte {
	c := otherwise
	r.withMaster(func(fd int) {
		if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			c = t.Cc[which]
		}
	})
	return c
}

func (r *Relay) withMaster(f func(fd int)) {
	if raw, err := r.master.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// SaveTerminals remembers the modes of those of fds that are terminals and
// returns a function that sets them again. The launcher calls it, so that a
// terminal is usable again even if the process with the relay was killed.
func SaveTerminals(fds ...int) (restore func()) {
	saved := map[int]*unix.Termios{}
	for _, fd := range fds {
		if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			saved[fd] = t
		}
	}
	return func() {
		for fd, t := range saved {
			if inForeground(fd) { // else the mode is another job's, and setting it would stop us
				setTermios(fd, t)
			}
		}
	}
}

// setTermios would stop us with SIGTTOU if we were in the background; the
// recorder's processes catch that signal.
func setTermios(fd int, t *unix.Termios) { unix.IoctlSetTermios(fd, unix.TCSETSW, t) }

// makeRaw switches a terminal to raw mode (cfmakeraw(3)) and returns the old one.
func makeRaw(fd int) (*unix.Termios, error) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("terminal mode: %w", err)
	}
	t := *old
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETSW, &t); err != nil {
		return nil, fmt.Errorf("raw terminal mode: %w", err)
	}
	return old, nil
}

func copySize(from, to int) {
	if ws, err := unix.IoctlGetWinsize(from, unix.TIOCGWINSZ); err == nil {
		unix.IoctlSetWinsize(to, unix.TIOCSWINSZ, ws)
	}
}

// inForeground says whether this process may read the terminal now; reading from
// the background would stop us, or spin on a caught SIGTTIN.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // not our controlling terminal: no job control
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}
