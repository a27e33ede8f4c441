// Package opening collects what the evidence of one run shows of names and contents,
// because the sealed set asks for it: the names of paths that the run changed, for a
// footprint, and what a named path, its marker and the reply need (spec/evidence.md,
// "Openings").
//
// Limits. Whoever has the bundle reads these names. That a cached module of Python is what
// its source compiles to is this machine's word: nothing in the bundle shows it. The time
// of writing in the module's header is not held to its source's, which no run folder
// keeps; Python itself passes over a module with another time.
package opening

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// Config of a collection.
type Config struct {
	Set  *contraband.Set // the one that the run is bound to
	Keys *vault.Keys     // of an encrypted run folder; nil if it is in clear
	// Workspace is a folder with the files of the sealed workspace, which the run folder
	// does not keep; "" for the place that the start row names. What has another SHA-256
	// than the baseline says is not used.
	Workspace string
	// Compiler is asked at most once, with the path that the run's workspace had; its
	// answer says why a cached module is not what its source compiles to, "" if it is.
	// Paths in the module are absolute, as the run saw them.
	Compiler func(workspace string) func(m footprint.Compiled, source, pyc []byte) string
}

// A Report says what was collected, for the user. Nothing of it is signed.
type Report struct {
	Names    int       // of changed paths that the bundle shows
	Compiled int       // of them, cached modules that are what their source compiles to
	Counted  []Counted // cached modules that count as any file, by path
}

// A Counted is a cached module that is not asserted to be what its source compiles to.
type Counted struct{ Path, Why string }

// Collect reads a run folder. It returns nil if the set asks for nothing, or the run has
// nothing of it. The same folder, set and answers of the compiler give the same Openings. It
// holds each detail to its row; that the rows are the journal's own is for who scans it.
func Collect(ctx context.Context, run *os.Root, c Config) (*attest.Openings, Report, error) {
	if c.Set.Footprint == nil {
		return nil, Report{}, nil
	}
	x := &collector{Config: c, run: run, changed: map[string]bool{}}
	if err := x.read(ctx); err != nil {
		return nil, Report{}, fmt.Errorf("openings: %w", err)
	}
	if err := x.footprint(ctx); err != nil {
		return nil, Report{}, fmt.Errorf("openings: %w", err)
	}
	if len(x.out.Paths)+len(x.out.Rows)+len(x.out.Marker) == 0 {
		return nil, x.rep, nil
	}
	return &x.out, x.rep, nil
}

// A collector follows one run.
type collector struct {
	Config
	run     *os.Root
	secret  journal.Secret
	start   *journal.Start
	files   *files
	changed map[string]bool // paths of the workspace and of grants
	check   func(m footprint.Compiled, source, pyc []byte) string
	out     attest.Openings
	rep     Report
}

// read goes through rows and details.
func (x *collector) read(ctx context.Context) error {
	private := vault.Folder{Root: x.run, Keys: x.Keys}
	var err error
	if x.secret, err = private.Secret(); err != nil {
		return err
	}
	rows, err := regular.In(x.run, journal.RowsFile)
	if err != nil {
		return err
	}
	defer rows.Close()
	details, err := private.Details()
	if err != nil {
		return err
	}
	defer details.Close()
	next, stop := iter.Pull2(journal.Details(details))
	defer stop()
	chain := journal.NewChecker()
	for line, err := range journal.Rows(rows) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		row, err := chain.Add(line.Raw)
		if err != nil {
			return err
		}
		raw, err, ok := next()
		if !ok {
			return errors.New("got fewer details than rows, want one for each (the run folder is damaged)")
		}
		if err != nil {
			return err
		}
		if !row.Opens(x.secret.Salt(row.Seq), raw) {
			return fmt.Errorf("event %d: got a detail that does not open the row (the run folder is damaged)", row.Seq)
		}
		d, err := journal.ParseDetail(raw)
		if err != nil {
			return fmt.Errorf("event %d: %w", row.Seq, err)
		}
		if row.Start != nil {
			x.start, x.files = row.Start, newFiles()
		}
		x.row(chain, &row, &d)
	}
	if x.start == nil {
		return errors.New("got a journal without rows, want at least the start row")
	}
	return nil
}

func (x *collector) row(chain *journal.Checker, r *journal.Row, d *journal.Detail) {
	if r.Phase == journal.PhaseGrade {
		return
	}
	ours := func(p *journal.PathRef) bool {
		class := chain.Class(p)
		return class == scope.Workspace || class == scope.Grant
	}
	switch class := chain.Class(r.Path); {
	case r.Op != journal.OpOpen && r.Op != journal.OpExec && r.Op != journal.OpInterp, class == scope.Private, ours(r.Path):
		x.files.row(r, d) // what the system holds never gets a name elsewhere
	}
	if r.Phase != journal.PhaseAgent || !attest.Changes(r) {
		return
	}
	for _, p := range [...]struct {
		ref  *journal.PathRef
		name string
	}{{r.Path, d.Path}, {r.Path2, d.Path2}} {
		if p.ref != nil && p.name != "" && ours(p.ref) {
			x.changed[p.name] = true
		}
	}
}

// footprint opens the changed paths.
func (x *collector) footprint(ctx context.Context) error {
	policy, err := footprint.NewPolicy(x.Set.Footprint.Allowed)
	if err != nil {
		return err
	}
	var all *contents
	defer func() { all.close() }()
	key := x.secret.PathKey()
	for _, p := range slices.Sorted(maps.Keys(x.changed)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o := attest.OpenedPath{Path: p, Key: scope.Key(key, p)}
		if m, ok := footprint.ParseCompiled(p); ok && !x.allows(policy, p) {
			if all == nil {
				if all, err = x.contents(); err != nil {
					return err
				}
			}
			why, gone := x.module(all, m)
			switch {
			case why == "" && !gone:
				o.Compiled = true
				x.rep.Compiled++
			case !gone:
				x.rep.Counted = append(x.rep.Counted, Counted{p, why})
			}
		}
		x.out.Paths = append(x.out.Paths, o)
	}
	x.rep.Names = len(x.out.Paths)
	return nil
}

// allows spares the interpreter a module that may change anyhow.
func (x *collector) allows(p footprint.Policy, name string) bool {
	rel, ok := below(x.start.Workspace, name)
	return ok && p.Allows(x.start.Workspace, rel)
}

// module says why a cached module counts as any file, "" if it does not, and whether it
// was not there any more when the agent's phase ended.
func (x *collector) module(c *contents, m footprint.Compiled) (why string, gone bool) {
	pyc, there := x.files.at(m.Path, x.start.Workspace, c.base)
	if !there {
		return "", true
	}
	source, there := x.files.at(m.Source, x.start.Workspace, c.base)
	if !there {
		return "there is no source of it", false
	}
	var both [2][]byte
	for i, f := range []content{pyc, source} {
		b, err := c.read(f)
		if err != nil {
			return [...]string{"its content", "its source"}[i] + " is not kept: " + err.Error(), false
		}
		both[i] = b
	}
	if x.check == nil {
		x.check = x.Compiler(x.start.Workspace)
	}
	return x.check(m, both[1], both[0]), false
}

// below is name relative to folder.
func below(folder, name string) (string, bool) {
	if name == folder {
		return ".", true
	}
	if folder = path.Clean(folder); folder != "/" {
		folder += "/"
	}
	if len(name) > len(folder) && name[:len(folder)] == folder {
		return name[len(folder):], true
	}
	return "", false
}
