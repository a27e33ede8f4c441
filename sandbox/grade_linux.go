package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/reward"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
)

// stdoutName stands for the grader's output in a guard row, whose path is never
// left out.
const stdoutName = "/dev/stdout"

// grading is what decides the reward. It is looked at when grading starts, when the
// grader's process ends, and when nothing of the phase is left.
type grading struct {
	r      *recording
	p      *phase
	output reward.Output

	mu     sync.Mutex
	files  [len(rewardFiles)]rewardFile // when the command ended
	guards []reward.State               // the same, by r.Start.Phases.Guard
	held   bool                         // both were taken
	failed error                        // why they were not
	before []reward.State               // of the lower layer
	told   []bool                       // a row says already that the guard is not as in it
}

// a rewardFile is what was found in the reward folder.
type rewardFile struct {
	state   reward.State
	content []byte // nil if it is not to be read
}

var rewardFiles = [...]struct {
	name   string
	source journal.RewardSource
}{{"reward.txt", journal.FromText}, {"reward.json", journal.FromJSON}}

// places opens what grading reads, before any program runs: no link can be in the
// way.
func (r *recording) places() error {
	r.rewardDir, r.workDir = -1, -1
	p := r.Start.Phases
	if p == nil || len(p.Grade) == 0 {
		return nil
	}
	const how = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	var err error
	if r.workDir, err = unix.Open(r.Workspace, how, 0); err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	if p.RewardDir == "" {
		return nil
	}
	if r.rewardDir, err = unix.Open(r.rewardAt(), how, 0); err != nil {
		return fmt.Errorf("open reward folder: %w", err)
	}
	return nil
}

// startGrading looks at what must be absent or unchanged, and shows the hidden
// tests. No process of the run is left.
func (r *recording) startGrading(p *phase) (*grading, error) {
	g := &grading{r: r, p: p}
	phases := r.Start.Phases
	if r.rewardDir >= 0 {
		for _, f := range rewardFiles {
			s, err := reward.Look(r.rewardDir, f.name)
			if err != nil {
				return nil, err
			}
			if s == reward.Absent {
				continue
			}
			if err := g.guard(path.Join(r.rewardAt(), f.name), journal.GuardReward, false); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range phases.Guard {
		lower, err := reward.Look(r.tree.Lower, name)
		now := lower
		switch {
		case err == nil && lower.Through():
			err = errors.New("a symbolic link is on its way")
		case err == nil:
			now, err = reward.Look(r.workDir, name)
		}
		told := err != nil || now != lower
		if err != nil { // whether it was changed cannot be told: such a run is never clean
			err = r.rec.Lost(0, "guarded path "+name+" cannot be compared with the baseline: "+err.Error())
		} else if now != lower {
			err = g.guard(path.Join(r.Workspace, name), journal.GuardDeclared, false)
		}
		if err != nil {
			return nil, err
		}
		g.before = append(g.before, lower)
		g.told = append(g.told, told)
	}
	if err := r.ground.showTests(); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *grading) guard(p string, kind journal.GuardKind, after bool) error {
	return g.r.rec.Guard(0, p, journal.Guard{Kind: kind, After: after})
}

// commandEnds is called while the command is held on its way out: nobody that waits
// for its end can have changed anything yet. Of the ends of several threads the
// last one counts.
func (g *grading) commandEnds() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = true
	g.failed = g.take()
}

// leaderGone tells whether the command's first thread has ended: the others may go
// on.
func (g *grading) leaderGone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// commandGoesOn is called when the command executes another program. The first
// thread ends then if another one does it.
func (g *grading) commandGoesOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.failed = false, nil
	g.output.Unmark()
}

// commandEnded is called when the command is gone, in case its end could not be
// held.
func (g *grading) commandEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.held = true
		g.failed = g.take()
	}
}

func (g *grading) take() error {
	written, err := g.p.relay.Written(stdio.Stdout)
	if err != nil {
		return err
	}
	g.output.Mark(written)
	if g.files, err = g.look(); err != nil {
		return err
	}
	g.guards = g.guards[:0]
	for i, name := range g.r.Start.Phases.Guard {
		var s reward.State
		if !g.told[i] {
			if s, err = reward.Look(g.r.workDir, name); err != nil {
				return err
			}
		}
		g.guards = append(g.guards, s)
	}
	return nil
}

func (g *grading) look() (out [len(rewardFiles)]rewardFile, err error) {
	for i, f := range rewardFiles {
		if g.r.rewardDir < 0 {
			break
		}
		if out[i].content, out[i].state, err = reward.Read(g.r.rewardDir, f.name); err != nil {
			return out, err
		}
	}
	return out, nil
}

// finish compares with what is there now that nothing of the phase is left, and
// writes the reward.
func (g *grading) finish(end journal.PhaseEnd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return g.failed
	}
	if end.How != journal.Exited || !g.held {
		return nil // A grader that did not end by itself gave no reward.
	}
	phases := g.r.Start.Phases
	now, err := g.look()
	if err != nil {
		return err
	}
	for i, f := range rewardFiles {
		if now[i].state != g.files[i].state {
			if err := g.guard(path.Join(g.r.rewardAt(), f.name), journal.GuardReward, true); err != nil {
				return err
			}
		}
	}
	for i, name := range phases.Guard {
		if g.told[i] {
			continue
		}
		s, err := reward.Look(g.r.workDir, name)
		if err != nil {
			return err
		}
		// A file of the baseline must still be what it was. One that was not there may
		// be what the grader itself wrote.
		want := g.before[i]
		if want == reward.Absent {
			want = g.guards[i]
		}
		if s != want {
			if err := g.guard(path.Join(g.r.Workspace, name), journal.GuardDeclared, true); err != nil {
				return err
			}
		}
	}
	return g.rewards(end)
}

// rewards writes a row for each source that the rule names.
func (g *grading) rewards(end journal.PhaseEnd) error {
	add := func(v string, s journal.RewardSource) error {
		w := journal.Reward{Value: v, Source: s}
		_, err := g.r.rec.Add(&record.Event{Op: journal.OpReward, Reward: &w})
		g.r.mu.Lock()
		g.r.rewards = append(g.r.rewards, w)
		g.r.mu.Unlock()
		return err
	}
	switch g.r.Start.Phases.Reward {
	case journal.RewardExit:
		if end.Code == 126 || end.Code == 127 || end.Code > 128 && end.Code <= 128+64 {
			return nil // it did not get to a verdict
		}
		v := "0"
		if end.Code == 0 {
			v = "1"
		}
		return add(v, journal.FromExit)
	case journal.RewardStdout:
		line, changed := g.output.Last()
		if changed {
			if err := g.guard(stdoutName, journal.GuardReward, true); err != nil {
				return err
			}
		}
		if v, ok := reward.Number(line); ok {
			return add(v, journal.FromStdout)
		}
	case journal.RewardFile:
		// What is there and cannot be read, as a link or a pipe, or is empty, could hide
		// another number than the one that counts; so can a write that failed.
		for i := range rewardFiles {
			if f := &g.files[i]; f.state != reward.Absent && len(bytes.TrimSpace(f.content)) == 0 {
				return nil
			}
		}
		if g.r.broker.Unwritten.Load() {
			return nil
		}
		for i, f := range rewardFiles {
			parse := reward.Text
			if f.source == journal.FromJSON {
				parse = reward.JSON
			}
			if v, ok := parse(g.files[i].content); ok {
				if err := add(v, f.source); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
