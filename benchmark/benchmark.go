// Package benchmark seals many tasks at once and reads such a seal
// (spec/benchmark.md). It lists the tasks of a benchmark.yaml: rows of a data
// file, folders, or tasks in Harbor's format. It finds what they give away of
// each other, puts their sets under one root, and rebuilds a seal from its data.
// What is sealed of one task, and its limits, are package seal's.
package benchmark

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// A Benchmark is a benchmark.yaml with the list of its tasks (spec/benchmark.md).
// It holds no ground truth: that is read task by task.
type Benchmark struct {
	File     string // benchmark.yaml
	Name     string // key "benchmark"
	Period   string
	Revision string   // of the data, as the owner names it; may be ""
	Overlap  Overlap  // what to do if one task's workspace holds another's answer
	Warnings []string // of the data: columns that no field names, and the like

	data    []byte // benchmark.yaml
	entries []*entry
	byID    map[string]*entry
	opened  []io.Closer
	files   []seal.HashedFile // data files
	kept    int               // bytes of rows that are held in memory
}

// Overlap says what a task does that holds another task's answer.
type Overlap uint8

// The two ways. Tasks of one repository at several commits overlap by nature: a
// later workspace holds the earlier fix.
const (
	OverlapRefuse Overlap = iota // such a task is a bad task
	OverlapReport                // it is named, and sealed
)

// An entry is one task of the list.
type entry struct {
	id   string
	at   seal.Value // where the task stands, for errors
	read func() (*seal.Task, error)
}

// maxTasks is what one seal can hold.
const maxTasks = contraband.MaxTasks

// Load reads a benchmark.yaml and lists its tasks. It reads each task's own file
// or row once, and neither workspaces nor files of ground truth. The error is a *seal.TaskError, or several joined.
func Load(file string) (*Benchmark, error) {
	data, err := regular.ReadGiven(file, seal.MaxTaskFile+1)
	if err != nil {
		return nil, err
	}
	b, sources, err := parseBenchmark(file, data)
	if err != nil {
		return nil, err
	}
	var bad []error
	for _, s := range sources {
		if err := s.list(b); err != nil {
			bad = append(bad, err)
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.index(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Is tells a benchmark.yaml from a task file: it has the key tasks. A
// file that is neither is taken for a task file, whose reader says what is wrong.
func Is(file string) (bool, error) {
	data, err := regular.ReadGiven(file, seal.MaxTaskFile+1)
	if err != nil {
		return false, err
	}
	root, err := seal.ParseYAML(file, data)
	if err != nil {
		return false, nil
	}
	has := false
	err = root.Mapping(func(key string, v seal.Value) (bool, error) {
		has = has || key == "tasks"
		return true, nil
	})
	return has && err == nil, nil
}

// Close closes the data files. No task can be read then.
func (b *Benchmark) Close() error {
	var errs []error
	for _, c := range b.opened {
		errs = append(errs, c.Close())
	}
	b.opened = nil
	return errors.Join(errs...)
}

// index sorts the tasks and refuses two of one name: a run of one would serve to
// test guesses about the other.
func (b *Benchmark) index() error {
	if len(b.entries) == 0 {
		return &seal.TaskError{File: b.File, Item: "tasks", Problem: "got no task, want at least one"}
	}
	if len(b.entries) > maxTasks {
		return &seal.TaskError{File: b.File, Item: "tasks", Problem: fmt.Sprintf("got %d tasks, want at most %d", len(b.entries), maxTasks)}
	}
	slices.SortStableFunc(b.entries, func(x, y *entry) int { return cmp.Compare(x.id, y.id) })
	b.byID = map[string]*entry{}
	var bad []error
	for _, e := range b.entries {
		if old := b.byID[e.id]; old != nil {
			bad = append(bad, e.at.Errorf("got the task %.200q again, first at %s; two tasks of one name would share a key", e.id, place(old.at)))
		}
		b.byID[e.id] = e
	}
	return errors.Join(bad...)
}

func place(v seal.Value) string {
	if v.Line > 0 {
		return fmt.Sprintf("%s:%d", v.File, v.Line)
	}
	return v.File
}

// IDs are the names of all tasks, ascending.
func (b *Benchmark) IDs() []string {
	ids := make([]string, len(b.entries))
	for i, e := range b.entries {
		ids[i] = e.id
	}
	return ids
}

// seal.Task reads one task: what a run needs of it (PromptText, WorkspacePath,
// Hidden, StageTests, Phases), and with Load its ground truth. It may be called
// from several goroutines.
func (b *Benchmark) Task(id string) (*seal.Task, error) {
	e := b.byID[id]
	if e == nil {
		return nil, &seal.TaskError{File: b.File, Item: "tasks", Problem: fmt.Sprintf("got the task %.200q, want one of the %d of this benchmark%s", id, len(b.entries), b.near(id))}
	}
	return e.read()
}

// near names a task that begins like id.
func (b *Benchmark) near(id string) string {
	for _, e := range b.entries {
		if e.id != "" && id != "" && (strings.HasPrefix(e.id, id) || strings.HasPrefix(id, e.id) || strings.EqualFold(e.id, id)) {
			return fmt.Sprintf(", such as %.200q", e.id)
		}
	}
	return ""
}

func (b *Benchmark) warn(format string, args ...any) {
	b.Warnings = append(b.Warnings, fmt.Sprintf(format, args...))
}

// path makes a name in benchmark.yaml a host path.
func (b *Benchmark) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(filepath.Dir(b.File), filepath.FromSlash(name))
}

// below tells whether a name from the data is a clean path below its folder.
func below(name string) bool { return name != "." && fs.ValidPath(name) }

// reason drops the path, which the message has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// A taskSource is one entry of tasks: it adds its tasks to a benchmark.
type taskSource interface {
	list(b *Benchmark) error
}

// parseBenchmark reads a benchmark.yaml strictly and nothing that it names. The
// error is a *TaskError.
func parseBenchmark(file string, data []byte) (*Benchmark, []taskSource, error) {
	root, err := seal.ParseYAML(file, data)
	if err != nil {
		return nil, nil, err
	}
	b := &Benchmark{File: file, data: data}
	var all seal.Defaults
	var list []seal.Value
	err = root.Mapping(func(key string, v seal.Value) (known bool, err error) {
		switch key {
		case "benchmark":
			b.Name, err = v.Name()
		case "period":
			b.Period, err = v.Name()
		case "revision":
			b.Revision, err = v.Name()
		case "overlap":
			var i int
			i, err = v.Word("refuse", "report")
			b.Overlap = Overlap(i)
		case "tasks":
			err = v.Sequence(func(v seal.Value) error {
				list = append(list, v)
				return nil
			})
		default:
			return all.Take(key, v)
		}
		return true, err
	}, append(seal.DefaultKeys(), "benchmark", "period", "revision", "overlap", "tasks")...)
	if err != nil {
		return nil, nil, err
	}
	if b.Name == "" || len(list) == 0 {
		return nil, nil, root.Errorf("want benchmark, the name, and tasks, where they are")
	}
	if len(b.Name) > receipt.MaxSubject {
		return nil, nil, root.Errorf("got a benchmark name of %d bytes, want at most %d: it is the sub claim of the seal", len(b.Name), receipt.MaxSubject)
	}
	var sources []taskSource
	for _, v := range list {
		s, err := newSource(v, all)
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, s)
	}
	return b, sources, nil
}

// newSource reads one entry of tasks.
func newSource(v seal.Value, all seal.Defaults) (taskSource, error) {
	own := all
	var folder, jsonl, harbor seal.Text
	var fields *fieldMap
	var workspaces seal.Text
	err := v.Mapping(func(key string, v seal.Value) (known bool, err error) {
		switch key {
		case "folder":
			folder, err = v.Located()
		case "jsonl":
			jsonl, err = v.Located()
		case "harbor":
			harbor, err = v.Located()
		case "fields":
			fields, err = newFieldMap(v)
		case "workspaces":
			workspaces, err = v.Located()
		default:
			return own.Take(key, v)
		}
		return true, err
	}, append(seal.DefaultKeys(), "folder", "jsonl", "harbor", "fields", "workspaces")...)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, t := range []seal.Text{folder, jsonl, harbor} {
		if t.Value != "" {
			n++
		}
	}
	switch {
	case n != 1:
		return nil, v.Errorf("got %d of folder, jsonl and harbor, want one", n)
	case jsonl.Value != "":
		return newRows(v, jsonl, fields, workspaces, own)
	case fields != nil:
		return nil, v.Errorf("got fields without jsonl: they name its columns")
	case harbor.Value != "":
		return newHarbor(v, harbor, workspaces, own)
	case workspaces.Value != "":
		return nil, v.Errorf("got workspaces beside folder: each task file names its own")
	}
	return &folderSource{at: v, folder: folder, common: own}, nil
}
