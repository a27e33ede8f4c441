package eval

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// ErrLocked says that another eval works in the folder.
var ErrLocked = errors.New("another eval works in this folder")

// A State is an eval's folder as it was read.
type State struct {
	Dir     string
	Plan    Plan
	Results []Result // in the order of the file
	Torn    int      // bytes of a last line that a crash left unfinished; they are no result
}

// Read reads an eval's folder without taking it.
func Read(dir string) (*State, error) {
	if err := checkLayout(dir); err != nil {
		return nil, err
	}
	raw, err := regular.Read(filepath.Join(dir, PlanFile), MaxPlan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no %s in this folder; want a folder that cleanrun eval -o wrote", dir, PlanFile)
	}
	if err != nil {
		return nil, err
	}
	s := &State{Dir: dir}
	if s.Plan, err = ParsePlan(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, PlanFile), err)
	}
	name := filepath.Join(dir, ResultsFile)
	if raw, err = regular.Read(name, MaxResults); errors.Is(err, fs.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	if s.Results, s.Torn, err = ParseResults(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range s.Results {
		if _, ok := slices.BinarySearch(s.Plan.Tasks, r.Task); !ok || r.Trial > s.Plan.Trials {
			return nil, fmt.Errorf("%s: got %s, want a task and a trial of %s", name, r.Cell, PlanFile)
		}
	}
	return s, nil
}

// Running tells whether an eval works in dir.
func Running(dir string) (bool, error) {
	if err := checkLayout(dir); err != nil {
		return false, err
	}
	return locked(filepath.Join(dir, LockFile))
}

// checkLayout refuses a folder in which a name of ours is something else. A link
// would lead what is written and removed out of the folder, and a pipe never
// ends. What is not there yet is right.
func checkLayout(dir string) error {
	for _, n := range []struct {
		name string
		kind fs.FileMode
	}{{PlanFile, 0}, {ResultsFile, 0}, {LockFile, 0}, {AttemptsDir, fs.ModeDir}, {ReceiptsDir, fs.ModeDir}, {TasksDir, fs.ModeDir}} {
		name := filepath.Join(dir, n.name)
		st, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Mode().Type() != n.kind {
			want := "a regular file"
			if n.kind != 0 {
				want = "a folder"
			}
			return fmt.Errorf("%s: got %v, want %s, as an eval makes it", name, st.Mode(), want)
		}
		if n.name != AttemptsDir && n.name != TasksDir {
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSymlink {
				return fmt.Errorf("%s: got a symbolic link, want a folder, as an eval makes it", filepath.Join(name, e.Name()))
			}
		}
	}
	return nil
}

// Loose are the run folders that no line of results.jsonl names, in the order of
// the plan: an eval was killed, or still runs.
func (s *State) Loose() ([]Cell, error) {
	known := map[Cell]bool{}
	for _, r := range s.Results {
		known[r.Cell] = true
	}
	var out []Cell
	for _, task := range s.Plan.Tasks {
		dir := filepath.Join(s.Dir, AttemptsDir, Slug(task))
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var cells []Cell
		for _, e := range entries {
			c, ok := parseCell(task, e.Name())
			if !ok || !e.IsDir() || c.Trial > s.Plan.Trials {
				return nil, fmt.Errorf("%s: not a run folder of this eval; want tT-aA", filepath.Join(dir, e.Name()))
			}
			if !known[c] {
				cells = append(cells, c)
			}
		}
		slices.SortFunc(cells, func(a, b Cell) int {
			return int(a.Trial)<<16 + int(a.Attempt) - int(b.Trial)<<16 - int(b.Attempt)
		})
		out = append(out, cells...)
	}
	return out, nil
}

// parseCell reads the name tT-aA.
func parseCell(task, s string) (Cell, bool) {
	t, a, ok := strings.Cut(strings.TrimPrefix(s, "t"), "-a")
	trial, err1 := strconv.ParseUint(t, 10, 32)
	attempt, err2 := strconv.ParseUint(a, 10, 32)
	c := Cell{task, uint32(trial), uint32(attempt)}
	return c, ok && err1 == nil && err2 == nil && trial > 0 && trial <= MaxTrials && attempt > 0 && attempt <= MaxAttempts && filepath.Base(c.RunDir()) == s
}

// A Dir is an eval's folder that this process holds.
type Dir struct {
	State // what Open found and what Append added

	mu      sync.Mutex
	at      map[Cell]int
	lock    *os.File
	results *os.File

	contents sharer
}

// Open makes dir and writes the plan, or takes a folder that holds the same
// plan. ErrLocked: another eval works there. *Changed: it holds another plan.
// A torn last line is cut; Torn says how much.
func Open(dir string, plan Plan) (*Dir, error) {
	text, err := plan.Marshal()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := takeFolder(dir)
	if err != nil {
		return nil, err
	}
	d := &Dir{lock: lock}
	if err := d.open(dir, plan, text); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// takeFolder takes the lock of a folder that is empty or an eval's, and private.
func takeFolder(dir string) (*os.File, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: got a file, want a folder", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: got mode %04o, want 0700: recordings are private", dir, info.Mode().Perm())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ours := func(e os.DirEntry) bool {
		return slices.Contains([]string{PlanFile, LockFile}, e.Name()) || strings.HasPrefix(e.Name(), "."+PlanFile)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, ours) {
		return nil, fmt.Errorf("%s: holds other things (%s); want a new folder, or one that an eval wrote", dir, entries[0].Name())
	}
	if err := checkLayout(dir); err != nil {
		return nil, err
	}
	return takeLock(filepath.Join(dir, LockFile))
}

func (d *Dir) open(dir string, plan Plan, text []byte) error {
	d.State = State{Dir: dir, Plan: plan}
	name := filepath.Join(dir, PlanFile)
	old, err := Read(dir)
	_, there := os.Lstat(name)
	switch {
	case errors.Is(there, fs.ErrNotExist):
		err = durable.CreateNew(name, text, 0o600)
	case err == nil:
		if err = plan.Same(old.Plan); err == nil && plan.Trials > old.Plan.Trials {
			err = durable.WriteFile(name, text, 0o600)
		}
		d.Results, d.Torn = old.Results, old.Torn
	}
	if err != nil {
		return err
	}
	for _, sub := range []string{AttemptsDir, ReceiptsDir, TasksDir} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// A crash may have left hidden tests there.
	if err := os.RemoveAll(filepath.Join(dir, StagedDir)); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, StagedDir), 0o700); err != nil {
		return err
	}
	if d.results, err = os.OpenFile(filepath.Join(dir, ResultsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if d.Torn > 0 {
		st, err := d.results.Stat()
		if err == nil {
			err = d.results.Truncate(st.Size() - int64(d.Torn))
		}
		if err != nil {
			return err
		}
	}
	d.at = map[Cell]int{}
	for i, r := range d.Results {
		d.at[r.Cell] = i
	}
	return d.results.Sync()
}

// Append adds one line to results.jsonl and syncs it.
func (d *Dir) Append(r Result) error {
	line, err := r.Line()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := add(d.Results, d.at, r)
	if err != nil {
		return err
	}
	if _, err := d.results.Write(line); err != nil {
		return fmt.Errorf("%s: %w", d.results.Name(), err)
	}
	if err := d.results.Sync(); err != nil {
		return fmt.Errorf("%s: %w", d.results.Name(), err)
	}
	d.Results = list
	return nil
}

// Snapshot is the state now; Append may go on.
func (d *Dir) Snapshot() *State {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.State
	s.Results = slices.Clone(s.Results)
	return &s
}

// Path joins a name to the folder.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.Dir}, elem...)...)
}

// Close gives up the folder.
func (d *Dir) Close() error {
	var errs []error
	if d.results != nil {
		errs = append(errs, d.results.Close())
	}
	if d.Dir != "" {
		if err := os.RemoveAll(filepath.Join(d.Dir, StagedDir)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, d.lock.Close())...)
}
