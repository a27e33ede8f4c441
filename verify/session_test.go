package verify_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// sameAsVerify holds a session's result to that of Verify.
func sameAsVerify(t testing.TB, s *verify.Session, name string, bundle []byte, policy *verify.Policy) {
	t.Helper()
	want, got := verify.Verify(bundle, policy, now), s.Check(bundle)
	if got.Exit != want.Exit || got.Verdict != want.Verdict || (got.Failed == nil) != (want.FailedCheck() == nil) {
		t.Fatalf("%s: got exit %d, %s, %+v; Verify says %d, %s, %+v", name, got.Exit, got.Verdict, got.Failed, want.Exit, want.Verdict, want.FailedCheck())
	}
	if got.Failed != nil && *got.Failed != *want.FailedCheck() {
		t.Fatalf("%s: got %+v, Verify says %+v", name, *got.Failed, *want.FailedCheck())
	}
	if got.Failed != nil && (got.Statement != nil || got.Receipt != nil) {
		t.Fatalf("%s: a statement of what does not verify", name)
	}
}

// A session that has read the sealed sets before says what Verify says of every
// vector.
func TestSessionVectors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(vectorDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []bundleVector
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	policies, sessions := map[string]*verify.Policy{"": nil}, map[string]*verify.Session{}
	checked := 0
	for range 2 { // the second time everything that can be known is known
		for _, v := range list {
			if _, ok := policies[v.Policy]; !ok {
				text, err := os.ReadFile(filepath.Join(vectorDir, v.Policy))
				if err != nil {
					t.Fatal(err)
				}
				if policies[v.Policy], err = verify.ParsePolicy(text); err != nil {
					t.Fatal(err)
				}
			}
			if sessions[v.Policy] == nil {
				sessions[v.Policy] = verify.NewSession(policies[v.Policy], now)
			}
			bundle, err := os.ReadFile(filepath.Join(vectorDir, v.File))
			if err != nil {
				t.Fatal(err)
			}
			sameAsVerify(t, sessions[v.Policy], v.File, bundle, policies[v.Policy])
			checked++
		}
	}
	if checked < 40 {
		t.Errorf("got %d checks", checked)
	}
}

// Any changed byte is found by a session that knows the good bundle.
func TestSessionTamper(t *testing.T) {
	k := newKit()
	k.record, k.score = cheat, &attest.Score{Value: "0.5", Source: attest.ScoreAsserted}
	policy, data := k.policy(), k.make(t)
	s := verify.NewSession(policy, now)
	if r := s.Check(data); r.Exit != verify.ExitDirty || r.Statement == nil || r.Statement.Predicate.Score.Value != "0.5" {
		t.Fatalf("control: got %+v", r)
	}
	step := 7
	if testing.Short() {
		step = 101
	}
	for at := 0; at < len(data); at += step {
		broken := bytes.Clone(data)
		broken[at] ^= 1 << (at % 8)
		if r := s.Check(broken); r.Exit != verify.ExitInvalid && r.Exit != verify.ExitUnusable {
			t.Fatalf("byte %d: got exit %d", at, r.Exit)
		}
	}
	sameAsVerify(t, s, "after", data, policy)
}

// Whoever may sign cannot say another thing than the evidence, whatever stands in
// the statement beside it.
func TestSessionStatement(t *testing.T) {
	for name, edit := range map[string]func(*attest.Statement){
		"control":         nil,
		"verdict":         func(s *attest.Statement) { s.Predicate.Verdict = attest.Clean },
		"agent":           func(s *attest.Statement) { s.Predicate.Asserted.Agent = `a","score":{"source":"asserted","value":"1"` },
		"a score":         func(s *attest.Statement) { s.Predicate.Score = &attest.Score{Value: "1", Source: attest.ScoreAsserted} },
		"an observed one": func(s *attest.Statement) { s.Predicate.Score = &attest.Score{Value: "1", Source: attest.ScoreObserved} },
		"a reason less":   func(s *attest.Statement) { s.Predicate.Reasons = s.Predicate.Reasons[1:] },
	} {
		k := newKit()
		k.record, k.statement = cheat, edit
		policy := k.policy()
		s := verify.NewSession(policy, now)
		sameAsVerify(t, s, name, k.make(t), policy)
	}
}

// Several goroutines share a session.
func TestSessionConcurrent(t *testing.T) {
	k := newKit()
	policy, good := k.policy(), k.make(t)
	k.record = cheat
	bad := k.make(t)
	s := verify.NewSession(policy, now)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if a, b := s.Check(good), s.Check(bad); a.Exit != verify.ExitClean || b.Exit != verify.ExitDirty {
					t.Errorf("got %d and %d, want 0 and 4", a.Exit, b.Exit)
				}
			}
		})
	}
	wg.Wait()
}
