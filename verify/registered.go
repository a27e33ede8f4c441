package verify

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// spec/log.md, "How assurance follows", steps 4 to 8: what the log says is about
// this run, in the right order, seen by others, and in time.

// entries are what the entries of a run say, by the keys that they must be by.
type entries struct {
	seal        entry.Seal
	register    entry.Register
	checkpoints []journal.Head
	final       entry.Final
	waited      *time.Duration // longest stretch of rows before a CHECKPOINT; nil if the rows are not there
}

// checkLogEntries holds the entries to the sealed set and to the rows.
func (v *verifier) checkLogEntries() (string, error) {
	l := v.log
	if l == nil {
		return "", notLogged
	}
	if v.runner == nil || v.owner == nil {
		return "", v.noLogKeys()
	}
	var e entries
	seal, err := l.seal.Verify(v.owner.Key())
	if err != nil {
		return "", in("SEAL, by the owner", err)
	}
	register, err := l.register.Verify(v.runner.Key())
	if err != nil {
		return "", in("REGISTER, by the runner", err)
	}
	final, err := l.final.Verify(v.runner.Key())
	if err != nil {
		return "", in("FINAL, by the runner", err)
	}
	e.seal, e.register, e.final = seal.Seal(), register.Register(), final.Final()
	for i, u := range l.checkpoints {
		c, err := u.Verify(v.runner.Key())
		if err != nil {
			return "", in(fmt.Sprintf("CHECKPOINT %d, by the runner", i+1), err)
		}
		e.checkpoints = append(e.checkpoints, c.Checkpoint())
	}
	if err := entry.CompareRegister(e.register, v.evidence.Start()); err != nil {
		return "", err
	}
	of, digest := receipt.KindSealedSet, v.sealSum
	if p := v.sealed.Part; p != nil {
		of, digest = receipt.KindBenchmark, sha256.Sum256(p.Head)
	}
	if err := entry.CompareSeal(e.seal, e.register, of, digest); err != nil {
		return "", err
	}
	row, head := v.evidence.Final(), v.evidence.Head()
	if row == nil {
		return "", fmt.Errorf("got a FINAL of a journal without a closing row, want none")
	}
	if err := entry.CompareFinal(e.final, row, head); err != nil {
		return "", err
	}
	if err := v.compareHeads(&e); err != nil {
		return "", err
	}
	l.claims = &e
	return fmt.Sprintf("SEAL by %s; REGISTER, FINAL and %s by %s", v.owner.Key().Name(), plural(uint64(len(e.checkpoints)), "CHECKPOINT", "CHECKPOINTs"), v.runner.Key().Name()), nil
}

// noLogKeys says why entries cannot be read: nobody's key is known for them.
func (v *verifier) noLogKeys() error {
	if v.log.pinned {
		return &undecided{"the policy pins no key of the owner or of the runner: who made the entries is unknown", "add owner and runner lines to the policy"}
	}
	return skipped("no pinned owner and runner keys")
}

// compareHeads holds each CHECKPOINT to the rows: it is the head that the journal
// had at its size. A CHECKPOINT that is not shows that rows were dropped or
// changed after it was logged.
func (v *verifier) compareHeads(e *entries) error {
	head := v.evidence.Head()
	last := uint64(0)
	for i, c := range e.checkpoints {
		switch {
		case c.Run != head.Run:
			return fmt.Errorf("CHECKPOINT %d: got run %x, want %x", i+1, c.Run, head.Run)
		case c.Size <= last:
			return fmt.Errorf("CHECKPOINT %d: got size %d, want more than the %d of the one before it", i+1, c.Size, last)
		case c.Size > head.Size:
			return &hinted{fmt.Errorf("CHECKPOINT %d: got size %d, want at most the journal's %d: rows were dropped after it was logged (rollback)", i+1, c.Size, head.Size),
				"ask the runner for the whole journal: the log proves that it was longer"}
		}
		last = c.Size
	}
	if v.bundle.Evidence == nil {
		return v.compareProvedHeads(e, head)
	}
	var tree merkle.Tree
	next := e.checkpoints
	for raw := range v.evidence.Items() {
		if len(next) == 0 {
			break
		}
		tree.Push(journal.LeafHash(raw))
		if tree.Size() == next[0].Size {
			if root := tree.Root(); root != next[0].Root {
				return otherHead(len(e.checkpoints)-len(next), next[0], root)
			}
			next = next[1:]
		}
	}
	e.waited = v.waited(e.checkpoints)
	return nil
}

// compareProvedHeads is compareHeads without rows: log.cbor proves of each
// CHECKPOINT that the signed journal begins as it says.
func (v *verifier) compareProvedHeads(e *entries, head journal.Head) error {
	proofs := v.log.member.Heads
	for i, c := range e.checkpoints {
		switch {
		case c.Size == head.Size && c.Root != head.Root:
			return otherHead(i, c, head.Root)
		case c.Size == head.Size:
		case len(proofs) == 0:
			return &undecided{fmt.Sprintf("CHECKPOINT %d is the head at row %d, and neither the rows before it are there nor a proof", i+1, c.Size), "ask for the bundle with its evidence"}
		default:
			if err := journal.VerifyConsistency(c, head, proofs[i]); err != nil {
				return &hinted{fmt.Errorf("CHECKPOINT %d: rows were changed after it was logged, or the proof is of another one: %w", i+1, err), "ask for the bundle with its evidence"}
			}
			continue
		}
		if len(proofs) > 0 && len(proofs[i]) > 0 {
			return fmt.Errorf("CHECKPOINT %d: got a path of %d hashes from the journal to itself, want none", i+1, len(proofs[i]))
		}
	}
	return nil
}

func otherHead(i int, c journal.Head, root [32]byte) error {
	return &hinted{fmt.Errorf("CHECKPOINT %d: got root %x at size %d, want %x: rows were changed after it was logged", i+1, c.Root, c.Size, root),
		"ask the runner for the journal as it was: the log proves that it was another"}
}

// waited is the longest time between two rows that one CHECKPOINT, or FINAL, was
// the first to cover. A run that does nothing for a while keeps nothing back.
func (v *verifier) waited(heads []journal.Head) *time.Duration {
	var longest uint64
	from := uint64(0)
	for i := range len(heads) + 1 {
		to := v.evidence.Size()
		if i < len(heads) {
			to = heads[i].Size
		}
		if to > from {
			a, _ := v.evidence.Row(from)
			b, _ := v.evidence.Row(to - 1)
			longest = max(longest, b.Time-a.Time) // times do not fall
		}
		from = to
	}
	d := time.Duration(min(longest, 1<<63-1))
	return &d
}

// checkLogOrder looks at what was logged before what.
func (v *verifier) checkLogOrder() (string, error) {
	l := v.log
	if l == nil {
		return "", notLogged
	}
	m := l.member
	type event struct {
		what  string
		index uint64
		first bool // a checkpoint covers the entries before its size, so an entry may have that index
	}
	order := []event{{"SEAL", m.Seal.Index, false}, {"REGISTER", m.Register.Index, false}, {"size of the start row's checkpoint", l.notes[freshness].Size, false}}
	for i, c := range m.Checkpoints {
		order = append(order, event{fmt.Sprintf("CHECKPOINT %d", i+1), c.Index, i == 0})
	}
	order = append(order,
		event{"FINAL", m.Final.Index, len(m.Checkpoints) == 0},
		event{"size of the closing checkpoint", l.notes[closing].Size, false},
		event{"receipt.cose", l.attest.Index, true})
	for i, b := range order[1:] {
		a := order[i]
		if b.index < a.index || b.index == a.index && !b.first {
			return "", fmt.Errorf("%s: got %d, want it after %s, %d%s", b.what, b.index, a.what, a.index, late[b.what])
		}
	}
	if l.claims == nil {
		return "indexes only", nil
	}
	if got, want := len(m.Checkpoints), l.claims.final.Checkpoints; uint64(got) != want {
		return "", &hinted{fmt.Errorf("got %s, want the %d that FINAL names", plural(uint64(got), "CHECKPOINT", "CHECKPOINTs"), want),
			"ask the runner for the ones that are not there: a later head may stand in them"}
	}
	return fmt.Sprintf("SEAL %d, REGISTER %d, FINAL %d, receipt %d", m.Seal.Index, m.Register.Index, m.Final.Index, l.attest.Index), nil
}

// late says what an entry that comes too early or too late means.
var late = map[string]string{
	"REGISTER":                           ": the set was sealed after the run was registered",
	"size of the start row's checkpoint": ": the start row is older than the registration",
	"size of the closing checkpoint":     ": the log had no FINAL when it was closed",
}

// noLog is why a check that needs the pinned log is not made.
func (v *verifier) noLog() error {
	switch {
	case v.log == nil:
		return notLogged
	case !v.log.pinned:
		return skipped("the policy pins no log")
	case v.policy.Log.Quorum == proof.QuorumNone:
		return skipped("the policy asks for no witness")
	}
	return nil
}

// checkLogWitnesses asks whether others have seen the log as it is shown here.
func (v *verifier) checkLogWitnesses() (string, error) {
	if err := v.noLog(); err != nil {
		return "", err
	}
	l, r := v.log, v.report.Logged
	var times []uint64
	for i := range l.notes {
		n := &l.notes[i]
		q, err := v.policy.Log.Check(n.verified)
		if err != nil {
			return "", in(n.name, err)
		}
		if i == 0 || q.Got < r.Witnesses {
			r.Witnesses, r.Of = q.Got, q.Want
		}
		if !q.Met {
			return "", &undecided{
				fmt.Sprintf("%s: got the cosignatures of %d of %s, want the quorum %s", n.name, q.Got, plural(uint64(q.Want), "witness", "witnesses"), v.policy.Log.Quorum),
				"ask the runner for a bundle with more cosignatures; nobody else has seen this state of the log",
			}
		}
		times = append(times, q.Time)
	}
	l.times, r.Registered, r.Closed = times, times[freshness], times[closing]
	return fmt.Sprintf("%d of %d, quorum %s", r.Witnesses, r.Of, v.policy.Log.Quorum), nil
}

// maxAhead is how far in seconds the clock of a witness may be ahead of ours, or
// of another's.
const maxAhead = 300

// checkLogTimes holds the times of the checkpoints, which are those of witnesses,
// to each other, to now and to how long the run took.
func (v *verifier) checkLogTimes() (string, error) {
	if err := v.noLog(); err != nil {
		return "", err
	}
	l := v.log
	if l.times == nil {
		return "", skipped("the quorum is not met")
	}
	now := v.report.CheckedAt.Unix()
	for i, t := range l.times {
		n := &l.notes[i]
		if now < -maxAhead || t > uint64(now+maxAhead) {
			return "", &undecided{fmt.Sprintf("%s: got the time %s, want at most %d seconds after now, %s", n.name, rfc3339(t), maxAhead, rfc3339(uint64(max(now, 0)))), "set the clock, or look who cosigned the checkpoint"}
		}
		if i > 0 && t < l.times[i-1] {
			return "", &undecided{fmt.Sprintf("%s: got the time %s, want at least %s, that of %s", n.name, rfc3339(t), rfc3339(l.times[i-1]), l.notes[i-1].name), "look who cosigned the checkpoints: a clock is wrong"}
		}
	}
	last, _ := v.evidence.Row(v.evidence.Size() - 1)
	took := l.times[closing] - l.times[freshness]
	ran, free := last.Time/uint64(time.Second), v.policy.Freshness
	if free == 0 {
		free = DefaultFreshness
	}
	if ran > took+maxAhead {
		return "", &undecided{
			fmt.Sprintf("the rows tell of %d seconds, and between the start row's checkpoint and the closing one lie %d: more was recorded than time has passed", ran, took),
			"look who cosigned the checkpoints; if their clocks are right, the rows were made up",
		}
	}
	if took > ran+free {
		return "", &undecided{
			fmt.Sprintf("between the start row's checkpoint and the closing one lie %d seconds, want at most the %d of the run and %d more: the registration was stale", took, ran, free),
			fmt.Sprintf("ask why the run was registered so long before it was over; require %s N allows more", requireFreshness),
		}
	}
	return fmt.Sprintf("registered by %s, closed by %s", rfc3339(l.times[freshness]), rfc3339(l.times[closing])), nil
}

// maxUnix is 9999-12-31, the last day that RFC 3339 can write.
const maxUnix = 253402300799

// rfc3339 writes a time in unix seconds.
func rfc3339(t uint64) string {
	return time.Unix(int64(min(t, maxUnix)), 0).UTC().Format(time.RFC3339)
}

// checkLogInterval asks whether rows were kept back before they were logged.
func (v *verifier) checkLogInterval() (string, error) {
	l := v.log
	if l == nil {
		return "", notLogged
	}
	limit := uint64(0)
	if v.policy != nil {
		limit = v.policy.CheckpointInterval
	}
	var got *time.Duration
	if l.claims != nil {
		got = l.claims.waited
	}
	if got != nil {
		ms := uint64(got.Milliseconds())
		v.report.Logged.Interval = &ms
	}
	switch {
	case limit == 0:
		return "", skipped("no checkpoint interval is required")
	case got == nil:
		return "", &undecided{"the rows that tell how long a checkpoint took are not there", "ask for the bundle with its evidence"}
	case *got > time.Duration(limit)*time.Second:
		return "", &undecided{
			fmt.Sprintf("%s of rows were logged at once, want at most %d s", got.Round(time.Millisecond), limit),
			"the log was out of reach for a while, or the runner kept rows back: ask for another run",
		}
	}
	return fmt.Sprintf("at most %s of rows before a checkpoint", got.Round(time.Millisecond)), nil
}

// assurance says how much of the order of things rests on others than the runner.
func (v *verifier) assurance() *Assurance {
	l := v.log
	low := func(format string, args ...any) *Assurance { return &Assurance{L0, fmt.Sprintf(format, args...)} }
	switch {
	case v.killed:
		return low("it says that it was registered in a log and killed: nothing proves either")
	case v.unproved:
		return low("registered in a log, but the bundle holds no proof of it")
	case l == nil:
		return low("self-run: nothing was logged before the run")
	case v.policy == nil:
		return low("logged in %s, which nobody pins without a policy", l.notes[newest].Origin)
	case !l.pinned:
		return low("logged in %s, which the policy does not pin", l.notes[newest].Origin)
	case v.policy.Log.Quorum == proof.QuorumNone:
		return low("logged in %s, but the policy asks for no witness (quorum none)", l.notes[newest].Origin)
	case v.open != nil || l.claims == nil || l.times == nil:
		return low("logged in %s, but not all of it could be decided", l.notes[newest].Origin)
	}
	r := v.report.Logged
	detail := fmt.Sprintf("sealed and registered before the run, %d of %s", r.Witnesses, plural(uint64(r.Of), "witness", "witnesses"))
	if w := l.claims.waited; w != nil {
		detail += fmt.Sprintf(", at most %d s of rows between checkpoints", (*w+time.Second-1)/time.Second)
	}
	return &Assurance{L1, detail}
}
