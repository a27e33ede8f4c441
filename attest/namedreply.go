package attest

import (
	"cmp"
	"slices"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A replyFile follows the file that holds the reply: which object stands in its place,
// and what the agent phase wrote into each object last. A file that is written beside
// and renamed is followed by its object.
type replyFile struct {
	digest [32]byte
	known  bool
	above  map[[32]byte]bool // folders above it, once a row has named it
	object uint32            // that stands there, 0 for none that is known
	moved  bool              // something else may stand there
	latest map[uint32]version
}

// A version is what the run last put into an object.
type version struct {
	seq  uint64
	size uint64
	flaw expect.Why // why it cannot be relied on
}

// add takes a row of the setup or agent phase.
func (f *replyFile) add(r *journal.Row, dirs []tree) {
	f.wrote(r)
	if !f.known {
		return
	}
	for _, ref := range [...]*journal.PathRef{r.Path, r.Path2} {
		if ref != nil && ref.Digest == f.digest && f.above == nil {
			f.above = map[[32]byte]bool{}
			climb(dirs, ref.Dir, f.above)
		}
	}
	if r.Result != 0 {
		return
	}
	first, second := f.at(r.Path), f.at(r.Path2)
	switch {
	case r.Op == journal.OpOpen && first && r.Flags&journal.FlagPath == 0:
		f.stands(r.Object)
	case (r.Op == journal.OpExec || r.Op == journal.OpInterp) && first:
		f.stands(r.Object)
	case (r.Op == journal.OpRename || r.Op == journal.OpLink) && second:
		f.stands(r.Object)
	case r.Op == journal.OpUnlink && first:
		f.object, f.moved = 0, false
	case Changes(r) && moves(r) && (first && r.Op != journal.OpLink || f.over(r.Path) || f.over(r.Path2)):
		// Also a rename of the file itself: an exchange of two names looks the same.
		f.object, f.moved = 0, true
	}
}

func (f *replyFile) stands(object uint32) { f.object, f.moved = object, object == 0 }

func (f *replyFile) at(ref *journal.PathRef) bool   { return ref != nil && ref.Digest == f.digest }
func (f *replyFile) over(ref *journal.PathRef) bool { return ref != nil && f.above[ref.Digest] }

// wrote keeps the last version of an object. An object without a later row has not
// changed: what a run writes is dated (spec/journal.md), or the journal has no end.
func (f *replyFile) wrote(r *journal.Row) {
	if r.Object == 0 || r.Result != 0 || r.Phase != journal.PhaseAgent {
		return
	}
	switch {
	case r.Op == journal.OpOpen && r.Flags&(journal.FlagCreate|journal.FlagTrunc) != 0:
		f.latest[r.Object] = version{seq: r.Seq}
	case r.Op == journal.OpWrote:
		v := version{seq: r.Seq, size: r.Size}
		switch {
		case r.Flags&(journal.FlagUnreadable|journal.FlagUnstable|journal.FlagRemoved) != 0:
			v.flaw = expect.WhyUnreadable
		case r.Flags&journal.FlagLive != 0:
			v.flaw = expect.WhyMoved
		case r.Size > maxReplyFile:
			v.flaw = expect.WhyLong
		}
		f.latest[r.Object] = v
	}
}

// final is the version at the end of the agent phase, or why there is none.
func (f *replyFile) final() (version, expect.Why) {
	if !f.known {
		return version{}, expect.WhyUnnamed
	}
	if f.moved {
		return version{}, expect.WhyMoved
	}
	v, ok := f.latest[f.object]
	if f.object == 0 || !ok {
		return version{}, expect.WhyNoFile
	}
	return v, v.flaw
}

func insert(list []NamedRow, s NamedRow) []NamedRow {
	i, there := slices.BinarySearchFunc(list, s.Seq, func(a NamedRow, seq uint64) int { return cmp.Compare(a.Seq, seq) })
	if there {
		list[i].Content = list[i].Content || s.Content
		return list
	}
	return slices.Insert(list, i, s)
}
