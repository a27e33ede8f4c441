package attest

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A Derivation is what Derive found: the verdict, why, and what was counted.
type Derivation struct {
	Verdict    Verdict
	Reasons    []Reason  // in the order of the closed list, DIRTY first
	Matches    []Match   // all, sorted by event, class, reason
	Findings   []Finding // per sealed group that decided something, sorted by event
	Counts     Counts
	Coverage   Coverage
	NotCovered []ChannelClaim
	Phases     []PhaseClaim   // that ended, in order
	Observed   *Score         // the reward that the rows hold, nil without one
	Footprint  *Footprint     // nil if the sealed set states none
	Expect     *expect.Result // nil if the sealed set expects nothing; no part of the verdict

	stated *Matches // in place of Matches, where not all rows were shown
}

// A Finding is one sealed group of which the run holds items. It explains a
// reason in numbers.
type Finding struct {
	Reason string
	Event  uint64           // first row with such an item
	Kind   contraband.Kind  // of the group's source
	Class  contraband.Class //
	Found  uint64           // distinct items found
	Of     uint64           // items in the group, padding included
	Limit  uint32           // items that make a match
}

// Counts of a run. Items are distinct sealed items over the setup and agent phase.
type Counts struct {
	Events       uint64 `json:"events"`       // rows
	Activity     uint64 `json:"activity"`     // rows of the agent phase that expose content
	Processes    uint64 `json:"processes"`    // processes started
	OutOfScope   uint64 `json:"outOfScope"`   // rows out of scope in the setup and agent phase
	GradeOut     uint64 `json:"gradeOut"`     // rows out of scope in the grade phase: sealed paths may be read there
	Denied       uint64 `json:"denied"`       // refused system calls
	Inbound      uint64 `json:"inbound"`      // items that came in
	Generated    uint64 `json:"generated"`    // items in parsed replies, or in content that they account for
	Authored     uint64 `json:"authored"`     // items that the run wrote, with nothing inbound before
	Canaries     uint64 `json:"canaries"`     // canary items, from anywhere
	Named        uint64 `json:"named"`        // items of once-per-task kinds, from anywhere
	Controls     uint64 `json:"controls"`     // control fragments that were challenged
	ControlsSeen uint64 `json:"controlsSeen"` // and of those, opened and seen
	GradeShared  uint64 `json:"gradeShared"`  // processes of the grade phase that held hidden tests and content of the run, or were started by one that held such content
}

// Coverage sums the entries of all rows, in bytes.
type Coverage struct {
	Seen      uint64 `json:"seen"`
	Scanned   uint64 `json:"scanned"`
	Baseline  uint64 `json:"baseline"`
	Declared  uint64 `json:"declared"`
	Opaque    uint64 `json:"opaque"`
	Canonical uint64 `json:"canonical"`
}

// Derive is the one function that decides a verdict. The attester calls it to
// write the statement and the verifier to check it. It is pure.
//
// set must be the one that the run is bound to (Bind) and ev structurally sound
// (ReadEvidence). The rules are in spec/statement.md, "Derivation".
func Derive(set *contraband.Set, ev *Evidence) *Derivation {
	if ev.partial {
		panic("attest: Derive of partial evidence")
	}
	j := newJudge(set, ev)
	j.judge()
	d := j.derivation()
	d.Expect = expected(set, ev)
	return d
}

func newJudge(set *contraband.Set, ev *Evidence) *judge {
	return &judge{ev: ev, ix: newIndex(set, ev.Salt()), reasons: map[string]*Reason{}}
}

// judge collects all reasons that the rows give.
func (j *judge) judge() {
	j.content()
	j.groups()
	j.rows()
	j.closing()
	j.footprint()
	j.grading()
	j.controls(j.ev.Salt())
	j.sealedSet()
}

// A judge collects what one run's evidence says.
type judge struct {
	ev      *Evidence
	ix      *index
	reasons map[string]*Reason
	out     Derivation

	slots   []slot  // by member slot
	tallies []tally // by group number
	sights  []sight
	replied bool   // some reply was parsed
	spoken  bool   // some byte came on an opaque model channel so far
	channel uint64 // bytes of it
}

// note adds to a reason. Its event is the first row concerned, or 0 if only the
// run as a whole is.
func (j *judge) note(id string, event, count uint64) {
	// Some counts are the recorder's own words; a statement must carry them.
	count = min(count, maxExact)
	r := j.reasons[id]
	if r == nil {
		j.reasons[id] = &Reason{id, event, count}
		return
	}
	if r.Event == 0 || event != 0 && event < r.Event {
		r.Event = event
	}
	r.Count = min(r.Count+count, maxExact)
}

// rows judges what rows say by their flags, and sums the coverage.
func (j *judge) rows() {
	c, v := &j.out.Counts, &j.out.Coverage
	c.Events = j.ev.Size()
	j.ev.walk(func(seq uint64, e *event) {
		graded := e.phase == journal.PhaseGrade
		if e.flags&journal.FlagOutOfScope != 0 {
			if graded {
				c.GradeOut++
			} else {
				c.OutOfScope++
				j.note(ReasonOutOfScope, seq, 1)
				j.out.Matches = append(j.out.Matches, Match{seq, classScope, ReasonOutOfScope})
			}
		}
		switch e.op {
		case journal.OpDenied:
			c.Denied++
		case journal.OpFork:
			c.Processes++
		case journal.OpKilled:
			j.note(ReasonKilled, seq, 1)
		case journal.OpLost:
			j.note(ReasonLost, seq, 1)
		}
		if !graded {
			if e.flags&journal.FlagUnreadable != 0 {
				j.note(ReasonUnreadable, seq, 1)
			}
			if e.flags&journal.FlagUnstable != 0 {
				j.note(ReasonUnstable, seq, 1)
			}
		}
		if e.origin == journal.OriginModel {
			j.channel += e.size
		}
		entry := e.entry
		if entry == nil {
			return
		}
		v.add(entry)
		if graded {
			return
		}
		if entry.Opaque > 0 {
			j.note(ReasonOpaque, seq, 1)
		}
		if entry.Bounds != 0 {
			j.note(ReasonBounds, seq, 1)
		}
		// Control files are opened in the setup phase, so they are no activity.
		if e.phase == journal.PhaseAgent {
			c.Activity++
		}
	})
	if c.Activity == 0 {
		j.note(ReasonIdle, 0, 1)
	}
}

func (v *Coverage) add(e *Entry) {
	v.Seen += e.Seen
	v.Scanned += e.Scanned
	v.Baseline += e.Baseline
	v.Declared += e.Declared
	v.Opaque += e.Opaque
	v.Canonical += e.Canonical
}

// closing judges how the journal ended.
func (j *judge) closing() {
	f := j.ev.final
	if f == nil {
		j.note(ReasonOpen, 0, 1)
		return
	}
	if f.Outcome == journal.Abandoned {
		j.note(ReasonAbandoned, 0, 1)
	}
	if f.Lost > 0 && j.reasons[ReasonLost] == nil {
		j.note(ReasonLost, 0, f.Lost)
	}
	if n := f.Delta.Unexplained; n > 0 {
		j.note(ReasonDelta, 0, n)
	}
	if f.Born != f.Ended {
		j.note(ReasonProcesses, 0, max(f.Born, f.Ended)-min(f.Born, f.Ended))
	}
	// Two counters close to 2^64 must not add up to an innocent number.
	if done := f.Answered + f.Void; done < f.Answered || done != f.Received {
		j.note(ReasonNotifications, 0, 1)
	}
}

// controls checks that the challenged controls were opened, those and no
// others, and that each was seen where the recorder opened a control file. It
// catches a scan under another key or profile, a scan that emits nothing, and an
// attester who knows only the sealed set: it shows controls one level deeper.
func (j *judge) controls(salt [16]byte) {
	all := j.ix.set.Controls
	missing := map[[32]byte]bool{}
	for _, i := range Challenge(j.ix.set, j.ev) {
		missing[[32]byte(all[32*i:])] = true
	}
	c := &j.out.Counts
	c.Controls = uint64(len(missing))
	opened := j.ev.trailer.Controls
	var strange uint64
	for i := 0; i+32 <= len(opened); i += 32 {
		s := [32]byte(opened[i:])
		control := contraband.Control(s)
		if !missing[control] {
			strange++
			continue
		}
		if j.controlSeen(contraband.RunDigest(salt, s)) {
			delete(missing, control)
			c.ControlsSeen++
		}
	}
	if n := uint64(len(missing)) + strange; n > 0 || c.Controls == 0 {
		j.note(ReasonControls, 0, max(n, 1))
	}
}

func (j *judge) controlSeen(d [DigestSize]byte) bool {
	return slices.ContainsFunc(j.ev.opened, func(base int32) bool { return containsDigest(j.ev.bases[base].digests, d) })
}

// containsDigest searches sorted digests.
func containsDigest(digests []byte, d [DigestSize]byte) bool {
	n := sort.Search(len(digests)/DigestSize, func(i int) bool {
		return bytes.Compare(digests[i*DigestSize:(i+1)*DigestSize], d[:]) >= 0
	})
	return n*DigestSize < len(digests) && [DigestSize]byte(digests[n*DigestSize:]) == d
}

// sealedSet judges whether the set can carry a verdict.
func (j *judge) sealedSet() {
	if j.ix.set.TooSmall() {
		j.note(ReasonSetSmall, 0, 1)
	}
	if j.ix.set.Kept < minKept {
		j.note(ReasonSetCut, 0, 1)
	}
}

// minKept is how many tenths of the novel part the baseline must leave.
const minKept = 5

func compareMatches(a, b Match) int {
	return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Class, b.Class), cmp.Compare(rank(a.Reason), rank(b.Reason)))
}

func (j *judge) sortMatches() {
	slices.SortFunc(j.out.Matches, compareMatches)
	j.out.Matches = slices.Compact(j.out.Matches)
}

// derivation puts everything in its only order.
func (j *judge) derivation() *Derivation {
	d := &j.out
	d.Verdict = Clean
	for _, id := range reasonOrder {
		r := j.reasons[id]
		if r == nil {
			continue
		}
		d.Reasons = append(d.Reasons, *r)
		if ReasonDirty(id) {
			d.Verdict = Dirty
		} else if d.Verdict == Clean {
			d.Verdict = Inconclusive
		}
	}
	j.sortMatches()
	slices.SortStableFunc(d.Findings, func(a, b Finding) int { return cmp.Compare(a.Event, b.Event) })
	for _, c := range j.ev.start.Channels {
		if c.Role == roleModel {
			var bytes uint64
			if c.Name == "stdin" {
				bytes = j.channel
			}
			d.NotCovered = append(d.NotCovered, ChannelClaim{c.Name, c.Role, bytes})
		}
	}
	return d
}
