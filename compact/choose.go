package compact

import (
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

type digest = [16]byte

// asked are the digests that a proof answers for: whether each is in the tree.
type asked struct {
	list     []digest        // items, then controls
	items    map[digest]bool // sealed items
	controls map[digest]bool // opened controls
}

func ask(set *contraband.Set, salt [16]byte, controls []byte) *asked {
	a := &asked{items: map[digest]bool{}, controls: map[digest]bool{}}
	for g := range set.Groups {
		items := set.Groups[g].Items
		for i := 0; i+32 <= len(items); i += 32 {
			if d := contraband.RunDigest(salt, [32]byte(items[i:])); !a.items[d] {
				a.items[d] = true
				a.list = append(a.list, d)
			}
		}
	}
	for i := 0; i+32 <= len(controls); i += 32 {
		if d := contraband.RunDigest(salt, [32]byte(controls[i:])); !a.items[d] && !a.controls[d] {
			a.controls[d] = true
			a.list = append(a.list, d)
		}
	}
	return a
}

// A chooser says which rows a proof shows. Run over all rows it chooses; run over
// the chosen rows it needs each of them, so a proof that holds another can be
// told.
type chooser struct {
	asked   *asked
	last    uint64
	reasons map[uint64]bool // rows that a reason names
	tested  map[digest]bool // controls that a control row showed

	agent, grade, reply, model bool // had its first
}

func newChooser(a *asked, rows uint64) *chooser {
	return &chooser{asked: a, last: rows - 1, reasons: map[uint64]bool{}, tested: map[digest]bool{}}
}

// need takes the next row. holds are the asked digests in its content; in the
// grade phase those that no earlier row holds.
func (c *chooser) need(row *journal.Row, content bool, holds []digest) bool {
	needed := row.Seq == 0 || row.Seq == c.last || c.reasons[row.Seq]
	switch row.Op {
	case journal.OpPhase, journal.OpReward, journal.OpGuard:
		needed = true
	}
	first := func(done *bool, now bool) {
		if now && !*done {
			*done, needed = true, true
		}
	}
	graded := row.Phase == journal.PhaseGrade
	first(&c.agent, row.Phase == journal.PhaseAgent && content)
	first(&c.grade, graded && row.Op != journal.OpFinal)
	first(&c.reply, !graded && content && row.Origin == journal.OriginReply)
	first(&c.model, !graded && content && row.Origin == journal.OriginModel)
	for _, d := range holds {
		if c.asked.items[d] {
			needed = true
		} else if !graded && row.Flags&journal.FlagControl != 0 && !c.tested[d] {
			c.tested[d], needed = true, true
		}
	}
	return needed
}
