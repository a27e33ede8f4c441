package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() { commands["contained"] = contained }

// containerErrnos is what Docker's default seccomp profile (moby/profiles/seccomp/default.json)
// answers to a process without capabilities, for calls that the recorder might use.
var containerErrnos = map[unix.Errno][]uint32{
	unix.EPERM: {
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
		unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_PROCESS_MADVISE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_CHROOT,
		unix.SYS_SETHOSTNAME, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_INIT_MODULE, unix.SYS_KEXEC_LOAD,
	},
	unix.ENOSYS: {unix.SYS_CLONE3},
}

// contained runs a command under a filter like a container's.
func contained() {
	if err := containerFilter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(120)
	}
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = syscall.Exec(path, os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(121)
}

func containerFilter() error {
	runtime.LockOSThread()
	const newNamespaces = 0x7E020000
	f := []unix.SockFilter{{Code: 0x20}} // the number
	for errno, calls := range containerErrnos {
		for _, nr := range calls {
			f = append(f, unix.SockFilter{Code: 0x15, Jf: 1, K: nr}, unix.SockFilter{Code: 0x06, K: 0x00050000 | uint32(errno)})
		}
	}
	f = append(f,
		unix.SockFilter{Code: 0x15, Jf: 3, K: unix.SYS_CLONE}, unix.SockFilter{Code: 0x20, K: 16},
		unix.SockFilter{Code: 0x45, Jf: 1, K: newNamespaces}, unix.SockFilter{Code: 0x06, K: 0x00050000 | uint32(unix.EPERM)},
		unix.SockFilter{Code: 0x06, K: 0x7fff0000})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("install the container's filter: %w", e)
	}
	return nil
}
