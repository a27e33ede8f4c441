package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// Trust is by the bytes of pinned keys. A key id in a file only chooses which
// pinned key must have signed; a name in a file is shown as the file's own claim.

func (v *verifier) checkReceipt() (string, error) {
	u, err := receipt.ParseSign1(receipt.KindReceipt, v.bundle.Receipt)
	if err != nil {
		return "", err
	}
	v.receipt = u
	said := u.Unauthenticated()
	v.report.Runner = party(said)
	return "key " + v.report.Runner.Fingerprint, nil
}

func party(said receipt.Unauthenticated) *Party {
	return &Party{Name: said.Issuer, Fingerprint: receipt.Fingerprint(said.Kid)}
}

func (v *verifier) checkRunnerKey() (string, error) {
	if v.policy == nil || len(v.policy.Runners) == 0 {
		return "", v.unpinned("runner")
	}
	key, err := v.pinnedFor("runner", v.policy.Runners, v.receipt.Unauthenticated())
	if err != nil {
		return "", err
	}
	return key.Name(), nil
}

// unpinned notes that a role has no key to check against.
func (v *verifier) unpinned(role string) error {
	if v.policy == nil {
		return skipped("no policy: signer unknown")
	}
	v.note("the policy has no %s line: who signed as %s is unknown", role, role)
	return skipped("no " + role + " line in the policy")
}

func (v *verifier) pinnedFor(role string, keys []receipt.PublicKey, said receipt.Unauthenticated) (receipt.PublicKey, error) {
	key, ok := pinned(keys, said.Kid)
	if !ok {
		return key, &receipt.Error{
			Object: role + " key", Stage: receipt.StageKid,
			Got:  fmt.Sprintf("%s, which calls itself %q", receipt.Fingerprint(said.Kid), said.Issuer),
			Want: fmt.Sprintf("one of the %d %s keys of the policy", len(keys), role),
			Hint: fmt.Sprintf("if this %s is to be trusted, ask for its policy line over another channel", role),
		}
	}
	return key, nil
}

func (v *verifier) checkSignature() (string, error) {
	key, ok := v.runnerKey()
	if !ok {
		return "", skipped("no pinned runner key")
	}
	s, err := v.receipt.Verify(key)
	if err != nil {
		return "", err
	}
	v.runner = s
	v.report.Runner.Pinned = true
	return key.Alg().String() + " by " + key.Name(), nil
}

// runnerKey is the pinned key that must have signed the receipt.
func (v *verifier) runnerKey() (receipt.PublicKey, bool) {
	if v.policy == nil {
		return receipt.PublicKey{}, false
	}
	return pinned(v.policy.Runners, v.receipt.Unauthenticated().Kid)
}

func (v *verifier) checkEnvelope() (string, error) {
	e, err := receipt.ParseDSSE(v.bundle.Statement)
	if err != nil {
		return "", err
	}
	v.envelope = e
	said, main := e.Unauthenticated(), v.receipt.Unauthenticated()
	if err := receipt.SamePayload(main.Payload, said.Payload); err != nil {
		return "", err
	}
	if said.Kid != main.Kid {
		return "", fmt.Errorf("keyid of the envelope: got %s, want %s, the key of the receipt", receipt.Fingerprint(said.Kid), receipt.Fingerprint(main.Kid))
	}
	return "same payload and key as the receipt", nil
}

func (v *verifier) checkEnvelopeSig() (string, error) {
	key, ok := v.runnerKey()
	if !ok {
		return "", skipped("no pinned runner key")
	}
	if _, err := v.envelope.Verify(key); err != nil {
		return "", err
	}
	return "by " + key.Name(), nil
}

// checkSecond checks receipt2.cose if it is there, and demands it if the policy
// does: a stripped signature must not look like one that was never asked for.
func (v *verifier) checkSecond() (string, error) {
	wanted := v.policy != nil && v.policy.SecondSignature
	if v.bundle.Receipt2 == nil {
		if wanted {
			return "", fmt.Errorf("got no %s, want one: the policy says require %s", receipt.MemberReceipt2, requireSecond)
		}
		return "", skipped("no " + string(receipt.MemberReceipt2) + ", and none is required")
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, v.bundle.Receipt2)
	if err != nil {
		return "", err
	}
	said := u.Unauthenticated()
	v.report.Second = party(said)
	if err := receipt.SamePayload(v.receipt.Unauthenticated().Payload, said.Payload); err != nil {
		return "", err
	}
	if v.runner == nil {
		return "", skipped("no pinned runner key; its payload is the receipt's")
	}
	key, err := v.pinnedFor("runner", v.policy.Runners, said)
	if err != nil {
		return "", err
	}
	if _, err := u.VerifySecond(v.runner, key); err != nil {
		return "", err
	}
	v.report.Second.Pinned = true
	return "by " + key.Name(), nil
}

// checkSealed reads task.sealed: a set that the owner signed by itself, or a part
// of a benchmark's seal.
func (v *verifier) checkSealed() (string, error) {
	v.sealSum = sha256.Sum256(v.bundle.Sealed)
	known, file := v.seals.get(v.sealSum, v.bundle.Sealed)
	if v.known = known; known != nil {
		v.sealed, v.set, v.head = known.sealed, known.set, known.head
		return "read before in this session", nil
	}
	sealed, err := receipt.ParseSealed(file)
	if err != nil {
		return "", err
	}
	said := sealed.Signed.Unauthenticated()
	set, err := contraband.ParseSet(sealed.Set())
	if err != nil {
		return "", err
	}
	want, detail := set.Benchmark+"/"+set.Task, fmt.Sprintf("%d groups", len(set.Groups))
	if p := sealed.Part; p != nil {
		if v.head, err = contraband.ParseHead(said.Payload); err != nil {
			return "", err
		}
		want = v.head.Benchmark
		_, public := v.head.Public()
		v.report.Benchmark = &Benchmark{Name: v.head.Benchmark, Period: v.head.Period, Revision: v.head.Revision, Tasks: v.head.Tasks,
			Weak: v.head.Weak, Root: hex.EncodeToString(v.head.Root[:]), Index: p.Index, Public: public}
		detail += fmt.Sprintf(", part %d of a benchmark of %d tasks", p.Index, v.head.Tasks)
	}
	if said.Subject != want {
		return "", fmt.Errorf("sub of the sealed set: got %s, want %s", show(said.Subject), show(want))
	}
	v.sealed, v.set = sealed, set
	v.report.Owner = party(said)
	return detail, nil
}

// checkInclusion holds the set to the root that the owner signed: what stands in
// a part beside the head is covered by nothing else.
func (v *verifier) checkInclusion() (string, error) {
	p := v.sealed.Part
	if p == nil {
		return "", skipped("the set is signed by itself")
	}
	if v.known != nil {
		return "checked before in this session", nil
	}
	if err := v.head.Includes(v.set, p.Set, p.Index, p.Path); err != nil {
		return "", err
	}
	return fmt.Sprintf("set %d of %d under the owner's root", p.Index, v.head.Tasks), nil
}

// checkPeriod compares the key period. An old period's key may be public or in the
// wrong hands: what was judged under it says nothing of today.
func (v *verifier) checkPeriod() (string, error) {
	if v.policy == nil || v.policy.Period == "" {
		return "", skipped("no key period is required")
	}
	if got, want := v.set.Period, v.policy.Period; got != want {
		return "", &undecided{
			fmt.Sprintf("period of the sealed set: got %q, want %q, as the policy requires: it is expired or superseded", got, want),
			"ask for a run under the seal of that period",
		}
	}
	return v.set.Period, nil
}

func (v *verifier) checkOwnerKey() (string, error) {
	if v.policy == nil || len(v.policy.Owners) == 0 {
		return "", v.unpinned("owner")
	}
	key, err := v.pinnedFor("owner", v.policy.Owners, v.sealed.Signed.Unauthenticated())
	if err != nil {
		return "", err
	}
	return key.Name(), nil
}

func (v *verifier) checkOwnerSig() (string, error) {
	if v.policy == nil || len(v.policy.Owners) == 0 {
		return "", skipped("no pinned owner key")
	}
	key, err := v.pinnedFor("owner", v.policy.Owners, v.sealed.Signed.Unauthenticated())
	if err != nil {
		return "", err
	}
	if v.known != nil {
		v.owner = v.known.owner
		return "checked before in this session", nil
	}
	s, err := v.sealed.Signed.Verify(key)
	if err != nil {
		return "", err
	}
	v.owner = s
	v.report.Owner.Pinned = true
	return key.Alg().String() + " by " + key.Name(), nil
}

// selfSealed tells that one party both judged and was judged.
func (v *verifier) selfSealed() bool {
	return v.runner != nil && v.owner != nil && v.runner.Key().SameKey(v.owner.Key())
}
