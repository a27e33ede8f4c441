// Package seccomp builds the recorder's system call filter and speaks the
// kernel's user notification interface (seccomp_unotify(2)).
//
// Limits: a filter sees numbers and registers, never memory. So every call that
// names a path, or whose danger lies in a structure, is either notified or
// refused; what it allows is harmless whatever its pointers hold. It says
// nothing of calls already made when it is installed, and nothing of files that
// the kernel opens by itself during execve.
//
// The list is closed: a number that it does not know is refused. Refused calls
// are notified too, so that they can be recorded; the supervisor answers them
// with the errno of [Arch.Decide]. The one exception is clone3, which every
// thread start tries first: the kernel itself answers it with ENOSYS.
package seccomp
