package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

func TestExitCodes(t *testing.T) {
	stranger := newSigner("stranger.example/key")
	cases := []struct {
		name    string
		kit     func(*kit)
		policy  func(*kit) *verify.Policy
		want    result
		verdict string
		note    string
	}{
		{"CLEAN", nil, (*kit).policy, result{verify.ExitClean, ""}, "CLEAN", ""},
		{"DIRTY", func(k *kit) { k.record = cheat }, (*kit).policy, result{verify.ExitDirty, ""}, "DIRTY", ""},
		{"INCONCLUSIVE", func(k *kit) { k.record = trace }, (*kit).policy, result{verify.ExitUndecided, ""}, "INCONCLUSIVE", ""},
		{"RT8 journal open", func(k *kit) { k.open = true }, (*kit).policy, result{verify.ExitUndecided, ""}, "INCONCLUSIVE", ""},
		{"RT28 another key", func(k *kit) {
			k.digest = func(r *fixture.Run) {
				r.Digest = func(salt [16]byte, s [32]byte) [16]byte { s[0] ^= 1; return contraband.RunDigest(salt, s) }
			}
		}, (*kit).policy, result{verify.ExitUndecided, ""}, "INCONCLUSIVE", ""},
		{"no policy", nil, func(*kit) *verify.Policy { return nil }, result{verify.ExitUndecided, ""}, verify.Undecided, "signer unknown"},
		{"no policy, DIRTY", func(k *kit) { k.record = cheat }, func(*kit) *verify.Policy { return nil }, result{verify.ExitUndecided, ""}, verify.Undecided, "signer unknown"},
		{"no owner line", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Owners = nil
			return p
		}, result{verify.ExitUndecided, ""}, verify.Undecided, "sealed by the party being judged"},
		{"no runner line", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Runners = nil
			return p
		}, result{verify.ExitUndecided, ""}, verify.Undecided, "no runner line"},
		{"one key for both roles", func(k *kit) { k.owner = k.runner }, (*kit).policy, result{verify.ExitUndecided, ""}, verify.Undecided, "sealed by the party being judged"},
		{"one key under two names", func(k *kit) { k.owner = namedSigner("bench.example/owner", "evals.example/runner") }, (*kit).policy, result{verify.ExitUndecided, ""}, verify.Undecided, "sealed by the party being judged"},
		{"no evidence", func(k *kit) { k.bundle = func(b *receipt.Bundle) { b.Evidence = nil } }, (*kit).policy, result{verify.ExitUndecided, ""}, verify.Undecided, "no evidence pack"},
		{"no evidence, required", func(k *kit) { k.bundle = func(b *receipt.Bundle) { b.Evidence = nil } }, func(k *kit) *verify.Policy {
			p := k.policy()
			p.FullEvidence = true
			return p
		}, result{verify.ExitInvalid, verify.CheckMembers}, verify.Invalid, ""},
		{"another runner pinned", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Runners = []receipt.PublicKey{stranger.public}
			return p
		}, result{verify.ExitInvalid, verify.CheckRunnerKey}, verify.Invalid, ""},
		{"another owner pinned", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Owners = []receipt.PublicKey{stranger.public}
			return p
		}, result{verify.ExitInvalid, verify.CheckOwnerKey}, verify.Invalid, ""},
		{"roles swapped", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Owners, p.Runners = p.Runners, p.Owners
			return p
		}, result{verify.ExitInvalid, verify.CheckRunnerKey}, verify.Invalid, ""},
		{"log proof of a run that is not logged", func(k *kit) { k.bundle = func(b *receipt.Bundle) { b.LogProof = []byte("x") } }, (*kit).policy, result{verify.ExitInvalid, verify.CheckLogMembers}, verify.Invalid, ""},
		{"compact proof beside the evidence", func(k *kit) { k.bundle = func(b *receipt.Bundle) { b.Proof = []byte("x") } }, (*kit).policy, result{verify.ExitInvalid, verify.CheckMembers}, verify.Invalid, ""},
		{"timestamp that nothing checks", func(k *kit) { k.bundle = func(b *receipt.Bundle) { b.Timestamp = []byte("x") } }, (*kit).policy, result{verify.ExitInvalid, verify.CheckMembers}, verify.Invalid, ""},
		{"two signatures", func(k *kit) { k.two = true }, twoPolicy, result{verify.ExitClean, ""}, "CLEAN", ""},
		{"RT73 second signature stripped", nil, twoPolicy, result{verify.ExitInvalid, verify.CheckSecond}, verify.Invalid, ""},
		{"RT73 second signature by the first key", func(k *kit) { k.two = true; k.second = k.runner }, twoPolicy, result{verify.ExitInvalid, verify.CheckSecond}, verify.Invalid, ""},
		{"second signature by a stranger", func(k *kit) { k.two = true; k.second = stranger }, func(k *kit) *verify.Policy { return k.policy() }, result{verify.ExitInvalid, verify.CheckSecond}, verify.Invalid, ""},
		{"RT70 attacker's key under the trusted name", func(k *kit) { k.runner = namedSigner("evals.example/runner", "attacker") }, func(k *kit) *verify.Policy { return newKit().policy() }, result{verify.ExitInvalid, verify.CheckRunnerKey}, verify.Invalid, ""},
		{"RT70 attacker's owner key under the trusted name", func(k *kit) {
			s := namedSigner("bench.example/owner", "attacker")
			k.sealedBy = &s
		}, (*kit).policy, result{verify.ExitInvalid, verify.CheckOwnerKey}, verify.Invalid, ""},
		{"envelope by another key", func(k *kit) { k.enveloped = &stranger }, (*kit).policy, result{verify.ExitInvalid, verify.CheckEnvelope}, verify.Invalid, ""},
		{"envelope by another key, no policy", func(k *kit) { k.enveloped = &stranger }, func(*kit) *verify.Policy { return nil }, result{verify.ExitInvalid, verify.CheckEnvelope}, verify.Invalid, ""},
		{"sub of task.sealed is another task", func(k *kit) { k.sealedSub = "bench/task-2" }, (*kit).policy, result{verify.ExitInvalid, verify.CheckSealed}, verify.Invalid, ""},
		{"RT71 a stranger's bundle, consistent in itself", func(k *kit) { k.runner = stranger }, func(k *kit) *verify.Policy { return newKit().policy() }, result{verify.ExitInvalid, verify.CheckRunnerKey}, verify.Invalid, ""},
		{"RT81 receipt of another run", func(k *kit) { k.sub = func(string) string { return strings.Repeat("0", 32) } }, (*kit).policy, result{verify.ExitInvalid, verify.CheckSubject}, verify.Invalid, ""},
		{"pinned under another name", nil, func(k *kit) *verify.Policy {
			p := k.policy()
			p.Runners = []receipt.PublicKey{namedSigner("other.example/name", "evals.example/runner").public}
			return p
		}, result{verify.ExitInvalid, verify.CheckSignature}, verify.Invalid, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := newKit()
			if c.kit != nil {
				c.kit(k)
			}
			r := verify.Verify(k.make(t), c.policy(k), now)
			if got := of(r); got != c.want || r.Verdict != c.verdict {
				t.Fatalf("got %v, %s, want %v, %s\n%s", got, r.Verdict, c.want, c.verdict, r.Text("x"))
			}
			if !strings.Contains(strings.Join(r.Notes, "\n"), c.note) {
				t.Errorf("notes %q lack %q", r.Notes, c.note)
			}
		})
	}
}

func twoPolicy(k *kit) *verify.Policy {
	p := k.policy()
	p.Runners = append(p.Runners, newSigner("evals.example/second").public)
	p.SecondSignature = true
	return p
}

// The runner whom the policy pins signs a statement that the evidence does not
// give. Every one is a lie that only deriving again can find.
func TestLyingRunner(t *testing.T) {
	clean := func(s *attest.Statement) {
		s.Predicate.Verdict = attest.Clean
		s.Predicate.Reasons = []attest.Reason{}
		s.Predicate.Matches = attest.Matches{Classes: []attest.ClassCount{}, First: []attest.Match{}, SHA256: hexSum([]byte("[]"))}
	}
	cases := []struct {
		name  string
		kit   func(*kit)
		check string
	}{
		{"RT83 stored CLEAN, evidence DIRTY", func(k *kit) { k.record, k.statement = cheat, clean }, verify.CheckVerdict},
		{"RT84 stored DIRTY, evidence CLEAN", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Verdict = attest.Dirty } }, verify.CheckVerdict},
		{"stored CLEAN, evidence INCONCLUSIVE", func(k *kit) { k.record, k.statement = trace, clean }, verify.CheckVerdict},
		{"verdict of no list", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Verdict = "clean" } }, verify.CheckVerdict},
		{"RT75 subject is not the journal head", func(k *kit) {
			k.statement = func(s *attest.Statement) { s.Subject[0].Digest.SHA256 = strings.Repeat("0", 64) }
		}, verify.CheckSubject},
		{"RT75 subject and journal are another head", func(k *kit) {
			k.statement = func(s *attest.Statement) {
				s.Subject[0].Digest.SHA256 = strings.Repeat("0", 64)
				s.Predicate.Journal.Root = strings.Repeat("0", 64)
			}
		}, verify.CheckSubject},
		{"RT75 subject of another run", func(k *kit) { k.statement = func(s *attest.Statement) { s.Subject[0].Name += "0" } }, verify.CheckSubject},
		{"RT3 smaller size", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Journal.Size-- } }, verify.CheckSubject},
		{"RT12 journal of size 0", func(k *kit) {
			k.pack = func(p *fixture.Pack) { p.Items = nil; p.Rehead(); p.Grow() }
			k.statement = func(s *attest.Statement) { s.Predicate.Journal.Size = 0 }
		}, verify.CheckEvidence},
		{"RT1 a row changed, all signed again", func(k *kit) {
			k.pack = func(p *fixture.Pack) {
				p.Items[2].Row = bytes.Clone(p.Items[2].Row)
				p.Items[2].Row[len(p.Items[2].Row)-1] ^= 1
			}
		}, verify.CheckEvidence},
		{"RT30 entry without its digest", func(k *kit) {
			k.pack = func(p *fixture.Pack) {
				for i := range p.Items {
					if e := p.Items[i].Entry; e != nil && len(e.Digests) > 64 {
						e.Digests = e.Digests[16:]
					}
				}
				p.Grow()
			}
		}, verify.CheckEvidence},
		{"RT31 the tree omits one digest", func(k *kit) {
			k.pack = func(p *fixture.Pack) { p.Trailer.Tree[0] ^= 1 }
		}, verify.CheckEvidence},
		{"RT18 sealed set of another task", func(k *kit) {
			k.start = func(s *journal.Start) { s.Task, s.Seal = "task-2", [32]byte{1} }
		}, verify.CheckBinding},
		{"task name of another task", func(k *kit) { k.start = func(s *journal.Start) { s.Task = "task-2" } }, verify.CheckBinding},
		{"seal of another file", func(k *kit) {
			k.statement = func(s *attest.Statement) { s.Predicate.Seal.SHA256 = strings.Repeat("0", 64) }
		}, verify.CheckSeal},
		{"evidence of another file", func(k *kit) {
			k.statement = func(s *attest.Statement) { s.Predicate.Evidence.SHA256 = strings.Repeat("0", 64) }
		}, verify.CheckEvidenceSum},
		{"RT93 a reason less", func(k *kit) {
			k.record = cheat
			k.statement = func(s *attest.Statement) { s.Predicate.Reasons = s.Predicate.Reasons[1:] }
		}, verify.CheckFields},
		{"RT81 another attempt", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Run.Attempt = 2 } }, verify.CheckFields},
		{"RT81 another model", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Asserted.Model = "model 3" } }, verify.CheckFields},
		{"RT85 evidence level above the evidence", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Evidence.Level = "attested" } }, verify.CheckFields},
		{"observed score without a grade phase", func(k *kit) {
			k.statement = func(s *attest.Statement) { s.Predicate.Score = &attest.Score{Value: "1", Source: attest.ScoreObserved} }
		}, verify.CheckFields},
		{"null for an empty list", func(k *kit) { k.statement = func(s *attest.Statement) { s.Predicate.Reasons = nil } }, verify.CheckFields},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := newKit()
			c.kit(k)
			data := k.make(t)
			want := result{verify.ExitInvalid, c.check}
			if got := of(verify.Verify(data, k.policy(), now)); got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
			// It needs no trust to see that.
			if got := of(verify.Verify(data, nil, now)); got != want {
				t.Fatalf("without a policy: got %v, want %v", got, want)
			}
			k.statement, k.pack, k.start = nil, nil, nil
			if r := verify.Verify(k.make(t), k.policy(), now); r.Verdict == verify.Invalid {
				t.Fatalf("control: %s", r.Text("x"))
			}
		})
	}
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// RT74: the two envelopes carry two statements, each properly signed.
func TestRT74_TwoPayloads(t *testing.T) {
	a, b := newKit(), newKit()
	b.record = cheat
	var other []byte
	b.bundle = func(x *receipt.Bundle) { other = x.Statement }
	b.make(t)
	a.bundle = func(x *receipt.Bundle) { x.Statement = other }
	if got, want := of(verify.Verify(a.make(t), a.policy(), now)), (result{verify.ExitInvalid, verify.CheckEnvelope}); got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
	a.bundle = nil
	if r := verify.Verify(a.make(t), a.policy(), now); r.Exit != verify.ExitClean {
		t.Fatalf("control: %s", r.Text("x"))
	}
}

// RT75: what another predicate type or subject list says, nothing here reads.
func TestRT75_OtherStatements(t *testing.T) {
	for name, change := range map[string]func(*attest.Statement){
		"predicate type": func(s *attest.Statement) { s.PredicateType = "https://slsa.dev/provenance/v1" },
		"type":           func(s *attest.Statement) { s.Type = "https://in-toto.io/Statement/v0.1" },
		"no subject":     func(s *attest.Statement) { s.Subject = []attest.Subject{} },
		"two subjects":   func(s *attest.Statement) { s.Subject = append(s.Subject, s.Subject[0]) },
	} {
		k := newKit()
		k.statement = change
		if got, want := of(verify.Verify(k.make(t), k.policy(), now)), (result{verify.ExitInvalid, verify.CheckStatement}); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestNotABundle(t *testing.T) {
	for _, data := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte{0}, 4096), []byte("{\"verdict\":\"CLEAN\"}")} {
		if got, want := of(verify.Verify(data, newKit().policy(), now)), (result{verify.ExitUnusable, verify.CheckBundle}); got != want {
			t.Errorf("%.20q: got %v, want %v", data, got, want)
		}
	}
}

// Every check is reported in its order, and after a failure nothing is ok.
func TestChecksAreComplete(t *testing.T) {
	k := newKit()
	data := k.make(t)
	page, err := os.ReadFile("../spec/statement.md")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range verify.Verify(data, k.policy(), now).Checks {
		ids = append(ids, c.ID)
		if !bytes.Contains(page, []byte("\n| `"+c.ID+"` |")) {
			t.Errorf("spec/statement.md has no line for check %s", c.ID)
		}
		optional := c.ID == verify.CheckSecond || c.ID == verify.CheckInclusion || c.ID == verify.CheckCompact || c.ID == verify.CheckPeriod || c.ID == verify.CheckFootprint || c.ID == verify.CheckExpect || strings.HasPrefix(c.ID, "log-")
		if c.Status == verify.Failed || c.Status == verify.Open || c.Status == verify.Skipped && !optional {
			t.Errorf("%v", c)
		}
	}
	if len(ids) != 32 {
		t.Errorf("got %d checks", len(ids))
	}
	broken := bytes.Clone(data)
	broken[len(broken)-1] = 1
	r := verify.Verify(broken, k.policy(), now)
	for i, c := range r.Checks {
		if c.ID != ids[i] || i > 0 && c.Status == verify.OK {
			t.Errorf("check %d is %v, want %s, not ok", i, c, ids[i])
		}
	}
	if r.Run != nil || r.Derived != "" || len(r.Why) > 0 {
		t.Errorf("an INVALID report tells of the run: %+v", r)
	}
}

// The result depends on nothing but the three arguments.
func TestVerifyIsPure(t *testing.T) {
	k := newKit()
	k.record = cheat
	data := k.make(t)
	kept := bytes.Clone(data)
	a, b := verify.Verify(data, k.policy(), now), verify.Verify(data, k.policy(), now)
	if !bytes.Equal(data, kept) {
		t.Fatal("Verify changed the bundle")
	}
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) || a.Text("f") != b.Text("f") {
		t.Fatal("two reports differ")
	}
	later := verify.Verify(data, k.policy(), now.Add(time.Hour))
	if later.Exit != a.Exit || later.CheckedAt.Equal(a.CheckedAt) {
		t.Fatal("the time is not the caller's")
	}
}

func TestText(t *testing.T) {
	k := newKit()
	k.record = cheat
	k.score = &attest.Score{Value: "1.0", Source: attest.ScoreAsserted}
	r := verify.Verify(k.make(t), k.policy(), now)
	text := r.Text("cheat.cleanrun")
	t.Log("\n" + text)
	for _, l := range strings.Split(text, "\n") {
		if len(l) > 120 {
			t.Errorf("line of %d characters: %s", len(l), l)
		}
	}
	text += strings.Join(strings.Fields(text), " ") // lists are wrapped
	for _, want := range []string{
		"DIRTY  bench/task-1  trial 1, attempt 1  score 1.0 (asserted), counts as 0  agent agent 1.0\n",
		" run by      evals.example/runner   (pinned runner)\n",
		" sealed by   bench.example/owner   (pinned owner)\n",
		"a whole sealed object [whole-object]\n",
		"12 of at most 64 fragments of the sealed answers (limit 3) [fragments]\n",
		"[out-of-scope]\n",
		" score       asserted 1.0, counts as 0\n",
		" checked     full, without the key: ",
		"stdin (opaque model channel, 1,000 bytes)",
		"2 items of a hidden test, too weak to seal",
		"the choice of /usr/local/go as toolchain",
		" assurance   L0: ",
		" next        cleanrun explain cheat.cleanrun ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q", want)
		}
	}
	k.record, k.score = honest, nil
	if text := verify.Verify(k.make(t), nil, now).Text("x"); !strings.HasPrefix(text, "UNDECIDED, would be CLEAN  bench/task-1") || !strings.Contains(text, "signer unknown") {
		t.Errorf("got %s", text)
	}
	data := k.make(t)
	data[600] ^= 1
	if text := verify.Verify(data, k.policy(), now).Text("x"); !strings.HasPrefix(text, "INVALID\n failed      ") {
		t.Errorf("got %s", text)
	}
}

// A name from a bundle cannot act on a terminal.
func TestTextIsPrintable(t *testing.T) {
	k := newKit()
	k.statement = func(s *attest.Statement) { s.Predicate.Asserted.Agent = "\x1b[2J\u202eevil\n CLEAN" }
	text := verify.Verify(k.make(t), k.policy(), now).Text("x")
	if strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, "\n CLEAN") {
		t.Errorf("got %q", text)
	}
}

func TestScoreCounts(t *testing.T) {
	for _, c := range []struct {
		record func(*fixture.Run)
		want   string
	}{{honest, "0.75"}, {cheat, "0"}, {trace, "unscored"}} {
		k := newKit()
		k.record, k.score = c.record, &attest.Score{Value: "0.75", Source: attest.ScoreAsserted}
		if r := verify.Verify(k.make(t), k.policy(), now); r.CountsAs != c.want {
			t.Errorf("got %q, want %q", r.CountsAs, c.want)
		}
	}
}
