package verify

import (
	"crypto/sha256"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// A Session verifies many bundles under one policy. It makes the checks of
// Verify on each, and reads a sealed set that many bundles share once. Its
// methods may be called by several goroutines.
type Session struct {
	policy *Policy
	now    time.Time
}

// NewSession starts a session. policy and now are those of Verify.
func NewSession(policy *Policy, now time.Time) *Session {
	return &Session{policy: policy, now: now}
}

// A Result is what Session.Check found out about one bundle. After a failed
// check only Exit, Verdict and Failed are set.
type Result struct {
	Verdict string // as in Report
	Exit    int    // as in Report
	Failed  *Check // the check that failed, nil if none did
	Notes   []string

	// Statement is the statement as derived again, which the runner's is equal to;
	// nil if there is no evidence to derive it from.
	Statement *attest.Statement
	Receipt   []byte // the member receipt.cose
	Runner    Signatory
	Owner     Signatory
	Seal      Seal
}

// A Signatory is the key that a signed file names.
type Signatory struct {
	Name   string   // as the file says
	Key    [32]byte // thumbprint
	Pinned bool     // the policy pins this key, and it signed
}

// Seal is the seal of the benchmark that a sealed set is part of.
type Seal struct {
	Head   [32]byte         // SHA-256 of the signed head; zero if the set was sealed by itself
	Claims *contraband.Head // what the head says, under which the set was proved to be; nil if it was sealed by itself
}

// Check verifies one bundle as Verify does.
func (s *Session) Check(bundle []byte) *Result {
	v := newVerifier(s.policy, s.now)
	v.run(bundle)
	v.decide()
	r := &Result{Verdict: v.report.Verdict, Exit: v.report.Exit, Failed: v.report.FailedCheck(), Notes: v.report.Notes}
	if v.failed {
		return r
	}
	r.Statement, r.Receipt = v.composed, v.bundle.Receipt
	r.Runner = signatory(v.receipt, v.runner != nil)
	r.Owner = signatory(v.sealed.Signed, v.owner != nil)
	r.Seal = sealOf(v.sealed, v.head)
	return r
}

func signatory(u *receipt.Unverified, pinned bool) Signatory {
	said := u.Unauthenticated()
	return Signatory{said.Issuer, said.Kid, pinned}
}

// sealOf names the signed head of a part.
func sealOf(sealed *receipt.Sealed, head *contraband.Head) Seal {
	if sealed.Part == nil {
		return Seal{}
	}
	return Seal{sha256.Sum256(sealed.Part.Head), head}
}
