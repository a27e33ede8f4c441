// Package cause answers from a journal's rows who changed a path, and what the
// processes that could have told them had read before.
//
// Limits. Rows carry digests, so two names of a file that was there before the run are
// one file only from the first row on that names each. A file below a folder that was
// renamed is a new path, and what its other names did to it shows only once a row names
// it there. What one process told another, by a pipe or a file, is not in the rows:
// reading before is a hint of a cause, and no proof.
package cause

import (
	"slices"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Run is a journal's rows, indexed. The rows are those that a journal.Checker or
// attest.ReadEvidence took, from row 0 on.
type Run struct {
	rows    []journal.Row
	born    map[uint32]uint64   // process: its fork row
	execs   map[uint32][]uint64 // process: its exec rows that succeeded, in order
	dirs    []journal.PathRef   // by number
	named   map[[32]byte][]uint64
	objects map[uint32][]uint64 // file: rows that change it, by whatever name
	renames []uint64            // of folders, and of what may be one
	reads   []uint64
	quiet   map[uint64]bool // of reads: of the system or a toolchain
}

// New indexes the rows. The error is that of a scope table or of a row that names a
// directory before it is declared.
func New(rows []journal.Row) (*Run, error) {
	r := &Run{rows: rows, born: map[uint32]uint64{}, execs: map[uint32][]uint64{}, named: map[[32]byte][]uint64{},
		objects: map[uint32][]uint64{}, quiet: map[uint64]bool{}}
	var table *scope.Table
	for i := range rows {
		seq, row := uint64(i), &rows[i]
		if row.Start != nil {
			var err error
			if table, err = scope.NewTable(row.Start.Roots); err != nil {
				return nil, err
			}
			r.dirs = []journal.PathRef{{Digest: scope.Digest(row.Start.Roots[0].Key, "/")}}
			continue
		}
		if row.Op == journal.OpDir {
			if err := table.AddDir(row.Child, row.Path.Dir, row.Path.Digest); err != nil {
				return nil, err
			}
			r.dirs = append(r.dirs, *row.Path)
			continue
		}
		if row.Result != 0 {
			continue
		}
		switch row.Op {
		case journal.OpFork:
			r.born[row.Child] = seq
		case journal.OpExec:
			r.execs[row.Proc] = append(r.execs[row.Proc], seq)
		case journal.OpRename:
			r.renames = append(r.renames, seq)
		}
		for n, ref := range [...]*journal.PathRef{row.Path, row.Path2} {
			if ref != nil && (n == 0 || ref.Digest != row.Path.Digest) {
				r.named[ref.Digest] = append(r.named[ref.Digest], seq)
			}
		}
		if row.Object != 0 && changes(row) && !ofNames(row) {
			r.objects[row.Object] = append(r.objects[row.Object], seq)
		}
		if reads(row) {
			r.reads = append(r.reads, seq)
			if row.Path != nil {
				access, class, err := table.Access(row.Path.Dir, row.Path.Digest)
				if err != nil {
					return nil, err
				}
				r.quiet[seq] = access != scope.None && (class == scope.System || class == scope.Toolchain || class == scope.Kernel)
			}
		}
	}
	return r, nil
}

// changes tells whether a row that succeeded changed something that has a name, or
// dates what was written.
func changes(row *journal.Row) bool {
	return row.Op == journal.OpWrote || row.Op == journal.OpUtime || attest.Changes(row)
}

// ofNames tells whether a row gives or takes a name, and leaves the file's others alone.
func ofNames(row *journal.Row) bool {
	switch row.Op {
	case journal.OpUnlink, journal.OpRename, journal.OpLink, journal.OpSymlink, journal.OpMkdir, journal.OpMknod:
		return true
	}
	return false
}

// reads tells whether a row that succeeded let its process see content or a listing.
func reads(row *journal.Row) bool {
	switch row.Op {
	case journal.OpStdin:
		return row.Path == nil && row.Size > 0
	case journal.OpOpen:
		return row.Path != nil && row.Flags&journal.FlagRead != 0 && row.Flags&(journal.FlagPath|journal.FlagPseudo|journal.FlagCreate|journal.FlagTrunc|journal.FlagControl) == 0
	}
	return false
}

// above lists the folders that a path lies in, the deepest first.
func (r *Run) above(ref journal.PathRef) (out [][32]byte) {
	for n := ref.Dir; ; n = r.dirs[n].Dir {
		out = append(out, r.dirs[n].Digest)
		if n == 0 {
			return out
		}
	}
}

// History lists the rows that changed a path, in order: those that name it, renames of
// a folder above it, and writes through another name of the file that it held then.
// path must be of a row.
func (r *Run) History(path journal.PathRef) []uint64 {
	above := r.above(path)
	at := slices.Clone(r.named[path.Digest])
	for _, seq := range r.renames {
		row := &r.rows[seq]
		if slices.Contains(above, row.Path.Digest) || slices.Contains(above, row.Path2.Digest) {
			at = append(at, seq)
		}
	}
	for _, object := range r.heldBy(path.Digest) {
		at = append(at, r.objects[object]...)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var out []uint64
	held := uint32(0)
	for _, seq := range at {
		row := &r.rows[seq]
		first := row.Path != nil && row.Path.Digest == path.Digest
		second := row.Path2 != nil && row.Path2.Digest == path.Digest
		folder := row.Op == journal.OpRename && !first && !second && row.Path != nil && row.Path2 != nil &&
			(slices.Contains(above, row.Path.Digest) || slices.Contains(above, row.Path2.Digest))
		if changes(row) && (first || second || folder || held != 0 && row.Object == held && !ofNames(row)) {
			out = append(out, seq)
		}
		switch {
		case folder, first && row.Op == journal.OpUnlink, first && row.Op == journal.OpRename && !second:
			held = 0
		case first || second:
			held = row.Object
		}
	}
	return out
}

// heldBy are the files that a path was ever seen to hold.
func (r *Run) heldBy(digest [32]byte) (out []uint32) {
	for _, seq := range r.named[digest] {
		if o := r.rows[seq].Object; o != 0 && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// Lineage is how a process came to be what it was at row at: for it and each of its
// ancestors the fork, and the last exec before the next step. Oldest first.
func (r *Run) Lineage(process uint32, at uint64) []uint64 {
	var out []uint64
	for process != 0 {
		execs := r.execs[process]
		if i, _ := slices.BinarySearch(execs, at); i > 0 {
			out = append(out, execs[i-1])
		}
		fork, ok := r.born[process]
		if !ok {
			break
		}
		out = append(out, fork)
		process, at = r.rows[fork].Proc, fork
	}
	slices.Reverse(out)
	return out
}

// Program is the exec of what a process executed at row at, its own or the one that it
// was forked with; false if no row says.
func (r *Run) Program(process uint32, at uint64) (exec uint64, ok bool) {
	for process != 0 {
		execs := r.execs[process]
		if i, _ := slices.BinarySearch(execs, at); i > 0 {
			return execs[i-1], true
		}
		fork, born := r.born[process]
		if !born {
			break
		}
		process, at = r.rows[fork].Proc, fork
	}
	return 0, false
}
