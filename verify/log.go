package verify

import (
	"encoding/hex"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// spec/log.md, "How assurance follows", steps 1 to 3: what a bundle carries of a
// log is whole, and is of one log and one tree.

// Places of the checkpoints of a logged bundle.
const (
	freshness = iota // in the start row: the log before the run
	closing          // after FINAL
	newest           // of log.tlog-proof: all entries are proved in it
)

// A logged is what a bundle carries of a log.
type logged struct {
	member      *receipt.LogMember
	attest      *proof.LogProof
	notes       [3]note
	toRegister  *receipt.UnverifiedLogReceipt // inclusion of REGISTER in freshness, from the start row
	toAttest    *receipt.UnverifiedLogReceipt // inclusion of receipt.cose in newest
	toClosing   *receipt.UnverifiedLogReceipt // consistency of freshness with closing
	toNewest    *receipt.UnverifiedLogReceipt // consistency of closing with newest
	seal        *entry.Unverified
	register    *entry.Unverified
	checkpoints []*entry.Unverified
	final       *entry.Unverified

	log    proof.Log // the pinned one
	pinned bool

	claims *entries // nil until the entries are known to be those of this run
	times  []uint64 // of the notes, unix seconds; nil until the policy's quorum is met on all
}

// A note is one checkpoint of the log.
type note struct {
	name string
	proof.Checkpoint
	signed   *proof.Unverified
	verified *proof.Verified // nil if no policy pins the log
}

// checkLogMembers reads all that a logged bundle carries. The log checks are about
// the journal, so there must be rows to check.
func (v *verifier) checkLogMembers() (string, error) {
	b := v.bundle
	if (b.Log == nil) != (b.LogProof == nil) {
		have, lack := receipt.MemberLog, receipt.MemberLogProof
		if b.Log == nil {
			have, lack = lack, have
		}
		return "", fmt.Errorf("got %s without %s, want both or none", have, lack)
	}
	if v.evidence == nil {
		return "", noEvidence
	}
	start := v.evidence.Start()
	switch in, registered := b.Log != nil, start.Registration != nil; {
	case in && !registered:
		return "", fmt.Errorf("got %s of a run whose start row has no registration, want none", receipt.MemberLog)
	case !in && registered && v.evidence.Final() == nil:
		// Its verdict is INCONCLUSIVE, and an eval shows it to explain the next attempt.
		v.killed = true
		return "", skipped("the start row names a registration, and there is no closing row: nothing proves that the run was registered, or that the log does not hold its end")
	case !in && registered && v.policy != nil && v.policy.Log != nil:
		return "", &undecided{"the run was registered in a log, and the bundle holds no proof of it", "ask for the bundle that cleanrun attest -log writes"}
	case !in && registered:
		v.unproved = true
		return "", skipped("registered in a log, but the bundle holds no proof of it")
	case !in && v.policy != nil && v.policy.Log != nil:
		return "", &undecided{"the run was not logged, and the policy names a log", "ask for a run with cleanrun run -log; or use a policy without log lines, for assurance L0"}
	case !in:
		return "", skipped("not logged")
	}
	l, err := readLogged(b, start)
	if err != nil {
		return "", err
	}
	m := l.member
	if b.Evidence != nil && len(m.Heads) > 0 {
		return "", fmt.Errorf("%s: got proofs of %d heads of the journal, want none beside the evidence: its rows give them", receipt.MemberLog, len(m.Heads))
	}
	v.log = l
	v.report.Logged = &Logged{
		Origin: l.notes[newest].Origin, Size: l.notes[newest].Size, Index: l.attest.Index, Seal: m.Seal.Index,
		Register: m.Register.Index, Final: m.Final.Index, Checkpoints: len(m.Checkpoints),
	}
	return fmt.Sprintf("%d entries of %s", len(m.Checkpoints)+4, l.notes[newest].Origin), nil
}

func readLogged(b *receipt.Bundle, start *journal.Start) (l *logged, err error) {
	l = new(logged)
	if l.member, err = receipt.ParseLog(b.Log); err != nil {
		return nil, err
	}
	if l.attest, err = proof.ParseLogProof(b.LogProof); err != nil {
		return nil, in(string(receipt.MemberLogProof), err)
	}
	for i, n := range []struct {
		name string
		data []byte
	}{{"the start row's checkpoint", *start.Freshness}, {"the closing checkpoint", l.member.Closing}, {"the newest checkpoint", l.attest.Checkpoint}} {
		u, err := proof.ParseCheckpoint(n.data)
		if err != nil {
			return nil, in(n.name, err)
		}
		l.notes[i] = note{name: n.name, Checkpoint: u.Checkpoint(), signed: u}
	}
	for _, r := range []struct {
		to   **receipt.UnverifiedLogReceipt
		what string
		data []byte
	}{
		{&l.toRegister, receiptOfRegister, *start.Registration}, {&l.toAttest, receiptOfAttest, l.member.Receipt},
		{&l.toClosing, receiptOfClosing, l.member.ToClosing}, {&l.toNewest, receiptOfNewest, l.member.ToNewest},
	} {
		if *r.to, err = receipt.ParseLogReceipt(r.data); err != nil {
			return nil, in(r.what, err)
		}
	}
	m := l.member
	l.checkpoints = make([]*entry.Unverified, len(m.Checkpoints))
	parse := func(to **entry.Unverified, kind entry.Kind, e *receipt.LogEntry) {
		if err != nil {
			return
		}
		if *to, err = entry.Parse(e.Statement); err != nil {
			err = in(kind.String(), err)
		} else if got := (*to).Kind(); got != kind {
			err = fmt.Errorf("%s: got %v in the place of %v", receipt.MemberLog, got, kind)
		}
	}
	parse(&l.seal, entry.KindSeal, &m.Seal)
	parse(&l.register, entry.KindRegister, &m.Register)
	for i := range m.Checkpoints {
		parse(&l.checkpoints[i], entry.KindCheckpoint, &m.Checkpoints[i])
	}
	parse(&l.final, entry.KindFinal, &m.Final)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// What the COSE receipts of a logged bundle are, for messages.
const (
	receiptOfRegister = "receipt of the registration, in the start row"
	receiptOfAttest   = "receipt of the inclusion of receipt.cose"
	receiptOfClosing  = "receipt of the consistency with the closing checkpoint"
	receiptOfNewest   = "receipt of the consistency with the newest checkpoint"
)

func in(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

const notLogged = skipped("not logged")

// checkLogCheckpoints finds the log that signed the checkpoints, and holds them to
// each other.
func (v *verifier) checkLogCheckpoints() (string, error) {
	l := v.log
	if l == nil {
		return "", notLogged
	}
	for i := range l.notes[1:] {
		if a, b := &l.notes[0], &l.notes[i+1]; a.Origin != b.Origin {
			return "", fmt.Errorf("%s: got origin %s, want %s, as in %s", b.name, show(b.Origin), show(a.Origin), a.name)
		}
	}
	if err := v.pinLog(); err != nil {
		return "", err
	}
	for i := range l.notes[1:] {
		a, b := &l.notes[i], &l.notes[i+1]
		if a.Size == b.Size && a.Root != b.Root {
			v.report.Conflict = []string{string(a.signed.Note()), string(b.signed.Note())}
			return "", &hinted{
				fmt.Errorf("split view: %s and %s have size %d and two roots, %x and %x, want one", a.name, b.name, a.Size, a.Root, b.Root),
				"keep both checkpoints: they show that the log told two stories",
			}
		}
		if a.Size > b.Size {
			return "", fmt.Errorf("%s: got size %d, want at least the %d of %s, which came before", b.name, b.Size, a.Size, a.name)
		}
	}
	detail := fmt.Sprintf("%s at %d, %d and %d entries", l.notes[newest].Origin, l.notes[freshness].Size, l.notes[closing].Size, l.notes[newest].Size)
	if !l.pinned {
		detail += ", by nobody whom the policy pins"
	}
	return detail, nil
}

// A hinted is an error with the next step.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// pinLog verifies the log's signatures, if the policy pins logs.
func (v *verifier) pinLog() error {
	l := v.log
	if v.policy == nil || v.policy.Log == nil {
		return nil
	}
	origin := l.notes[newest].Origin
	log, ok := v.policy.Log.FindLog(origin)
	if !ok {
		return &hinted{
			fmt.Errorf("got a checkpoint of log %s, want one of the %d logs of the policy", show(origin), len(v.policy.Log.Logs)),
			"if this log is to be trusted, ask for its policy line over another channel",
		}
	}
	for i := range l.notes {
		n := &l.notes[i]
		var err error
		if n.verified, err = n.signed.Verify(log.Key); err != nil {
			return in(n.name, err)
		}
	}
	l.log, l.pinned, v.report.Logged.Pinned = log, true, true
	return nil
}

// checkLogInclusion proves that all entries and checkpoints are of one tree. The
// proofs need no key; where the log is pinned, its receipts must be signed by it.
func (v *verifier) checkLogInclusion() (string, error) {
	l := v.log
	if l == nil {
		return "", notLogged
	}
	m, last := l.member, &l.notes[newest]
	run := v.evidence.Start().Run
	sub := hex.EncodeToString(run[:])
	for _, r := range []struct {
		what  string
		u     *receipt.UnverifiedLogReceipt
		note  *note
		entry []byte
		index uint64
	}{
		{receiptOfRegister, l.toRegister, &l.notes[freshness], m.Register.Statement, m.Register.Index},
		{receiptOfAttest, l.toAttest, last, v.bundle.Receipt, l.attest.Index},
	} {
		if err := v.checkInclusionReceipt(r.u, sub, r.note, r.entry, r.index); err != nil {
			return "", in(r.what, err)
		}
	}
	for _, e := range append([]struct {
		name string
		receipt.LogEntry
	}{
		{string(receipt.MemberLogProof), receipt.LogEntry{Statement: v.bundle.Receipt, Index: l.attest.Index, Path: l.attest.Path}},
		{"SEAL", m.Seal}, {"REGISTER", m.Register}, {"FINAL", m.Final},
	}, checkpointEntries(m)...) {
		if err := proof.Inclusion(e.Index, last.Size, receipt.LeafHash(e.Statement), e.Path, last.Root); err != nil {
			return "", in(e.name, err)
		}
	}
	for _, r := range []struct {
		what         string
		u            *receipt.UnverifiedLogReceipt
		older, newer *note
	}{
		{receiptOfClosing, l.toClosing, &l.notes[freshness], &l.notes[closing]},
		{receiptOfNewest, l.toNewest, &l.notes[closing], last},
	} {
		if err := v.checkConsistencyReceipt(r.u, r.older, r.newer); err != nil {
			return "", in(r.what, err)
		}
	}
	return fmt.Sprintf("%d entries and 3 checkpoints under one root", len(m.Checkpoints)+4), nil
}

type namedEntry = struct {
	name string
	receipt.LogEntry
}

func checkpointEntries(m *receipt.LogMember) (list []namedEntry) {
	for i, e := range m.Checkpoints {
		list = append(list, namedEntry{fmt.Sprintf("CHECKPOINT %d", i+1), e})
	}
	return list
}

// says holds what a COSE receipt says of itself to the log and to what it is
// about.
func (l *logged) says(u *receipt.UnverifiedLogReceipt, sub string) error {
	said, first := u.Unauthenticated(), l.toRegister.Unauthenticated()
	origin := l.notes[newest].Origin
	switch {
	case said.Issuer != origin:
		return fmt.Errorf("issuer: got %s, want %s, the log of the checkpoints", show(said.Issuer), show(origin))
	case said.Subject != sub:
		return fmt.Errorf("sub: got %s, want %s", show(said.Subject), show(sub))
	case said.Kid != first.Kid:
		return fmt.Errorf("kid: got %s, want %s, as in the other receipts", receipt.Fingerprint(said.Kid), receipt.Fingerprint(first.Kid))
	}
	return nil
}

func (v *verifier) checkInclusionReceipt(u *receipt.UnverifiedLogReceipt, sub string, n *note, leaf []byte, index uint64) error {
	in := u.Unauthenticated().Inclusion
	if in == nil {
		return fmt.Errorf("got a proof of consistency, want one of inclusion")
	}
	if err := v.log.says(u, sub); err != nil {
		return err
	}
	if in.Index != index || in.Size != n.Size {
		return fmt.Errorf("got entry %d of %d, want entry %d of the %d of %s", in.Index, in.Size, index, n.Size, n.name)
	}
	var signed error
	if v.log.pinned {
		var r *receipt.LogReceipt
		if r, signed = u.VerifyInclusion(v.log.log.Key, leaf); signed == nil && r.Root() == n.Root {
			return nil
		}
	}
	root, err := u.InclusionRoot(leaf)
	switch {
	case err != nil:
		return err
	case root != n.Root: // says more than that the signature over it is wrong
		return fmt.Errorf("got root %x, want %x, that of %s: it proves another entry", root, n.Root, n.name)
	}
	return signed
}

func (v *verifier) checkConsistencyReceipt(u *receipt.UnverifiedLogReceipt, older, newer *note) error {
	c := u.Unauthenticated().Consistency
	if c == nil {
		return fmt.Errorf("got a proof of inclusion, want one of consistency")
	}
	if err := v.log.says(u, newer.Origin); err != nil {
		return err
	}
	if c.Older != older.Size || c.Newer != newer.Size {
		return fmt.Errorf("got sizes %d and %d, want %d and %d, of %s and %s", c.Older, c.Newer, older.Size, newer.Size, older.name, newer.name)
	}
	var signed error
	if v.log.pinned {
		if _, signed = u.VerifyConsistency(v.log.log.Key, older.Root, newer.Root); signed == nil {
			return nil
		}
	}
	if err := u.ConsistencyHolds(older.Root, newer.Root); err != nil {
		return err
	}
	return signed
}

// checkpoints are those that the pinned log signed, apart from the bundle's bytes.
func (v *verifier) checkpoints() (list []Checkpoint) {
	if v.log == nil || !v.log.pinned {
		return nil
	}
	for _, n := range v.log.notes {
		list = append(list, Checkpoint{n.Checkpoint, v.log.log.Key.Thumbprint(), string(n.signed.Note())})
	}
	return list
}
