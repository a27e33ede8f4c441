package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/tracer"
)

// grace is how long what a grader left behind may go on by itself.
const grace = 2 * time.Second

// codeTimeout is the code of a command whose time was over, as timeout(1) has it.
const codeTimeout = 124

// codeNotFound is the code of a command that could not be started, as a shell has
// it.
const codeNotFound = 127

// A ground is where a backend starts the commands of a run and clears away what
// they leave.
type ground interface {
	// start starts the shim of a phase with these streams and returns its process
	// id. The shim waits for a word before it installs its filter. What shim and pid
	// 1 say comes through recording.words.
	start(kind journal.Phase, streams [3]int, terminal int) (pid int, err error)
	// sweep kills every process of the phase. It returns when they are reaped, or
	// at once if the run was killed.
	sweep()
	// kill ends the run: everything in it is killed. It may be called at any time,
	// from any goroutine.
	kill()
	// end returns when no process is left, after the last phase or kill.
	end() error
	// died is told by the tracer how the command of a phase ended.
	died(exit int)
	// showTests makes the hidden tests appear, when grading starts.
	showTests() error
}

// A phase is one command and all that descends from it.
type phase struct {
	r        *recording
	kind     journal.Phase
	relay    *stdio.Relay
	tracer   *tracer.Tracer
	main     int    // process id of the command
	number   uint32 // of its process
	pidfd    int
	traced   chan struct{} // closed when the tracer has seen everything end
	full     chan string   // a limit was reached
	listener *seccomp.Listener
	grading  *grading // in the grade phase

	executed bool // the command's first exec was seen
	sweeping atomic.Bool
	left     atomic.Uint32 // processes that sweep killed

	status  unix.WaitStatus
	exited  bool // the command's status is known
	stopped journal.How
}

// packet is one message of pid 1 or a shim.
type packet struct {
	text []byte
	pid  int // of the sender
	fd   int // that came with it, -1: none
}

// argv is the command of a phase.
func (s *stage) argv(kind journal.Phase) []string {
	return [][]string{s.Setup, s.Command, s.Grade}[kind]
}

// environ is its environment.
func (s *stage) environ(kind journal.Phase) []string {
	p := s.Start.Phases
	if kind != journal.PhaseGrade || p == nil {
		return s.Env
	}
	env := append([]string(nil), s.Env...)
	if at := s.testsAt(); at != "" {
		env = append(env, TestsVariable+"="+at)
	}
	if at := s.rewardAt(); at != "" {
		env = append(env, RewardVariable+"="+at)
	}
	return env
}

// phases runs one command after another. An error, or r.reason, says that the run
// has to be given up.
func (r *recording) phases() error {
	last := journal.PhaseAgent
	if len(r.Grade) > 0 {
		last = journal.PhaseGrade
	}
	for kind := journal.PhaseSetup; kind <= last; kind++ {
		if len(r.argv(kind)) == 0 {
			continue
		}
		if !r.closing.CompareAndSwap(closing, running) && r.closing.Load() != running {
			select {} // interrupted between phases
		}
		if r.cancel.Load() {
			return nil
		}
		p, err := r.phase(kind)
		if err != nil {
			r.giveUp(err)
		}
		// The files of the phase are dated in it: what the agent wrote must not be
		// taken for the grader's.
		began := time.Now()
		if err == nil && r.why() == nil {
			err = r.boundary(p)
		}
		r.cost.Close += time.Since(began)
		if err != nil {
			r.giveUp(err)
			return err
		}
		if !p.exited && !r.cancel.Load() {
			r.giveUp(errors.New("pid 1 ended without telling how the program ended"))
		}
		if r.why() != nil || !p.exited {
			return nil
		}
	}
	return nil
}

// boundary writes what is known when nothing of a phase is left.
func (r *recording) boundary(p *phase) error {
	if err := r.rec.DateAll(); err != nil {
		return err
	}
	if !p.exited { // the run was killed
		return nil
	}
	end := p.end()
	if p.kind == journal.PhaseAgent {
		r.mu.Lock()
		r.code, r.exited = end.Code, true
		r.mu.Unlock()
	}
	if r.Start.Phases == nil {
		return nil
	}
	if p.kind == journal.PhaseGrade {
		if err := p.grading.finish(end); err != nil {
			return err
		}
	}
	if _, err := r.rec.Add(&record.Event{Op: journal.OpPhase, End: &end}); err != nil {
		return err
	}
	r.mu.Lock()
	r.ends = append(r.ends, PhaseEnd{p.kind, end})
	r.mu.Unlock()
	switch {
	case p.kind == journal.PhaseSetup && end.How == journal.TimedOut:
		return errors.New("the setup command did not end in its time: the command was not run")
	case p.kind == journal.PhaseSetup && end.Code != 0:
		return fmt.Errorf("the setup command failed with code %d: the command was not run", end.Code)
	case p.kind == journal.PhaseSetup:
		r.rec.SetPhase(journal.PhaseAgent)
	case p.kind == journal.PhaseAgent && len(r.Grade) > 0 && !r.cancel.Load():
		r.rec.StartGrading()
	}
	return nil
}

// end says how the command ended.
func (p *phase) end() journal.PhaseEnd {
	e := journal.PhaseEnd{How: journal.Exited, Left: p.left.Load()}
	if p.stopped != 0 {
		e.How = p.stopped
	}
	switch {
	case e.How == journal.TimedOut:
		e.Code = codeTimeout
	case e.How == journal.NotStarted:
		e.Code = codeNotFound
	case p.status.Signaled():
		e.Code = 128 + uint32(p.status.Signal())
	default:
		e.Code = uint32(p.status.ExitStatus())
	}
	return e
}

// phase runs one command until nothing of it is left. The phase it returns is
// not nil.
func (r *recording) phase(kind journal.Phase) (*phase, error) {
	began := time.Now()
	if kind == journal.PhaseSetup || r.cost.Setup == 0 {
		began = r.began
	}
	p := &phase{r: r, kind: kind, traced: make(chan struct{}), full: make(chan string, 1), pidfd: -1}
	if kind == journal.PhaseGrade {
		var err error
		if p.grading, err = r.startGrading(p); err != nil {
			close(p.traced)
			return p, err
		}
	}
	err := p.begin()
	r.cost.Setup += time.Since(began)
	if p.relay == nil {
		close(p.traced)
		return p, err
	}
	if err == nil {
		p.wait()
	}
	ended := time.Now()
	if cleared := p.clear(err != nil); err == nil {
		err = cleared
	}
	r.cost.Close += time.Since(ended)
	return p, err
}

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
	t, r, tid := tracer.New(p), p.r, unix.Gettid()
	t.Abort = r.giveUp
	if !r.Cgroup {
		t.Most = int(r.Limits.Processes)
	}
	t.Orphaned = func(tid int) bool {
		parent, ok := r.status(tid, "PPid")
		return !ok || parent == r.init
	}
	t.Ours = func(other int) bool {
		by, ok := r.status(other, "TracerPid")
		return ok && by == tid
	}
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
	if err != nil {
		return
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
func (p *phase) Birth(parent, tid int) error { return p.r.rec.Birth(parent, tid) }

func (p *phase) Exec(caller, pid int) (bool, error) {
	if p.grading != nil && pid == p.main {
		p.grading.commandGoesOn()
	}
	if pid == p.main && !p.executed {
		p.executed = true
		if err := p.r.Limits.set(pid, p.r.Cgroup); err != nil {
			return false, err
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

// namespaces is the ground of pid 1 and its namespaces.
type namespaces struct {
	r     *recording
	kills sync.Once
}

func (n *namespaces) start(kind journal.Phase, streams [3]int, terminal int) (int, error) {
	fds := []int{streams[0], streams[1], streams[2], streams[max(terminal, 0)]}
	if err := unix.Sendmsg(n.r.link, []byte(wordPhase+string(rune('0'+kind))), unix.UnixRights(fds...), nil, 0); err != nil {
		return 0, fmt.Errorf("tell pid 1: %w", err)
	}
	pid, _, err := n.r.hear(wordHello)
	return pid, err
}

func (n *namespaces) sweep() {
	if n.r.tell(wordSweep) != nil {
		return
	}
	for w := range n.r.words { // closed when pid 1 is gone, and so everything
		if string(w.text) == wordGone {
			return
		}
	}
}

// died does nothing: pid 1 tells it.
func (n *namespaces) died(int) {}

func (n *namespaces) showTests() error {
	if n.r.tests < 0 {
		return nil
	}
	fd := n.r.tests
	n.r.tests = -1
	return mounts.Attach(fd, n.r.testsAt())
}

func (n *namespaces) kill() {
	n.kills.Do(func() { _ = unix.Kill(n.r.init, unix.SIGKILL) }) // ESRCH: it ended by itself
}

// end lets pid 1 go. It was started by the main thread.
func (n *namespaces) end() error {
	_ = unix.Shutdown(n.r.link, unix.SHUT_WR) // its link is at its end
	reaped := false
	for {
		pid, err := unix.Wait4(-1, nil, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD && reaped:
			return nil
		case err == unix.ECHILD:
			return errors.New("pid 1 was never reaped")
		case err != nil:
			return fmt.Errorf("wait for pid 1: %w", err)
		default:
			reaped = reaped || pid == n.r.init
		}
	}
}
