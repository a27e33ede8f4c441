// Package privs sets the capabilities of the recorder's processes and threads.
//
// All of them are capabilities inside the sandbox's user namespace. A root
// program keeps Keep; a user's program keeps none.
package privs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keep is what a program that runs as root needs to behave as outside. Left out:
// SYS_ADMIN, SYS_PTRACE, NET_ADMIN, SYS_RESOURCE (PR_SET_MM) and SETUID, SETGID:
// the broker opens files with one identity, so a program cannot change its own.
var keep = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER,
	unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_NET_BIND_SERVICE, unix.CAP_IPC_LOCK, unix.CAP_SYS_NICE,
}

// Keep is the capability mask of a program.
func Keep(root bool) uint64 {
	if !root {
		return 0
	}
	var m uint64
	for _, c := range keep {
		m |= 1 << c
	}
	return m
}

// Set sets the calling thread's effective and permitted capabilities and clears
// the inheritable ones.
func Set(effective, permitted uint64) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(permitted)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32)},
	}
	return unix.Capset(&h, &d[0])
}

// permitted is what the calling thread may have: without a namespace of its own, or in
// a container, not all.
func permitted() (uint64, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(d[0].Permitted) | uint64(d[1].Permitted)<<32, nil
}

// Drop leaves the calling thread with the capabilities of a program, and no way
// to gain more: bounding set, ambient set, no_new_privs.
func Drop(root bool) error {
	have, err := permitted()
	if err != nil {
		return err
	}
	m := Keep(root) & have
	for c := uint(0); c < 64; c++ {
		if m&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err == unix.EINVAL {
			break // above the kernel's last capability
		} else if err == unix.EPERM && have&(1<<unix.CAP_SETPCAP) == 0 {
			break // no_new_privs, below, keeps an exec from gaining any
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := Set(m, m); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}

// A Worker is the rights of one broker thread: exactly those of the program,
// with a few more in reserve for single steps.
type Worker struct{ eff, perm uint64 }

// reserve is raised around single steps only: reading a tracee that made itself
// undumpable, and reading back what the program wrote for its digest.
const reserve = 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_DAC_READ_SEARCH

// NewWorker lowers the calling thread, which must be locked to its goroutine.
func NewWorker(root bool) (Worker, error) {
	have, err := permitted()
	if err != nil {
		return Worker{}, err
	}
	w := Worker{eff: Keep(root) & have}
	w.perm = w.eff | reserve&have
	return w, Set(w.eff, w.perm)
}

// With runs f with the reserve raised.
func (w Worker) With(f func()) error {
	if err := Set(w.perm, w.perm); err != nil {
		return err
	}
	f()
	return Set(w.eff, w.perm)
}
