package seal

import (
	"errors"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// Where hidden tests and the reward folder appear if the task does not say.
const (
	defaultTests  = "/cleanrun/tests"
	defaultReward = "/cleanrun/reward"
)

// command is an argument vector, or a text for the shell.
func (v Value) command() ([]string, error) {
	if _, ok := v.node.(*ast.SequenceNode); !ok {
		text, err := v.Text()
		return []string{"sh", "-c", text}, err
	}
	var argv []string
	err := v.Sequence(func(v Value) error {
		arg, err := v.Text()
		argv = append(argv, arg)
		return err
	})
	return argv, err
}

func (v Value) setup(p *contraband.Phases) (*contraband.Phases, error) {
	if p == nil {
		p = new(contraband.Phases)
	}
	var err error
	p.Setup, err = v.command()
	return p, err
}

func (v Value) grade(p *contraband.Phases) (*contraband.Phases, error) {
	if p == nil {
		p = new(contraband.Phases)
	}
	rules := []string{"exit-code", "stdout", "file"}
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "command":
			p.Grade, err = v.command()
		case "tests":
			p.Tests, err = v.Text()
		case "reward":
			var i int
			i, err = v.Word(rules...)
			p.Reward = rules[i]
		case "reward_dir":
			p.RewardDir, err = v.Text()
		case "guard":
			var list []Text
			list, err = v.Texts()
			for _, t := range list {
				p.Guard = append(p.Guard, t.Value)
			}
			slices.Sort(p.Guard)
		default:
			return false, nil
		}
		return true, err
	}, "command", "tests", "reward", "reward_dir", "guard")
	if err == nil && len(p.Grade) == 0 {
		err = v.Errorf("want command, which runs the grader")
	}
	return p, err
}

// finishPhases fills in what a grader's entry leaves to the default. at is the
// place of grade, for errors.
func (t *Task) finishPhases(at Value) error {
	p := t.Phases
	if p == nil {
		return nil
	}
	if len(p.Grade) > 0 {
		if p.Reward == "" {
			p.Reward = "exit-code"
		}
		if p.RewardDir == "" && p.Reward == "file" {
			p.RewardDir = defaultReward
		}
		if p.Tests == "" && t.hasTests() {
			p.Tests = defaultTests
		}
	}
	if err := contraband.CheckPhases(p); err != nil {
		var set *contraband.SetError
		if errors.As(err, &set) {
			return at.Errorf("%s: got %s, want %s", set.Where, set.Got, set.Want)
		}
		return err
	}
	return nil
}

func (t *Task) hasTests() bool {
	return len(t.Tests) > 0 || slices.ContainsFunc(t.given, func(s source) bool { return s.kind == contraband.KindTest })
}

// Defaults are the keys setup, grade, scope, channels and footprint as a benchmark
// gives them to the tasks that do not state them. The zero value gives none.
type Defaults struct {
	setup, grade, scope, channels, footprint *Value
}

// DefaultKeys are those that Take knows and that are not refused.
func DefaultKeys() []string { return []string{"setup", "grade", "scope", "channels", "footprint"} }

// Take reads one of the keys. It is checked here, and read again for each task.
func (c *Defaults) Take(key string, v Value) (known bool, err error) {
	scratch := new(Task)
	switch key {
	case "setup":
		c.setup = &v
	case "grade":
		c.grade = &v
	case "scope":
		c.scope = &v
	case "channels":
		c.channels = &v
	case "footprint":
		c.footprint = &v
	case "expect":
		return true, v.Errorf("got it for many tasks: each task.yaml of a folder may state its own; rows and Harbor tasks have none")
	default:
		return false, nil
	}
	return true, c.Fill(scratch)
}

// Fill gives t what it does not state.
func (c *Defaults) Fill(t *Task) (err error) {
	has := t.stated
	at := Value{File: t.File}
	if c.setup != nil && !has.setup {
		if t.Phases, err = c.setup.setup(t.Phases); err != nil {
			return err
		}
		at = *c.setup
	}
	if c.grade != nil && !has.grade {
		if t.Phases, err = c.grade.grade(t.Phases); err != nil {
			return err
		}
		at = *c.grade
	}
	if c.scope != nil && !has.scope {
		t.Scope = defaultScope()
		if err = c.scope.scope(&t.Scope); err != nil {
			return err
		}
	}
	if c.channels != nil && !has.channels {
		if t.Channels, err = c.channels.channels(); err != nil {
			return err
		}
	}
	if c.footprint != nil && !has.footprint {
		if t.Footprint, err = c.footprint.footprint(); err != nil {
			return err
		}
	}
	return t.finishPhases(at)
}

// HasFootprint tells whether there is a footprint for the tasks that state none.
func (c *Defaults) HasFootprint() bool { return c.footprint != nil }

// GradeWith states how the task is graded: no default replaces it.
func (t *Task) GradeWith(p *contraband.Phases) {
	t.Phases, t.stated.grade = p, true
}
