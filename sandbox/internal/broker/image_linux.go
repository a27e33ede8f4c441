package broker

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// An image is what an exec must turn out to be. The kernel opens the files of
// an exec by itself, so the broker records what it found and the tracer compares
// before the new program runs its first instruction.
type image struct {
	file   identity // what /proc/PID/exe must be
	argv   []string // what /proc/PID/cmdline must be
	loader identity // ELF interpreter on a writable mount, else zero
}

// identity of a file version.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func identify(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

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

// parseShebang splits the first line as the kernel does (fs/binfmt_script.c).
func parseShebang(head []byte) (interpreter, arg string, ok bool) {
	line, _, ended := bytes.Cut(head[2:], []byte{'\n'})
	text := strings.Trim(string(line), " \t")
	interpreter, arg = text, ""
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		interpreter, arg = text[:i], strings.Trim(text[i:], " \t")
	} else if !ended && len(head) == 256 {
		return "", "", false // the name may be cut off
	}
	interpreter, _, _ = strings.Cut(interpreter, "\x00")
	arg, _, _ = strings.Cut(arg, "\x00")
	return interpreter, arg, interpreter != ""
}

// elfInterpreter reads PT_INTERP. foreign: an ELF file of another class.
func elfInterpreter(fd int, head []byte) (name string, foreign bool) {
	if len(head) < 64 || string(head[:4]) != elf.ELFMAG {
		return "", false
	}
	if elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return "", true
	}
	o := binary.LittleEndian
	off, size, count := o.Uint64(head[32:]), o.Uint16(head[54:]), o.Uint16(head[56:])
	if size != 56 || count > 1024 {
		return "", false // the kernel refuses it
	}
	table := make([]byte, int(size)*int(count))
	if n, err := unix.Pread(fd, table, int64(off)); err != nil || n != len(table) {
		return "", false
	}
	for ; len(table) > 0; table = table[size:] {
		if elf.ProgType(o.Uint32(table)) != elf.PT_INTERP {
			continue
		}
		length := o.Uint64(table[32:])
		if length < 2 || length > pathMax {
			return "", false
		}
		b := make([]byte, length)
		if n, err := unix.Pread(fd, b, int64(o.Uint64(table[8:]))); err != nil || n != len(b) {
			return "", false
		}
		b, _, _ = bytes.Cut(b, []byte{0})
		return string(b), false
	}
	return "", false
}
