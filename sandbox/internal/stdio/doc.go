// Package stdio relays stdin, stdout and stderr between the caller's streams and
// the sandboxed program, and shows every chunk to the recorder before it goes on.
//
// Limits: input is read ahead of the program, up to what a pipe or terminal
// buffers, so the record of stdin is an upper bound of what the program read, and
// what is left over is gone for the caller's next command. A program sees a
// pipe, never the caller's file: it cannot seek. On a terminal, stdout and stderr
// arrive as one stream, and the echo of typed input is output.
//
// A stream that is a terminal outside is a terminal inside: the slave of a new
// pair in the sandbox's own devpts. If stdout is one, the outer terminal is
// switched to raw mode and the inner line discipline does the rest (echo, Ctrl-C,
// Ctrl-Z, window size). If only stdin or stderr is one, the outer terminal stays as
// it is, because another program of the pipeline may use it.
package stdio
