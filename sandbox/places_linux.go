package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// planPhases checks what runs beside the command and where its places are.
func (s *stage) planPhases(c *Config) error {
	for _, h := range c.HiddenHints {
		s.Hints = append(s.Hints, filepath.Clean(h))
	}
	s.Timeouts = [3]time.Duration{c.SetupTimeout, c.Timeout, c.GradeTimeout}
	if s.Start.Phases == nil && len(c.Setup)+len(c.Grade) > 0 {
		p := &journal.Phases{Setup: c.Setup, Grade: c.Grade}
		if len(c.Grade) > 0 {
			p.Reward = journal.RewardExit
		}
		if c.Tests != "" {
			p.Tests = TestsPath
		}
		s.Start.Phases = p
	}
	p := s.Start.Phases
	if p == nil {
		if c.Tests != "" {
			return refused("Tests", "a grader that they are for", c.Tests, "give the grade command")
		}
		return nil
	}
	if c.Setup != nil && !slices.Equal(c.Setup, p.Setup) || c.Grade != nil && !slices.Equal(c.Grade, p.Grade) {
		return refused("Setup, Grade", "the commands of Start.Phases", fmt.Sprintf("%q, %q", c.Setup, c.Grade), "leave them out")
	}
	q := *p // the caller's stays as it is; a list is encoded as one, empty or not
	q.Setup, q.Grade, q.Guard = append([]string{}, p.Setup...), append([]string{}, p.Grade...), append([]string{}, p.Guard...)
	if err := journal.CheckPhases(&q); err != nil {
		return refused("Start.Phases", "phases that a start row may state", err.Error(), "correct the task")
	}
	s.Start.Phases, s.Setup, s.Grade = &q, q.Setup, q.Grade
	if (q.Tests != "") != (c.Tests != "") {
		return refused("Tests", "a folder of hidden tests exactly if the phases name a place for them", fmt.Sprintf("%q for the place %q", c.Tests, q.Tests),
			"give the folder of the task's hidden tests, or none")
	}
	if c.Tests != "" {
		var err error
		if s.Tests, err = realDir("Tests", c.Tests); err != nil {
			return err
		}
		if within(s.Tests, s.Workspace) {
			return refused("Tests", "a folder outside the workspace", s.Tests, "the command must not find them before grading")
		}
		if !within(s.Tests, s.RunDir) { // which is never shown
			s.Hints = append(s.Hints, s.Tests)
		}
	}
	return nil
}

// grading makes the places of hidden tests and rewards. Nothing that the run can
// change may lie above them.
func (p *planner) grading(observe bool) error {
	ph := p.Start.Phases
	if ph == nil {
		return nil
	}
	for _, place := range []struct {
		path string
		mode scope.Mode
		kind mounts.Kind
	}{{ph.Tests, scope.ReadTree, mounts.Dir}, {ph.RewardDir, scope.WriteTree, mounts.Private}} {
		if place.path == "" {
			continue
		}
		m, taken := p.mounts[place.path]
		up, covered := p.above(place.path)
		switch {
		case taken && !(observe && m.Kind == mounts.Bind), covered && up.Kind != mounts.Dir, p.kernel(place.path), within(place.path, p.Workspace), within(p.Workspace, place.path):
			return refused("Start.Phases", "a place that nothing else is shown at, such as "+filepath.Dir(ControlPath)+" or a folder of / that the run does not have",
				place.path, "choose another place in the task")
		}
		p.root(place.path, place.mode, scope.Private)
		p.mount(mounts.Mount{Path: place.path, Kind: place.kind, Must: true, Size: p.Limits.private()})
	}
	return nil
}
