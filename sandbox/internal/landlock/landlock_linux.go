// Package landlock puts the calling thread, and what it starts, into a Landlock
// domain (landlock(7)): a second wall behind the broker, held by the kernel.
//
// Limits: the kernel must have Landlock; ABI tells. What a version does not know it does
// not restrict: truncating needs 3, TCP 4, signals and abstract sockets 6. A domain
// does not hold for descriptors that are handed over, for metadata, and for O_PATH.
//
// The well-known library restricts all threads of a process. Here it must be one:
// the shim's thread before it executes.
package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access that a rule gives.
type Access uint8

const (
	List  Access = iota // directories may be opened, here and below
	Read                // files and directories may be opened for reading and executed
	Write               // and changed, made, removed and moved
)

// A Rule holds for a path, as the calling thread sees it, and for what is below.
// A path that does not exist has no rule.
type Rule struct {
	Path   string
	Access Access
}

// A Domain is what a thread is restricted to.
type Domain struct {
	Rules []Rule
	// Alone keeps signals and abstract sockets inside the domain.
	Alone bool
	// NoTCP refuses bind and connect of TCP.
	NoTCP bool
}

// accessBits are the rights on files by the version that brought them. A right
// that is not handled is not restricted.
var accessBits = []uint64{
	1: 1<<13 - 1, // EXECUTE to MAKE_SYM
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	4: 0,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

const (
	reading = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// What a rule on a file that is no directory may hold.
	onFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// ABI is the kernel's version of Landlock, 0 if it has none.
func ABI() int {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(n)
}

func handled(abi int) (bits uint64) {
	for v := 1; v < len(accessBits) && v <= abi; v++ {
		bits |= accessBits[v]
	}
	return bits
}

func (a Access) bits() uint64 {
	switch a {
	case List:
		return unix.LANDLOCK_ACCESS_FS_READ_DIR
	case Read:
		return reading
	}
	return ^uint64(0)
}

// Restrict puts the calling thread into a domain, for good. It sets no_new_privs.
func Restrict(d Domain) error {
	abi := ABI()
	if abi == 0 {
		return errors.New("landlock: not available")
	}
	bits := handled(abi)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: bits}
	size := uintptr(8)
	if abi >= 4 {
		size = 16
		if d.NoTCP {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 6 {
		size = 24
		if d.Alone {
			attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		}
	}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return fmt.Errorf("landlock: make ruleset: %w", e)
	}
	defer unix.Close(int(fd))
	for _, r := range d.Rules {
		if err := addRule(int(fd), r, bits); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("landlock: no_new_privs: %w", err)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return fmt.Errorf("landlock: restrict: %w", e)
	}
	return nil
}

func addRule(ruleset int, r Rule, bits uint64) error {
	fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EACCES {
		return nil // nothing there that the thread could use
	}
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", r.Path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", r.Path, err)
	}
	allowed := r.Access.bits() & bits
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= onFile
	}
	if allowed == 0 {
		return nil
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed, Parent_fd: int32(fd)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 && e != unix.EINVAL { // EINVAL: a file system that the kernel keeps for itself
		return fmt.Errorf("landlock: rule for %s: %w", r.Path, e)
	}
	return nil
}
