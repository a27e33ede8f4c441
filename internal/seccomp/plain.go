package seccomp

import (
	"sync"
	"syscall"
)

// changes of the policy for another kind of supervisor.
type changes struct {
	base []struct {
		names   string
		verdict Verdict
	}
	rules []argRule // before those of the general policy
}

// plainChanges holds what namespaces keep apart otherwise: processes, System V
// objects and networks of the host are in reach of the calls.
//
// What keeps inet addresses out is that no such socket is ever made: the
// supervisor gives a socket of the unix family in its place. And a message can name
// its receiver only on datagram sockets, so there are none: a name in the memory
// of sendmsg could change after a look at it.
var plainChanges = &changes{
	base: []struct {
		names   string
		verdict Verdict
	}{
		{"kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal", Verdict{Notify, 0}},
		{"prlimit64 setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam sched_setattr", Verdict{Notify, 0}},
		{"shmget shmat shmctl shmdt semget semctl semop semtimedop msgget msgctl msgsnd msgrcv", Verdict{Refuse, syscall.ENOSYS}},
		{"mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr", Verdict{Refuse, syscall.ENOSYS}},
		{"sendto", Verdict{Notify, 0}},
		{"socketpair", Verdict{Refuse, syscall.EAFNOSUPPORT}},
	},
	rules: []argRule{
		// One's own process needs no look.
		{"prlimit64", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setaffinity", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setscheduler", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setparam", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setattr", 0, false, []uint32{0}, Verdict{Allow, 0}},
		// Without a length there is no address, wherever the pointer leads.
		{"sendto", 5, false, []uint32{0}, Verdict{Allow, 0}},
		{"socket", 0, false, []uint32{afInet, afInet6}, Verdict{Notify, 0}},
		{"socket", 0, false, []uint32{afNetlink}, Verdict{Refuse, syscall.EAFNOSUPPORT}},
		{"socket", 1, false, datagram, Verdict{Refuse, syscall.EPROTONOSUPPORT}},
		{"socketpair", 1, false, datagram, Verdict{Refuse, syscall.EOPNOTSUPP}},
		{"socketpair", 0, false, []uint32{afUnix}, Verdict{Allow, 0}},
		// Signals that a descriptor sends go to any process of the user.
		{"fcntl", 1, false, []uint32{fSetOwn, fSetOwnEx}, Verdict{Refuse, syscall.EPERM}},
		{"ioctl", 1, false, []uint32{fioSetOwn, siocSetPgrp}, Verdict{Refuse, syscall.EPERM}},
		// The supervisor must read the memory of each process. 0: the call seems to
		// have worked.
		{"prctl", 0, false, []uint32{prSetDumpable}, Verdict{Quiet, 0}},
	},
}

// datagram sockets: SOCK_DGRAM, and SOCK_RAW, which the unix family takes for it, with
// each pair of flags.
var datagram = []uint32{
	2, 2 | sockCloexec, 2 | sockNonblock, 2 | sockCloexec | sockNonblock,
	3, 3 | sockCloexec, 3 | sockNonblock, 3 | sockCloexec | sockNonblock,
}

const (
	sockCloexec   = 0x80000
	sockNonblock  = 0x800
	fSetOwn       = 8
	fSetOwnEx     = 15
	fioSetOwn     = 0x8901
	siocSetPgrp   = 0x8902
	prSetDumpable = 4
)

var (
	plainAMD64 = sync.OnceValue(func() *Arch { return newAMD64(plainChanges) })
	plainARM64 = sync.OnceValue(func() *Arch { return newARM64(plainChanges) })
)

// Plain is the table of [Native] with the policy for a run without namespaces.
func Plain() (*Arch, error) { return native(plainAMD64, plainARM64) }
