package seal

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Material is a task with everything that it names, read into memory. It is
// the ground truth in plain: it never leaves the owner's machine.
type Material struct {
	Task      *Task
	Workspace string // host path
	Prompt    []byte
	Baseline  *manifest.Manifest
	Expect    *contraband.Expect // with the text to plant; nil if the task expects nothing
	Files     []HashedFile       // host files that were read
	sources   []source
}

// A HashedFile is a host file that was read.
type HashedFile struct {
	Host   string // path
	SHA256 [32]byte
}

// HashFile notes a file with this content.
func HashFile(host string, content []byte) HashedFile {
	return HashedFile{host, sha256.Sum256(content)}
}

// A source is one file of the ground truth.
type source struct {
	kind    contraband.Kind
	at      Text   // entry of the task file
	label   string // path as shown to the owner
	content []byte
	patch   bool
	pre     []byte // pre-image
	changes bool   // there is a pre-image
	reading *reading
}

// Load reads a task file and all that it names.
func Load(taskFile string) (*Material, error) {
	t, err := ReadTask(taskFile)
	if err != nil {
		return nil, err
	}
	return t.Load()
}

// maxFile bounds a file of a task in bytes: one that never ends is named.
const maxFile = 2 << 30

// ReadTask reads a task file and nothing that it names.
func ReadTask(taskFile string) (*Task, error) {
	data, err := regular.ReadGiven(taskFile, MaxTaskFile+1)
	if err != nil {
		return nil, err
	}
	return ParseTask(taskFile, data)
}

// Load reads all that the task names. A declared file that cannot be read, or a
// pattern that finds none, is an error: an item left out unseen would make every
// run look cleaner than it is.
func (t *Task) Load() (*Material, error) {
	m, err := t.LoadSources()
	if err != nil {
		return nil, err
	}
	if m.Baseline, err = manifest.Build(m.Workspace, m.Prompt); err != nil {
		return nil, err
	}
	return m, m.copied()
}

// LoadSources is Load without the baseline: Baseline is nil.
func (t *Task) LoadSources() (*Material, error) {
	m := &Material{Task: t, Workspace: t.WorkspacePath()}
	var err error
	if m.Prompt, err = t.PromptText(); err != nil {
		return nil, err
	}
	if !t.row {
		m.Files = append(m.Files, HashFile(t.File, t.data))
	}
	if t.Prompt.File.Value != "" {
		m.Files = append(m.Files, HashFile(t.path(t.Prompt.File.Value), m.Prompt))
	}
	if info, err := os.Stat(m.Workspace); err != nil || !info.IsDir() {
		return nil, t.errorf(t.Workspace, "got no folder %.200q, want the workspace", t.Workspace.Value)
	}
	if m.Expect, err = t.Expectation(); err != nil {
		return nil, err
	}
	if m.Expect != nil {
		m.Files = append(m.Files, HashFile(t.path(t.Expect.Plant.Value), []byte(m.Expect.Template)))
	}
	taken := map[string]Text{}
	for _, list := range []struct {
		kind  contraband.Kind
		files []Files
	}{{contraband.KindReference, t.Reference}, {contraband.KindTest, t.Tests}} {
		for _, f := range list.files {
			if err := m.loadFiles(list.kind, f, taken); err != nil {
				return nil, err
			}
		}
	}
	m.sources = append(m.sources, t.given...)
	return m, nil
}

// WorkspacePath is the host path of the workspace.
func (t *Task) WorkspacePath() string { return t.path(t.Workspace.Value) }

func (t *Task) errorf(at Text, format string, args ...any) error {
	return &TaskError{File: t.File, Line: at.Line, Item: at.Item, Problem: fmt.Sprintf(format, args...)}
}

// path makes a name of the task file a host path.
func (t *Task) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(t.dir, filepath.FromSlash(name))
}

// label is the path as the owner wrote it: it is the same on every machine.
func (t *Task) label(host string) string {
	if rel, err := filepath.Rel(t.dir, host); err == nil {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(host)
}

// PromptText reads the prompt.
func (t *Task) PromptText() ([]byte, error) {
	if t.Prompt.Inline != "" {
		return []byte(t.Prompt.Inline), nil
	}
	data, err := regular.ReadGiven(t.path(t.Prompt.File.Value), maxFile)
	if err != nil {
		return nil, t.errorf(t.Prompt.File, "cannot read the prompt: %v", reason(err))
	}
	return data, nil
}

// reason drops the path, which the message has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// glob returns the files that a pattern finds, as host paths, sorted.
func (t *Task) glob(at Text) (base string, names []string, err error) {
	if !doublestar.ValidatePattern(filepath.ToSlash(at.Value)) {
		return "", nil, t.errorf(at, "got %.200q, want a pattern of *, **, ?, [ ] and { }", at.Value)
	}
	base, pattern := doublestar.SplitPattern(filepath.ToSlash(at.Value))
	base = t.path(base)
	names, err = doublestar.Glob(os.DirFS(base), pattern, doublestar.WithFilesOnly(), doublestar.WithFailOnIOErrors())
	if err != nil {
		return "", nil, t.errorf(at, "cannot look for %.200q: %v", at.Value, reason(err))
	}
	if len(names) == 0 {
		return "", nil, t.errorf(at, "got no file for %.200q, want at least one", at.Value)
	}
	slices.Sort(names)
	return base, names, nil
}

// loadFiles reads the files of one entry. Two entries must not name one file.
func (m *Material) loadFiles(kind contraband.Kind, f Files, taken map[string]Text) error {
	t := m.Task
	base, names, err := t.glob(f.Pattern)
	if err != nil {
		return err
	}
	if f.Replaces != "" && len(names) > 1 {
		return t.errorf(f.Pattern, "got %d files for one pre-image %q, want one", len(names), f.Replaces)
	}
	root := t.root(f)
	for _, name := range names {
		host := filepath.Join(base, filepath.FromSlash(name))
		if real, err := filepath.EvalSymlinks(host); err == nil {
			if old, ok := taken[real]; ok {
				return t.errorf(f.Pattern, "got %.200q again, first by %s on line %d; name each file once", name, old.Item, old.Line)
			}
			taken[real] = f.Pattern
		}
		content, err := regular.ReadGiven(host, maxFile)
		if err != nil {
			return t.errorf(f.Pattern, "cannot read %.200q: %v", name, reason(err))
		}
		m.Files = append(m.Files, HashFile(host, content))
		s := source{kind: kind, at: f.Pattern, label: t.label(host), content: content, patch: f.Patch}
		if !f.Patch {
			if err := m.preImage(&s, f, root, host); err != nil {
				return err
			}
		}
		m.sources = append(m.sources, s)
	}
	return nil
}

// root is the host folder that the paths of f are cut at.
func (t *Task) root(f Files) string {
	if f.Root != "" {
		return t.path(f.Root)
	}
	return t.dir
}

// preImage finds the workspace file that s replaces: the one named, which must
// be there, or the one at the same path below root, which may be.
func (m *Material) preImage(s *source, f Files, root, host string) error {
	name := f.Replaces
	if name == "" {
		rel, err := filepath.Rel(root, host)
		if err != nil || !inside(filepath.ToSlash(rel)) {
			if f.Root != "" {
				return m.Task.errorf(f.Pattern, "got %.200q, which is not below the root %q", s.label, f.Root)
			}
			return nil
		}
		name = filepath.ToSlash(rel)
	}
	dir, err := os.OpenRoot(m.Workspace)
	if err != nil {
		return err
	}
	defer dir.Close()
	pre, err := dir.ReadFile(filepath.FromSlash(name))
	switch {
	case err == nil:
		s.pre, s.changes = pre, true
	case f.Replaces != "" || !errors.Is(err, fs.ErrNotExist):
		return m.Task.errorf(f.Pattern, "cannot read the pre-image %.200q in the workspace: %v", name, reason(err))
	}
	return nil
}

// Hide adds host paths that no run of the task may see.
func (t *Task) Hide(paths ...string) { t.around = append(t.around, paths...) }

// Give adds one text of a data file to the ground truth: a unified diff, or else
// a file that replaces none. A text with the lines of a diff that is none is a
// *TaskError.
func (t *Task) Give(kind contraband.Kind, at Text) error {
	s := source{kind: kind, at: at, label: at.Item, content: []byte(at.Value), reading: new(reading)}
	var err error
	if s.patch, err = isPatch(s.content); err != nil {
		return t.errorf(at, "got what looks like a unified diff and is none: %v", err)
	}
	t.given = append(t.given, s)
	return nil
}

// Hidden returns the host paths that the task names and that a run must not
// see: the task file, its folder, the benchmark's own files, the text to plant, the files of reference and tests and the
// folders in which they are looked for. Sorted; what is absent is left out. It
// needs no readable contents.
func (t *Task) Hidden() ([]string, error) {
	list := append([]string{t.File, filepath.Dir(t.File), t.dir}, t.around...)
	if t.Expect != nil { // its marker is another than the run's, its line is not
		list = append(list, t.path(t.Expect.Plant.Value))
	}
	for _, f := range slices.Concat(t.Reference, t.Tests) {
		base, names, err := t.glob(f.Pattern)
		var bad *TaskError
		if err != nil && !errors.As(err, &bad) {
			return nil, err
		}
		for _, name := range names {
			list = append(list, filepath.Join(base, filepath.FromSlash(name)))
		}
		// A folder that only leads upwards is not named by the pattern.
		folder, _ := doublestar.SplitPattern(filepath.ToSlash(f.Pattern.Value))
		if name := path.Base(path.Clean(folder)); name != "." && name != ".." && name != "/" {
			list = append(list, t.path(folder))
		}
	}
	var out []string
	for _, p := range list {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			out = append(out, real, abs)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// source lists what the ground truth is made of, for the task commitment: the
// task file, then each source in order with its pre-image, then the text to plant.
func (m *Material) source() []byte {
	out := []byte("cleanrun/task-source/v1")
	field := func(b []byte) { out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...) }
	sum := func(b []byte) { s := sha256.Sum256(b); field(s[:]) }
	sum(m.Task.data)
	for i := range m.sources {
		s := &m.sources[i]
		field([]byte{byte(s.kind)})
		field([]byte(s.label))
		raw := s.read().raw
		field(raw[:])
		if s.changes {
			sum(s.pre)
		} else {
			field(nil)
		}
	}
	return m.bind(out)
}

// counts turns a count for each kind into the sealed form.
func counts(n map[contraband.Kind]uint32) []contraband.Count {
	list := []contraband.Count{}
	for k, c := range n { // sorted below
		if c == 0 {
			continue
		}
		list = append(list, contraband.Count{Kind: k, N: c})
	}
	slices.SortFunc(list, func(a, b contraband.Count) int { return cmp.Compare(a.Kind, b.Kind) })
	return list
}
