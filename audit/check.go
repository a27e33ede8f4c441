package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// A checker verifies bundles for several workers.
type checker struct {
	session *verify.Session
	// anyOwner is for sets that no pinned owner signed: nothing is wrong with such
	// a bundle, but who judged is the party that is judged, for all that is known.
	anyOwner *verify.Session
	gate     *gate
	mu       sync.Mutex // guards the findings of submissions
}

func newChecker(o *Options) *checker {
	free := *o.Policy
	free.Owners = nil
	return &checker{
		session: verify.NewSession(o.Policy, o.Now), anyOwner: verify.NewSession(&free, o.Now), gate: newGate(o.Memory),
	}
}

// check verifies the bundle of one cell and fills its fact. It returns a buffer
// for the next call.
func (k *checker) check(s *Submission, cell int, buf []byte) []byte {
	stated := &s.statement.Predicate.Grid[cell]
	name := stated.Bundle + BundleExt
	report := func(id, format string, args ...any) {
		k.mu.Lock()
		defer k.mu.Unlock()
		s.at(id, cell, format, args...)
	}
	var taken int64
	data, err := s.folder.read(name, MaxBundle, buf, func(size int64) { taken = k.gate.enter(size) })
	defer func() { k.gate.leave(taken) }()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		report(ReceiptMissing, "got no file %s, want the bundle that the cell names", name)
		return buf
	case err != nil:
		report(BundleInvalid, "%v", err)
		return buf
	}
	if len(data) <= 1<<20 {
		buf = data
	}
	sum := sha256.Sum256(data)
	if got := hexOf(sum); got != stated.Bundle {
		if other := s.named(got); other >= 0 {
			report(ReceiptSwapped, "the file %s is the bundle of %s", name, s.statement.Predicate.Grid[other].Name())
		} else {
			report(BundleInvalid, "the file %s: got SHA-256 %s, want its name", name, got)
		}
		return buf
	}
	r := k.session.Check(data)
	if r.Failed != nil && r.Failed.ID == verify.CheckOwnerKey {
		r = k.anyOwner.Check(data)
	}
	if len(r.Conflict) > 0 {
		k.mu.Lock()
		s.split(cell, r.Failed.Detail, r.Conflict)
		k.mu.Unlock()
		return buf
	}
	if r.Failed != nil {
		report(BundleInvalid, "the file %s: %s: %s", name, r.Failed.ID, r.Failed.Detail)
		return buf
	}
	if r.Statement == nil {
		report(BundleInvalid, "got neither evidence nor compact proof in the bundle, want one: nothing can be derived again")
		return buf
	}
	f := &s.facts[cell]
	f.known = true
	f.attempt = submission.FromReceipt(r.Statement, sum, r.Receipt)
	f.agent, f.model = r.Statement.Predicate.Asserted.Agent, r.Statement.Predicate.Asserted.Model
	f.grader, f.compact = r.Statement.Predicate.Grader, r.Rederived == verify.RederivedCompact
	f.footprint, f.named = surroundingsOf(r)
	f.runner, f.owner, f.seal = r.Runner, r.Owner, r.Seal
	f.open, f.assurance, f.killed, f.checkpoints = r.Open, r.Assurance, r.Killed, r.Checkpoints
	switch {
	case r.Owner.Key == r.Runner.Key || r.Owner.Key == s.signer.Key:
		f.ownerNotice = "owner and runner have one key"
	case !r.Owner.Pinned:
		f.ownerNotice = "the policy pins no owner of this key"
	}
	return buf
}

// named is the cell that names a bundle, -1 if none does.
func (s *Submission) named(bundle string) int {
	if i, ok := s.first[bundle]; ok {
		return i
	}
	return -1
}

// fit compares a cell with its receipt.
func (s *Submission) fit(i int) {
	stated, f := &s.statement.Predicate.Grid[i], &s.facts[i]
	got := &f.attempt.Cell
	if got.Task != stated.Task || got.Trial != stated.Trial || got.Attempt != stated.Attempt {
		s.at(ReceiptSwapped, i, "the receipt is of %s", got.Name())
		return
	}
	f.fits = true
	for _, d := range []struct{ what, stated, got string }{
		{"receipt", stated.Receipt, got.Receipt}, {"run", stated.Run, got.Run}, {"journal root", stated.Root, got.Root},
		{"state", string(stated.State), string(got.State)},
	} {
		if d.stated != d.got {
			s.at(CellMismatch, i, "%s: the cell says %s, the receipt %s", d.what, d.stated, d.got)
		}
	}
	if !slices.Equal(stated.Reasons, got.Reasons) {
		s.at(CellMismatch, i, "reasons: the cell says %q, the receipt %q", stated.Reasons, got.Reasons)
	}
	switch a, b := stated.Score, got.Score; {
	case a == nil && b == nil:
	case a == nil:
		s.at(ScoreMismatch, i, "the cell has no score, the receipt says %s %s", b.Source, b.Value)
	case b == nil:
		s.at(ScoreMismatch, i, "the cell says %s %s, the receipt has no score", a.Source, a.Value)
	case *a != *b:
		s.at(ScoreMismatch, i, "the cell says %s %s, the receipt %s %s", a.Source, a.Value, b.Source, b.Value)
	}
	p := &s.statement.Predicate
	if f.agent != p.Agent.Name || f.model != p.Model.Name {
		s.at(ReceiptOtherAgent, i, "the receipt is of agent %q, model %q; the submission of agent %q, model %q", f.agent, f.model, p.Agent.Name, p.Model.Name)
	}
	if f.runner.Key != s.signer.Key {
		s.at(ReceiptOtherRunner, i, "the receipt is signed by %q, the submission by %q", f.runner.Name, s.signer.Name)
	}
}

// root checks the Merkle root over the receipts, if all are there.
func (s *Submission) root() {
	attempts := make([]submission.Attempt, len(s.facts))
	for i := range s.facts {
		if s.statement.Predicate.Grid[i].State.Attested() && !s.facts[i].known {
			return // what is missing was reported
		}
		attempts[i] = s.facts[i].attempt
		attempts[i].State = s.statement.Predicate.Grid[i].State
	}
	if got, want := submission.Root(attempts), s.statement.Subject[0].Digest.SHA256; !bytes.Equal([]byte(hexOf(got)), []byte(want)) {
		s.find(SubmissionInvalid, -1, MemberCOSE, "subject: got root %s, want %s, over the receipts in the order of the grid", want, hexOf(got))
	}
}
