package broker

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// Executed compares what pid now runs with what was recorded for the exec of
// thread caller. False: they differ; the row of the kill is written, the tracer
// kills.
func (b *Broker) Executed(caller, pid int) (bool, error) {
	b.mu.Lock()
	want, ok := b.expected[caller]
	delete(b.expected, caller)
	b.mu.Unlock()
	why := ""
	if !ok {
		why = "an exec that was not announced"
	} else if got, err := b.imageOf(pid); err == unix.ESRCH || err == unix.ENOENT {
		return true, nil // killed meanwhile
	} else if err != nil {
		why = "what runs cannot be looked at: " + err.Error()
	} else {
		why = got.differs(&want)
	}
	if why == "" || !b.stopped(pid) {
		return true, nil
	}
	_, err := b.Recorder.Add(&record.Event{
		Proc: b.Recorder.Process(pid), Op: journal.OpKilled, Detail: journal.Detail{Note: why, Argv: want.argv},
	})
	return false, err
}

// stopped tells whether pid still waits in its exec stop. Only SIGKILL takes a
// process out of it before the tracer does: then its memory is gone, what was
// read of it means nothing, and it never executes an instruction.
func (b *Broker) stopped(pid int) bool {
	stat, err := readAll(b.Proc, strconv.Itoa(pid)+"/stat")
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	return i >= 0 && bytes.HasPrefix(stat[i+1:], []byte(" t"))
}

// found is what a stopped process runs.
type found struct {
	file    identity
	cmdline []byte
	maps    func() []byte
}

func (b *Broker) imageOf(pid int) (*found, error) {
	dir := strconv.Itoa(pid)
	var st unix.Stat_t
	if err := unix.Fstatat(b.Proc, dir+"/exe", &st, 0); err != nil {
		return nil, err
	}
	cmdline, err := readAll(b.Proc, dir+"/cmdline")
	if err != nil {
		return nil, err
	}
	return &found{identify(&st), cmdline, func() []byte {
		m, _ := readAll(b.Proc, dir+"/maps") // empty: the loader is not there, which differs
		return m
	}}, nil
}

func (f *found) differs(want *image) string {
	if f.file != want.file {
		return "the file that runs is not the file that was recorded"
	}
	if got := string(bytes.TrimSuffix(f.cmdline, []byte{0})); got != strings.Join(want.argv, "\x00") {
		return "the argument vector is not the one that was recorded"
	}
	if want.loader == (identity{}) {
		return ""
	}
	ino := " " + strconv.FormatUint(want.loader.ino, 10) + " "
	if !bytes.Contains(f.maps(), []byte(ino)) {
		return "the ELF interpreter is not the one that was recorded"
	}
	return ""
}

func readAll(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	out := make([]byte, 0, 4096)
	for {
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
		n, err := unix.Read(fd, out[len(out):cap(out)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		out = out[:len(out)+n]
	}
}
