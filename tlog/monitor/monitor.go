// Package monitor reads a transparency log of cleanrun's entries as anybody can,
// and reports what contradicts itself: entries that the log should have refused,
// runs without an end, attempts left out, and checkpoints that cannot be of one tree.
// spec/log.md, "What a log refuses".
//
// Limits first. A monitor sees what its log shows to it. Whether others are shown
// something else comes out only where checkpoints meet: those of another monitor, of
// a bundle or of a witness (Options.Seen). It reads every entry once, when it starts,
// and holds the ledger of all in memory.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// ID says what a Finding is about: the id of a refusal (entry.ID) for an entry that
// the log should not have, or one of these.
type ID string

const (
	RunOpen          ID = "run-open"          // registered, and no FINAL for longer than was waited
	AttemptMissing   ID = "attempt-missing"   // attempt n registered without n-1
	CheckpointHidden ID = "checkpoint-hidden" // a FINAL that names another number of CHECKPOINTs than the log has
	Rollback         ID = "rollback"          // a checkpoint smaller than one that the log signed before
	SplitView        ID = "split-view"        // two signed checkpoints that cannot be of one tree
	EntriesDiffer    ID = "entries-differ"    // the log's entries have not the root that it signed
)

// A Finding is one thing that is wrong with a log.
type Finding struct {
	ID    ID
	Entry bool   // it is about an entry, that at Index
	Index uint64 // of it
	Text  string // got, want
	// Evidence are the signed checkpoints that show it, the older claim first.
	Evidence [][]byte
}

// Contradiction tells whether somebody signed two things that cannot both be. A run
// that is open, an attempt that is missing and a CHECKPOINT that nobody counted may
// have other reasons.
func (f Finding) Contradiction() bool {
	return f.ID != RunOpen && f.ID != AttemptMissing && f.ID != CheckpointHidden
}

// Options of a Monitor.
type Options struct {
	Log receipt.PublicKey // whose signature checkpoints must have
	// Admit finds the keys whose entries the log may have, as in registry.Options. With
	// nil only the form of entries is looked at, and nothing that they say.
	Admit func(role entry.Role, kid [32]byte) (receipt.PublicKey, bool)
	// Wait is how long a run may be open since a monitor first saw its REGISTER.
	Wait time.Duration
	// State is what an earlier monitor of the log has seen, nil for none.
	State *State
	// Seen are signed checkpoints of the log from elsewhere. They must be of the
	// tree that the monitor is shown.
	Seen [][]byte
	Now  func() time.Time // time.Now if nil
}

// A Monitor follows one log.
type Monitor struct {
	source  Source
	o       Options
	ledger  *entry.Ledger
	tree    *compact.Range   // of the entries that the ledger has taken: those of newest, and more after an error
	pending []Finding        // about entries after newest
	begun   bool             // entries after newest were asked for, of a checkpoint that is among the claims
	claims  []proof.Verified // not yet compared with the tree, by size
	newest  *proof.Verified  // the largest that the tree has led to
	keep    string           // note for the next monitor: not moved by a log that shows two trees
	accused string           // the last note that was reported
	open    map[uint64]time.Time
	told    map[uint64]bool // open runs that were reported
	missed  int             // missing attempts that were reported
	hid     int             // the same of FINALs with another number of CHECKPOINTs
}

var ranges = compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// New makes a monitor that has read nothing yet. The checkpoints of State and Seen
// must be signed by the log.
func New(source Source, o Options) (*Monitor, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Monitor{source: source, o: o, ledger: entry.NewLedger(), tree: ranges.NewEmptyRange(0), open: map[uint64]time.Time{}, told: map[uint64]bool{}}
	seen := slices.Clone(o.Seen)
	if o.State != nil {
		if o.State.Checkpoint != "" {
			seen = append([][]byte{[]byte(o.State.Checkpoint)}, seen...)
			m.keep = o.State.Checkpoint
		}
		for _, r := range o.State.Open {
			m.open[r.Index] = time.Unix(r.Since, 0)
		}
	}
	for i, note := range seen {
		v, err := m.verify(note)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d that was seen: %w", i+1, err)
		}
		m.claims = append(m.claims, *v)
	}
	slices.SortStableFunc(m.claims, func(a, b proof.Verified) int {
		return compare(a.Checkpoint().Size, b.Checkpoint().Size)
	})
	return m, nil
}

func compare(a, b uint64) int {
	if a < b {
		return -1
	} else if a > b {
		return 1
	}
	return 0
}

func (m *Monitor) verify(note []byte) (*proof.Verified, error) {
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	return u.Verify(m.o.Log)
}

// Newest is the largest checkpoint that what was read agrees with, nil before there
// is one.
func (m *Monitor) Newest() *proof.Verified { return m.newest }

// Step looks at the newest checkpoint and reads the entries that are new in it. It
// returns what is wrong with them; nothing is reported twice. An error means that it
// cannot be told: the log does not answer, or not with a checkpoint of its own.
func (m *Monitor) Step(ctx context.Context) ([]Finding, error) {
	note, err := m.source.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	v, err := m.verify(note)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if string(note) == m.accused {
		return m.runs(), nil
	}
	findings, err := m.step(ctx, v)
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Evidence != nil }) {
		m.accused = string(note)
	} else if err == nil {
		m.keep = string(note)
	}
	return findings, err
}

func (m *Monitor) step(ctx context.Context, v *proof.Verified) (findings []Finding, err error) {
	cp := v.Checkpoint()
	if n := m.newest; n != nil && cp.Size < n.Checkpoint().Size {
		return []Finding{rollback(n, v)}, nil
	}
	for len(m.claims) > 0 { // those that the log has not reached yet, or denies
		last := m.claims[len(m.claims)-1]
		if last.Checkpoint().Size <= cp.Size {
			break
		}
		findings = append(findings, rollback(&last, v))
		m.claims = m.claims[:len(m.claims)-1]
	}
	more, err := m.read(ctx, v)
	findings = append(findings, more...)
	if err != nil {
		return findings, err
	}
	return append(findings, m.runs()...), nil
}

func rollback(larger, smaller *proof.Verified) Finding {
	return Finding{ID: Rollback, Text: fmt.Sprintf("got a checkpoint of size %d, want at least %d, which the log has signed before", smaller.Checkpoint().Size, larger.Checkpoint().Size),
		Evidence: [][]byte{larger.Note(), smaller.Note()}}
}

func split(a, b *proof.Verified, text string) Finding {
	return Finding{ID: SplitView, Text: text, Evidence: [][]byte{a.Note(), b.Note()}}
}

// read goes through the entries up to a checkpoint. If the source fails on the way, the
// next call goes on from there: what the ledger has taken must turn out to be of a
// signed tree, or a log could show an entry once, to the monitor alone.
func (m *Monitor) read(ctx context.Context, v *proof.Verified) ([]Finding, error) {
	cp := v.Checkpoint()
	if n := m.newest; n != nil && cp.Size == n.Checkpoint().Size && cp.Root != n.Checkpoint().Root {
		return []Finding{split(n, v, fmt.Sprintf("two roots at size %d", cp.Size))}, nil
	}
	if cp.Size < m.tree.End() {
		return nil, fmt.Errorf("%w: %d were read, and the checkpoint has %d", ErrLost, m.tree.End(), cp.Size)
	}
	tree := clone(m.tree)
	findings, claims, err := m.walk(ctx, tree, cp.Size, v)
	findings = append(m.pending, findings...)
	if err != nil {
		m.tree, m.claims, m.pending = tree, claims, findings
		m.begin(v)
		return nil, err
	}
	if got := root(tree); got != cp.Root {
		return m.differs(ctx, v, got)
	}
	m.tree, m.claims, m.pending, m.begun = tree, claims, nil, false
	m.newest = v
	return findings, nil
}

// begin keeps a checkpoint whose entries could not all be read: the next one must be of
// the same tree.
func (m *Monitor) begin(v *proof.Verified) {
	if m.begun {
		return
	}
	m.begun = true
	at := slices.IndexFunc(m.claims, func(c proof.Verified) bool { return c.Checkpoint().Size > v.Checkpoint().Size })
	if at < 0 {
		at = len(m.claims)
	}
	m.claims = slices.Insert(slices.Clone(m.claims), at, *v)
}

// walk appends entries to the tree up to a size, and compares the claims on its way.
// The ledger takes them, which is right only if the tree turns out to be the log's:
// else the monitor does not go on.
func (m *Monitor) walk(ctx context.Context, tree *compact.Range, size uint64, v *proof.Verified) (findings []Finding, claims []proof.Verified, err error) {
	claims = m.claims
	claim := func() {
		for len(claims) > 0 && claims[0].Checkpoint().Size == tree.End() {
			if c := claims[0].Checkpoint(); c.Root != root(tree) {
				findings = append(findings, split(&claims[0], v,
					fmt.Sprintf("a checkpoint of size %d with root %x, and one of size %d in whose tree the root at %d is %x", c.Size, c.Root, size, c.Size, root(tree))))
			}
			claims = claims[1:]
		}
	}
	claim()
	err = entries(ctx, m.source, tree.End(), size, func(index uint64, batch [][]byte) error {
		for i, c := range m.check(batch) {
			if err := tree.Append(c.leaf[:], nil); err != nil {
				return err
			}
			if c.err == nil && c.entry != nil {
				c.err = m.ledger.Check(c.entry)
			}
			if c.err == nil && c.entry != nil {
				m.ledger.Apply(c.entry, index+uint64(i))
			} else if c.err != nil {
				findings = append(findings, refusal(index+uint64(i), c.err))
			}
			claim()
		}
		return nil
	})
	return findings, claims, err
}

func refusal(index uint64, err error) Finding {
	f := Finding{ID: ID(entry.NotAnEntry), Entry: true, Index: index, Text: err.Error()}
	if r, ok := errors.AsType[*entry.Refusal](err); ok {
		f.ID, f.Text = ID(r.ID), fmt.Sprintf("got %s, want %s", r.Got, r.Want)
	}
	return f
}

// ErrLost is wrapped by the error of a monitor that cannot go on: the entries that it
// has read are not those that the log shows now. A new one can be made.
var ErrLost = errors.New("the log's entries are not those that were read before")

// differs finds out why the entries do not lead to the root that was signed. If those
// that the log shows now do, and it has signed another root over their beginning, it
// has shown two trees. Else it shows entries that it has not signed.
func (m *Monitor) differs(ctx context.Context, v *proof.Verified, got [32]byte) ([]Finding, error) {
	cp := v.Checkpoint()
	wrong := Finding{ID: EntriesDiffer, Text: fmt.Sprintf("got entries with root %x, want %x, which is signed at size %d", got, cp.Root, cp.Size), Evidence: [][]byte{v.Note()}}
	if m.newest == nil {
		return []Finding{wrong}, ErrLost
	}
	old := m.newest.Checkpoint()
	tree, at := ranges.NewEmptyRange(0), [32]byte{}
	err := entries(ctx, m.source, 0, cp.Size, func(_ uint64, batch [][]byte) error {
		for _, b := range batch {
			if tree.End() == old.Size {
				at = root(tree)
			}
			leaf := receipt.LeafHash(b)
			if err := tree.Append(leaf[:], nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return []Finding{wrong}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if tree.End() == old.Size {
		at = root(tree)
	}
	if root(tree) == cp.Root && at != old.Root {
		wrong = split(m.newest, v, fmt.Sprintf("a checkpoint of size %d with root %x, and one of size %d in whose tree the root at %d is %x", old.Size, old.Root, cp.Size, old.Size, at))
	}
	return []Finding{wrong}, ErrLost
}

// runs reports what is open or missing, each once.
func (m *Monitor) runs() (findings []Finding) {
	now := m.o.Now()
	open := map[uint64]time.Time{}
	for _, r := range m.ledger.Open() {
		since, ok := m.open[r.Registered]
		if !ok {
			since = now
		}
		open[r.Registered] = since
		if now.Sub(since) < m.o.Wait || m.told[r.Registered] {
			continue
		}
		m.told[r.Registered] = true
		findings = append(findings, Finding{ID: RunOpen, Entry: true, Index: r.Registered,
			Text: fmt.Sprintf("run %x of %s has no FINAL, and %d rows in its last CHECKPOINT", r.ID, receipt.Fingerprint(r.Issuer), r.Head.Size)})
	}
	m.open = open
	missing := m.ledger.AttemptsMissing()
	for _, a := range missing[m.missed:] {
		findings = append(findings, Finding{ID: AttemptMissing, Entry: true, Index: a.Index,
			Text: fmt.Sprintf("attempt %d of run %x by %s, and no attempt %d before it", a.Attempt, a.Run, receipt.Fingerprint(a.Issuer), a.Attempt-1)})
	}
	m.missed = len(missing)
	hidden := m.ledger.CheckpointsHidden()
	for _, h := range hidden[m.hid:] {
		findings = append(findings, Finding{ID: CheckpointHidden, Entry: true, Index: h.Index,
			Text: fmt.Sprintf("the FINAL of run %x by %s names %d CHECKPOINTs, and the log has %d", h.Run, receipt.Fingerprint(h.Issuer), h.Named, h.Logged)})
	}
	m.hid = len(hidden)
	return findings
}

func root(r *compact.Range) [32]byte {
	if r.End() == 0 {
		return [32]byte(rfc6962.DefaultHasher.EmptyRoot())
	}
	h, err := r.GetRootHash(nil)
	if err != nil {
		panic(err) // the range begins at 0
	}
	return [32]byte(h)
}

func clone(r *compact.Range) *compact.Range {
	c, err := ranges.NewRange(0, r.End(), slices.Clone(r.Hashes()))
	if err != nil {
		panic(err) // it is a copy of one that is good
	}
	return c
}

type checked struct {
	leaf  [32]byte
	entry *entry.Entry
	err   error
}

// check verifies the signatures of a batch on all processors.
func (m *Monitor) check(batch [][]byte) []checked {
	out := make([]checked, len(batch))
	parallel(len(batch), func(i int) {
		out[i].leaf = receipt.LeafHash(batch[i])
		if m.o.Admit == nil {
			_, out[i].err = entry.Parse(batch[i])
		} else {
			out[i].entry, out[i].err = registry.Verify(batch[i], m.o.Admit)
		}
	})
	return out
}
