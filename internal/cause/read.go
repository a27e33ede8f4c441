package cause

import "slices"

// A Relation is what a process is to another.
type Relation string

// Relations. A fork passes on memory and arguments, and a shell hands what one of its
// processes printed to the next, so what any of them read can be a cause; the first
// three are nearer than the last.
const (
	Itself     Relation = "itself"
	Ancestor   Relation = "ancestor"
	Descendant Relation = "descendant"
	Tree       Relation = "same tree" // another process under the same first process
	Stdin      Relation = "stdin"     // what the run was given, whoever of it took it
)

// A Read is a row that let a process see content.
type Read struct {
	Event uint64
	By    Relation
}

// Reads is what a process tree had read before a row.
type Reads struct {
	Rows []Read // in order, each path and stream once, by its last read
	More bool   // there are more
	// System counts distinct files and folders of the system and of toolchains, which
	// are not in Rows.
	System int
}

// Before lists what the process and those around it had read before row at: at most n
// by itself, its ancestors and its descendants, and at most n by the other processes
// under the same first one. Executed programs are no reads. It panics if there is no
// row at.
func (r *Run) Before(process uint32, at uint64, n int) (out Reads) {
	end, _ := slices.BinarySearch(r.reads, at)
	near, far := 0, 0
	seen := map[[32]byte]bool{}
	streams := map[uint32]bool{}
	roots := map[uint32]uint32{}
	own := r.first(process, roots)
	for i := end - 1; i >= 0; i-- {
		seq := r.reads[i]
		row := &r.rows[seq]
		if row.Path == nil {
			// Who took a chunk of a stream is not in the rows.
			if row.Phase != r.rows[at].Phase || streams[row.Object] {
				continue
			}
			streams[row.Object] = true
			out.Rows = append(out.Rows, Read{seq, Stdin})
			continue
		}
		if r.first(row.Proc, roots) != own || seen[row.Path.Digest] {
			continue
		}
		seen[row.Path.Digest] = true
		if r.quiet[seq] {
			out.System++
			continue
		}
		by := r.relation(row.Proc, process)
		count := &near
		if by == Tree {
			count = &far
		}
		if *count == n {
			out.More = true
			continue
		}
		*count++
		out.Rows = append(out.Rows, Read{seq, by})
	}
	slices.Reverse(out.Rows)
	return out
}

// parent is the process that made one, 0 for the recorder or an unknown one.
func (r *Run) parent(process uint32) uint32 {
	if fork, ok := r.born[process]; ok {
		return r.rows[fork].Proc
	}
	return 0
}

// first is the oldest ancestor.
func (r *Run) first(process uint32, known map[uint32]uint32) uint32 {
	if f, ok := known[process]; ok {
		return f
	}
	f := process
	for p := process; p != 0; p = r.parent(p) {
		f = p
	}
	known[process] = f
	return f
}

func (r *Run) relation(other, process uint32) Relation {
	if other == process {
		return Itself
	}
	for p := r.parent(process); p != 0; p = r.parent(p) {
		if p == other {
			return Ancestor
		}
	}
	for p := r.parent(other); p != 0; p = r.parent(p) {
		if p == process {
			return Descendant
		}
	}
	return Tree
}
