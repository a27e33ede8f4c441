package broker

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
)

// In the grade phase the answer runs below the grader, as the same user. Whoever could
// stop the grader, take its processor or write into what it has open would decide what
// it says. So a process reaches itself and what descends from it, and signals nothing
// that it descends from. Birth counts, not the parent of the moment.

// numberOf is the number of the process that a thread or process id of the caller's
// means, 0 if it is none of the run.
func (w *worker) numberOf(id int) uint32 {
	if w.Plain != nil {
		if !w.Recorder.Lives(id) {
			return 0
		}
		return w.Recorder.Process(id)
	}
	return w.Recorder.Named(id)
}

// beyond tells a process of the run that is neither the caller nor descends from it.
func (w *worker) beyond(c *call, number uint32) bool {
	return number != c.proc && !w.Recorder.Descends(number, c.proc)
}

// procBeyond tells a path below /proc/PID of such a process, in the grade phase.
func (w *worker) procBeyond(c *call, name string) bool {
	rest, ok := strings.CutPrefix(name, "/proc/")
	if !ok || w.phase != journal.PhaseGrade {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(first)
	return err == nil && w.beyond(c, w.numberOf(pid))
}

// above refuses a signal to what the caller descends from.
func (w *worker) above(c *call, number uint32) bool {
	return w.phase == journal.PhaseGrade && number != 0 && number != c.proc &&
		(w.Recorder.Descends(c.proc, number) || !w.Recorder.Related(c.proc, number))
}

const noteReach = "a process that the caller does not descend to, in the grade phase"

// kept records a refused call on another process and answers it.
func (w *worker) kept(c *call, pid int, result syscall.Errno) {
	args := map[string]uint64{"number": uint64(uint32(c.Nr)), "pid": uint64(uint32(pid))}
	e := &record.Event{Op: journal.OpDenied, Result: unix.EPERM, Detail: journal.Detail{Args: args, Note: noteReach}}
	if err := w.finish(c, e, func() error { return w.Listener.Fail(c.ID, result) }); err != nil {
		w.fatal(err)
	}
}

// onSignal is onProcess for calls that signal the process in their first argument.
func onSignal(sig int, args ...int) handler {
	return func(w *worker, c *call) {
		for _, i := range args {
			if pid := int(int32(c.Args[i])); c.Args[sig] != 0 && w.above(c, w.numberOf(pid)) {
				w.kept(c, pid, unix.EPERM)
				return
			}
		}
		onProcess(args...)(w, c)
	}
}

// onSchedule is onProcess for calls that change how the process in their first argument
// is scheduled.
func onSchedule(w *worker, c *call) {
	pid := int(int32(c.Args[0]))
	if n := w.numberOf(pid); w.phase == journal.PhaseGrade && n != 0 && w.beyond(c, n) {
		w.kept(c, pid, unix.EPERM)
		return
	}
	onProcess(0)(w, c)
}

// signalGroup sends a signal to the processes of a group of the run, 0: to all but the
// caller, and leaves out what the caller descends from. It tells whether it answered:
// if there is nobody to leave out, the kernel does it.
func (w *worker) signalGroup(c *call, group int, sig syscall.Signal) bool {
	var members []int
	kept := false
	for _, p := range w.Recorder.Living() {
		if group != 0 {
			field, err := record.Status(w.proc, p)
			if err != nil || record.Inner(field("NSpgid")) != group {
				continue
			}
		}
		n := w.Recorder.Process(p)
		if w.above(c, n) {
			kept = true
		} else if group != 0 || n != c.proc {
			members = append(members, p)
		}
	}
	if !kept || sig == 0 {
		return false
	}
	result := syscall.Errno(unix.EPERM)
	for _, p := range members {
		if e := errnoOf(unix.Kill(p, sig)); e == 0 {
			result = 0
		}
	}
	w.kept(c, -group, result)
	return true
}

// sysPidfdSignal performs a signal by descriptor itself in the grade phase: the number
// could mean another descriptor after the look at it.
func sysPidfdSignal(w *worker, c *call) {
	if w.phase != journal.PhaseGrade || c.Args[1] == 0 {
		w.goOn(c)
		return
	}
	if c.Args[3] != 0 { // a scope: thread, process or group
		w.quiet(c, func() error { return w.Listener.Fail(c.ID, unix.EINVAL) })
		return
	}
	fd := strconv.Itoa(int(int32(c.Args[0])))
	info, err := readAll(w.proc, strconv.Itoa(c.tid)+"/fdinfo/"+fd)
	if err != nil {
		w.quiet(c, func() error { return w.Listener.Fail(c.ID, unix.EBADF) })
		return
	}
	pid := 0
	if _, after, ok := bytes.Cut(info, []byte("\nPid:\t")); ok {
		line, _, _ := bytes.Cut(after, []byte{'\n'})
		pid, _ = strconv.Atoi(string(line))
	}
	n := w.Recorder.Process(pid)
	switch {
	case pid == -1:
		w.quiet(c, func() error { return w.Listener.Fail(c.ID, unix.ESRCH) })
	case n == 0 || w.above(c, n): // also a folder of /proc, which would do
		w.kept(c, pid, unix.EPERM)
	default:
		e := errnoOf(unix.Kill(pid, syscall.Signal(c.Args[1])))
		w.quiet(c, func() error { return w.Listener.Fail(c.ID, e) })
	}
}

// sysOwner is fcntl with F_SETOWN or F_SETOWN_EX: a descriptor signals its owner. In the
// grade phase the caller may only name itself.
func sysOwner(w *worker, c *call) {
	const setOwn = 8
	if pid := int(int32(c.Args[2])); w.phase == journal.PhaseGrade && (c.Args[1] != setOwn || w.numberOf(pid) != c.proc) {
		w.kept(c, pid, unix.EPERM)
		return
	}
	w.goOn(c)
}

// throughProc makes the way of a path sure in the grade phase: of the links in /proc
// that lead to what a process has open, only the caller's own and those of its
// descendants are followed, and no other can come in the way later.
func (w *worker) throughProc(c *call, o *opening, last bool) syscall.Errno {
	if w.phase != journal.PhaseGrade || w.Plain != nil {
		return 0
	}
	if o.resolve != 0 { // the caller's own rules are for the path as it is
		o.fixed = true
		return 0
	}
	for range maxLinks {
		switch fd, e := w.openNode(o.at.dir, o.at.path, last, 0); e {
		case 0:
			unix.Close(fd)
			o.fixed = true
			return 0
		case unix.ENOENT:
			next, ok := w.crossProc(c, o.at, last)
			if !ok {
				o.fixed = true
				return 0
			}
			o.at.close()
			o.at = next
			continue
		case unix.ELOOP:
		default:
			o.fixed = true
			return 0
		}
		next, _ := w.walkTo(c, o.at, last, true)
		if !next.own { // too many links, or none that is followed
			o.fixed = true
			return 0
		}
		dir := w.nameOf(next.dir)
		o.at.close()
		o.at = next
		if dir == "/proc" { // the caller's number was put in
			continue
		}
		if w.procBeyond(c, dir) {
			return unix.EACCES
		}
		name, rest, more := strings.Cut(next.path, "/")
		if rest = strings.TrimLeft(rest, "/"); !more || rest == "" {
			o.at.path = name
			return 0 // the link itself, in a folder that stays the same process's
		}
		fd, err := unix.Openat(next.dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return errnoOf(err)
		}
		o.at.close()
		o.at = place{dir: fd, path: rest, own: true}
	}
	return unix.ELOOP
}

// unwritten notes that a write of a reward failed in the grade phase, or that it went
// elsewhere: what stands in the reward folder then may not be the grader's.
func (w *worker) unwritten(e *record.Event, result syscall.Errno, names ...string) {
	if w.phase != journal.PhaseGrade || w.Reward == "" || result == 0 {
		return
	}
	switch e.Op {
	case journal.OpOpen:
		if e.Flags&journal.FlagWrite == 0 {
			return
		}
	case journal.OpTruncate, journal.OpRename, journal.OpLink:
	default:
		return
	}
	for _, name := range names {
		if name == "" || !within(name, w.Reward) {
			continue
		}
		if result == unix.EEXIST && !w.isReward(name) { // a name for a temporary file that was taken
			continue
		}
		w.Unwritten.Store(true)
	}
}

// isReward tells a file that is read as the reward.
func (w *worker) isReward(name string) bool {
	base := path.Base(name)
	return path.Dir(name) == w.Reward && (base == "reward.txt" || base == "reward.json")
}

// foreignMemory tells /proc/PID/mem of another process than the caller. The system
// calls that reach there are refused, so the file is too: an answer could change
// what the grader that started it has in memory.
func (w *worker) foreignMemory(c *call, name string) bool {
	rest, ok := strings.CutPrefix(name, "/proc/")
	if !ok || path.Base(name) != "mem" {
		return false
	}
	pid, _, _ := strings.Cut(rest, "/")
	own, ok := w.selfOf(c, "self")
	return !ok || pid != own
}

// notOurs answers a call that names a process which is not of the run. For the run it
// does not exist; that it does is worth a row.
func (w *worker) notOurs(c *call, pid int) {
	if pid > 0 && unix.Kill(pid, 0) != unix.ESRCH {
		args := map[string]uint64{"number": uint64(uint32(c.Nr)), "pid": uint64(pid)}
		w.fail(c, &record.Event{Op: journal.OpDenied, Detail: journal.Detail{Args: args, Note: "a process that is not of the run"}}, unix.ESRCH)
		return
	}
	w.quiet(c, func() error { return w.Listener.Fail(c.ID, unix.ESRCH) })
}

// onProcess lets a call go on whose arguments number args are of the run.
func onProcess(args ...int) handler {
	return func(w *worker, c *call) {
		for _, i := range args {
			if pid := int(int32(c.Args[i])); w.Plain != nil && !w.Recorder.Lives(pid) {
				w.notOurs(c, pid)
				return
			}
		}
		w.goOn(c)
	}
}

// sysPrlimit looks at limits of another process than the caller. In the grade phase it
// sets none: a grader that can open no file leaves a reward that an answer wrote.
func sysPrlimit(w *worker, c *call) {
	pid := int(int32(c.Args[0]))
	own, ok := w.selfOf(c, "self")
	switch {
	case w.Plain != nil && !w.Recorder.Lives(pid):
		w.notOurs(c, pid)
	case w.phase == journal.PhaseGrade && c.Args[2] != 0 && (!ok || own != strconv.Itoa(pid)):
		args := map[string]uint64{"number": uint64(uint32(c.Nr)), "pid": uint64(pid)}
		w.fail(c, &record.Event{Op: journal.OpDenied, Detail: journal.Detail{Args: args, Note: "limits of another process, in the grade phase"}}, unix.EPERM)
	default:
		w.goOn(c)
	}
}

func sysKill(w *worker, c *call) {
	pid, sig := int(int32(c.Args[0])), syscall.Signal(int32(c.Args[1]))
	if pid <= 0 && w.phase == journal.PhaseGrade {
		group := -pid
		if pid == 0 {
			if field, err := record.Status(w.proc, c.tid); err == nil {
				group = record.Inner(field("NSpgid"))
			}
		} else if pid == -1 {
			group = 0
		}
		if w.signalGroup(c, group, sig) {
			return
		}
	}
	switch {
	case pid > 0:
		onSignal(1, 0)(w, c)
	case w.Plain == nil:
		w.goOn(c)
	case pid == 0: // the caller's own group: its session was made for the run
		w.goOn(c)
	case pid == -1: // all that the caller may signal, the user's other programs too
		result := syscall.Errno(unix.ESRCH)
		for _, p := range w.Recorder.Living() {
			if w.Recorder.Process(p) == c.proc {
				continue
			}
			if e := errnoOf(unix.Kill(p, sig)); result != 0 {
				result = e
			}
		}
		w.quiet(c, func() error { return w.Listener.Fail(c.ID, result) })
	case w.group(-pid):
		w.goOn(c)
	default:
		w.notOurs(c, 0)
	}
}

// group tells whether a process group is of the run. Groups are within sessions, and
// the run has sessions of its own.
func (w *worker) group(id int) bool {
	for _, p := range w.Recorder.Living() {
		if g, err := unix.Getpgid(p); err == nil && g == id {
			return true
		}
	}
	return false
}

// priority is setpriority and ioprio_set, which count their kinds from first.
func priority(first int) handler {
	return func(w *worker, c *call) {
		who := int(int32(c.Args[1]))
		which := int(int32(c.Args[0])) - first
		if w.phase == journal.PhaseGrade && !(which == 0 && (who == 0 || !w.beyond(c, w.numberOf(who)))) {
			w.kept(c, who, unix.EPERM)
			return
		}
		switch {
		case w.Plain == nil:
			w.goOn(c)
		case which == 0 && (who == 0 || w.Recorder.Lives(who)), which == 1 && (who == 0 || w.group(who)):
			w.goOn(c)
		default: // all processes of a user
			w.denied(c, unix.EPERM)
		}
	}
}
