//go:build !unix

package regular

// nonblock is not needed here: no file of a folder waits when it is opened.
const nonblock = 0
