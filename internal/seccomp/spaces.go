package seccomp

import "syscall"

// spacesChanges are of a run in namespaces of its own: its processes see nobody
// else's, but what the answer does to the grader is looked at.
//
// SIGURG does nothing to who does not ask for it, and Go programs send it to their
// own threads all the time.
var spacesChanges = &changes{
	base: []struct {
		names   string
		verdict Verdict
	}{
		{"kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal", Verdict{Notify, 0}},
		{"setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam sched_setattr", Verdict{Notify, 0}},
	},
	rules: []argRule{
		{"kill", 1, false, []uint32{0}, Verdict{Allow, 0}},
		{"tkill", 1, false, []uint32{0, sigURG}, Verdict{Allow, 0}},
		{"tgkill", 2, false, []uint32{0, sigURG}, Verdict{Allow, 0}},
		{"pidfd_send_signal", 1, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setaffinity", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setscheduler", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setparam", 0, false, []uint32{0}, Verdict{Allow, 0}},
		{"sched_setattr", 0, false, []uint32{0}, Verdict{Allow, 0}},
		// A descriptor signals its owner.
		{"fcntl", 1, false, []uint32{fSetOwn, fSetOwnEx}, Verdict{Notify, 0}},
		{"ioctl", 1, false, []uint32{fioSetOwn, siocSetPgrp}, Verdict{Refuse, syscall.EPERM}},
	},
}

const sigURG = 23
