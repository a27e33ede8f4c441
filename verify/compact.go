package verify

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// How much of a bundle was derived again.
const (
	RederivedFull    = "full"    // everything, from all rows and digests
	RederivedCompact = "compact" // from a compact proof: Report.Trusted lists the rest
)

// levels is how the text report says it.
var levels = map[string]string{RederivedFull: "full, without the key", RederivedCompact: "compact (aggregation trusted), without the key"}

func (v *verifier) rederived() string {
	if v.bundle.Evidence == nil {
		return RederivedCompact
	}
	return RederivedFull
}

// checkOneOf refuses a bundle with both evidence and compact proof, since one of
// them would be read by nobody, and one without the pack where the policy demands
// it.
func (v *verifier) checkOneOf() error {
	full, proof := v.bundle.Evidence != nil, v.bundle.Proof != nil
	switch {
	case full && proof:
		return fmt.Errorf("got %s and %s, want one of them", receipt.MemberEvidence, receipt.MemberProof)
	case full || v.policy == nil || !v.policy.FullEvidence:
		return nil
	case proof:
		return fmt.Errorf("got %s in place of %s, want the evidence: the policy says require %s, and a compact proof leaves the aggregation to the runner's word",
			receipt.MemberProof, receipt.MemberEvidence, requireFull)
	}
	return fmt.Errorf("got no %s, want it: the policy says require %s", receipt.MemberEvidence, requireFull)
}

// checkCompact reads the compact proof and holds it to the statement.
func (v *verifier) checkCompact() (string, error) {
	switch {
	case v.bundle.Evidence != nil:
		return "", skipped("the evidence itself is there")
	case v.bundle.Proof == nil:
		return "", noEvidence
	}
	p, err := compact.Parse(v.bundle.Proof)
	if err != nil {
		return "", err
	}
	ev, err := p.Check(v.set, &v.statement.Predicate)
	if err != nil {
		return "", err
	}
	v.evidence = ev
	return fmt.Sprintf("%d of %d rows, %d buckets of the tree", len(p.Rows), ev.Size(), len(p.Buckets)), nil
}

// derive derives the verdict from what the bundle holds.
func (v *verifier) derive() error {
	if v.bundle.Evidence != nil {
		v.derived = attest.Derive(v.set, v.evidence)
		return nil
	}
	d, err := attest.DeriveShown(v.set, v.evidence, &v.statement.Predicate)
	if err != nil {
		return &compact.Error{Rule: compact.RuleAtOdds, Cause: err}
	}
	v.derived = d
	return nil
}

func (v *verifier) compose(claimed *attest.Score) (*attest.Statement, error) {
	if v.bundle.Evidence != nil {
		return attest.Compose(v.set, v.sealSum, v.evidence, v.sum, v.derived, claimed)
	}
	return attest.ComposeShown(v.set, v.sealSum, v.evidence, &v.statement.Predicate, v.derived, claimed)
}

// trusted lists what a compact proof leaves to the runner's word. spec/compact.md,
// "What is re-derived".
func (v *verifier) trusted() {
	if v.bundle.Evidence != nil {
		return
	}
	r := v.report
	r.Trusted = append(r.Trusted,
		"aggregation: that the tree holds every digest of every event, at the first event that has it",
		"that no event but those shown is out of scope, opaque, cut short, unreadable, unstable, lost or killed, "+
			"holds a sealed item again, or is of grading, reward or guarded files",
		"that the events keep the rules of a journal, scope among them",
		"sums of events and bytes")
	if p := v.evidence.Start().Phases; p != nil && len(p.Grade) > 0 {
		r.Trusted = append(r.Trusted, "what grading opened")
	}
}
