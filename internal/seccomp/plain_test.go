package seccomp

import (
	"syscall"
	"testing"
)

// Written by hand, independent of the lists.
func TestPlainKnownCalls(t *testing.T) {
	amd := plainAMD64()
	vm := machine(t, amd)
	for _, c := range []struct {
		name  string
		args  [6]uint64
		class Class
		errno syscall.Errno
	}{
		{"read", [6]uint64{}, Allow, 0},
		{"openat", [6]uint64{}, Notify, 0},
		{"kill", [6]uint64{1, 9}, Notify, 0},
		{"tgkill", [6]uint64{1, 1, 9}, Notify, 0},
		{"pidfd_open", [6]uint64{1}, Notify, 0},
		{"pidfd_getfd", [6]uint64{}, Refuse, syscall.EPERM},
		{"ptrace", [6]uint64{}, Refuse, syscall.EPERM},
		{"prlimit64", [6]uint64{0, 7}, Allow, 0},
		{"prlimit64", [6]uint64{1, 7}, Notify, 0},
		{"sched_setaffinity", [6]uint64{}, Allow, 0},
		{"sched_setaffinity", [6]uint64{77}, Notify, 0},
		{"shmget", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"mq_open", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"sendto", [6]uint64{3, 1, 1, 0, 0xdead00000000, 0}, Allow, 0},
		{"sendto", [6]uint64{3, 1, 1, 0, 0xdead00000000, 16}, Notify, 0},
		{"socket", [6]uint64{1, 1}, Allow, 0},
		{"socket", [6]uint64{1, 5 | 0x80000}, Allow, 0},
		{"socket", [6]uint64{1, 2}, Refuse, syscall.EPROTONOSUPPORT},
		{"socket", [6]uint64{1, 3 | 0x80800}, Refuse, syscall.EPROTONOSUPPORT},
		{"socket", [6]uint64{2, 1}, Notify, 0},
		{"socket", [6]uint64{10, 2}, Notify, 0},
		{"socket", [6]uint64{16, 3}, Refuse, syscall.EAFNOSUPPORT},
		{"socket", [6]uint64{40, 1}, Refuse, syscall.EAFNOSUPPORT},
		{"socketpair", [6]uint64{1, 1}, Allow, 0},
		{"socketpair", [6]uint64{1, 2 | 0x80000}, Refuse, syscall.EOPNOTSUPP},
		{"socketpair", [6]uint64{30, 1}, Refuse, syscall.EAFNOSUPPORT},
		{"fcntl", [6]uint64{3, 8, 1}, Refuse, syscall.EPERM},
		{"fcntl", [6]uint64{3, 4}, Allow, 0},
		{"ioctl", [6]uint64{3, 0x8901}, Refuse, syscall.EPERM},
		{"ioctl", [6]uint64{3, 0x5412}, Refuse, syscall.EPERM},
		{"ioctl", [6]uint64{3, 0x5401}, Allow, 0},
		{"prctl", [6]uint64{4, 0}, Quiet, 0},
		{"prctl", [6]uint64{35}, Refuse, syscall.EPERM},
		{"prctl", [6]uint64{15}, Allow, 0},
		{"clone", [6]uint64{0x10000011}, Refuse, syscall.EPERM},
	} {
		nr, ok := amd.Number(c.name)
		if !ok {
			t.Errorf("no call %s", c.name)
			continue
		}
		v := amd.Decide(nr, c.args)
		if v.Class != c.class || v.Errno != c.errno {
			t.Errorf("%s(%#x, %#x): got %v %v, want %v %v", c.name, c.args[0], c.args[1], v.Class, v.Errno, c.class, c.errno)
		}
		if got := simulate(t, vm, uint32(nr), amd.audit, c.args); got != action(Verdict{c.class, c.errno}) {
			t.Errorf("%s: filter returns %#x", c.name, got)
		}
	}
}
