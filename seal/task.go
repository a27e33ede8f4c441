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
	Phases    *contraband.Phases    // nil: the runner may choose
	Footprint *contraband.Footprint // nil: the owner does not say
	Expect    *Expect               // nil: nothing is expected of a named path

	stated stated
	row    bool     // File is a data file of many tasks
	data   []byte   // what the task commitment binds as the task file
	dir    string   // host folder that relative names start at
	given  []source // reference and tests that stand in a data file, in the order of their columns
	around []string // host paths of the benchmark's own files
}

// stated tells which of the keys in Defaults a task states itself.
type stated struct{ setup, grade, scope, channels, footprint bool }

// NewTask is a task that no task file describes. It writes its workspace and has
// nothing else: the caller fills it in. file is where it stands, with its line in
// errors; dir the host folder that its names start at; bound what the commitment
// binds as the task file.
func NewTask(file, dir string, bound []byte) *Task {
	return &Task{File: file, data: bound, dir: dir, Scope: defaultScope(), Channels: []contraband.Channel{}}
}

// NewRow is NewTask for one of the many tasks in a data file.
func NewRow(file, dir string, bound []byte) *Task {
	t := NewTask(file, dir, bound)
	t.row = true
	return t
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

// taskKeys are the keys of a task file.
var taskKeys = []string{"benchmark", "task", "period", "title", "prompt", "workspace", "reference", "tests", "canaries", "tokens", "signals", "commands",
	"scope", "channels", "setup", "grade", "footprint", "expect"}

// ParseTask reads a task file strictly. The error is a *TaskError.
func ParseTask(file string, data []byte) (*Task, error) {
	root, err := ParseYAML(file, data)
	if err != nil {
		return nil, err
	}
	t := NewTask(file, filepath.Dir(file), data)
	grade := Value{File: file, Item: "setup"}
	lists := map[string]*[]Text{"canaries": &t.Canaries, "tokens": &t.Tokens, "signals": &t.Signals, "commands": &t.Commands}
	err = root.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "benchmark":
			t.Benchmark, err = v.Name()
		case "task":
			t.ID, err = v.Name()
		case "period":
			t.Period, err = v.Name()
		case "title":
			t.Title, err = v.Located()
		case "prompt":
			t.Prompt, err = v.prompt()
		case "workspace":
			t.Workspace, err = v.Located()
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
		case "footprint":
			t.Footprint, err = v.footprint()
			t.stated.footprint = true
		case "expect":
			t.Expect, err = v.expect()
		default:
			list, ok := lists[key]
			if !ok {
				return false, nil
			}
			*list, err = v.Texts()
		}
		return true, err
	}, taskKeys...)
	if err != nil {
		return nil, err
	}
	for _, need := range []struct {
		key string
		ok  bool
	}{{"benchmark", t.Benchmark != ""}, {"task", t.ID != ""}, {"prompt", t.Prompt != Prompt{}}, {"workspace", t.Workspace.Value != ""}} {
		if !need.ok {
			return nil, Value{File: file, Item: need.key}.Errorf("missing; a run needs it")
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

// Located is Text with its place.
func (v Value) Located() (Text, error) {
	s, err := v.Text()
	return Text{Value: s, Item: v.Item, Line: v.Line}, err
}

// Name is a printable text on one line, at most 1024 bytes.
func (v Value) Name() (string, error) {
	s, err := v.Text()
	if err == nil && !contraband.CheckName(s) {
		err = v.Errorf("want a printable name on one line, at most 1024 bytes")
	}
	return s, err
}

// Texts is a list of texts, each once.
func (v Value) Texts() (list []Text, err error) {
	err = v.Sequence(func(v Value) error {
		t, err := v.Located()
		for _, old := range list {
			if err == nil && old.Value == t.Value {
				err = v.Errorf("got the entry of line %d again", old.Line)
			}
		}
		list = append(list, t)
		return err
	})
	return list, err
}

func (v Value) prompt() (p Prompt, err error) {
	if s, err := v.Text(); err == nil {
		return Prompt{Inline: s}, nil
	}
	err = v.Mapping(func(key string, v Value) (bool, error) {
		if key != "file" {
			return false, nil
		}
		p.File, err = v.Located()
		return true, err
	}, "file")
	if err == nil && p.File.Value == "" {
		err = v.Errorf("got neither a text nor file: NAME")
	}
	return p, err
}

func (v Value) files() (list []Files, err error) {
	err = v.Sequence(func(v Value) error {
		var f Files
		err := v.Mapping(func(key string, v Value) (bool, error) {
			s, err := v.Located()
			if err != nil {
				return true, err
			}
			switch key {
			case "path", "patch":
				if f.Pattern.Value != "" {
					return true, v.Errorf("got both path and patch, want one")
				}
				f.Pattern, f.Patch = s, key == "patch"
			case "root":
				f.Root = s.Value
			case "replaces":
				if !inside(s.Value) {
					return true, v.Errorf("got %.200q, want a clean path relative to the workspace", s.Value)
				}
				f.Replaces = s.Value
			default:
				return false, nil
			}
			return true, nil
		}, "path", "patch", "root", "replaces")
		if err != nil {
			return err
		}
		if f.Pattern.Value == "" {
			return v.Errorf("got neither path nor patch")
		}
		if f.Patch && (f.Root != "" || f.Replaces != "") {
			return v.Errorf("got root or replaces beside patch; a patch names its files itself")
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

func (v Value) scope(s *contraband.Scope) error {
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "workspace":
			var mode int
			mode, err = v.Word("read", "write")
			s.Workspace = uint8([]scope.Mode{scope.ReadTree, scope.WriteTree}[mode])
		case "grants":
			err = v.Sequence(func(v Value) error {
				g, err := v.grant()
				for _, old := range s.Grants {
					if err == nil && old.Path == g.Path {
						err = v.Errorf("got the path %.200q again", g.Path)
					}
				}
				s.Grants = append(s.Grants, g)
				return err
			})
		default:
			return false, nil
		}
		return true, err
	}, "workspace", "grants")
	slices.SortFunc(s.Grants, func(a, b contraband.Grant) int { return cmp.Compare(a.Path, b.Path) })
	return err
}

func (v Value) grant() (g contraband.Grant, err error) {
	mode := -1
	err = v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "path":
			if g.Path, err = v.Name(); err == nil && (!path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path) {
				err = v.Errorf("got %.200q, want a clean absolute path", g.Path)
			}
		case "mode":
			mode, err = v.Word("read", "write", "read-one", "write-one")
		default:
			return false, nil
		}
		return true, err
	}, "path", "mode")
	if err == nil && (g.Path == "" || mode < 0) {
		err = v.Errorf("want path and mode")
	}
	if err == nil {
		g.Mode = uint8([]scope.Mode{scope.ReadTree, scope.WriteTree, scope.ReadOne, scope.WriteOne}[mode])
	}
	return g, err
}

// streams are the channels that a recorder knows.
var streams = []string{"stdin"}

func (v Value) channels() (list []contraband.Channel, err error) {
	roles := []string{"model", "driver"}
	err = v.Mapping(func(key string, v Value) (bool, error) {
		if !slices.Contains(streams, key) {
			return false, nil
		}
		i, err := v.Word(roles...)
		if err == nil {
			list = append(list, contraband.Channel{Name: key, Role: roles[i]})
		}
		return true, err
	}, streams...)
	slices.SortFunc(list, func(a, b contraband.Channel) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}
