package record

import (
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// Programs that run tests load some files by their names alone. One that the run
// made or changed before grading decides what grading says.

// earlier is what the run had changed by name when grading started.
type earlier struct {
	touched, moved map[string]struct{}
	guards         []Guarded // rows that are written
}

// A Guarded is one guard row.
type Guarded struct {
	Path  string
	Guard journal.Guard
}

// StartGrading moves to the grade phase. All versions are dated and no process of
// the run is left.
func (r *Recorder) StartGrading() {
	for _, f := range r.byNumber() {
		if f == nil {
			continue
		}
		f.Lock()
		f.early.Store(f.ours)
		f.emptied.Store(false)
		f.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = journal.PhaseGrade
	r.early = &earlier{maps.Clone(r.touched), maps.Clone(r.moved), nil}
}

// Guard writes a guard row, once for each path and guard.
func (r *Recorder) Guard(proc uint32, p string, g journal.Guard) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early == nil || slices.Contains(r.early.guards, Guarded{p, g}) {
		return nil
	}
	r.early.guards = append(r.early.guards, Guarded{p, g})
	_, err := r.add(&Event{Proc: proc, Op: journal.OpGuard, Path: p, Guard: &g})
	return err
}

// Guards are the guard rows so far.
func (r *Recorder) Guards() []Guarded {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early == nil {
		return nil
	}
	return slices.Clone(r.early.guards)
}

// Hook tells whether grading, in opening f by one of names, the resolved path and
// the one that was asked for, opens a hook of the run. f is locked.
func (r *Recorder) Hook(f *File, names ...string) bool {
	for _, p := range names {
		source, ok := hookSource(p)
		if !ok {
			continue
		}
		if source == p {
			if r.Early(f, p) {
				return true
			}
			continue
		}
		// A cached translation is the run's own whenever the run has run tests; what
		// counts is the file that it is of.
		if r.changedEarlier(source) {
			return true
		}
		var st unix.Stat_t
		if unix.Stat(source, &st) != nil {
			continue
		}
		if s := r.Known(&st); s != nil && s.early.Load() {
			return true
		}
	}
	return false
}

// Early tells whether the run made f, which has the path p, or changed it there
// before grading. f is locked.
func (r *Recorder) Early(f *File, p string) bool {
	return f.early.Load() || !f.ours && r.changedEarlier(p)
}

// changedEarlier tells whether the run named p in a write before grading started,
// and grading did not make it anew.
func (r *Recorder) changedEarlier(p string) bool {
	var st unix.Stat_t
	if unix.Stat(p, &st) == nil {
		if f := r.Known(&st); f != nil && f.emptied.Load() {
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early == nil {
		return false
	}
	if _, ok := r.early.touched[p]; ok {
		return true
	}
	for d := p; len(d) > 1; d = path.Dir(d) {
		if _, ok := r.early.moved[d]; ok {
			return true
		}
	}
	return false
}

// hookSource is the hook that a path names: itself, or the file that a cached
// translation of Python is of.
func hookSource(p string) (string, bool) {
	dir, base := path.Split(p)
	if strings.HasSuffix(base, ".pth") {
		return p, true
	}
	stem, rest, _ := strings.Cut(base, ".")
	switch stem {
	case "conftest", "sitecustomize", "usercustomize":
	default:
		return "", false
	}
	if rest == "py" {
		return p, true
	}
	cache := path.Clean(dir)
	if strings.HasSuffix(rest, ".pyc") && path.Base(cache) == "__pycache__" {
		return path.Join(path.Dir(cache), stem+".py"), true
	}
	return "", false
}
