package seccomp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Class of a system call.
type Class uint8

const (
	Refuse Class = iota // notified; the supervisor records it and answers with the errno
	Allow               // runs without the supervisor
	Notify              // the supervisor performs or examines it
	Quiet               // answered by the filter with the errno, not seen by the supervisor
	Kill                // the process is killed: foreign architecture or x32
)

func (c Class) String() string {
	return [...]string{"refuse", "allow", "notify", "quiet", "kill"}[c]
}

// A Verdict is what becomes of one call. Errno is set for Refuse and Quiet.
type Verdict struct {
	Class Class
	Errno syscall.Errno
}

// Calls that the supervisor performs itself or looks at. Those on descriptors
// (fchmod and the like) change metadata through a descriptor that was opened for
// reading only; their arguments are registers, so they may continue.
const notify = `
	open openat openat2 creat execve execveat connect bind
	unlink unlinkat mkdir mkdirat rmdir rename renameat renameat2 symlink symlinkat link linkat mknod mknodat truncate
	chmod fchmodat fchmodat2 fchmod chown lchown fchownat fchown
	utime utimes utimensat futimesat
	setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
	prlimit64`

// Calls that neither name a path nor leave the sandbox, and those that only ask
// about a path (stat, access, readlink, inotify): they expose no content.
const allow = `
	accept accept4 access alarm arch_prctl brk cachestat capget capset chdir clock_getres clock_gettime clock_nanosleep
	clone close close_range copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2
	epoll_wait eventfd eventfd2 exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fcntl fdatasync fgetxattr
	file_getattr flistxattr flock fork fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv
	futex_wake get_mempolicy get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer
	getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
	getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
	inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill
	landlock_add_rule landlock_create_ruleset landlock_restrict_self lgetxattr listen listxattr listxattrat llistxattr
	lseek lstat madvise map_shadow_stack mbind membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect
	mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
	munlock munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
	pkey_mprotect poll ppoll prctl pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead
	readlink readlinkat readv recvfrom recvmmsg recvmsg restart_syscall rseq rseq_slice_yield rt_sigaction rt_sigpending
	rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
	sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
	sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
	semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node set_robust_list set_tid_address
	setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid
	setsockopt setuid shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat
	statfs statx sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
	timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill umask uname vfork vmsplice wait4
	waitid write writev`

// Refused calls whose callers expect another answer than ENOSYS. ENOSYS makes a
// program fall back (io_uring, memfd_secret, statmount); EPERM is what it gets
// from a container, and reports.
var refused = []struct {
	errno syscall.Errno
	names string
}{
	{syscall.EPERM, `
	mount umount2 pivot_root chroot setns unshare open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick
	mount_setattr
	ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp
	bpf userfaultfd fanotify_init fanotify_mark open_by_handle_at keyctl add_key request_key
	syslog quotactl quotactl_fd acct swapon swapoff reboot kexec_load kexec_file_load init_module finit_module
	delete_module iopl ioperm modify_ldt settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
	vhangup uselib sysfs ustat lookup_dcookie migrate_pages move_pages`},
	{syscall.EACCES, `perf_event_open`},
	{syscall.EOPNOTSUPP, `name_to_handle_at`},
	{syscall.EAFNOSUPPORT, `socket`},
	{syscall.EPERM, `personality`},
}

const quiet = `clone3`

// Register values that decide. A rule looks at the low 32 bits of its argument:
// the kernel takes no more of these. The first rule that applies wins; if none
// does, the lists above decide.
type argRule struct {
	name    string
	arg     uint8
	anyBit  bool // values[0] is a mask: applies if any bit is set. Else one of values.
	values  []uint32
	verdict Verdict
}

var argRules = []argRule{
	// New namespaces would give back the mount API. CLONE_UNTRACED would hide a
	// child, and so its execs, from the tracer.
	{"clone", 0, true, []uint32{0x7E020000 | cloneUntraced}, Verdict{Refuse, syscall.EPERM}},
	// Both push characters into a terminal outside.
	{"ioctl", 1, false, []uint32{tiocsti, tioclinux}, Verdict{Refuse, syscall.EPERM}},
	// Metadata through a descriptor opened for reading.
	{"ioctl", 1, false, []uint32{fsSetFlags, fsSetFlags32, fsSetXattr}, Verdict{Notify, 0}},
	{"ioctl", 1, false, []uint32{fsEnableVerity, fsAddKey}, Verdict{Refuse, syscall.EOPNOTSUPP}},
	{"prctl", 0, false, []uint32{prSetMM}, Verdict{Refuse, syscall.EPERM}},
	// Limits of another process decide what a grader can still write.
	{"prlimit64", 0, false, []uint32{0}, Verdict{Allow, 0}},
	// vsock ignores network namespaces; packet and alg sockets reach the kernel's
	// less tested parts.
	{"socket", 0, false, []uint32{afUnix, afInet, afInet6, afNetlink}, Verdict{Allow, 0}},
	{"personality", 0, false, []uint32{0, perLinux32, uname26, perLinux32 | uname26, addrNoRandomize, 0xffffffff}, Verdict{Allow, 0}},
}

// From the kernel's uapi headers; equal on amd64 and arm64. golang.org/x/sys has
// them for Linux only, and the tables are tested everywhere.
const (
	cloneUntraced   = 0x00800000
	tiocsti         = 0x5412
	tioclinux       = 0x541C
	fsSetFlags      = 0x40086602 // FS_IOC_SETFLAGS
	fsSetFlags32    = 0x40046602 // FS_IOC32_SETFLAGS
	fsSetXattr      = 0x401c5820 // FS_IOC_FSSETXATTR
	fsEnableVerity  = 0x40806685 // FS_IOC_ENABLE_VERITY
	fsAddKey        = 0xc0506617 // FS_IOC_ADD_ENCRYPTION_KEY
	prSetMM         = 35
	afUnix          = 1
	afInet          = 2
	afInet6         = 10
	afNetlink       = 16
	perLinux32      = 0x0008
	uname26         = 0x0020000
	addrNoRandomize = 0x0040000
)

// An Arch is the system call table of one architecture with the policy for it.
type Arch struct {
	Name   string // as in GOARCH
	audit  uint32 // AUDIT_ARCH_* in seccomp_data.arch
	x32    bool   // numbers with bit 30 are another ABI
	names  map[int32]string
	number map[string]int32
	base   map[int32]Verdict
	rules  map[int32][]argRule

	argRules []argRule // all of them, in order
}

// The tables are made when they are asked for: each start of the program would
// pay for them.
var (
	amd64 = sync.OnceValue(func() *Arch { return newAMD64(spacesChanges) })
	arm64 = sync.OnceValue(func() *Arch { return newARM64(spacesChanges) })
)

func newAMD64(c *changes) *Arch { return newArch("amd64", 0xC000003E, true, amd64Runs, c) }
func newARM64(c *changes) *Arch { return newArch("arm64", 0xC00000B7, false, arm64Runs, c) }

func newArch(name string, audit uint32, x32 bool, runs []run, c *changes) *Arch {
	a := &Arch{Name: name, audit: audit, x32: x32,
		names: map[int32]string{}, number: map[string]int32{}, base: map[int32]Verdict{}, rules: map[int32][]argRule{}}
	for _, r := range runs {
		for i, n := range strings.Fields(r.names) {
			a.names[r.first+int32(i)] = n
			a.number[n] = r.first + int32(i)
		}
	}
	set := func(names string, v Verdict) {
		for _, n := range strings.Fields(names) {
			if nr, ok := a.number[n]; ok { // arm64 lacks the calls without an *at form
				a.base[nr] = v
			}
		}
	}
	for _, r := range refused {
		set(r.names, Verdict{Refuse, r.errno})
	}
	set(notify, Verdict{Notify, 0})
	set(allow, Verdict{Allow, 0})
	set(quiet, Verdict{Quiet, syscall.ENOSYS})
	rules := argRules
	if c != nil {
		for _, b := range c.base {
			set(b.names, b.verdict)
		}
		rules = append(slices.Clone(c.rules), rules...)
	}
	a.argRules = rules
	for _, r := range rules {
		if nr, ok := a.number[r.name]; ok {
			a.rules[nr] = append(a.rules[nr], r)
		}
	}
	return a
}

// Native is the table of the machine that the program was built for. It is an
// error on an architecture without one.
func Native() (*Arch, error) {
	return native(amd64, arm64)
}

func native(amd64, arm64 func() *Arch) (*Arch, error) {
	switch runtime.GOARCH {
	case "amd64":
		return amd64(), nil
	case "arm64":
		return arm64(), nil
	}
	return nil, fmt.Errorf("no system call table for %s: the recorder runs on amd64 and arm64", runtime.GOARCH)
}

// Call is the name of number nr, or "syscall_N" if the table has none.
func (a *Arch) Call(nr int32) string {
	if n, ok := a.names[nr]; ok {
		return n
	}
	return fmt.Sprintf("syscall_%d", nr)
}

// Number of a name. False if this architecture has no such call.
func (a *Arch) Number(name string) (int32, bool) {
	nr, ok := a.number[name]
	return nr, ok
}

// Decide says what the policy makes of a call. The filter of [Arch.Filter] does
// the same in the kernel. The supervisor calls it for a notification that it
// does not handle itself, to learn the errno: a Refuse is recorded and answered
// with Errno; Notify of a call that it does not know must be refused with ENOSYS.
func (a *Arch) Decide(nr int32, args [6]uint64) Verdict {
	if a.x32 && uint32(nr) >= x32Bit {
		return Verdict{Class: Kill}
	}
	for _, r := range a.rules[nr] {
		v := uint32(args[r.arg])
		if r.anyBit && v&r.values[0] != 0 {
			return r.verdict
		}
		for _, w := range r.values {
			if !r.anyBit && v == w {
				return r.verdict
			}
		}
	}
	if v, ok := a.base[nr]; ok {
		return v
	}
	return Verdict{Refuse, syscall.ENOSYS}
}

// x32Bit marks the x32 ABI on amd64 (__X32_SYSCALL_BIT).
const x32Bit = 0x40000000
