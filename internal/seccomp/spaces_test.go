package seccomp

import (
	"syscall"
	"testing"
)

// Calls on other processes, by hand.
func TestSpacesKnownCalls(t *testing.T) {
	amd := amd64()
	vm := machine(t, amd)
	for _, c := range []struct {
		name  string
		args  [6]uint64
		class Class
		errno syscall.Errno
	}{
		{"kill", [6]uint64{7, 0}, Allow, 0},
		{"kill", [6]uint64{7, 19}, Notify, 0},
		{"kill", [6]uint64{^uint64(0), 9}, Notify, 0},
		{"tgkill", [6]uint64{7, 7, 23}, Allow, 0},
		{"tgkill", [6]uint64{7, 7, 19}, Notify, 0},
		{"rt_sigqueueinfo", [6]uint64{7, 19}, Notify, 0},
		{"pidfd_open", [6]uint64{7}, Allow, 0},
		{"pidfd_send_signal", [6]uint64{3, 0}, Allow, 0},
		{"pidfd_send_signal", [6]uint64{3, 9}, Notify, 0},
		{"sched_setaffinity", [6]uint64{}, Allow, 0},
		{"sched_setaffinity", [6]uint64{7}, Notify, 0},
		{"sched_setattr", [6]uint64{7}, Notify, 0},
		{"setpriority", [6]uint64{0, 0}, Notify, 0},
		{"fcntl", [6]uint64{3, 8, 1}, Notify, 0},
		{"fcntl", [6]uint64{3, 15, 1}, Notify, 0},
		{"fcntl", [6]uint64{3, 4}, Allow, 0},
		{"ioctl", [6]uint64{3, 0x8901}, Refuse, syscall.EPERM},
		{"socket", [6]uint64{2, 1}, Allow, 0},
	} {
		nr, ok := amd.Number(c.name)
		if !ok {
			t.Errorf("no call %s", c.name)
			continue
		}
		want := Verdict{c.class, c.errno}
		if v := amd.Decide(nr, c.args); v != want {
			t.Errorf("%s(%#x, %#x): got %v, want %v", c.name, c.args[0], c.args[1], v, want)
		}
		if got := simulate(t, vm, uint32(nr), amd.audit, c.args); got != action(want) {
			t.Errorf("%s: filter returns %#x", c.name, got)
		}
	}
}
