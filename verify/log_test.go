package verify_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// loggedKit makes an honest logged run: three witnesses, two CHECKPOINTs, entries
// of others between.
func loggedKit() *kit {
	k := newKit()
	k.logging = &fixture.Logging{Log: fixture.NewLog("log.example/1", 3), Owner: k.owner, Runner: k.runner, Heads: []uint64{4, 6}, Between: 2}
	return k
}

// logPolicy pins the kit's keys and its log, with a quorum of all witnesses.
func (k *kit) logPolicy(t testing.TB, lines ...string) *verify.Policy {
	t.Helper()
	return k.quorumPolicy(t, len(k.logging.Log.Witnesses), lines...)
}

// quorumPolicy is logPolicy with a quorum of any number of witnesses.
func (k *kit) quorumPolicy(t testing.TB, quorum int, lines ...string) *verify.Policy {
	t.Helper()
	return parsePolicy(t, append(k.keyLines(), k.logging.Log.PolicyLines(quorum)+strings.Join(lines, "\n"))...)
}

func (k *kit) keyLines() []string {
	return []string{"owner " + k.owner.public.String(), "runner " + k.runner.public.String()}
}

func parsePolicy(t testing.TB, lines ...string) *verify.Policy {
	t.Helper()
	p, err := verify.ParsePolicy([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A logCase breaks one thing of a logged run.
type logCase struct {
	name   string
	kit    func(*kit)
	policy func(testing.TB, *kit) *verify.Policy // logPolicy if nil
	exit   int
	check  string // that fails or is undecided; "" for none
	says   string // in its detail
	level  string // L0 if ""
}

// try makes the bundle and checks what is said of it, by Verify and by a session.
func (c logCase) try(t *testing.T) {
	t.Helper()
	k := loggedKit()
	if c.kit != nil {
		c.kit(k)
	}
	data := k.make(t)
	pin := c.policy
	if pin == nil {
		pin = func(t testing.TB, k *kit) *verify.Policy { return k.logPolicy(t) }
	}
	policy := pin(t, k)
	r := verify.Verify(data, policy, now)
	var got verify.Check
	for _, x := range r.Checks {
		if x.Status == verify.Failed || x.Status == verify.Open && got.ID == "" {
			got = x
		}
	}
	level := ""
	if r.Assurance != nil && r.Assurance.Level == verify.L1 {
		level = verify.L1
	}
	if r.Exit != c.exit || got.ID != c.check || !strings.Contains(got.Detail, c.says) || level != c.level {
		t.Fatalf("got exit %d, %+v, %s, want exit %d by %q that says %q, %s\n%s", r.Exit, got, level, c.exit, c.check, c.says, c.level, r.Text("x"))
	}
	if c.check != "" && (got.Status == verify.Failed) != (c.exit == verify.ExitInvalid) {
		t.Errorf("got %+v with exit %d", got, c.exit)
	}
	if c.exit == verify.ExitUndecided && c.check != "" && (r.Verdict != verify.Undecided || got.Hint == "" || !strings.Contains(strings.Join(r.Notes, "\n"), got.Detail)) {
		t.Errorf("got %s, %q, %+v", r.Verdict, r.Notes, got)
	}
	sameAsVerify(t, verify.NewSession(policy, now), c.name, data, policy)
}

// tryAll runs cases after the positive control that they differ from in one thing.
func tryAll(t *testing.T, cases ...logCase) {
	t.Helper()
	for _, c := range append([]logCase{{name: "control", level: verify.L1}}, cases...) {
		t.Run(c.name, c.try)
	}
}

const (
	invalid = verify.ExitInvalid
	unsure  = verify.ExitUndecided
)

func TestAssuranceL1(t *testing.T) {
	tryAll(t,
		logCase{name: "a DIRTY run", kit: func(k *kit) { k.record = cheat }, exit: verify.ExitDirty, level: verify.L1},
		logCase{name: "an INCONCLUSIVE run", kit: func(k *kit) { k.record = trace }, exit: unsure, level: verify.L1},
		logCase{name: "part of a benchmark", kit: func(k *kit) { k.head = func(*contraband.Head) {} }, level: verify.L1},
		logCase{name: "no CHECKPOINT", kit: func(k *kit) { k.logging.Heads = nil }, level: verify.L1},
		logCase{name: "the log grew before it was closed", kit: func(k *kit) { k.logging.Between = 40 }, level: verify.L1},
		logCase{name: "two of three witnesses", kit: func(k *kit) { k.logging.Log.Witnesses = k.logging.Log.Witnesses[:2] }, policy: threeWitnesses(2), level: verify.L1},
		logCase{name: "two signatures", kit: func(k *kit) { k.two = true }, policy: func(t testing.TB, k *kit) *verify.Policy {
			return k.logPolicy(t, "runner "+k.second.public.String(), "require second-signature")
		}, level: verify.L1},
	)
	k := loggedKit()
	r := verify.Verify(k.make(t), k.logPolicy(t), now)
	t.Log("\n" + r.Text("x"))
	for _, want := range []string{
		" sealed by   bench.example/owner   (pinned owner, logged before the run)\n",
		" assurance   L1: sealed and registered before the run, 3 of 3 witnesses, at most 1 s of rows between checkpoints\n",
		" logged      log.example/1, registered by 2026-01-01T00:00:00Z, ended by 2026-01-01T00:00:01Z, receipt 17 of 18\n",
	} {
		if !strings.Contains(r.Text("x"), want) {
			t.Errorf("lacks %q", want)
		}
	}
	l := *r.Logged
	if l.Interval == nil || *l.Interval != 0 {
		t.Errorf("got interval %v", l.Interval)
	}
	l.Interval = nil
	if want := (verify.Logged{Origin: "log.example/1", Pinned: true, Size: 18, Index: 17, Seal: 2, Register: 5, Final: 14, Checkpoints: 2,
		Witnesses: 3, Of: 3, Registered: fixture.LogStart, Closed: fixture.LogStart + 1}); l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	if data, err := json.Marshal(r); err != nil || !strings.Contains(string(data), `"assurance":{"level":"L1",`) {
		t.Errorf("got %s, %v", data, err)
	}
}

// threeWitnesses is a policy of the log with three witnesses, whoever cosigned.
func threeWitnesses(quorum int) func(testing.TB, *kit) *verify.Policy {
	return func(t testing.TB, k *kit) *verify.Policy {
		l := *k.logging.Log
		l.Witnesses = fixture.NewLog("x", 3).Witnesses
		return parsePolicy(t, append(k.keyLines(), l.PolicyLines(quorum))...)
	}
}

// RT85: assurance is what the proofs give, and the report says why it is no more.
func TestRT85_AssuranceIsNotClaimed(t *testing.T) {
	noLog := func(t testing.TB, k *kit) *verify.Policy { return parsePolicy(t, k.keyLines()...) }
	ownLog := func(k *kit) { k.logging.Log = fixture.NewLog("runners-own.example/log", 0) }
	tryAll(t,
		logCase{name: "a log that the policy does not pin", policy: noLog},
		logCase{name: "the runner's own log", kit: ownLog, policy: noLog},
		logCase{name: "no policy", policy: func(testing.TB, *kit) *verify.Policy { return nil }, exit: unsure},
		logCase{name: "quorum none", policy: func(t testing.TB, k *kit) *verify.Policy { return k.quorumPolicy(t, 0) }},
		logCase{name: "not logged", kit: func(k *kit) { k.logging = nil },
			policy: func(t testing.TB, k *kit) *verify.Policy {
				return parsePolicy(t, append(k.keyLines(), fixture.NewLog("log.example/1", 1).PolicyLines(1))...)
			}, exit: unsure, check: verify.CheckLogMembers, says: "not logged"},
		logCase{name: "nobody pinned as owner", policy: func(t testing.TB, k *kit) *verify.Policy {
			return parsePolicy(t, k.keyLines()[1], k.logging.Log.PolicyLines(3))
		}, exit: unsure, check: verify.CheckLogEntries, says: "pins no key"},
	)
	for _, c := range []struct {
		want   string
		policy func(k *kit) *verify.Policy
	}{
		{"L0: logged in log.example/1, which the policy does not pin", func(k *kit) *verify.Policy { return noLog(t, k) }},
		{"L0: logged in log.example/1, which nobody pins without a policy", func(*kit) *verify.Policy { return nil }},
		{"L0: logged in log.example/1, but the policy asks for no witness (quorum none)", func(k *kit) *verify.Policy { return k.quorumPolicy(t, 0) }},
	} {
		k := loggedKit()
		if text := verify.Verify(k.make(t), c.policy(k), now).Text("x"); !strings.Contains(text, " assurance   "+c.want+"\n") || strings.Contains(text, "logged before the run)") {
			t.Errorf("lacks %q:\n%s", c.want, text)
		}
	}
}

// RT76: each proof is of its entry and no other.
func TestRT76_ProofOfAnotherEntry(t *testing.T) {
	member := func(change func(*kit, *receipt.LogMember, *proof.LogProof)) func(*kit) {
		return func(k *kit) {
			k.logging.Member = func(m *receipt.LogMember, p *proof.LogProof) { change(k, m, p) }
		}
	}
	fail := func(name, says string, change func(*kit, *receipt.LogMember, *proof.LogProof)) logCase {
		return logCase{name: name, kit: member(change), exit: invalid, check: verify.CheckLogInclusion, says: says}
	}
	tryAll(t,
		fail("of SEAL for REGISTER", "REGISTER", func(_ *kit, m *receipt.LogMember, _ *proof.LogProof) { m.Register.Path = m.Seal.Path }),
		fail("SEAL at another index", "SEAL", func(_ *kit, m *receipt.LogMember, _ *proof.LogProof) { m.Seal.Index++ }),
		fail("CHECKPOINTs of each other", "CHECKPOINT 1", func(_ *kit, m *receipt.LogMember, _ *proof.LogProof) {
			c := m.Checkpoints
			c[0].Statement, c[1].Statement = c[1].Statement, c[0].Statement
		}),
		fail("of somebody else's entry for the receipt", "want entry 16 of the 18", func(k *kit, m *receipt.LogMember, p *proof.LogProof) {
			p.Index, p.Path = 16, k.logging.Log.Inclusion(16, 18)
		}),
		fail("receipt.cose at an index beyond the tree", "receipt.cose", func(_ *kit, m *receipt.LogMember, p *proof.LogProof) { p.Index = 18 }),
		fail("COSE receipt of another index", "want entry 17", func(k *kit, m *receipt.LogMember, _ *proof.LogProof) {
			m.Receipt = k.logging.Log.InclusionReceipt(runHex, 16, 18)
		}),
		fail("COSE receipt of another run", "receipt.cose: sub", func(k *kit, m *receipt.LogMember, _ *proof.LogProof) {
			m.Receipt = k.logging.Log.InclusionReceipt(strings.Repeat("5", 32), 17, 18)
		}),
		fail("COSE receipt in a smaller tree", "want entry 17 of the 18", func(k *kit, m *receipt.LogMember, _ *proof.LogProof) {
			m.Receipt = k.logging.Log.InclusionReceipt(runHex, 14, 15)
		}),
		fail("consistency of other sizes", "want 6 and 15", func(k *kit, m *receipt.LogMember, _ *proof.LogProof) {
			m.ToClosing = k.logging.Log.ConsistencyReceipt(5, 15)
		}),
		fail("consistency of another tree", "consistency with the newest checkpoint", func(k *kit, m *receipt.LogMember, _ *proof.LogProof) {
			other := fixture.NewLog("log.example/1", 0)
			for i := range byte(18) {
				other.Add([]byte{i})
			}
			m.ToNewest = other.ConsistencyReceipt(15, 18)
		}),
		fail("a path of another length", "log.tlog-proof", func(_ *kit, _ *receipt.LogMember, p *proof.LogProof) { p.Path = p.Path[1:] }),
	)
}

// runHex is the run id of internal/fixture.
var runHex = "010203" + strings.Repeat("0", 26)

// RT77: a log that nobody pins, and a pinned log's key under another name.
func TestRT77_AnotherLog(t *testing.T) {
	other := func(name, seed string) func(testing.TB, *kit) *verify.Policy {
		return func(t testing.TB, k *kit) *verify.Policy {
			l := *k.logging.Log
			l.Key = fixture.NewKeyFrom(name, seed)
			return parsePolicy(t, append(k.keyLines(), l.PolicyLines(3))...)
		}
	}
	byKey := func(name, seed string) func(*kit) {
		return func(k *kit) { k.logging.Log.Key = fixture.NewKeyFrom(name, seed) }
	}
	pinned := func(t testing.TB, k *kit) *verify.Policy {
		return parsePolicy(t, append(k.keyLines(), fixture.NewLog("log.example/1", 3).PolicyLines(3))...)
	}
	receipts := func(by fixture.Key) func(*kit) {
		return func(k *kit) {
			k.logging.Member = func(m *receipt.LogMember, p *proof.LogProof) {
				l := k.logging.Log.Fork()
				l.Key = by
				m.Receipt = l.InclusionReceipt(runHex, p.Index, 18)
			}
		}
	}
	tryAll(t,
		logCase{name: "another log is pinned", policy: other("other.example/log", "other.example/log"), exit: invalid, check: verify.CheckLogCheckpoints, says: "want one of the 1 logs of the policy"},
		logCase{name: "its key is pinned under another origin", policy: other("other.example/log", "log.example/1"), exit: invalid, check: verify.CheckLogCheckpoints, says: "want one of the 1 logs"},
		logCase{name: "its name is pinned with another key", policy: other("log.example/1", "attacker"), exit: invalid, check: verify.CheckLogCheckpoints, says: "the start row's checkpoint"},
		logCase{name: "an attacker's log under the pinned name", kit: byKey("log.example/1", "attacker"), policy: pinned, exit: invalid, check: verify.CheckLogCheckpoints},
		logCase{name: "a COSE receipt by another key of that name", kit: receipts(fixture.NewKeyFrom("log.example/1", "attacker")), exit: invalid, check: verify.CheckLogInclusion, says: "receipt.cose"},
		logCase{name: "a COSE receipt by the key under another name", kit: receipts(fixture.NewKeyFrom("other.example/log", "log.example/1")), exit: invalid, check: verify.CheckLogInclusion, says: "issuer"},
		logCase{name: "checkpoints of two logs", kit: func(k *kit) {
			k.logging.Note = func(place int, note []byte) []byte {
				if place != 2 {
					return note
				}
				l := k.logging.Log.Fork()
				l.Key = fixture.NewKey("other.example/log")
				return l.Checkpoint()
			}
		}, exit: invalid, check: verify.CheckLogCheckpoints, says: "origin"},
	)
}

// RT78: a log that shows two trees of one size is convicted by what stands in the
// bundle, and the report has both signed checkpoints.
func TestRT78_SplitView(t *testing.T) {
	fork := func(k *kit) {
		var size uint64
		k.logging.Note = func(place int, note []byte) []byte {
			if place == 1 {
				size = k.logging.Log.Size()
			}
			if place == 2 {
				return k.logging.Log.CheckpointOf(size, [32]byte{7})
			}
			return note
		}
	}
	tryAll(t,
		logCase{name: "closing and newest", kit: fork, exit: invalid, check: verify.CheckLogCheckpoints, says: "split view"},
		logCase{name: "without a pinned log", kit: fork, policy: func(t testing.TB, k *kit) *verify.Policy { return parsePolicy(t, k.keyLines()...) },
			exit: invalid, check: verify.CheckLogCheckpoints, says: "split view"},
		logCase{name: "two trees of two sizes", kit: func(k *kit) {
			k.logging.Note = func(place int, note []byte) []byte {
				if place != 1 {
					return note
				}
				return k.logging.Log.CheckpointOf(k.logging.Log.Size(), [32]byte{7})
			}
		}, exit: invalid, check: verify.CheckLogInclusion, says: "consistency with the closing checkpoint"},
	)
	k := loggedKit()
	fork(k)
	r := verify.Verify(k.make(t), k.logPolicy(t), now)
	if len(r.Conflict) != 2 {
		t.Fatalf("got %q", r.Conflict)
	}
	text := r.Text("x")
	for i, note := range r.Conflict {
		u, err := proof.ParseCheckpoint([]byte(note))
		if err != nil || u.Checkpoint().Size != 15 {
			t.Fatalf("checkpoint %d: %v, %v", i, u, err)
		}
		if _, err := u.Verify(k.logging.Log.Key.Public()); err != nil {
			t.Error(err)
		}
		for l := range strings.Lines(note) {
			if !strings.Contains(text, "   "+l) {
				t.Errorf("the text lacks %q", l)
			}
		}
	}
	if r.Conflict[0] == r.Conflict[1] {
		t.Error("one checkpoint twice")
	}
}

// RT79: who is not cosigned by the quorum is not believed, and a witness counts
// once.
func TestRT79_Quorum(t *testing.T) {
	two := func(k *kit) { k.logging.Log.Witnesses = k.logging.Log.Witnesses[:2] }
	drop := func(place int) func(*kit) {
		return func(k *kit) {
			k.logging.Note = func(p int, note []byte) []byte {
				if p != place {
					return note
				}
				lines := strings.SplitAfter(string(note), "\n")
				return []byte(strings.Join(slices.Delete(lines, len(lines)-2, len(lines)-1), ""))
			}
		}
	}
	tryAll(t,
		logCase{name: "a witness less", kit: two, policy: threeWitnesses(3), exit: unsure, check: verify.CheckLogWitnesses, says: "cosignatures of 2 of 3 witnesses"},
		logCase{name: "no witness at all", kit: func(k *kit) { k.logging.Log.Witnesses = nil }, policy: threeWitnesses(1), exit: unsure, check: verify.CheckLogWitnesses, says: "0 of 3"},
		logCase{name: "not on the start row's checkpoint", kit: drop(0), exit: unsure, check: verify.CheckLogWitnesses, says: "the start row's checkpoint"},
		logCase{name: "not on the closing checkpoint", kit: drop(1), exit: unsure, check: verify.CheckLogWitnesses, says: "the closing checkpoint"},
		logCase{name: "not on the newest checkpoint", kit: drop(2), exit: unsure, check: verify.CheckLogWitnesses, says: "the newest checkpoint"},
		logCase{name: "witnesses whom nobody names", kit: func(k *kit) { k.logging.Log.Witnesses = k.logging.Log.Witnesses[2:] }, policy: func(t testing.TB, k *kit) *verify.Policy {
			l := *k.logging.Log
			l.Witnesses = fixture.NewLog("x", 2).Witnesses
			return parsePolicy(t, append(k.keyLines(), l.PolicyLines(1))...)
		}, exit: unsure, check: verify.CheckLogWitnesses, says: "0 of 2"},
		logCase{name: "a line twice", kit: func(k *kit) {
			two(k)
			k.logging.Note = func(p int, note []byte) []byte {
				lines := strings.SplitAfter(string(note), "\n")
				return []byte(string(note) + lines[len(lines)-2])
			}
		}, policy: threeWitnesses(3), exit: invalid, check: verify.CheckLogMembers, says: "two signatures of"},
		logCase{name: "a cosignature of another checkpoint", kit: func(k *kit) {
			var first string
			k.logging.Note = func(p int, note []byte) []byte {
				lines := strings.SplitAfter(string(note), "\n")
				if p == 0 {
					first = lines[len(lines)-2]
				} else {
					lines[len(lines)-2] = first
				}
				return []byte(strings.Join(lines, ""))
			}
		}, exit: invalid, check: verify.CheckLogWitnesses, says: "the closing checkpoint"},
	)
}
