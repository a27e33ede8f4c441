//go:build unix

package regular

import "syscall"

// nonblock keeps the opening of a pipe, put in the place of a file, from waiting
// for a writer.
const nonblock = syscall.O_NONBLOCK
