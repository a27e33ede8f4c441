package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Streams, as numbered by descriptors.
const (
	Stdin = iota
	Stdout
	Stderr
)

// A Record function stores one chunk. It is called from several goroutines, for
// one stream in order. After an error nothing more is passed on.
type Record func(stream int, chunk []byte) error

// chunk is the largest piece recorded at once; it is also a pipe's capacity.
const chunk = 64 << 10

// A Relay is one program's three streams.
type Relay struct {
	real    [3]int // the caller's; the relay never closes them
	record  Record
	program [3]*os.File    // the program's ends, ours until Start
	in      *os.File       // write end of the program's stdin, or nil
	out     [3]*os.File    // read ends by stream; nil where the stream is the terminal
	master  *os.File       // of the terminal pair, or nil
	term    int            // the outer terminal's descriptor, -1 without one
	keys    bool           // typed input is read from term
	restore *unix.Termios  // outer terminal's mode before ours
	wake    [2]int         // pipe that ends the input loop
	reading sync.Mutex     // held while a pipe of out is read
	taken   [3]uint64      // bytes read from out
	outputs sync.WaitGroup // output loops
	inputs  sync.WaitGroup // input loops

	mu  sync.Mutex
	err error
}

// New prepares the ends that the program gets. real are the caller's stdin,
// stdout and stderr; ptmx is the sandbox's own terminal multiplexer, as this
// process reaches it (/dev/pts/ptmx), used only if one of them is a terminal. With
// ptmx "" the program gets pipes in place of terminals, and no typed input.
func New(real [3]int, ptmx string, record Record) (*Relay, error) {
	r := &Relay{real: real, record: record, term: -1, wake: [2]int{-1, -1}}
	if err := r.prepare(ptmx); err != nil {
		r.Abort()
		r.closeAll()
		return nil, fmt.Errorf("standard streams: %w", err)
	}
	return r, nil
}

func (r *Relay) prepare(ptmx string) error {
	if err := unix.Pipe2(r.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	var tty [3]bool
	for _, s := range []int{Stdin, Stderr, Stdout} { // stdout last: it decides
		if tty[s] = ptmx != "" && isTerminal(r.real[s]); tty[s] {
			r.term = r.real[s]
		}
	}
	var slave *os.File
	if r.term >= 0 {
		r.keys = tty[Stdin] || tty[Stdout]
		var err error
		if r.master, slave, err = openPair(ptmx, r.term, tty[Stdout]); err != nil {
			return err
		}
		defer slave.Close()
	}
	for s := range r.program {
		var err error
		switch {
		case tty[s]:
			r.program[s], err = dup(slave)
		case s == Stdin && isNull(r.real[s]):
			// No content can come from it, and programs tell it from a pipe.
			r.program[s], err = os.Open(os.DevNull)
		case s == Stdin:
			r.program[s], r.in, err = pipe(1)
		default:
			r.out[s], r.program[s], err = pipe(0)
		}
		if err != nil {
			return err
		}
	}
	if tty[Stdout] && inForeground(r.term) {
		old, err := makeRaw(r.term)
		if err != nil {
			return err
		}
		r.restore = old
	}
	return nil
}

// Program returns the descriptors for the program's stdin, stdout and stderr, to
// be inherited, and the one that the program's first process must make its
// controlling terminal with TakeTerminal (-1: none). They are valid until Start.
func (r *Relay) Program() (fds [3]int, terminal int) {
	terminal = -1
	for s, f := range r.program {
		fds[s] = int(f.Fd())
		if r.master != nil && terminal < 0 && isTerminal(fds[s]) {
			terminal = s
		}
	}
	return fds, terminal
}

// Start closes the program's ends in this process and begins to relay. Call it
// after the process that inherits them is started.
func (r *Relay) Start() {
	for s, f := range r.program {
		f.Close()
		r.program[s] = nil
	}
	for _, s := range []int{Stdout, Stderr} {
		if r.out[s] != nil {
			r.outputs.Go(func() { r.output(s, r.out[s], r.real[s]) })
		}
	}
	if r.master != nil {
		to := r.real[Stderr]
		if isTerminal(r.real[Stdout]) {
			to = r.real[Stdout]
		} else if !isTerminal(to) {
			to = r.real[Stdin]
		}
		r.outputs.Go(func() { r.output(Stdout, r.master, to) })
	}
	if r.in != nil {
		r.inputs.Go(func() {
			r.inputLoop(r.real[Stdin], r.in)
			r.in.Close() // end of file for the program
		})
	}
	// With a pipe on stdin, typed keys are for whoever opens /dev/tty.
	if r.keys {
		r.inputs.Go(func() { r.inputLoop(r.term, r.master) })
	}
}

// output relays one stream until its last writer is gone.
func (r *Relay) output(stream int, from *os.File, to int) {
	defer func() {
		if from != r.master {
			from.Close() // the program's next write fails as it would outside
		}
	}()
	buf := make([]byte, chunk)
	for {
		n, err := r.read(stream, from, buf)
		if n > 0 {
			if e := r.record(stream, buf[:n]); e != nil {
				r.fail(e)
				return
			}
			if e := writeAll(to, buf[:n]); e != nil {
				if !errors.Is(e, unix.EPIPE) { // a reader that went away is no fault
					r.fail(fmt.Errorf("write stream %d: %w", stream, e))
				}
				if from == r.master {
					r.hangUp()
				}
				return
			}
		}
		if err != nil {
			// EIO is how a terminal says that its last slave was closed.
			if !errors.Is(err, io.EOF) && !errors.Is(err, unix.EIO) && !errors.Is(err, os.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				r.fail(fmt.Errorf("read stream %d: %w", stream, err))
			}
			return
		}
	}
}

// read reads a terminal, or a pipe so that Written can count.
func (r *Relay) read(stream int, from *os.File, buf []byte) (int, error) {
	if from == r.master {
		return from.Read(buf)
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		r.reading.Lock()
		defer r.reading.Unlock()
		for {
			n, failed = unix.Read(int(fd), buf)
			if failed != unix.EINTR {
				break
			}
		}
		if n > 0 {
			r.taken[stream] += uint64(n)
		}
		return failed != unix.EAGAIN
	})
	n = max(n, 0)
	if err = errors.Join(err, failed); err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Written is how many bytes the program has written to stdout or stderr by now,
// whether they were relayed or wait in the pipe.
func (r *Relay) Written(stream int) (uint64, error) {
	f := r.out[stream]
	if f == nil {
		return 0, fmt.Errorf("stream %d is a terminal", stream)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var total uint64
	var failed error
	err = raw.Control(func(fd uintptr) {
		r.reading.Lock()
		defer r.reading.Unlock()
		var waiting int
		waiting, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		total = r.taken[stream] + uint64(waiting)
	})
	return total, errors.Join(err, failed)
}

// inputLoop relays input until either side ends or wake is written to. The outer
// descriptor may be shared with other programs, so it stays blocking and is only
// read when poll says that something is there.
func (r *Relay) inputLoop(from int, to *os.File) {
	raw, err := to.SyscallConn()
	if err != nil {
		r.fail(err)
		return
	}
	buf := make([]byte, chunk)
	for {
		var ended bool
		// The file stays open while Control runs; Finish wakes the poll first.
		err := raw.Control(func(fd uintptr) { ended = r.waitInput(from, int(fd), to == r.master) })
		if err != nil || ended {
			return
		}
		n, err := unix.Read(from, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n == 0 { // EIO: the outer terminal is gone, or we are in the background
			if to == r.master {
				to.Write([]byte{r.control(unix.VEOF, 4)})
			}
			return
		}
		if err := r.record(Stdin, buf[:n]); err != nil {
			r.fail(err)
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return // the program closed its stdin, or is gone
		}
	}
}

// waitInput waits for input and says whether the loop should end.
func (r *Relay) waitInput(from, to int, terminal bool) (ended bool) {
	p := []unix.PollFd{
		{Fd: int32(r.wake[0]), Events: unix.POLLIN},
		{Fd: int32(to)}, // POLLERR: nobody can read what we write
		{Fd: int32(from), Events: unix.POLLIN},
	}
	if terminal {
		p[1].Fd = -1 // says POLLHUP while no slave is open, which is not the end
	}
	for {
		wait, watch := -1, p
		if terminal && !inForeground(from) {
			wait, watch = 200, p[:2]
		}
		n, err := unix.Poll(watch, wait)
		switch {
		case err == unix.EINTR || err == nil && n == 0:
		case err != nil || p[0].Revents != 0 || p[1].Revents&unix.POLLERR != 0:
			return true
		default:
			return false
		}
	}
}

// Finish waits until all output has been passed on and returns the first error of
// recording or relaying. Call it when the program's last process is gone, so that
// nobody holds its ends. It restores the outer terminal.
func (r *Relay) Finish() error {
	r.outputs.Wait()
	r.Abort()
	r.inputs.Wait()
	r.closeAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Abort makes all loops end soon, whatever the program does; output that was not
// read yet is lost. Finish must still be called. A write to a caller who does not
// read cannot be undone: it ends when the caller does.
func (r *Relay) Abort() {
	if r.wake[1] >= 0 {
		unix.Write(r.wake[1], []byte{0})
	}
	past := time.Unix(1, 0)
	for _, f := range append([]*os.File{r.in, r.master}, r.out[:]...) {
		if f != nil {
			f.SetDeadline(past)
		}
	}
}

func (r *Relay) closeAll() {
	if r.restore != nil {
		setTermios(r.term, r.restore)
		r.restore = nil
	}
	for _, f := range append([]*os.File{r.in, r.master}, append(r.out[:], r.program[:]...)...) {
		if f != nil {
			f.Close()
		}
	}
	for i, fd := range r.wake {
		if fd >= 0 {
			unix.Close(fd)
		}
		r.wake[i] = -1
	}
}

func (r *Relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}
