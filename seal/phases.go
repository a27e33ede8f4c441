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
func (v value) command() ([]string, error) {
	if _, ok := v.node.(*ast.SequenceNode); !ok {
		text, err := v.text()
		return []string{"sh", "-c", text}, err
	}
	var argv []string
	err := v.sequence(func(v value) error {
		arg, err := v.text()
		argv = append(argv, arg)
		return err
	})
	return argv, err
}

func (v value) setup(p *contraband.Phases) (*contraband.Phases, error) {
	if p == nil {
		p = new(contraband.Phases)
	}
	var err error
	p.Setup, err = v.command()
	return p, err
}

func (v value) grade(p *contraband.Phases) (*contraband.Phases, error) {
	if p == nil {
		p = new(contraband.Phases)
	}
	rules := []string{"exit-code", "stdout", "file"}
	err := v.mapping(func(key string, v value) (known bool, err error) {
		switch key {
		case "command":
			p.Grade, err = v.command()
		case "tests":
			p.Tests, err = v.text()
		case "reward":
			var i int
			i, err = v.word(rules...)
			p.Reward = rules[i]
		case "reward_dir":
			p.RewardDir, err = v.text()
		case "guard":
			var list []Text
			list, err = v.texts()
			for _, t := range list {
				p.Guard = append(p.Guard, t.Value)
			}
			slices.Sort(p.Guard)
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil && len(p.Grade) == 0 {
		err = v.errorf("want command, which runs the grader")
	}
	return p, err
}

// finishPhases fills in what a grader's entry leaves to the default. at is the
// place of grade, for errors.
func (t *Task) finishPhases(at value) error {
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
			return at.errorf("%s: got %s, want %s", set.Where, set.Got, set.Want)
		}
		return err
	}
	return nil
}

func (t *Task) hasTests() bool {
	return len(t.Tests) > 0 || slices.ContainsFunc(t.given, func(s source) bool { return s.kind == contraband.KindTest })
}
