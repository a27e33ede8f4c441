package attest

import (
	"path"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Bounds of what is shown of a run with a named path.
const (
	maxNamedOpens = 1 << 10   // opens of the path
	maxStdout     = 16 << 10  // bytes of a reply on standard output
	maxReplyFile  = 256 << 10 // bytes of a reply in a file
)

// A Named follows the rows of a run whose set has an Expect. It finds those that
// Openings must show, and what the rows say without them: the attester asks it what to
// open, and Derive asks it again. Rows of the grade phase do not count.
type Named struct {
	spec   *contraband.Expect
	read   [32]byte // digest of the named path
	dirs   []tree   // by number
	opens  []uint64 // rows that give what stands at the path, up to maxNamedOpens
	reads  map[uint64]bool
	hidden map[uint64]bool // of them, those whose content the rows give without its secrets
	more   bool
	above  map[[32]byte]bool // digests of folders above the path
	change uint64
	search uint64
	cut    bool
	out    stdoutRows
	file   *replyFile // nil if the reply is on standard output
}

// tree is a folder in its parent.
type tree struct {
	up     uint32
	digest [32]byte
}

// stdoutRows are those of the agent phase.
type stdoutRows struct {
	rows       []uint64
	bytes      uint64
	unreadable bool
}

// A NamedRow is a row that Openings must show.
type NamedRow struct {
	Seq     uint64
	Content bool // with its content
}

// ReplyFile is the path of the file that holds the reply, "" if it is on standard
// output.
func ReplyFile(e *contraband.Expect, start *journal.Start) string {
	if e.Reply == expect.Stdout {
		return ""
	}
	return path.Join(start.Workspace, e.File)
}

// NewNamed waits for row 0. file is scope.Digest of ReplyFile, or zero if that is not
// known: what it holds is then not found.
func NewNamed(e *contraband.Expect, start *journal.Start, file [32]byte) *Named {
	n := &Named{spec: e, reads: map[uint64]bool{}, hidden: map[uint64]bool{}, above: map[[32]byte]bool{}, dirs: []tree{{}}}
	for _, r := range start.Roots {
		switch r.Path {
		case "/":
			n.dirs[0].digest = scope.Digest(r.Key, r.Path)
		case e.Read:
			n.read = scope.Digest(r.Key, r.Path)
		}
	}
	if e.Reply != expect.Stdout {
		n.file = &replyFile{digest: file, known: file != [32]byte{}, latest: map[uint32]version{}}
	}
	return n
}

// Add takes the next row.
func (n *Named) Add(r *journal.Row) {
	if r.Op == journal.OpDir {
		n.dirs = append(n.dirs, tree{r.Path.Dir, r.Path.Digest})
		return
	}
	if r.Op == journal.OpLost {
		n.cut = true
	}
	if r.Phase == journal.PhaseGrade {
		return
	}
	if r.Flags&journal.FlagOutOfScope != 0 && n.search == 0 {
		n.search = r.Seq
	}
	n.named(r)
	if n.file != nil {
		n.file.add(r, n.dirs)
	}
	if r.Op == journal.OpStdout && r.Phase == journal.PhaseAgent && n.file == nil {
		n.out.add(r)
	}
}

// named looks at the named path.
func (n *Named) named(r *journal.Row) {
	for _, ref := range [...]*journal.PathRef{r.Path, r.Path2} {
		if ref == nil {
			continue
		}
		here := ref.Digest == n.read
		if here && len(n.above) == 0 {
			climb(n.dirs, ref.Dir, n.above)
		}
		if n.change == 0 && Changes(r) && (here || n.above[ref.Digest] && moves(r)) {
			n.change = r.Seq
		}
	}
	if r.Path == nil || r.Path.Digest != n.read || r.Phase != journal.PhaseAgent || r.Result != 0 {
		return
	}
	unread := r.Flags&journal.FlagUnreadable != 0
	if r.Dir != journal.DirIn && !unread || r.Op != journal.OpOpen && r.Op != journal.OpExec && r.Op != journal.OpInterp {
		return
	}
	if len(n.opens) == maxNamedOpens {
		n.more = true
		return
	}
	n.opens = append(n.opens, r.Seq)
	if r.Flags&journal.FlagRemoved != 0 {
		n.hidden[r.Seq] = true
	}
	if r.Op == journal.OpOpen && r.Flags&journal.FlagRead != 0 {
		n.reads[r.Seq] = true
	}
}

// climb adds the digests of folder number and all above it but "/", which nobody moves.
func climb(dirs []tree, number uint32, to map[[32]byte]bool) {
	for ; number > 0 && int(number) < len(dirs); number = dirs[number].up {
		to[dirs[number].digest] = true
	}
}

// moves tells a change that puts something else in the place of a name.
func moves(r *journal.Row) bool {
	switch r.Op {
	case journal.OpUnlink, journal.OpRename, journal.OpLink, journal.OpSymlink, journal.OpMkdir, journal.OpMknod, journal.OpBind:
		return true
	}
	return r.Op == journal.OpOpen && r.Flags&journal.FlagCreate != 0
}

func (s *stdoutRows) add(r *journal.Row) {
	if r.Flags&(journal.FlagUnreadable|journal.FlagRemoved) != 0 {
		s.unreadable = true
		return
	}
	if r.Size == 0 {
		return
	}
	s.bytes = min(s.bytes+min(r.Size, maxStdout+1), maxStdout+1)
	if s.bytes > maxStdout {
		s.rows = nil
		return
	}
	s.rows = append(s.rows, r.Seq)
}

// Rows returns what must be opened, sorted by number, each once.
func (n *Named) Rows() (list []NamedRow) {
	for _, seq := range n.opens {
		list = append(list, NamedRow{Seq: seq})
	}
	if n.file != nil {
		if v, why := n.file.final(); why == "" && v.size > 0 {
			list = insert(list, NamedRow{v.seq, true})
		}
		return list
	}
	for _, seq := range n.out.rows {
		list = insert(list, NamedRow{seq, true})
	}
	return list
}
