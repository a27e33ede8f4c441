package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// A Footprint is what the bounded phases of a run changed in the workspace and in grants,
// held to what the sealed set allows (spec/statement.md, "Footprint").
type Footprint struct {
	Outcome  string // FootprintWithin, FootprintOutside or FootprintInconclusive
	Gate     bool   // as sealed: a change outside makes the run DIRTY
	Written  uint64 // distinct paths that changed
	Compiled uint64 // of these, left out as cached modules of Python that are what their sources compile to: asserted by the attester
	Unopened uint64 // of these, those whose names the evidence does not show
	Outside  []OutsidePath
}

// Outcomes of a footprint.
const (
	FootprintWithin       = "within"
	FootprintOutside      = "outside"
	FootprintInconclusive = "inconclusive" // not all changes are known, and none is outside
)

// An OutsidePath is a path out of the footprint. They are sorted by path.
type OutsidePath struct {
	Path    string `json:"path"`
	Event   uint64 `json:"event"`   // its last change
	Process uint32 `json:"process"` // that made it
	Op      string `json:"op"`
}

// Bounded tells whether a footprint of set counts what a phase changes. It counts the
// agent, and a setup that the set does not state: whoever chooses the setup could run the
// agent there.
func Bounded(set *contraband.Set, phase journal.Phase) bool {
	return phase == journal.PhaseAgent || phase == journal.PhaseSetup && set.Phases == nil
}

// Changes tells whether a row says that something with a name was changed, as a
// footprint counts it: an operation that succeeded, and more than a file's times. A
// file that is opened for writing counts as written; a device, pipe or socket that is
// opened does not.
func Changes(r *journal.Row) bool {
	if r.Result != 0 {
		return false
	}
	switch r.Op {
	case journal.OpOpen:
		return r.Flags&journal.FlagCreate != 0 || r.Flags&(journal.FlagWrite|journal.FlagTrunc) != 0 && r.Flags&journal.FlagPseudo == 0
	case journal.OpUnlink, journal.OpRename, journal.OpLink, journal.OpSymlink, journal.OpMkdir, journal.OpMknod, journal.OpTruncate,
		journal.OpChmod, journal.OpChown, journal.OpXattr, journal.OpBind:
		return true
	}
	return false
}

// A touch is what rows say of one path that they change.
type touch struct {
	first, last uint64 // rows
	proc        uint32 // of the last
	op          journal.Op
	made        footprint.Making
	gone, tree  bool
	opened      bool
	to          [32]byte // where a rename took it, if gone by one
}

// writes gathers by digest the paths that the bounded phases changed in the workspace and
// in grants. It takes memory for each path, not for each row.
func (e *Evidence) writes(set *contraband.Set) map[[32]byte]*touch {
	table, err := scope.NewTable(e.start.Roots)
	if err != nil {
		panic("attest: roots that were read: " + err.Error())
	}
	touches := map[[32]byte]*touch{}
	e.items(0, func(seq uint64, it *item) bool {
		row := parsed(it.row)
		if row.Op == journal.OpDir {
			if err := table.AddDir(row.Child, row.Path.Dir, row.Path.Digest); err != nil {
				panic("attest: a folder that was read: " + err.Error())
			}
			return true
		}
		if !Bounded(set, row.Phase) || !Changes(row) {
			return true
		}
		for i, ref := range [...]*journal.PathRef{row.Path, row.Path2} {
			if ref == nil || !watched(table, ref) {
				continue
			}
			t := touches[ref.Digest]
			if t == nil {
				t = &touch{first: seq, made: makes(row, i)}
				touches[ref.Digest] = t
			}
			t.last, t.proc, t.op = seq, row.Proc, row.Op
			t.tree = t.tree || row.Op == journal.OpRename && row.Flags&journal.FlagDirectory != 0
			t.gone, t.to = row.Op == journal.OpUnlink || row.Op == journal.OpRename && i == 0, [32]byte{}
			if t.gone && row.Path2 != nil {
				t.to = row.Path2.Digest
			}
		}
		return true
	})
	return touches
}

// watched tells whether a path lies in the workspace or in a grant.
func watched(table *scope.Table, ref *journal.PathRef) bool {
	access, class, err := table.Access(ref.Dir, ref.Digest)
	return err == nil && access != scope.None && (class == scope.Workspace || class == scope.Grant)
}

// makes is what a row makes at its path or, at 1, at its other path.
func makes(row *journal.Row, at int) footprint.Making {
	switch {
	case row.Op == journal.OpMkdir:
		return footprint.MadeFolder
	case row.Op == journal.OpOpen && row.Flags&journal.FlagCreate != 0:
		return footprint.MadeFile
	}
	return footprint.MadeNothing
}

// unseen are reasons for which rows do not hold all changes.
var unseen = []string{ReasonLost, ReasonOpen, ReasonAbandoned, ReasonDelta, ReasonProcesses, ReasonNotifications}

// footprint judges what the rows changed, if the set says what they may change. It
// needs the reasons of rows and closing.
func (j *judge) footprint() {
	sealed := j.ix.set.Footprint
	if sealed == nil {
		return
	}
	policy, err := footprint.NewPolicy(sealed.Allowed)
	if err != nil {
		panic("attest: patterns that were read: " + err.Error()) // CheckFootprint refuses them
	}
	touches := j.ev.writes(j.ix.set)
	f := &Footprint{Outcome: FootprintWithin, Gate: sealed.Gate, Written: uint64(len(touches))}
	var names []footprint.Touched
	var shown []*touch
	if o := j.ev.trailer.Openings; o != nil {
		for i := range o.Paths {
			p := &o.Paths[i]
			t := touches[scope.Digest(p.Key, p.Path)]
			if t == nil {
				continue
			}
			n := footprint.Touched{Path: p.Path, Made: t.made, Gone: t.gone, Tree: t.tree, Compiled: p.Compiled}
			if to := j.ev.named.paths[t.to]; t.gone && to != nil {
				n.To = to.Path
			}
			t.opened = true
			names, shown = append(names, n), append(shown, t)
		}
	}
	judged := policy.JudgeWrites(j.ev.start.Workspace, names)
	f.Compiled = uint64(len(judged.Compiled))
	f.Unopened = f.Written - uint64(len(names))
	for _, i := range judged.Outside {
		t := shown[i]
		f.Outside = append(f.Outside, OutsidePath{names[i].Path, t.last, t.proc, t.op.String()})
		if f.Gate {
			j.note(ReasonFootprint, t.first, 1)
			j.out.Matches = append(j.out.Matches, Match{t.last, classFootprint, ReasonFootprint})
		}
	}
	slices.SortFunc(f.Outside, func(a, b OutsidePath) int { return strings.Compare(a.Path, b.Path) })
	for _, t := range touches {
		if f.Gate && !t.opened {
			j.note(ReasonUnopened, t.first, 1)
		}
	}
	switch {
	case len(f.Outside) > 0:
		f.Outcome = FootprintOutside
	case f.Unopened > 0 || slices.ContainsFunc(unseen, func(id string) bool { return j.reasons[id] != nil }):
		f.Outcome = FootprintInconclusive
	}
	j.out.Footprint = f
}

// claim writes down what a statement says of it.
func (f *Footprint) claim() *FootprintClaim {
	c := &FootprintClaim{Outcome: f.Outcome, Gate: f.Gate, Written: f.Written, Compiled: f.Compiled, Unopened: f.Unopened}
	c.Outside = OutsideClaim{Total: uint64(len(f.Outside)), First: []OutsidePath{}}
	h := sha256.New()
	h.Write([]byte("["))
	room := MaxOutsideBytes
	for i, o := range f.Outside {
		if i > 0 {
			h.Write([]byte(","))
		}
		h.Write(encoded(o))
		if n := len(encoded(o.Path)); n <= room && len(c.Outside.First) < MaxOutside {
			room -= n
			c.Outside.First = append(c.Outside.First, o)
		}
	}
	h.Write([]byte("]"))
	c.Outside.SHA256 = hex.EncodeToString(h.Sum(nil))
	return c
}

// encoded is the JCS form of a value that has one: a path is UTF-8 (scope.CheckPath),
// and a row's number is at most 2^53-1, since no pack holds more rows.
func encoded(v any) []byte {
	b, err := jcs.Marshal(v)
	if err != nil {
		panic("attest: " + err.Error())
	}
	return b
}
