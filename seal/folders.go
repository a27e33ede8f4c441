package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// A folderSource is a folder of folders with a task.yaml each.
type folderSource struct {
	at     value
	folder Text
	common common
}

func (s *folderSource) list(b *Benchmark) error {
	return eachFolder(b, s.at, s.folder, "task.yaml", func(dir, _ string) (*entry, error) {
		file := filepath.Join(dir, "task.yaml")
		read := func() (*Task, error) {
			t, err := ReadTask(file)
			if err != nil {
				return nil, err
			}
			t.around = b.around()
			return t, s.common.fill(t, t.stated)
		}
		t, err := read()
		if err != nil {
			return nil, err
		}
		at := value{file: file}
		if t.Benchmark != b.Name || t.Period != b.Period {
			return nil, at.errorf("got benchmark %.200q, period %.200q, want %.200q, period %.200q, as in %s", t.Benchmark, t.Period, b.Name, b.Period, b.File)
		}
		return &entry{id: t.ID, at: at, read: read}, nil
	})
}

// eachFolder adds the task of each folder in a folder that has a file of the
// given name. A folder without one is named: it may have been meant as a task.
func eachFolder(b *Benchmark, at value, folder Text, want string, add func(dir, name string) (*entry, error)) error {
	base := b.path(folder.Value)
	list, err := os.ReadDir(base)
	if err != nil {
		return at.errorf("cannot read the folder %.200q: %v", folder.Value, reason(err))
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
		return at.errorf("got no %s in a folder of %.200q, want at least one task", want, folder.Value)
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
	at         value
	folder     Text
	workspaces *pattern // nil: environment/ of each task
	common     common
}

func newHarbor(at value, folder, workspaces Text, c common) (*harborSource, error) {
	s := &harborSource{at: at, folder: folder, common: c}
	if workspaces.Value != "" {
		p, err := parsePattern(at, workspaces)
		if err != nil {
			return nil, err
		}
		for _, name := range p.columns() {
			if name != "id" {
				return nil, at.errorf("workspaces: got {%s}, want {id}, the name of the task's folder", name)
			}
		}
		s.workspaces = p
	}
	return s, nil
}

func (s *harborSource) list(b *Benchmark) error {
	return eachFolder(b, s.at, s.folder, "task.toml", func(dir, name string) (*entry, error) {
		read := func() (*Task, error) { return s.task(b, dir, name) }
		t, err := read()
		if err != nil {
			return nil, err
		}
		if t.verifierEnv {
			b.warn("%s: [verifier] env is not passed to the grader", t.File)
		}
		return &entry{id: t.ID, at: value{file: t.File}, read: read}, nil
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

func (s *harborSource) task(b *Benchmark, dir, name string) (*Task, error) {
	file := filepath.Join(dir, "task.toml")
	at := value{file: file}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxTaskFile {
		return nil, at.errorf("got %d bytes, want at most %d", len(data), MaxTaskFile)
	}
	var h harborFile
	if err := toml.Unmarshal(data, &h); err != nil {
		if e := new(toml.DecodeError); errors.As(err, &e) {
			at.line, _ = e.Position()
		}
		return nil, at.errorf("%v", err)
	}
	if !contraband.CheckName(name) {
		return nil, at.errorf("got the folder name %.200q, want a printable one: it names the task", name)
	}
	t := &Task{File: file, Benchmark: b.Name, ID: name, Period: b.Period, Scope: defaultScope(), Channels: []contraband.Channel{},
		Prompt: Prompt{File: Text{Value: "instruction.md", Item: "instruction.md"}},
		data:   data, dir: dir, around: b.around(), verifierEnv: len(h.Verifier.Env) > 0}
	if strings.TrimSpace(h.Task.Description) != "" {
		t.Title = Text{Value: h.Task.Description, Item: "task.description"}
	}
	if _, err := t.PromptText(); err != nil {
		return nil, err
	}
	if t.Workspace, err = s.workspace(t); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		dir  string
		list *[]Files
	}{{"solution", &t.Reference}, {"tests", &t.Tests}} {
		info, err := os.Stat(filepath.Join(dir, part.dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() {
			return nil, at.errorf("got no folder %s, want it to be one", part.dir)
		}
		*part.list = []Files{{Pattern: Text{Value: part.dir + "/**", Item: part.dir}, Root: part.dir}}
	}
	if _, err := os.Stat(filepath.Join(dir, "tests", "test.sh")); err == nil {
		t.Phases = &contraband.Phases{Grade: []string{"bash", harborTests + "/test.sh"}, Tests: harborTests, Reward: "file", RewardDir: harborReward}
	} else {
		return nil, at.errorf("got no tests/test.sh, which grades the task")
	}
	return t, s.common.fill(t, stated{grade: true})
}

// workspace is environment/, or what the pattern gives.
func (s *harborSource) workspace(t *Task) (Text, error) {
	if s.workspaces == nil {
		if info, err := os.Stat(filepath.Join(t.dir, "environment")); err != nil || !info.IsDir() {
			return Text{}, value{file: t.File}.errorf("got no folder environment, want the workspace; name it with workspaces: in %s", s.at.file)
		}
		return Text{Value: "environment", Item: "environment"}, nil
	}
	name, err := s.workspaces.expand(func(string) (string, error) { return t.ID, nil })
	if err != nil {
		return Text{}, err
	}
	abs, err := filepath.Abs(filepath.Join(filepath.Dir(s.at.file), filepath.FromSlash(name)))
	return Text{Value: abs, Item: "workspaces"}, err
}
