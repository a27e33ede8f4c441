package mounts

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockedProc is what root may write in a procfs of its own: core_pattern alone
// would run a program on the host. User namespaces do not help, because these
// files belong to the kernel's uid 0.
var lockedProc = []string{
	"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "timer_list",
	"kcore", "keys", "kmsg", "kallsyms", "latency_stats", "sched_debug", "mtrr", "asound",
}

// Proc mounts a procfs of the calling process's pid namespace in the new tree.
// The outer one must still be visible. hidepid=4 keeps pid 1 (ours) from the
// program.
func Proc() error {
	const p = newRoot + "/proc"
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("proc", p, "proc", flags, "hidepid=4"); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, n := range lockedProc {
		n = p + "/" + n
		if _, err := os.Lstat(n); err != nil {
			continue
		}
		if err := unix.Mount(n, n, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("lock %s: %w", n, err)
		}
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, n, unix.AT_RECURSIVE, &a); err != nil {
			return fmt.Errorf("lock %s: %w", n, err)
		}
	}
	return nil
}

// OuterExecutable is the path of the running program between Enter and Finish.
const OuterExecutable = outerRoot + "/proc/self/exe"
