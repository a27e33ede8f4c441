package attest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Canonical bytes from which content has at least one digest: a window of the
// profile fits (k+w-1 for 48, 49 and for 24, 25).
const (
	minCanonical     = 96
	minCanonicalText = 48
)

// Rules that a pack can break. The list is closed; spec/evidence.md explains
// each one.
const (
	RuleShape     = "shape"     // not the one encoding of a pack
	RuleVersion   = "version"   // the header names another version
	RuleEmpty     = "empty"     // a journal of no rows
	RuleRows      = "rows"      // another number of rows than the header says
	RuleJournal   = "journal"   // a row is malformed or breaks the journal's chain
	RuleHead      = "head"      // the rows have another root than the header says
	RuleEntry     = "entry"     // an entry without content, or content without an entry
	RuleCoverage  = "coverage"  // the entry's byte counts do not add up to the row's size
	RuleDeclared  = "declared"  // declared bytes on a row that is not from a declared model channel, or the reverse
	RuleSame      = "same"      // a reference that is not to an earlier entry of the same digests
	RuleDigests   = "digests"   // digests of a wrong length, unsorted or repeated
	RuleRoot      = "root"      // the digests have another root than the entry says
	RuleNoDigests = "no-digest" // content that must have a digest has none
	RuleTree      = "tree"      // the prefix-bucket tree is not the one of the entries
	RuleControls  = "controls"  // opened controls of a wrong length, unsorted or repeated
	RuleOpenings  = "openings"  // an opening that opens nothing, or is unsorted or repeated
)

// An EvidenceError says which rule a pack breaks, and where.
type EvidenceError struct {
	Rule  string
	Event uint64 // row concerned, 0 for the pack
	Got   string
	Want  string
	Cause error // instead of Got and Want, where another package found it
}

func (e *EvidenceError) Error() string {
	where := "evidence"
	if e.Event > 0 {
		where = fmt.Sprintf("evidence, event %d", e.Event)
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", where, e.Rule, e.Cause)
	}
	return fmt.Sprintf("%s: %s: got %s, want %s", where, e.Rule, e.Got, e.Want)
}

func (e *EvidenceError) Unwrap() error { return e.Cause }

// ReadEvidence reads a whole pack and checks its structure (spec/evidence.md,
// steps 1 to 10). It returns no partial result; an error is an *EvidenceError for
// the first event that breaks a rule, or for the pack. Evidence refers to pack.
func ReadEvidence(pack []byte) (*Evidence, error) { return read(pack, (*Evidence).checkTree) }

// ReadEntries is ReadEvidence without a look at the tree (step 9): it is for who
// accuses the tree, with evidence that has a false one.
func ReadEntries(pack []byte) (*Evidence, error) {
	return read(pack, func(*Evidence) error { return nil })
}

func read(pack []byte, checkTree func(*Evidence) error) (*Evidence, error) {
	ev := &Evidence{pack: pack, baseOf: map[uint64]int32{}, empties: map[uint64][32]byte{}}
	seq := &sequence{data: pack}
	if err := ev.readHeader(seq); err != nil {
		return nil, err
	}
	if err := ev.readItems(seq); err != nil {
		return nil, err
	}
	t, err := seq.trailer()
	if err != nil {
		return nil, shape(0, err)
	}
	ev.trailer = t
	var errRoots, errTree error
	parallel(min(ev.workers(), 2), 2, func(task int) {
		if task == 0 {
			errRoots = ev.checkDigests()
		} else {
			errTree = checkTree(ev)
		}
	})
	for _, err := range []error{errRoots, errTree} {
		if err != nil {
			return nil, err
		}
	}
	if err := sortedUnique(t.Controls, 32); err != nil {
		return nil, &EvidenceError{Rule: RuleControls, Got: err.Error(), Want: "32-byte values, sorted and unique"}
	}
	if err := ev.checkOpenings(); err != nil {
		return nil, err
	}
	return ev, nil
}

func shape(event uint64, err error) error {
	return &EvidenceError{Rule: RuleShape, Event: event, Cause: err}
}

func (ev *Evidence) readHeader(seq *sequence) error {
	rest, err := dcbor.UnmarshalFirst(seq.data, &ev.header)
	if err != nil {
		return shape(0, fmt.Errorf("header: %w", err))
	}
	seq.at = len(seq.data) - len(rest)
	if ev.header.Version != EvidenceVersion {
		return &EvidenceError{Rule: RuleVersion, Got: fmt.Sprintf("%q", ev.header.Version), Want: fmt.Sprintf("%q", EvidenceVersion)}
	}
	if ev.header.Rows == 0 {
		return &EvidenceError{Rule: RuleEmpty, Got: "a journal of 0 rows", Want: "at least the start row"}
	}
	// An item takes more than 64 bytes. This bounds memory by the pack's size.
	if limit := uint64(len(rest)) / 64; ev.header.Rows > limit {
		return &EvidenceError{Rule: RuleRows, Got: fmt.Sprintf("%d rows in %d bytes", ev.header.Rows, len(rest)), Want: fmt.Sprintf("at most %d", limit)}
	}
	return nil
}

func (ev *Evidence) readItems(seq *sequence) error {
	chain := journal.NewChecker()
	var seen, canonical uint64
	controls := map[int32]bool{}
	it := new(item)
	for n := range ev.header.Rows {
		if n%stride == 0 {
			ev.marks = append(ev.marks, seq.at)
		}
		if err := seq.item(it); err != nil {
			return shape(n, err)
		}
		row, err := chain.Add(it.row)
		if err != nil {
			return &EvidenceError{Rule: RuleJournal, Event: n, Cause: err}
		}
		if row.Start != nil {
			ev.start, ev.first = row.Start, it.row
		}
		if err := ev.checkEntry(n, &row, it.entry); err != nil {
			return err
		}
		ev.entries.Push(entryLeaf(n, it.entry))
		if e := it.entry; e != nil {
			if len(e.Digests) > 0 {
				ev.baseOf[n] = int32(len(ev.bases))
				ev.bases = append(ev.bases, base{n, row.Dir, e.Root, e.Digests})
			} else if e.Same == nil && e.Root != noDigests {
				// Its digests are none, and the root is of some.
				ev.bases = append(ev.bases, base{n, row.Dir, e.Root, nil})
			}
			// No sum can wrap: each part was at most 2^53 before.
			seen, canonical = seen+e.Seen, canonical+min(e.Canonical, maxExact+1)
			if seen > maxExact || canonical > maxExact {
				return &EvidenceError{Rule: RuleCoverage, Event: n, Got: "more bytes than can be counted exactly", Want: "at most 2^53-1"}
			}
		}
		at := ev.base(n, it.entry)
		if ev.header.Rows <= keptRows {
			ev.kept = append(ev.kept, eventOf(&row, it.entry.clone(), at))
		}
		if row.Flags&journal.FlagControl != 0 && at != noBase && !controls[at] {
			controls[at] = true
			ev.opened = append(ev.opened, at)
		}
		if phases := ev.start.Phases; phases != nil {
			ev.graded.read(n, &row, chain.Class(row.Path), at)
		}
	}
	ev.summary = chain.Summary()
	ev.final = ev.summary.Final
	if root := ev.summary.Head.Root; root != ev.header.Root {
		return &EvidenceError{Rule: RuleHead, Got: fmt.Sprintf("root %x", root), Want: fmt.Sprintf("%x, as the header says", ev.header.Root)}
	}
	return nil
}

// entryLeaf is EntryLeaf of an entry that has all its digests.
func entryLeaf(n uint64, e *Entry) [32]byte {
	if e == nil {
		return noEntry
	}
	return EntryLeaf(n, e, uint64(len(e.Digests)/DigestSize))
}

// exemptible tells a row whose content can be an object of the baseline: those are files.
func exemptible(row *journal.Row) bool {
	switch row.Op {
	case journal.OpOpen, journal.OpExec, journal.OpInterp, journal.OpTruncate, journal.OpWrote:
		return row.Flags&(journal.FlagText|journal.FlagControl) == 0
	}
	return false
}

// checkEntry checks what needs no hashing.
func (ev *Evidence) checkEntry(n uint64, row *journal.Row, e *Entry) error {
	bad := func(rule, got, want string, args ...any) error {
		return &EvidenceError{Rule: rule, Event: n, Got: got, Want: fmt.Sprintf(want, args...)}
	}
	if (e != nil) != (row.Size > 0) {
		if e == nil {
			return bad(RuleEntry, fmt.Sprintf("%d bytes of content without an entry", row.Size), "an entry")
		}
		return bad(RuleEntry, "an entry for a row without content", "null")
	}
	if e == nil {
		return nil
	}
	// Each part is at most Seen, and Seen is at most 2^53, so the sum cannot wrap.
	if e.Seen != row.Size || e.Seen > maxExact || e.Scanned > e.Seen || e.Baseline > e.Seen || e.Declared > e.Seen ||
		e.Scanned+e.Baseline+e.Declared != e.Seen {
		return bad(RuleCoverage, fmt.Sprintf("seen %d = scanned %d + baseline %d + declared %d", e.Seen, e.Scanned, e.Baseline, e.Declared), "a sum of the row's size, %d", row.Size)
	}
	if e.Baseline > 0 && (e.Baseline != e.Seen || !exemptible(row)) {
		return bad(RuleCoverage, fmt.Sprintf("%d baseline bytes of %d, operation %v", e.Baseline, e.Seen, row.Op), "all bytes of a whole file, no control file, text or stream, else 0")
	}
	if e.Opaque > e.Scanned {
		return bad(RuleCoverage, fmt.Sprintf("%d opaque bytes", e.Opaque), "at most the %d scanned ones", e.Scanned)
	}
	if e.Scanned == 0 && (e.Canonical > 0 || e.Bounds > 0) {
		return bad(RuleCoverage, "canonical bytes or bounds of content that was not scanned", "0")
	}
	if e.Scanned == 0 && e.Declared == 0 && (len(e.Digests) > 0 || e.Same != nil) {
		return bad(RuleCoverage, "digests of exempt content", "none")
	}
	// Only a stream that the task declared may skip the scan. That a row of
	// this origin is one, the journal's rules say.
	if model := row.Origin == journal.OriginModel; model != (e.Declared > 0) || (model && e.Declared != e.Seen) {
		return bad(RuleDeclared, fmt.Sprintf("%d declared bytes of %d, origin %d", e.Declared, e.Seen, row.Origin), "all bytes of a row from a declared model channel, else 0")
	}
	if err := sortedUnique(e.Digests, DigestSize); err != nil {
		return bad(RuleDigests, err.Error(), "16-byte digests, sorted and unique")
	}
	digests := len(e.Digests) > 0
	if e.Same != nil {
		other, ok := ev.referred(n, *e.Same)
		if !ok {
			return bad(RuleSame, fmt.Sprintf("row %d", *e.Same), "an earlier row with content")
		}
		if digests || other == nil || other.root != e.Root {
			return bad(RuleSame, fmt.Sprintf("digests of its own, or row %d, which has another root or refers on", *e.Same), "no digests and a direct reference to a row of the same root")
		}
		digests = len(other.digests) > 0
	}
	least := uint64(minCanonical)
	if row.Flags&journal.FlagText != 0 {
		least = minCanonicalText
	}
	if e.Canonical >= least && !digests {
		return bad(RuleNoDigests, fmt.Sprintf("no digest of %d canonical bytes", e.Canonical), "at least one from %d on", least)
	}
	return nil
}

// referred returns what a reference from row n leads to: nothing if that is no
// earlier row with content, and no base if it refers on.
func (ev *Evidence) referred(n, same uint64) (*base, bool) {
	if same >= n {
		return nil, false
	}
	if at, ok := ev.baseOf[same]; ok {
		return &ev.bases[at], true
	}
	if root, ok := ev.empties[same]; ok {
		return &base{root: root}, true
	}
	e := ev.before(same)
	switch {
	case e == nil:
		return nil, false
	case e.Same != nil:
		return nil, true
	}
	// Remembered, so that it is looked up once however many rows refer to it.
	ev.empties[same] = e.Root
	return &base{root: e.Root}, true
}

// before is the entry of a row that has been read, while later ones have not.
func (ev *Evidence) before(seq uint64) *Entry {
	s, it := &sequence{data: ev.pack, at: ev.marks[seq/stride]}, new(item)
	for range seq%stride + 1 {
		if s.item(it) != nil {
			return nil // it could be read before
		}
	}
	return it.entry
}

// roleModel is the role of a channel whose bytes come from the model.
const roleModel = "model"

func sortedUnique(values []byte, size int) error {
	if len(values)%size != 0 {
		return fmt.Errorf("%d bytes", len(values))
	}
	for i := size; i < len(values); i += size {
		if bytes.Compare(values[i-size:i], values[i:i+size]) >= 0 {
			return errors.New("values unsorted or repeated")
		}
	}
	return nil
}
