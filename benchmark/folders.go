package benchmark

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// A folderSource is a folder of folders with a task.yaml each.
type folderSource struct {
	at     seal.Value
	folder seal.Text
	common seal.Defaults
}

func (s *folderSource) list(b *Benchmark) error {
	return eachFolder(b, s.at, s.folder, "task.yaml", func(dir, _ string) (*entry, error) {
		file := filepath.Join(dir, "task.yaml")
		read := func() (*seal.Task, error) {
			t, err := seal.ReadTask(file)
			if err != nil {
				return nil, err
			}
			t.Hide(b.around()...)
			return t, s.common.Fill(t)
		}
		t, err := read()
		if err != nil {
			return nil, err
		}
		at := seal.Value{File: file}
		if t.Benchmark != b.Name || t.Period != b.Period {
			return nil, at.Errorf("got benchmark %.200q, period %.200q, want %.200q, period %.200q, as in %s", t.Benchmark, t.Period, b.Name, b.Period, b.File)
		}
		return &entry{id: t.ID, at: at, read: read}, nil
	})
}

// eachFolder adds the task of each folder in a folder that has a file of the
// given name. A folder without one is named: it may have been meant as a task.
func eachFolder(b *Benchmark, at seal.Value, folder seal.Text, want string, add func(dir, name string) (*entry, error)) error {
	base := b.path(folder.Value)
	list, err := os.ReadDir(base)
	if err != nil {
		return at.Errorf("cannot read the folder %.200q: %v", folder.Value, reason(err))
	}
	var bad []error
	found := 0
	for _, d := range list {
		name := d.Name()
		dir := filepath.Join(base, name)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, want)); errors.Is(err, fs.ErrNotExist) {
			b.warn("%s: no %s: not a task", dir, want)
			continue
		}
		found++
		e, err := add(dir, name)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		b.entries = append(b.entries, e)
	}
	if found == 0 {
		return at.Errorf("got no %s in a folder of %.200q, want at least one task", want, folder.Value)
	}
	return errors.Join(bad...)
}

// around are the host paths that no run of the benchmark may see.
func (b *Benchmark) around() []string { return []string{b.File, filepath.Dir(b.File)} }

// Where Harbor's tests and rewards are.
const (
	harborTests  = "/tests"
	harborReward = "/logs/verifier"
)

// A harborSource is a folder of tasks in Harbor's format: task.toml,
// instruction.md, tests/, solution/ and environment/.
type harborSource struct {
	at         seal.Value
	folder     seal.Text
	workspaces *pattern // nil: environment/ of each task
	common     seal.Defaults
}

func newHarbor(at seal.Value, folder, workspaces seal.Text, c seal.Defaults) (*harborSource, error) {
	s := &harborSource{at: at, folder: folder, common: c}
	if workspaces.Value != "" {
		p, err := parsePattern(at, workspaces)
		if err != nil {
			return nil, err
		}
		for _, name := range p.columns() {
			if name != "id" {
				return nil, at.Errorf("workspaces: got {%s}, want {id}, the name of the task's folder", name)
			}
		}
		s.workspaces = p
	}
	return s, nil
}

func (s *harborSource) list(b *Benchmark) error {
	return eachFolder(b, s.at, s.folder, "task.toml", func(dir, name string) (*entry, error) {
		t, env, err := s.task(b, dir, name)
		if err != nil {
			return nil, err
		}
		if env {
			b.warn("%s: [verifier] env is not passed to the grader", t.File)
		}
		return &entry{id: t.ID, at: seal.Value{File: t.File}, read: func() (*seal.Task, error) {
			t, _, err := s.task(b, dir, name)
			return t, err
		}}, nil
	})
}

// harborFile is what is read of a task.toml. Its other keys are resources and
// free metadata.
type harborFile struct {
	Task struct {
		Description string `toml:"description"`
	} `toml:"task"`
	Verifier struct {
		Env map[string]any `toml:"env"`
	} `toml:"verifier"`
}

// task reads one. env tells whether it sets variables for its grader.
func (s *harborSource) task(b *Benchmark, dir, name string) (t *seal.Task, env bool, err error) {
	file := filepath.Join(dir, "task.toml")
	at := seal.Value{File: file}
	data, err := regular.ReadGiven(file, seal.MaxTaskFile+1)
	if err != nil {
		return nil, false, err
	}
	if len(data) > seal.MaxTaskFile {
		return nil, false, at.Errorf("got %d bytes, want at most %d", len(data), seal.MaxTaskFile)
	}
	var h harborFile
	if err := toml.Unmarshal(data, &h); err != nil {
		if e := new(toml.DecodeError); errors.As(err, &e) {
			at.Line, _ = e.Position()
		}
		return nil, false, at.Errorf("%v", err)
	}
	if !contraband.CheckName(name) {
		return nil, false, at.Errorf("got the folder name %.200q, want a printable one: it names the task", name)
	}
	t = seal.NewTask(file, dir, data)
	t.Benchmark, t.ID, t.Period = b.Name, name, b.Period
	t.Prompt.File = seal.Text{Value: "instruction.md", Item: "instruction.md"}
	t.Hide(b.around()...)
	if strings.TrimSpace(h.Task.Description) != "" {
		t.Title = seal.Text{Value: h.Task.Description, Item: "task.description"}
	}
	if _, err := t.PromptText(); err != nil {
		return nil, false, err
	}
	if t.Workspace, err = s.workspace(dir, name); err != nil {
		return nil, false, err
	}
	for _, part := range []struct {
		dir  string
		list *[]seal.Files
	}{{"solution", &t.Reference}, {"tests", &t.Tests}} {
		info, err := os.Stat(filepath.Join(dir, part.dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() {
			return nil, false, at.Errorf("got no folder %s, want it to be one", part.dir)
		}
		*part.list = []seal.Files{{Pattern: seal.Text{Value: part.dir + "/**", Item: part.dir}, Root: part.dir}}
	}
	if _, err := os.Stat(filepath.Join(dir, "tests", "test.sh")); err == nil {
		t.GradeWith(&contraband.Phases{Grade: []string{"bash", harborTests + "/test.sh"}, Tests: harborTests, Reward: "file", RewardDir: harborReward})
	} else {
		return nil, false, at.Errorf("got no tests/test.sh, which grades the task")
	}
	return t, len(h.Verifier.Env) > 0, s.common.Fill(t)
}

// workspace is environment/, or what the pattern gives.
func (s *harborSource) workspace(dir, id string) (seal.Text, error) {
	if s.workspaces == nil {
		if info, err := os.Stat(filepath.Join(dir, "environment")); err != nil || !info.IsDir() {
			return seal.Text{}, seal.Value{File: filepath.Join(dir, "task.toml")}.Errorf("got no folder environment, want the workspace; name it with workspaces: in %s", s.at.File)
		}
		return seal.Text{Value: "environment", Item: "environment"}, nil
	}
	name, err := s.workspaces.expand(func(string) (string, error) { return id, nil })
	if err != nil {
		return seal.Text{}, err
	}
	abs, err := filepath.Abs(filepath.Join(filepath.Dir(s.at.File), filepath.FromSlash(name)))
	return seal.Text{Value: abs, Item: "workspaces"}, err
}
