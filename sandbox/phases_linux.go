package sandbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
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
	halted   bool // stop was called
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
