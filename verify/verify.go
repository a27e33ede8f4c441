// Package verify checks a *.cleanrun bundle: bytes, a policy and a time in, a
// report out. It has no key, no network, no clock and no file system.
//
// Limits first. A verified CLEAN means that what the recorder committed to holds
// no sealed item and nothing out of scope, if the runner derived the digests
// honestly, which revealing the task key can check. It does not mean that the
// recorder saw everything: that rests on who ran it. Timestamps are not checked
// by this version, and a bundle that brings one is refused rather than half
// checked. The page "Checks" in spec/statement.md lists what each check guards.
//
// The verdict that the bundle states is read only to compare it: Verify derives
// it again from the evidence with the function that the attester used.
package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Verify checks a bundle. Without a policy (nil) it makes every check that needs
// no trust and decides nothing: exit 3. now is put into the report, and a
// checkpoint of a later time is not believed; nothing expires.
func Verify(bundle []byte, policy *Policy, now time.Time) *Report {
	v := newVerifier(policy, now)
	v.run(bundle)
	return v.finish()
}

func newVerifier(policy *Policy, now time.Time) *verifier {
	return &verifier{
		policy: policy,
		report: &Report{CheckedAt: now.UTC(), Notes: []string{}, Why: []Why{}, Phases: []attest.PhaseClaim{}, Attested: []string{}, Asserted: []string{}, Trusted: []string{}, NotCovered: []string{}},
	}
}

// A verifier walks the checks in order. Its fields are filled by the checks, so
// what a field holds has passed all checks up to there.
type verifier struct {
	policy *Policy
	report *Report
	failed bool
	open   *Check // the first check that could not be decided
	seals  *seals // of a session, else nil
	known  *seal  // task.sealed, if the session knows it
	whole  bool   // the statement is compared as bytes with the derived one, and not read

	bundle    *receipt.Bundle
	receipt   *receipt.Unverified
	runner    *receipt.Signed // nil if no policy pins a runner
	envelope  *receipt.UnverifiedEnvelope
	statement *attest.Statement
	sealed    *receipt.Sealed
	head      *contraband.Head // nil if the set is signed by itself
	set       *contraband.Set
	owner     *receipt.Signed // nil if no policy pins an owner
	sealSum   [32]byte
	evidence  *attest.Evidence
	sum       [32]byte
	derived   *attest.Derivation
	composed  *attest.Statement
	log       *logged // nil if the bundle is not logged
	killed    bool    // registered in a log, and the journal is open
	unproved  bool    // registered in a log, and the bundle holds no proof of it
}

// run makes the checks. Each is a method that returns what it found out, a skipped
// or an undecided with a reason, or an error. A check that is undecided does not
// end them: a later one may find that something is wrong.
func (v *verifier) run(data []byte) {
	for _, c := range []struct {
		id string
		do func() (string, error)
	}{
		{CheckBundle, func() (string, error) { return v.checkBundle(data) }},
		{CheckMembers, v.checkMembers},
		{CheckReceipt, v.checkReceipt},
		{CheckRunnerKey, v.checkRunnerKey},
		{CheckSignature, v.checkSignature},
		{CheckEnvelope, v.checkEnvelope},
		{CheckEnvelopeSig, v.checkEnvelopeSig},
		{CheckSecond, v.checkSecond},
		{CheckStatement, v.checkStatement},
		{CheckSealed, v.checkSealed},
		{CheckOwnerKey, v.checkOwnerKey},
		{CheckOwnerSig, v.checkOwnerSig},
		{CheckInclusion, v.checkInclusion},
		{CheckPeriod, v.checkPeriod},
		{CheckSeal, v.checkSeal},
		{CheckEvidenceSum, v.checkEvidenceSum},
		{CheckEvidence, v.checkEvidence},
		{CheckCompact, v.checkCompact},
		{CheckBinding, v.checkBinding},
		{CheckSubject, v.checkSubject},
		{CheckVerdict, v.checkVerdict},
		{CheckFields, v.checkFields},
		{CheckFootprint, v.checkFootprint},
		{CheckExpect, v.checkExpect},
		{CheckLogMembers, v.checkLogMembers},
		{CheckLogCheckpoints, v.checkLogCheckpoints},
		{CheckLogInclusion, v.checkLogInclusion},
		{CheckLogEntries, v.checkLogEntries},
		{CheckLogOrder, v.checkLogOrder},
		{CheckLogWitnesses, v.checkLogWitnesses},
		{CheckLogTimes, v.checkLogTimes},
		{CheckLogInterval, v.checkLogInterval},
	} {
		check := Check{ID: c.id, Status: Skipped, Detail: "an earlier check failed"}
		if !v.failed {
			detail, err := c.do()
			var unsure *undecided
			switch skip := skipped(""); {
			case errors.As(err, &skip):
				check.Detail = string(skip)
			case errors.As(err, &unsure):
				check.Status, check.Detail, check.Hint = Open, unsure.why, unsure.hint
				if v.open == nil {
					v.open = &check
				}
			case err != nil:
				check.Status, check.Detail, check.Hint = Failed, err.Error(), hint(err)
				v.failed = true
				v.report.Exit = ExitInvalid
				if errors.Is(err, receipt.ErrNotBundle) {
					v.report.Exit = ExitUnusable
				}
			default:
				check.Status, check.Detail = OK, detail
			}
		}
		v.report.Checks = append(v.report.Checks, check)
	}
}

// skipped is why a check was not made though nothing is wrong.
type skipped string

func (s skipped) Error() string { return string(s) }

// undecided is why a check says neither that something holds nor that it is wrong.
type undecided struct{ why, hint string }

func (u *undecided) Error() string { return u.why }

// hint is the next step that an error names.
func hint(err error) string {
	var r *receipt.Error
	var refused *attest.Refusal
	var logged *proof.Error
	var hinted *hinted
	var proved *compact.Error
	switch {
	case errors.As(err, &proved) && proved.Rule == compact.RuleWhole:
		return "ask the runner for the bundle with its evidence"
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &logged):
		return logged.Hint
	case errors.As(err, &r):
		return r.Hint
	case errors.As(err, &refused):
		return refused.Hint
	case errors.Is(err, receipt.ErrNotBundle):
		return "give a *.cleanrun file that cleanrun attest wrote"
	}
	return ""
}

// note says why the result cannot be CLEAN or DIRTY for this reader.
func (v *verifier) note(format string, args ...any) {
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) checkBundle(data []byte) (string, error) {
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return "", err
	}
	v.bundle = b
	return fmt.Sprintf("%d bytes, the only frame of these members", len(data)), nil
}

// checkMembers refuses members that nothing here would look into: a byte that no
// check reads must not stand in a verified bundle.
func (v *verifier) checkMembers() (string, error) {
	if v.bundle.Timestamp != nil {
		return "", fmt.Errorf("got member %s, want none: this version of cleanrun does not check it", receipt.MemberTimestamp)
	}
	if err := v.checkOneOf(); err != nil {
		return "", err
	}
	return "no member beyond what is checked", nil
}

// checkStatement parses what the receipt carries. Both envelopes carry it, and
// with a pinned runner it is signed.
func (v *verifier) checkStatement() (string, error) {
	if v.whole = v.whole && v.bundle.Evidence != nil; v.whole {
		return "compared as a whole with the derived one", nil
	}
	s, err := attest.ParseStatement(v.receipt.Unauthenticated().Payload)
	if err != nil {
		return "", err
	}
	v.statement = s
	return attest.PredicateType, nil
}

func (v *verifier) checkSeal() (string, error) {
	if v.whole {
		return "", nil
	}
	return sameDigest("seal.sha256", v.statement.Predicate.Seal.SHA256, v.sealSum)
}

func (v *verifier) checkEvidenceSum() (string, error) {
	if v.bundle.Evidence == nil {
		if v.bundle.Proof == nil {
			v.note("the bundle holds no evidence pack: nothing can be derived again")
		}
		return "", skipped("no " + string(receipt.MemberEvidence))
	}
	v.sum = sha256.Sum256(v.bundle.Evidence)
	if v.whole {
		return "", nil
	}
	return sameDigest("evidence.sha256", v.statement.Predicate.Evidence.SHA256, v.sum)
}

func sameDigest(name, stated string, sum [32]byte) (string, error) {
	if want := hex.EncodeToString(sum[:]); stated != want {
		return "", fmt.Errorf("%s: got %s, want %s, the SHA-256 of the member", name, show(stated), want)
	}
	return stated, nil
}

const noEvidence = skipped("no evidence to derive from")

func (v *verifier) checkEvidence() (string, error) {
	if v.bundle.Evidence == nil {
		return "", noEvidence
	}
	ev, err := attest.ReadEvidence(v.bundle.Evidence)
	if err != nil {
		return "", err
	}
	v.evidence = ev
	return fmt.Sprintf("%d rows, %d digests", ev.Size(), ev.Digests()), nil
}

// checkSubject compares the head and the run that the statement names, and the
// sub claims of both signed files, with the rows.
func (v *verifier) checkSubject() (string, error) {
	if v.evidence == nil {
		return "", noEvidence
	}
	run := v.evidence.Start().Run
	if got, want := v.receipt.Unauthenticated().Subject, hex.EncodeToString(run[:]); got != want {
		return "", fmt.Errorf("sub of the receipt: got %s, want run %s", show(got), want)
	}
	if err := v.derive(); err != nil {
		return "", err
	}
	claimed := claimedScore(v)
	if v.derived.Observed != nil || claimed != nil && claimed.Source != attest.ScoreAsserted {
		claimed = nil // what grading gave is in the rows, or nothing is
	}
	s, err := v.compose(claimed)
	if err != nil {
		return "", err
	}
	v.composed = s
	if v.whole {
		return s.Subject[0].Name, v.compareWhole()
	}
	if err := compare(subjectFields, v.statement, s); err != nil {
		return "", err
	}
	return s.Subject[0].Name, nil
}

func (v *verifier) checkBinding() (string, error) {
	if v.evidence == nil {
		return "", noEvidence
	}
	if err := attest.Bind(v.set, v.sealSum, v.evidence); err != nil {
		return "", err
	}
	return "benchmark, task, commitment, baseline, scope, channels and phases as sealed", nil
}

func (v *verifier) checkVerdict() (string, error) {
	if v.evidence == nil {
		return "", noEvidence
	}
	if err := compare(verdictFields, v.statement, v.composed); err != nil {
		return "", err
	}
	return string(v.derived.Verdict) + ", derived again", nil
}

func (v *verifier) checkFields() (string, error) {
	if v.evidence == nil {
		return "", noEvidence
	}
	if err := compare(restFields, v.statement, v.composed); err != nil {
		return "", err
	}
	return "every field as derived", nil
}
