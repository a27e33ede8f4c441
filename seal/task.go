// Package seal reads a task file and makes the sealed set of its ground truth
// (spec/task.md, spec/sealed-set.md). It runs on the owner's machine and needs
// the audit key.
//
// Limits: it sees the answer's text, not its meaning, so an answer that the
// workspace holds in other words passes. Packed git history is read by the
// installed git; without it such a workspace is refused. What cannot be sealed
// well is counted as uncovered, and named.
package seal

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Task is a task file as written. Nothing that it names has been read.
type Task struct {
	File      string // name for messages
	Benchmark string
	ID        string // key "task"
	Period    string
	Title     Text
	Prompt    Prompt
	Workspace Text // folder, relative to the task file
	Reference []Files
	Tests     []Files
	Canaries  []Text
	Tokens    []Text // generated answers
	Signals   []Text // completion signals
	Commands  []Text // expected test commands
	Scope     contraband.Scope
	Channels  []contraband.Channel
	Phases    *contraband.Phases // nil: the runner may choose

	stated      stated
	verifierEnv bool     // a Harbor task sets variables for its grader
	data        []byte   // what the task commitment binds as the task file
	dir         string   // host folder that relative names start at
	given       []source // reference and tests that stand in a data file, in the order of their columns
	around      []string // host paths of the benchmark's own files
}

// Text is a string and the place where it stands.
type Text struct {
	Value string
	Item  string
	Line  int
}

// Prompt is given inline or as a file.
type Prompt struct {
	Inline string
	File   Text
}

// Files is one entry of reference or tests.
type Files struct {
	Pattern  Text   // a glob with **, relative to the task file
	Patch    bool   // unified diffs: their + lines are the ground truth
	Root     string // what is cut off a path to find its pre-image in the workspace
	Replaces string // the pre-image, if it has another path; "" is the same path
}

// ParseTask reads a task file strictly. The error is a *TaskError.
func ParseTask(file string, data []byte) (*Task, error) {
	root, err := parseYAML(file, data)
	if err != nil {
		return nil, err
	}
	t := &Task{File: file, data: data, dir: filepath.Dir(file), Scope: defaultScope(), Channels: []contraband.Channel{}}
	grade := value{file: file, item: "setup"}
	lists := map[string]*[]Text{"canaries": &t.Canaries, "tokens": &t.Tokens, "signals": &t.Signals, "commands": &t.Commands}
	err = root.mapping(func(key string, v value) (known bool, err error) {
		switch key {
		case "benchmark":
			t.Benchmark, err = v.name()
		case "task":
			t.ID, err = v.name()
		case "period":
			t.Period, err = v.name()
		case "title":
			t.Title, err = v.located()
		case "prompt":
			t.Prompt, err = v.prompt()
		case "workspace":
			t.Workspace, err = v.located()
		case "reference":
			t.Reference, err = v.files()
		case "tests":
			t.Tests, err = v.files()
		case "scope":
			err = v.scope(&t.Scope)
			t.stated.scope = true
		case "channels":
			t.Channels, err = v.channels()
			t.stated.channels = true
		case "setup":
			t.Phases, err = v.setup(t.Phases)
			t.stated.setup = true
		case "grade":
			t.Phases, err = v.grade(t.Phases)
			t.stated.grade, grade = true, v
		default:
			list, ok := lists[key]
			if !ok {
				return false, nil
			}
			*list, err = v.texts()
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	for _, need := range []struct {
		key string
		ok  bool
	}{{"benchmark", t.Benchmark != ""}, {"task", t.ID != ""}, {"prompt", t.Prompt != Prompt{}}, {"workspace", t.Workspace.Value != ""}} {
		if !need.ok {
			return nil, value{file: file, item: need.key}.errorf("missing; a run needs it")
		}
	}
	if err := t.finishPhases(grade); err != nil {
		return nil, err
	}
	return t, nil
}

func defaultScope() contraband.Scope {
	return contraband.Scope{Workspace: uint8(scope.WriteTree), Grants: []contraband.Grant{}}
}

func (v value) located() (Text, error) {
	s, err := v.text()
	return Text{Value: s, Item: v.item, Line: v.line}, err
}

func (v value) name() (string, error) {
	s, err := v.text()
	if err == nil && !contraband.CheckName(s) {
		err = v.errorf("want a printable name on one line, at most 1024 bytes")
	}
	return s, err
}

func (v value) texts() (list []Text, err error) {
	err = v.sequence(func(v value) error {
		t, err := v.located()
		for _, old := range list {
			if err == nil && old.Value == t.Value {
				err = v.errorf("got the entry of line %d again", old.Line)
			}
		}
		list = append(list, t)
		return err
	})
	return list, err
}

func (v value) prompt() (p Prompt, err error) {
	if s, err := v.text(); err == nil {
		return Prompt{Inline: s}, nil
	}
	err = v.mapping(func(key string, v value) (bool, error) {
		if key != "file" {
			return false, nil
		}
		p.File, err = v.located()
		return true, err
	})
	if err == nil && p.File.Value == "" {
		err = v.errorf("got neither a text nor file: NAME")
	}
	return p, err
}

func (v value) files() (list []Files, err error) {
	err = v.sequence(func(v value) error {
		var f Files
		err := v.mapping(func(key string, v value) (bool, error) {
			s, err := v.located()
			if err != nil {
				return true, err
			}
			switch key {
			case "path", "patch":
				if f.Pattern.Value != "" {
					return true, v.errorf("got both path and patch, want one")
				}
				f.Pattern, f.Patch = s, key == "patch"
			case "root":
				f.Root = s.Value
			case "replaces":
				if !inside(s.Value) {
					return true, v.errorf("got %.200q, want a clean path relative to the workspace", s.Value)
				}
				f.Replaces = s.Value
			default:
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		if f.Pattern.Value == "" {
			return v.errorf("got neither path nor patch")
		}
		if f.Patch && (f.Root != "" || f.Replaces != "") {
			return v.errorf("got root or replaces beside patch; a patch names its files itself")
		}
		list = append(list, f)
		return nil
	})
	return list, err
}

// inside tells whether p is a clean relative path that stays below its root.
func inside(p string) bool {
	return p != "" && p != "." && path.Clean(p) == p && !path.IsAbs(p) && p != ".." && !strings.HasPrefix(p, "../")
}

func (v value) scope(s *contraband.Scope) error {
	err := v.mapping(func(key string, v value) (known bool, err error) {
		switch key {
		case "workspace":
			var mode int
			mode, err = v.word("read", "write")
			s.Workspace = uint8([]scope.Mode{scope.ReadTree, scope.WriteTree}[mode])
		case "grants":
			err = v.sequence(func(v value) error {
				g, err := v.grant()
				for _, old := range s.Grants {
					if err == nil && old.Path == g.Path {
						err = v.errorf("got the path %.200q again", g.Path)
					}
				}
				s.Grants = append(s.Grants, g)
				return err
			})
		default:
			return false, nil
		}
		return true, err
	})
	slices.SortFunc(s.Grants, func(a, b contraband.Grant) int { return cmp.Compare(a.Path, b.Path) })
	return err
}

func (v value) grant() (g contraband.Grant, err error) {
	mode := -1
	err = v.mapping(func(key string, v value) (known bool, err error) {
		switch key {
		case "path":
			if g.Path, err = v.name(); err == nil && (!path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path) {
				err = v.errorf("got %.200q, want a clean absolute path", g.Path)
			}
		case "mode":
			mode, err = v.word("read", "write", "read-one", "write-one")
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil && (g.Path == "" || mode < 0) {
		err = v.errorf("want path and mode")
	}
	if err == nil {
		g.Mode = uint8([]scope.Mode{scope.ReadTree, scope.WriteTree, scope.ReadOne, scope.WriteOne}[mode])
	}
	return g, err
}

// streams are the channels that a recorder knows.
var streams = []string{"stdin"}

func (v value) channels() (list []contraband.Channel, err error) {
	roles := []string{"model", "driver"}
	err = v.mapping(func(key string, v value) (bool, error) {
		if !slices.Contains(streams, key) {
			return false, nil
		}
		i, err := v.word(roles...)
		if err == nil {
			list = append(list, contraband.Channel{Name: key, Role: roles[i]})
		}
		return true, err
	})
	slices.SortFunc(list, func(a, b contraband.Channel) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}
