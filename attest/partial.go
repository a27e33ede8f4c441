package attest

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A Shown is one row of a journal, and of its entry those digests that somebody
// showed: the rest of the row's digests is not known.
type Shown struct {
	Raw   []byte
	Entry *Entry // nil for a row without content, or of which no entry is shown
}

// Items returns all rows as their bytes, with their entries, in order. An entry
// lives until the next one.
func (e *Evidence) Items() iter.Seq2[[]byte, *Entry] {
	return func(yield func([]byte, *Entry) bool) {
		e.items(0, func(_ uint64, it *item) bool { return yield(it.row, it.entry) })
	}
}

// Tree returns the entries of the prefix-bucket tree of all rows, sorted by
// digest.
func (e *Evidence) Tree() iter.Seq[bucket.Entry] {
	return func(yield func(bucket.Entry) bool) {
		all, ends := e.deal()
		for i := range len(ends) - 1 {
			for _, s := range firsts(all[ends[i]:ends[i+1]]) {
				if !yield(s.entry()) {
					return
				}
			}
		}
	}
}

// Controls are the opened controls: layer-1 values of 32 bytes, sorted, joined.
func (e *Evidence) Controls() []byte { return e.trailer.Controls }

// Salt is the salt of the run's digests.
func (e *Evidence) Salt() [16]byte { return contraband.RunSalt(e.first) }

// Partial makes evidence of some rows of a journal: its start row, its last row,
// and others between them, in order. The caller has proved that they are rows of
// head, that the entries are those of these rows, and that the digests are in
// them. What the other rows hold is not known, so Derive cannot decide by it:
// use DeriveShown.
func Partial(head journal.Head, rows []Shown, controls []byte) (*Evidence, error) {
	ev := &Evidence{
		header:  Header{Version: EvidenceVersion, Rows: head.Size, Root: head.Root},
		trailer: Trailer{Controls: controls},
		baseOf:  map[uint64]int32{}, partial: true,
	}
	if err := sortedUnique(controls, 32); err != nil {
		return nil, &EvidenceError{Rule: RuleControls, Got: err.Error(), Want: "32-byte values, sorted and unique"}
	}
	for i, s := range rows {
		row, err := journal.ParseRow(s.Raw)
		if i == 0 && err == nil {
			row, err = journal.NewChecker().Add(s.Raw) // all rules of a start row
		}
		if err != nil {
			return nil, &EvidenceError{Rule: RuleJournal, Event: row.Seq, Cause: err}
		}
		if i == 0 {
			ev.start, ev.first = row.Start, s.Raw
		}
		if row.Final != nil && row.Seq+1 != head.Size {
			return nil, &EvidenceError{Rule: RuleJournal, Event: row.Seq, Got: "a final row", Want: fmt.Sprintf("it as row %d, the last", head.Size-1)}
		}
		if err := ev.show(&row, s); err != nil {
			return nil, err
		}
	}
	if n := len(ev.numbers); n == 0 || ev.numbers[n-1]+1 != head.Size {
		return nil, &EvidenceError{Rule: RuleRows, Got: "no last row", Want: fmt.Sprintf("row %d", head.Size-1)}
	}
	if ev.start.Run != head.Run {
		return nil, &EvidenceError{Rule: RuleHead, Got: fmt.Sprintf("run %x", ev.start.Run), Want: fmt.Sprintf("%x", head.Run)}
	}
	return ev, nil
}

// show takes the next row of partial evidence.
func (e *Evidence) show(row *journal.Row, s Shown) error {
	n := row.Seq
	if last := len(e.numbers) - 1; last >= 0 && e.numbers[last] >= n {
		return &EvidenceError{Rule: RuleRows, Event: n, Got: fmt.Sprintf("after row %d", e.numbers[last]), Want: "rising numbers"}
	}
	e.numbers = append(e.numbers, n)
	it := Item{Row: s.Raw, Entry: s.Entry}
	e.pack = it.Append(e.pack)
	if s.Entry != nil {
		if row.Size != s.Entry.Seen {
			return &EvidenceError{Rule: RuleCoverage, Event: n, Got: fmt.Sprintf("an entry of %d bytes", s.Entry.Seen), Want: fmt.Sprintf("the row's %d", row.Size)}
		}
		if err := sortedUnique(s.Entry.Digests, DigestSize); err != nil {
			return &EvidenceError{Rule: RuleDigests, Event: n, Got: err.Error(), Want: "16-byte digests, sorted and unique"}
		}
		if len(s.Entry.Digests) > 0 {
			e.baseOf[n] = int32(len(e.bases))
			e.bases = append(e.bases, base{n, row.Dir, s.Entry.Root, s.Entry.Digests})
		}
		if at := e.base(n, s.Entry); row.Flags&journal.FlagControl != 0 && at != noBase && !slices.Contains(e.opened, at) {
			e.opened = append(e.opened, at)
		}
	}
	switch g := &e.graded; {
	case row.Final != nil:
		e.final = row.Final
	case row.Op == journal.OpPhase && row.End != nil:
		g.ends = append(g.ends, phaseRow{row.Phase, *row.End, n})
	case row.Op == journal.OpReward && row.Reward != nil:
		g.rewards = append(g.rewards, rewardRow{*row.Reward, n})
	case row.Op == journal.OpGuard && row.Guard != nil:
		g.guards = append(g.guards, guardRow{*row.Guard, n})
	}
	if row.Phase == journal.PhaseGrade && row.Final == nil {
		e.graded.began = true
	}
	return nil
}

// Showable refuses a sealed set that asks what only the whole evidence shows: no
// compact proof can carry it.
func Showable(set *contraband.Set) error {
	switch {
	case set.Footprint != nil:
		return fmt.Errorf("got some rows of a run whose sealed set states a footprint, want %s: only all rows with their opened names show what it changed", evidenceName)
	case set.Expect != nil:
		return fmt.Errorf("got some rows of a run whose sealed set states what must happen (expect), want %s: only all rows with what is opened of them show it", evidenceName)
	}
	return nil
}

const evidenceName = "evidence.cbor"

// DeriveShown derives from partial evidence what the shown rows say, by the same
// rules as Derive, and takes from a signed statement what only all rows can say:
// stated. spec/compact.md lists which is which. It fails if the statement is at
// odds with what is shown.
func DeriveShown(set *contraband.Set, ev *Evidence, stated *Predicate) (*Derivation, error) {
	if !ev.partial {
		return Derive(set, ev), nil
	}
	if err := Showable(set); err != nil {
		return nil, err
	}
	j := newJudge(set, ev)
	j.judge()
	if err := j.take(stated); err != nil {
		return nil, err
	}
	return j.derivation(), nil
}

// ComposeShown writes down what was derived from partial evidence: the statement
// that Compose makes of all of it. What is said of the evidence pack is taken from
// stated, which the proof of what is shown was held to. The error is a *Refusal.
func ComposeShown(set *contraband.Set, seal [32]byte, ev *Evidence, stated *Predicate, d *Derivation, score *Score) (*Statement, error) {
	s, err := Compose(set, seal, ev, [32]byte{}, d, score)
	if err != nil {
		return nil, err
	}
	s.Predicate.Evidence = stated.Evidence
	if d.stated != nil {
		s.Predicate.Matches = *d.stated
	}
	return s, nil
}

// rowReasons are reasons that single rows give. The first such row is shown; that
// there are as many as stated, and none where none is stated, is taken over.
var rowReasons = []string{ReasonOutOfScope, ReasonOpaque, ReasonBounds, ReasonUnreadable, ReasonUnstable, ReasonLost, ReasonKilled}

// hintReasons need all rows of the grade phase. They are taken over.
var hintReasons = []string{ReasonNoSignal, ReasonTestsUnread, ReasonAnswerUnread}

func (j *judge) take(stated *Predicate) error {
	odds := func(what string, got, want any) error {
		return fmt.Errorf("%s: the statement says %v, but the rows shown say %v", what, got, want)
	}
	for _, r := range stated.Reasons {
		switch shown := j.reasons[r.ID]; {
		case slices.Contains(hintReasons, r.ID):
			if r.Event != 0 || r.Count != 1 || !j.ev.graded.positive() {
				return odds(r.ID, r, "no reward that could have it")
			}
			j.note(r.ID, 0, 1)
		case slices.Contains(rowReasons, r.ID) && r.Event > 0:
			if shown == nil || shown.Event != r.Event || shown.Count > r.Count {
				return odds(r.ID, fmt.Sprintf("%d rows, the first %d", r.Count, r.Event), describe(shown))
			}
			shown.Count = r.Count
		}
	}
	return cmp.Or(j.takeCounts(&stated.Counts, odds), j.takeCoverage(stated, odds), j.takeMatches(&stated.Matches, odds))
}

func describe(r *Reason) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("at least %d, the first %d", r.Count, r.Event)
}

func (j *judge) takeCounts(stated *Counts, odds func(string, any, any) error) error {
	c := &j.out.Counts
	for _, f := range []struct {
		name         string
		stated, mine *uint64
	}{
		{"activity", &stated.Activity, &c.Activity}, {"processes", &stated.Processes, &c.Processes}, {"outOfScope", &stated.OutOfScope, &c.OutOfScope},
		{"gradeOut", &stated.GradeOut, &c.GradeOut}, {"denied", &stated.Denied, &c.Denied}, {"gradeShared", &stated.GradeShared, &c.GradeShared},
	} {
		if *f.stated < *f.mine {
			return odds("counts."+f.name, *f.stated, *f.mine)
		}
		*f.mine = *f.stated
	}
	var outside uint64
	if r := j.reasons[ReasonOutOfScope]; r != nil {
		outside = r.Count
	}
	if min(c.OutOfScope, maxExact) != outside {
		return odds("counts.outOfScope", c.OutOfScope, outside)
	}
	if idle := j.reasons[ReasonIdle] != nil; idle != (c.Activity == 0) {
		return odds("counts.activity", c.Activity, "that no row of it, or the first, is shown")
	}
	// Each process has its row, and the final row counts them.
	if f := j.ev.final; f != nil && f.Born != c.Processes {
		return odds("counts.processes", c.Processes, f.Born)
	}
	return nil
}

func (j *judge) takeCoverage(stated *Predicate, odds func(string, any, any) error) error {
	mine, theirs := &j.out.Coverage, stated.Coverage
	for _, f := range []struct {
		name         string
		stated, mine uint64
	}{
		{"seen", theirs.Seen, mine.Seen}, {"scanned", theirs.Scanned, mine.Scanned}, {"baseline", theirs.Baseline, mine.Baseline},
		{"declared", theirs.Declared, mine.Declared}, {"opaque", theirs.Opaque, mine.Opaque}, {"canonical", theirs.Canonical, mine.Canonical},
	} {
		if f.stated < f.mine {
			return odds("coverage."+f.name, f.stated, f.mine)
		}
	}
	*mine = theirs
	for i := range stated.NotCovered {
		c := &stated.NotCovered[i]
		if c.Name == "stdin" && c.Role == roleModel {
			if c.Bytes < j.channel {
				return odds("notCovered", c.Bytes, j.channel)
			}
			j.channel = c.Bytes
		}
	}
	return nil
}

// takeMatches leaves the matches by content as derived. Those of rows out of scope
// are not all shown: the list is taken over if it is the derived one but for them.
func (j *judge) takeMatches(stated *Matches, odds func(string, any, any) error) error {
	if j.reasons[ReasonOutOfScope] == nil {
		return nil
	}
	j.sortMatches()
	var mine, theirs []Match
	for _, m := range j.out.Matches {
		if m.Class != classScope {
			mine = append(mine, m)
		}
	}
	listed := 0
	for _, m := range stated.First {
		if m.Class == classScope {
			listed++
			if m.Reason != ReasonOutOfScope {
				return odds("matches.first", m, ReasonOutOfScope)
			}
			continue
		}
		theirs = append(theirs, m)
	}
	n := len(theirs)
	if n > len(mine) || !slices.Equal(theirs, mine[:n]) || stated.Total <= MaxMatches && n != len(mine) {
		return odds("matches.first", theirs, mine)
	}
	total := j.out.Counts.OutOfScope + uint64(len(mine))
	if stated.Total != total || uint64(len(stated.First)) != min(total, MaxMatches) || !slices.IsSortedFunc(stated.First, compareMatches) {
		return odds("matches.total", stated.Total, total)
	}
	classes := composeMatches(mine).Classes
	classes = append(classes, ClassCount{classScope, j.out.Counts.OutOfScope})
	slices.SortFunc(classes, func(a, b ClassCount) int { return cmp.Compare(a.Class, b.Class) })
	if !slices.Equal(stated.Classes, classes) {
		return odds("matches.classes", stated.Classes, classes)
	}
	j.out.stated = stated
	return nil
}
