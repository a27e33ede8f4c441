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
	// does not keep; "" for where the start row says that it was. What has another SHA-256
	// than the baseline says is not used.
	Workspace string
	// Compiler is asked at most once, with the path that the run's workspace had; its
	// answer says why a cached module is not what its source compiles to, "" if it is.
	// Paths in the module are absolute, as the run saw them.
	Compiler func(workspace string) func(m footprint.Compiled, source, pyc []byte) string
}

// Bounds of the names that a pack shows, which any run can make at will. Beyond them they
// stay closed: a footprint is then inconclusive, and not a pack that nobody reads.
var (
	maxNames     = 1 << 20
	maxNameBytes = 64 << 20
)

// A Report says what was collected, for the user. Nothing of it is signed.
type Report struct {
	Names    int       // of changed paths that the bundle shows, for a footprint
	Unopened int       // changed paths that are not shown, beyond the bounds
	Compiled int       // of the names, cached modules that are what their source compiles to
	Counted  []Counted // cached modules that count as any file, by path
	Rows     int       // rows that the bundle shows, for a named path
	Missing  []uint64  // of them, those whose content should be shown and is not kept
}

// A Counted is a cached module that is not asserted to be what its source compiles to.
type Counted struct{ Path, Why string }

// Collect reads a run folder. It returns nil if the set asks for nothing, or the run has
// nothing of it. The same folder, set and answers of the compiler give the same Openings. It
// holds each detail to its row; that the rows are the journal's own is for who scans it.
func Collect(ctx context.Context, run *os.Root, c Config) (*attest.Openings, Report, error) {
	if c.Set.Footprint == nil && c.Set.Expect == nil {
		return nil, Report{}, nil
	}
	x := &collector{Config: c, run: run, shown: map[string]bool{}}
	defer func() { x.kept.close() }()
	for _, step := range []func(context.Context) error{x.follow, x.paths, x.rows} {
		if err := step(ctx); err != nil {
			return nil, Report{}, fmt.Errorf("openings: %w", err)
		}
	}
	if len(x.out.Paths)+len(x.out.Rows)+len(x.out.Marker) == 0 {
		return nil, x.rep, nil
	}
	return &x.out, x.rep, nil
}

// A collector follows one run.
type collector struct {
	Config
	run    *os.Root
	secret journal.Secret
	start  *journal.Start
	table  *scope.Table
	files  *files          // of a set with a footprint, as named is of one that expects something
	past   versions        // the same
	shown  map[string]bool // paths that the pack shows: whether the run changed them
	named  *attest.Named
	file   string    // with the reply, "" for none
	reply  [32]byte  // digest of it
	kept   *contents // once something was read
	check  func(m footprint.Compiled, source, pyc []byte) string
	out    attest.Openings
	rep    Report
}

// follow goes through all rows.
func (x *collector) follow(ctx context.Context) error {
	var err error
	if x.secret, err = (vault.Folder{Root: x.run, Keys: x.Keys}).Secret(); err != nil {
		return err
	}
	chain := journal.NewChecker()
	err = x.each(ctx, func(line journal.Line, raw []byte) error {
		row, err := chain.Add(line.Raw)
		if err != nil {
			return err
		}
		d, err := journal.ParseDetail(raw)
		if err != nil {
			return fmt.Errorf("event %d: %w", row.Seq, err)
		}
		switch row.Op {
		case journal.OpStart:
			err = x.begin(row.Start)
		case journal.OpDir:
			err = x.table.AddDir(row.Child, row.Path.Dir, row.Path.Digest)
		}
		if err != nil {
			return err
		}
		if x.files != nil {
			x.changes(chain, &row, &d)
		}
		if x.named != nil {
			x.named.Add(&row)
			x.names(row.Path, d.Path)
			x.names(row.Path2, d.Path2)
		}
		return nil
	})
	if err == nil && x.start == nil {
		err = errors.New("got a journal without rows, want at least the start row")
	}
	return err
}

func (x *collector) begin(s *journal.Start) (err error) {
	x.start = s
	if x.table, err = scope.NewTable(s.Roots); err != nil {
		return err
	}
	if x.Set.Footprint != nil {
		x.files, x.past = newFiles(), versions{}
	}
	e := x.Set.Expect
	if e == nil {
		return nil
	}
	if x.file = attest.ReplyFile(e, s); x.file != "" {
		x.reply = scope.Digest(scope.Key(x.secret.PathKey(), x.file), x.file)
	}
	x.named = attest.NewNamed(e, s, x.reply)
	if len(s.Marker) > 0 {
		seed := x.secret.Marker()
		x.out.Marker = seed[:]
	}
	return nil
}

// each reads rows and details once.
func (x *collector) each(ctx context.Context, do func(journal.Line, []byte) error) error {
	rows, err := regular.In(x.run, journal.RowsFile)
	if err != nil {
		return err
	}
	defer rows.Close()
	details, err := (vault.Folder{Root: x.run, Keys: x.Keys}).Details()
	if err != nil {
		return err
	}
	defer details.Close()
	next, stop := iter.Pull2(journal.Details(details))
	defer stop()
	for line, err := range journal.Rows(rows) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		raw, err, ok := next()
		switch {
		case !ok:
			return errors.New("got fewer details than rows, want one for each (the run folder is damaged)")
		case err != nil:
			return err
		case !line.Row.Opens(x.secret.Salt(line.Row.Seq), raw):
			return fmt.Errorf("event %d: got a detail that does not open the row (the run folder is damaged)", line.Row.Seq)
		}
		if err := do(line, raw); err != nil {
			return err
		}
	}
	return nil
}

// names notes that some row names the file with the reply.
func (x *collector) names(p *journal.PathRef, name string) {
	if p != nil && p.Digest == x.reply && name != "" && !x.shown[name] {
		x.shown[name] = false
	}
}

// changes notes what a row changes.
func (x *collector) changes(chain *journal.Checker, r *journal.Row, d *journal.Detail) {
	if r.Phase == journal.PhaseGrade {
		return
	}
	switch chain.Class(r.Path) {
	case scope.System, scope.Toolchain, scope.Kernel: // what stands there never gets a name elsewhere
	default:
		x.files.row(r, d)
		x.past.row(r, d, attest.Bounded(x.Set, r.Phase))
	}
	if !attest.Bounded(x.Set, r.Phase) || !attest.Changes(r) {
		return
	}
	if d.Path != "" && x.watched(r.Path) {
		x.shown[d.Path] = true
	}
	if d.Path2 != "" && x.watched(r.Path2) {
		x.shown[d.Path2] = true
	}
}

// watched tells whether a path lies in the workspace or in a grant.
func (x *collector) watched(p *journal.PathRef) bool {
	if p == nil {
		return false
	}
	access, class, err := x.table.Access(p.Dir, p.Digest)
	return err == nil && access != scope.None && (class == scope.Workspace || class == scope.Grant)
}

// paths opens the names.
func (x *collector) paths(ctx context.Context) error {
	var policy footprint.Policy
	if f := x.Set.Footprint; f != nil {
		var err error
		if policy, err = footprint.NewPolicy(f.Allowed); err != nil {
			return err
		}
	}
	key := x.secret.PathKey()
	room := maxNameBytes
	for _, p := range slices.Sorted(maps.Keys(x.shown)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p != x.file && (x.rep.Names >= maxNames || len(p) > room) {
			x.rep.Unopened++
			continue
		}
		room -= len(p)
		o := attest.OpenedPath{Path: p, Key: scope.Key(key, p)}
		m, module := footprint.ParseCompiled(p)
		if module && x.shown[p] && !x.allows(policy, p) {
			if err := x.keep(); err != nil {
				return err
			}
			why, gone := x.module(m)
			switch {
			case gone: // it counts, and nobody expects it to be left out
			case why == "":
				o.Compiled = true
				x.rep.Compiled++
			default:
				x.rep.Counted = append(x.rep.Counted, Counted{p, why})
			}
		}
		if x.shown[p] {
			x.rep.Names++
		}
		x.out.Paths = append(x.out.Paths, o)
	}
	return nil
}

// rows opens what a named path needs.
func (x *collector) rows(ctx context.Context) error {
	if x.named == nil {
		return nil
	}
	want := x.named.Rows()
	x.rep.Rows = len(want)
	if len(want) == 0 {
		return nil
	}
	return x.each(ctx, func(line journal.Line, raw []byte) error {
		if len(want) == 0 || want[0].Seq != line.Row.Seq {
			return nil
		}
		o := attest.OpenedRow{Seq: line.Row.Seq, Salt: x.secret.Salt(line.Row.Seq), Detail: raw}
		if want[0].Content {
			b, err := x.content(&line.Row, raw)
			if err != nil {
				return err
			}
			if b == nil {
				x.rep.Missing = append(x.rep.Missing, o.Seq)
			} else {
				o.Content = &b
			}
		}
		x.out.Rows = append(x.out.Rows, o)
		want = want[1:]
		return nil
	})
}

// content is what a row exposes, nil if it is not kept.
func (x *collector) content(r *journal.Row, raw []byte) ([]byte, error) {
	d, err := journal.ParseDetail(raw)
	if err != nil {
		return nil, fmt.Errorf("event %d: %w", r.Seq, err)
	}
	if err := x.keep(); err != nil {
		return nil, err
	}
	if len(d.SHA256) != 32 {
		return nil, nil
	}
	b, err := x.kept.read(content{[32]byte(d.SHA256), r.Size, true})
	if err != nil {
		return nil, nil // its dimension is then not established
	}
	return b, nil
}

// allows spares the interpreter a module that may change anyhow.
func (x *collector) allows(p footprint.Policy, name string) bool {
	rel, ok := below(x.start.Workspace, name)
	return ok && p.Allows(x.start.Workspace, rel)
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
