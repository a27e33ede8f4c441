package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/tracer"
)

// begin starts the command, up to its exec.
func (p *phase) begin() error {
	r := p.r
	stdin, terminals := 0, "/dev/pts/ptmx"
	if r.Plain != nil {
		terminals = "/dev/ptmx"
	}
	if p.kind != journal.PhaseAgent { // nothing is typed for them
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(null)
		stdin, terminals = null, ""
	}
	relay, err := stdio.New([3]int{stdin, 1, 2}, terminals, p.chunk)
	if err != nil {
		return err
	}
	p.relay = relay
	streams, terminal := relay.Program()
	p.main, err = r.ground.start(p.kind, streams, terminal)
	relay.Start()
	if err != nil {
		close(p.traced)
		return p.notStarted(err)
	}
	ready := make(chan error)
	go p.trace(ready)
	if err := <-ready; err != nil {
		return err
	}
	r.now.Store(p)
	if err := p.filter(); err != nil {
		return p.notStarted(err)
	}
	return nil
}

// notStarted takes a grader that is not there for an event of the run, not of the
// recorder.
func (p *phase) notStarted(err error) error {
	var not *NotExecuted
	if p.kind != journal.PhaseGrade || !errors.As(err, &not) {
		return err
	}
	p.stopped = journal.NotStarted
	return nil
}

// filter brings the shim to its filter, starts the workers and lets it execute.
func (p *phase) filter() error {
	r := p.r
	if err := r.tell(wordGo); err != nil {
		return err
	}
	_, fd, err := r.hear(wordFD)
	if err != nil {
		return err
	}
	l, err := seccomp.NewListener(fd)
	if err != nil {
		return &Unavailable{What: "seccomp-notify", Err: err}
	}
	if err := r.given(); err != nil {
		return err
	}
	_ = l.SyncWakeUp() // only faster, and only from Linux 6.6
	p.listener = l
	if err := r.broker.Start(l, p.kind, workers); err != nil {
		return err
	}
	return r.tell(wordGo)
}

// trace seizes the command, which waits for a word, and follows it to the end of
// all that descends from it.
func (p *phase) trace(ready chan<- error) {
	defer close(p.traced)
	runtime.LockOSThread() // its tasks belong to this thread, which ends with them
	t, r := tracer.New(p), p.r
	t.Abort = r.giveUp
	t.Init = r.init
	t.Status = func(tid int) (func(string) string, error) { return record.Status(r.proc, tid) }
	if p.grading != nil {
		t.Exiting = func(tid int) {
			if tid == p.main || p.grading.leaderGone() && r.rec.Process(tid) == p.number {
				p.grading.commandEnds()
			}
		}
	}
	p.tracer = t
	err := p.seize(t)
	ready <- err
	if err != nil { // what was seized must end, and be reaped here
		t.Kill()
	}
	_ = t.Wait() // its first error was given to Abort
}

// seize traces the shim and numbers it.
func (p *phase) seize(t *tracer.Tracer) error {
	r := p.r
	if err := t.Seize(p.main, r.threads); err != nil {
		return &Unavailable{What: "ptrace", Err: err, Hint: "tracing is blocked (a container, or kernel.yama.ptrace_scope=3), or another tracer is at work"}
	}
	var err error
	if p.pidfd, err = unix.PidfdOpen(p.main, 0); err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	tids, err := r.threads(p.main)
	if err != nil {
		return err
	}
	if err := r.rec.Birth(0, p.main); err != nil {
		return err
	}
	p.number = r.rec.Process(p.main)
	for _, tid := range tids {
		if tid == p.main {
			continue
		}
		if err := r.rec.Birth(0, tid); err != nil {
			return err
		}
	}
	return nil
}

// Birth, Exec and Death are the tracer's events.
func (p *phase) Birth(parent, tid int) error {
	err := p.r.rec.Birth(parent, tid)
	p.r.ground.born(tid)
	return err
}

func (p *phase) Exec(caller, pid int) (bool, error) {
	if p.grading != nil && pid == p.main {
		p.grading.commandGoesOn()
	}
	if pid == p.main && !p.executed {
		p.executed = true
		if err := p.r.Limits.set(pid, p.r.Cgroup); err != nil {
			return false, err
		}
		if !p.r.Cgroup { // threads of the shim do not count
			p.tracer.Most = int(p.r.Limits.Processes)
		}
	}
	return p.r.broker.Executed(caller, pid)
}

func (p *phase) Death(tid, exit int) error {
	process, err := p.r.rec.Death(tid, exit)
	if process && tid != p.main && exit == -int(unix.SIGKILL) && p.sweeping.Load() {
		p.left.Add(1)
	}
	if process && tid == p.main {
		p.r.ground.died(exit)
	}
	return err
}

// chunk records what passes through a standard stream.
func (p *phase) chunk(stream int, b []byte) error {
	origin := journal.OriginDriver
	for _, ch := range p.r.Start.Channels {
		if ch.Name == "stdin" && ch.Role == "model" {
			origin = journal.OriginModel
		}
	}
	if p.grading != nil && stream == stdio.Stdout {
		p.grading.output.Write(b)
	}
	return p.r.rec.Chunk(stream, b, origin)
}

// wait returns when the command has ended.
func (p *phase) wait() {
	r := p.r
	var over <-chan time.Time
	if limit := r.Timeouts[p.kind]; limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	stop := r.watchLimits(p)
	defer stop()
	for !p.exited {
		select {
		case w, ok := <-r.words:
			if !ok {
				return
			}
			if status, ok := cutWord(w.text, wordExit); ok && len(status) == 4 {
				p.status, p.exited = unix.WaitStatus(binary.LittleEndian.Uint32(status)), true
				continue
			}
			if err := p.notStarted(stageFailure(w.text)); err != nil {
				r.giveUp(err)
			}
		case <-over:
			over = nil
			p.stopped = journal.TimedOut
			p.stop()
		case what := <-p.full:
			r.reached(what)
			p.stop()
		}
	}
}

// stop kills the command. What it started is killed when it has ended.
func (p *phase) stop() {
	p.halted = true
	if p.pidfd >= 0 {
		_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0) // ESRCH: it ended just now
	}
}

// clear takes away everything of the phase and proves that it is gone.
func (p *phase) clear(failed bool) error {
	r := p.r
	if !failed && p.grading != nil && p.exited && p.stopped == 0 {
		p.grading.commandEnded()
		select {
		case <-p.traced:
		case <-time.After(grace):
		}
	}
	r.now.CompareAndSwap(p, nil)
	if failed {
		r.ground.kill()
	}
	p.sweeping.Store(true)
	r.ground.sweep()
	<-p.traced
	r.closing.Store(closing) // nothing of the phase is left that a signal could reach
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
	var err error
	if l := p.listener; l != nil {
		r.broker.Wait()
		over, e := l.Hangup(0)
		switch {
		case e != nil || !over:
			err = fmt.Errorf("tasks are left under the filter (%v)", e)
		case p.tracer.Live() != 0:
			err = fmt.Errorf("%d tasks without an end", p.tracer.Live())
		case p.exited && !p.executed && !p.halted && p.stopped == 0 && !r.cancel.Load() && r.why() == nil:
			err = errors.New("the shim ended before it executed the command")
		}
		l.Close()
	}
	if p.tracer != nil && p.tracer.Refused() > 0 {
		r.reached(fmt.Sprintf("processes: limit reached, %d killed at birth", p.tracer.Refused()))
	}
	if failed || r.why() != nil {
		p.relay.Abort()
	}
	return errors.Join(p.relay.Finish(), err)
}
