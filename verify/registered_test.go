package verify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// RT3: who drops or changes rows after a CHECKPOINT was logged cannot explain it
// away.
func TestRT03_RowsAfterCheckpointDropped(t *testing.T) {
	second := func(change func(*journal.Head)) func(*kit) {
		return func(k *kit) {
			n := 0
			k.logging.Checkpoint = func(h *journal.Head) {
				if n++; n == 2 {
					change(h)
				}
			}
		}
	}
	tryAll(t,
		logCase{name: "the journal was longer", kit: second(func(h *journal.Head) { h.Size = 40 }), exit: invalid, check: verify.CheckLogEntries, says: "rows were dropped after it was logged (rollback)"},
		logCase{name: "one row longer", kit: second(func(h *journal.Head) { h.Size = 13 }), exit: invalid, check: verify.CheckLogEntries, says: "got size 13, want at most the journal's 12"},
		logCase{name: "the journal was another", kit: second(func(h *journal.Head) { h.Root[0] ^= 1 }), exit: invalid, check: verify.CheckLogEntries, says: "rows were changed after it was logged"},
		logCase{name: "smaller than the one before", kit: second(func(h *journal.Head) { h.Size = 3 }), exit: invalid, check: verify.CheckLogEntries, says: "want more than the 4"},
		logCase{name: "the later CHECKPOINT left out", kit: func(k *kit) {
			second(func(h *journal.Head) { h.Size = 40 })(k)
			k.logging.Member = func(m *receipt.LogMember, _ *proof.LogProof) { m.Checkpoints = m.Checkpoints[:1] }
		}, exit: invalid, check: verify.CheckLogOrder, says: "got 1 CHECKPOINT, want the 2 that FINAL names"},
		logCase{name: "all CHECKPOINTs left out", kit: func(k *kit) {
			k.logging.Member = func(m *receipt.LogMember, _ *proof.LogProof) { m.Checkpoints = nil }
		}, exit: invalid, check: verify.CheckLogOrder, says: "got 0 CHECKPOINTs, want the 2"},
		logCase{name: "FINAL counts one more", kit: func(k *kit) { k.logging.Final = func(f *entry.Final) { f.Checkpoints++ } }, exit: invalid, check: verify.CheckLogOrder, says: "want the 3"},
		logCase{name: "CHECKPOINT of another run", kit: second(func(h *journal.Head) { h.Run[0]++ }), exit: invalid, check: verify.CheckLogEntries, says: "got run"},
	)
}

// RT13: the start row binds the registration, so it is younger; nothing in it is of
// a later time.
func TestRT13_StartOlderThanRegistration(t *testing.T) {
	// registered has the start row bind another registration than the one in the
	// bundle.
	registered := func(change func(k *kit, s *journal.Start)) func(*kit) {
		return func(k *kit) { k.logging.Start = func(s *journal.Start) { change(k, s) } }
	}
	tryAll(t,
		logCase{name: "of another run", kit: registered(func(k *kit, s *journal.Start) {
			l := k.logging.Log
			bytes := l.InclusionReceipt(strings.Repeat("7", 32), 5, 6)
			s.Registration = &bytes
		}), exit: invalid, check: verify.CheckLogInclusion, says: "registration, in the start row: sub"},
		logCase{name: "an entry of somebody else", kit: registered(func(k *kit, s *journal.Start) {
			bytes := k.logging.Log.InclusionReceipt(runHex, 4, 6)
			s.Registration = &bytes
		}), exit: invalid, check: verify.CheckLogInclusion, says: "got entry 4 of 6, want entry 5 of the 6"},
		logCase{name: "a registration that was made again later", kit: func(k *kit) {
			// The run started under a first REGISTER; the bundle shows an equal one
			// that was logged after it.
			k.logging.Member = func(m *receipt.LogMember, p *proof.LogProof) {
				l := k.logging.Log
				m.Register.Index = l.Add(m.Register.Statement)
				size := l.Size()
				p.Checkpoint, p.Path = l.Checkpoint(), l.Inclusion(p.Index, size)
				reprove(l, m, p, size)
			}
		}, exit: invalid, check: verify.CheckLogInclusion, says: "registration, in the start row: got entry 5 of 6, want entry 18"},
		logCase{name: "a checkpoint from before the registration", kit: registered(func(k *kit, s *journal.Start) {
			l := k.logging.Log
			old := l.CheckpointOf(5, l.Root(5))
			s.Freshness = &old
		}), exit: invalid, check: verify.CheckLogInclusion, says: "got entry 5 of 6, want entry 5 of the 5"},
		logCase{name: "a start row from the future of the log", kit: func(k *kit) {
			k.logging.Note = func(place int, note []byte) []byte {
				if place == 0 {
					return k.logging.Log.CheckpointOf(1000, [32]byte{1})
				}
				return note
			}
		}, exit: invalid, check: verify.CheckLogCheckpoints, says: "the closing checkpoint: got size 15, want at least the 1000"},
		logCase{name: "the start row says another start than the one registered", kit: registered(func(_ *kit, s *journal.Start) { s.Blind = []string{"something else"} }),
			exit: invalid, check: verify.CheckLogEntries, says: "REGISTER, start"},
	)
}

// reprove proves all entries of a bundle in a tree of another size.
func reprove(l *fixture.Log, m *receipt.LogMember, p *proof.LogProof, size uint64) {
	for _, e := range []*receipt.LogEntry{&m.Seal, &m.Register, &m.Final} {
		e.Path = l.Inclusion(e.Index, size)
	}
	for i := range m.Checkpoints {
		m.Checkpoints[i].Path = l.Inclusion(m.Checkpoints[i].Index, size)
	}
	p.Path = l.Inclusion(p.Index, size)
	m.Receipt = l.InclusionReceipt(runHex, p.Index, size)
	m.ToNewest = l.ConsistencyReceipt(15, size)
}

// paused is an agent that reads three files with pauses before the second and the third.
func paused(a, b time.Duration) func(*fixture.Run) {
	return func(r *fixture.Run) {
		honest(r)
		for i, d := range []time.Duration{0, a, b} {
			r.Pause(d)
			r.Read("/work/a"+string(rune('0'+i)), fixture.Content{Filler: 2})
		}
	}
}

// RT14: rows that were kept back for longer than the policy allows.
func TestRT14_CheckpointInterval(t *testing.T) {
	every := func(n string) func(testing.TB, *kit) *verify.Policy {
		return func(t testing.TB, k *kit) *verify.Policy {
			return k.logPolicy(t, "require checkpoint-interval "+n)
		}
	}
	run := func(heads ...uint64) func(*kit) {
		return func(k *kit) {
			k.record, k.logging.Heads, k.took = paused(50*time.Second, 50*time.Second), heads, 100
		}
	}
	// Of the 15 rows number 11 is of the second file, 12 of the third.
	tryAll(t,
		logCase{name: "one CHECKPOINT for all", kit: run(13), policy: every("60"), exit: unsure, check: verify.CheckLogInterval, says: "1m40s of rows were logged at once, want at most 60 s"},
		logCase{name: "no CHECKPOINT at all", kit: run(), policy: every("60"), exit: unsure, check: verify.CheckLogInterval, says: "1m40s of rows"},
		logCase{name: "control: it is what the policy allows", kit: run(), policy: every("101"), level: verify.L1},
		logCase{name: "control: no interval is required", kit: run(), level: verify.L1},
		logCase{name: "one between the pauses", kit: run(12), policy: every("60"), level: verify.L1},
		logCase{name: "one second less", kit: run(12), policy: every("49"), exit: unsure, check: verify.CheckLogInterval, says: "50s of rows"},
		logCase{name: "a run that waits keeps nothing back", kit: run(11, 12), policy: every("1"), level: verify.L1},
	)
}

// RT15: nothing comes after FINAL.
func TestRT15_AfterFinal(t *testing.T) {
	tryAll(t,
		logCase{name: "the journal is longer than FINAL says", kit: func(k *kit) {
			k.logging.Final = func(f *entry.Final) {
				f.Head.Size--
				last := len(f.Counts) - 1
				if f.Counts[last].N--; f.Counts[last].N == 0 {
					f.Counts = f.Counts[:last]
				}
			}
		}, exit: invalid, check: verify.CheckLogEntries, says: "FINAL, size: got 11, want 12"},
		logCase{name: "another journal of this size", kit: func(k *kit) { k.logging.Final = func(f *entry.Final) { f.Head.Root[3] ^= 1 } }, exit: invalid, check: verify.CheckLogEntries, says: "FINAL, root"},
		logCase{name: "another outcome", kit: func(k *kit) { k.logging.Final = func(f *entry.Final) { f.Outcome = journal.Cancelled } }, exit: invalid, check: verify.CheckLogEntries, says: "FINAL, outcome"},
		logCase{name: "of another run", kit: func(k *kit) { k.logging.Final = func(f *entry.Final) { f.Head.Run[0]++ } }, exit: invalid, check: verify.CheckLogEntries, says: "FINAL, run"},
		logCase{name: "a journal without a closing row", kit: func(k *kit) { k.open = true; k.logging.Heads = nil }, exit: invalid, check: verify.CheckLogEntries, says: "without a closing row"},
		logCase{name: "a CHECKPOINT logged after FINAL", kit: func(k *kit) {
			k.logging.Member = func(m *receipt.LogMember, p *proof.LogProof) {
				l := k.logging.Log
				c := &m.Checkpoints[1]
				c.Index = l.Add(c.Statement)
				p.Checkpoint = l.Checkpoint()
				reprove(l, m, p, l.Size())
			}
		}, exit: invalid, check: verify.CheckLogOrder, says: "FINAL: got 14, want it after CHECKPOINT 2, 18"},
		logCase{name: "FINAL logged after the log was closed", kit: func(k *kit) {
			k.logging.Member = func(m *receipt.LogMember, p *proof.LogProof) {
				l := k.logging.Log
				m.Final.Index = l.Add(m.Final.Statement)
				p.Checkpoint = l.Checkpoint()
				reprove(l, m, p, l.Size())
			}
		}, exit: invalid, check: verify.CheckLogOrder, says: "had no FINAL when it was closed"},
	)
}

// RT19: a set that was sealed once the run was registered may be made for it.
func TestRT19_SealedAfterRegistration(t *testing.T) {
	tryAll(t,
		logCase{name: "SEAL after REGISTER", kit: func(k *kit) { k.logging.Late = true }, exit: invalid, check: verify.CheckLogOrder, says: "the set was sealed after the run was registered"},
		logCase{name: "without a policy", kit: func(k *kit) { k.logging.Late = true }, policy: func(testing.TB, *kit) *verify.Policy { return nil },
			exit: invalid, check: verify.CheckLogOrder, says: "the set was sealed after"},
		logCase{name: "SEAL of another set", kit: func(k *kit) { k.logging.Seal = func(s *entry.Seal) { s.Digest[0] ^= 1 } }, exit: invalid, check: verify.CheckLogEntries, says: "SEAL, digest"},
		logCase{name: "SEAL of another name", kit: func(k *kit) { k.logging.Seal = func(s *entry.Seal) { s.Subject = "bench/task-2" } }, exit: invalid, check: verify.CheckLogEntries, says: "SEAL, sub"},
		logCase{name: "SEAL of the part instead of the head", kit: func(k *kit) {
			k.head = func(*contraband.Head) {}
			k.logging.Seal = func(s *entry.Seal) { s.Of = receipt.KindSealedSet }
		}, exit: invalid, check: verify.CheckLogEntries, says: "SEAL, type"},
		logCase{name: "SEAL by the runner", kit: func(k *kit) { k.logging.Owner = k.runner }, exit: invalid, check: verify.CheckLogEntries, says: "SEAL, by the owner"},
		logCase{name: "REGISTER that relies on another SEAL", kit: func(k *kit) { k.logging.Register = func(r *entry.Register) { r.Sealed[0] ^= 1 } }, exit: invalid, check: verify.CheckLogEntries, says: "SEAL, digest"},
		logCase{name: "entries by another runner", kit: func(k *kit) { k.logging.Runner = newSigner("stranger.example/key") }, exit: invalid, check: verify.CheckLogEntries, says: "REGISTER, by the runner"},
	)
}

// RT27: a set of a key period that is over.
func TestRT27_KeyPeriod(t *testing.T) {
	period := func(period string) func(*kit) {
		return func(k *kit) {
			k.set = func(s *contraband.Set) { s.Period = period }
		}
	}
	now2 := func(t testing.TB, k *kit) *verify.Policy { return k.logPolicy(t, "require period 2026-2") }
	tryAll(t,
		logCase{name: "control: the period that is required", kit: period("2026-2"), policy: now2, level: verify.L1},
		logCase{name: "control: no period is required", kit: period("2026-1"), level: verify.L1},
		logCase{name: "superseded", kit: period("2026-1"), policy: now2, exit: unsure, check: verify.CheckPeriod, says: `got "2026-1", want "2026-2"`},
		logCase{name: "the first, which has no name", kit: period(""), policy: now2, exit: unsure, check: verify.CheckPeriod, says: `got "", want "2026-2"`},
		logCase{name: "a DIRTY run", kit: func(k *kit) { period("2026-1")(k); k.record = cheat }, policy: now2, exit: unsure, check: verify.CheckPeriod},
	)
	// It needs no log, and what is wrong is still found.
	k := newKit()
	period("2026-1")(k)
	policy := parsePolicy(t, append(k.keyLines(), "require period 2026-2")...)
	if r := verify.Verify(k.make(t), policy, now); r.Exit != verify.ExitUndecided || !strings.HasPrefix(r.Text("x"), "UNDECIDED, would be CLEAN  ") {
		t.Errorf("got %s", r.Text("x"))
	}
	k.pack = func(p *fixture.Pack) { p.Trailer.Tree[0] ^= 1 }
	if got, want := of(verify.Verify(k.make(t), policy, now)), (result{invalid, verify.CheckEvidence}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// RT80: a checkpoint of the future, one that is older than the next, and a
// registration that was kept for later.
func TestRT80_Times(t *testing.T) {
	at := func(place int, clock uint64) func(*kit) {
		return func(k *kit) {
			l := k.logging.Log
			k.logging.Note = func(p int, note []byte) []byte {
				if p != place {
					return note
				}
				l.Clock = clock
				return l.Checkpoint()
			}
		}
	}
	took := func(s uint64) func(*kit) { return func(k *kit) { k.took = s } }
	fresh := func(n string) func(testing.TB, *kit) *verify.Policy {
		return func(t testing.TB, k *kit) *verify.Policy { return k.logPolicy(t, "require freshness "+n) }
	}
	today := uint64(now.Unix())
	tryAll(t,
		logCase{name: "control: 5 minutes ahead", kit: at(2, today+300), level: verify.L1},
		logCase{name: "the newest is of the future", kit: at(2, today+301), exit: unsure, check: verify.CheckLogTimes, says: "the newest checkpoint: got the time 2026-01-02T03:09:06Z, want at most 300 seconds after now"},
		logCase{name: "all are of the future", kit: at(0, today+1000), exit: unsure, check: verify.CheckLogTimes, says: "the start row's checkpoint"},
		logCase{name: "of the far future", kit: at(2, 1<<62), exit: unsure, check: verify.CheckLogTimes, says: "9999-12-31"},
		logCase{name: "closing before the start", kit: at(1, fixture.LogStart-10), exit: unsure, check: verify.CheckLogTimes, says: "the closing checkpoint: got the time"},
		logCase{name: "newest before closing", kit: at(2, fixture.LogStart), exit: unsure, check: verify.CheckLogTimes, says: "the newest checkpoint: got the time"},
		logCase{name: "control: an hour after the registration", kit: took(3599), level: verify.L1},
		logCase{name: "a stale registration", kit: took(3600), exit: unsure, check: verify.CheckLogTimes, says: "lie 3601 seconds, want at most the 0 of the run and 3600 more: the registration was stale"},
		logCase{name: "control: a policy that allows it", kit: took(3600), policy: fresh("4000"), level: verify.L1},
		logCase{name: "a policy that allows less", kit: took(60), policy: fresh("60"), exit: unsure, check: verify.CheckLogTimes, says: "61 seconds"},
		logCase{name: "rows of two hours that were made up in one", kit: func(k *kit) { k.record, k.took = paused(2*time.Hour, 0), 3600 }, exit: unsure, check: verify.CheckLogTimes, says: "the rows tell of 7200 seconds, and between the start row's checkpoint and the closing one lie 3601"},
		logCase{name: "control: clocks 5 minutes apart", kit: func(k *kit) { k.record, k.took = paused(2*time.Hour, 0), 6899 }, level: verify.L1},
		logCase{name: "control: a run that took so long", kit: func(k *kit) { k.record, k.took = paused(2*time.Hour, 0), 7200 }, level: verify.L1},
	)
}

// RT81: an entry of another model, task or attempt is not this run's registration.
func TestRT81_RegisteredAsAnotherRun(t *testing.T) {
	var cases []logCase
	for name, change := range map[string]func(*entry.Register){
		"run":       func(r *entry.Register) { r.Run[5] ^= 1 },
		"benchmark": func(r *entry.Register) { r.Benchmark = "bench-2" },
		"task":      func(r *entry.Register) { r.Task = "task-2" },
		"trial":     func(r *entry.Register) { r.Trial = 2 },
		"attempt":   func(r *entry.Register) { r.Attempt = 2 },
		"seal":      func(r *entry.Register) { r.Seal[0] ^= 1 },
		"baseline":  func(r *entry.Register) { r.Baseline[0] ^= 1 },
		"scope":     func(r *entry.Register) { r.Scope[0] ^= 1 },
		"agent":     func(r *entry.Register) { r.Agent[0] ^= 1 },
		"model":     func(r *entry.Register) { r.Model[0] ^= 1 },
		"recorder":  func(r *entry.Register) { r.Recorder = "another" },
		"start":     func(r *entry.Register) { r.Start[0] ^= 1 },
	} {
		c := logCase{name: name, kit: func(k *kit) { k.logging.Register = change }, exit: invalid, check: verify.CheckLogEntries, says: "REGISTER, " + name + ": got "}
		if name == "run" { // sub names the run too, and the COSE receipt has the sub of its entry
			c.check, c.says = verify.CheckLogInclusion, "sub"
		}
		cases = append(cases, c)
	}
	tryAll(t, cases...)
}

// The log checks hold for a compact bundle as far as its proof says what they ask.
func TestCompactLogged(t *testing.T) {
	small := func(heads ...uint64) func(*kit) {
		return func(k *kit) { k.bundle, k.logging.Heads, k.logging.Compact = compacted(t, nil), heads, true }
	}
	member := func(change func(*receipt.LogMember), heads ...uint64) func(*kit) {
		return func(k *kit) {
			small(heads...)(k)
			k.logging.Member = func(m *receipt.LogMember, _ *proof.LogProof) { change(m) }
		}
	}
	tryAll(t,
		logCase{name: "no CHECKPOINT", kit: small(), level: verify.L1},
		logCase{name: "a CHECKPOINT of all rows", kit: small(12), level: verify.L1},
		logCase{name: "CHECKPOINTs before", kit: small(1, 4, 8, 11, 12), level: verify.L1},
		logCase{name: "without a proof of its head", kit: member(func(m *receipt.LogMember) { m.Heads = nil }, 4), exit: unsure, check: verify.CheckLogEntries, says: "neither the rows before it are there nor a proof"},
		logCase{name: "control: all rows, without a proof", kit: member(func(m *receipt.LogMember) { m.Heads = nil }, 12), level: verify.L1},
		logCase{name: "a proof of another head", kit: member(func(m *receipt.LogMember) { m.Heads[0], m.Heads[1] = m.Heads[1], m.Heads[0] }, 4, 7), exit: invalid, check: verify.CheckLogEntries, says: "CHECKPOINT 1: rows were changed"},
		logCase{name: "a flipped bit in a proof", kit: member(func(m *receipt.LogMember) { m.Heads[1][0][9] ^= 4 }, 4, 7), exit: invalid, check: verify.CheckLogEntries, says: "CHECKPOINT 2: rows were changed"},
		logCase{name: "a path where none is needed", kit: member(func(m *receipt.LogMember) { m.Heads[0] = [][32]byte{{}} }, 12), exit: invalid, check: verify.CheckLogEntries, says: "want none"},
		logCase{name: "proofs beside the evidence", kit: func(k *kit) { k.logging.Compact = true }, exit: invalid, check: verify.CheckLogMembers, says: "want none beside the evidence"},
		logCase{name: "RT3 a CHECKPOINT of other rows before", kit: func(k *kit) {
			small(4)(k)
			k.logging.Checkpoint = func(h *journal.Head) { h.Root[0] ^= 1 }
		}, exit: invalid, check: verify.CheckLogEntries, says: "rows were changed"},
		logCase{name: "an interval is required", kit: small(), policy: func(t testing.TB, k *kit) *verify.Policy {
			return k.logPolicy(t, "require checkpoint-interval 60")
		}, exit: unsure, check: verify.CheckLogInterval, says: "are not there"},
		logCase{name: "RT3 a CHECKPOINT of more rows", kit: small(40), exit: invalid, check: verify.CheckLogEntries, says: "rollback"},
		logCase{name: "RT3 a CHECKPOINT of other rows", kit: func(k *kit) {
			small(12)(k)
			k.logging.Checkpoint = func(h *journal.Head) { h.Root[0] ^= 1 }
		}, exit: invalid, check: verify.CheckLogEntries, says: "rows were changed"},
		logCase{name: "RT19", kit: func(k *kit) { small()(k); k.logging.Late = true }, exit: invalid, check: verify.CheckLogOrder},
		logCase{name: "a broken compact proof", kit: func(k *kit) {
			small()(k)
			k.bundle = compacted(t, func(p *compact.Proof) { p.Buckets = p.Buckets[1:] })
		}, exit: invalid, check: verify.CheckCompact},
	)
}

// What belongs together comes together.
func TestLogMembers(t *testing.T) {
	bundle := func(change func(*receipt.Bundle)) func(*kit) { return func(k *kit) { k.bundle = change } }
	noLog := func(t testing.TB, k *kit) *verify.Policy { return parsePolicy(t, k.keyLines()...) }
	for _, policy := range []func(testing.TB, *kit) *verify.Policy{nil, noLog} {
		for _, c := range []logCase{
			{name: "no log.cbor", kit: bundle(func(b *receipt.Bundle) { b.Log = nil }), says: "got log.tlog-proof without log.cbor"},
			{name: "no log.tlog-proof", kit: bundle(func(b *receipt.Bundle) { b.LogProof = nil }), says: "got log.cbor without log.tlog-proof"},
			{name: "both, of a run that was not registered", kit: func(k *kit) {
				k.logging.Start = func(s *journal.Start) { s.Registration, s.Freshness = nil, nil }
			}, says: "start row has no registration"},
			{name: "a registration that is none", kit: func(k *kit) {
				k.logging.Start = func(s *journal.Start) { s.Registration = &[]byte{1} }
			}, says: "receipt of the registration"},
			{name: "a freshness value that is no checkpoint", kit: func(k *kit) {
				k.logging.Start = func(s *journal.Start) { note := []byte("x"); s.Freshness = &note }
			}, says: "the start row's checkpoint"},
		} {
			c.policy, c.exit, c.check = policy, invalid, verify.CheckLogMembers
			t.Run(c.name, c.try)
		}
	}
	logCase{name: "no evidence at all", kit: bundle(func(b *receipt.Bundle) { b.Evidence = nil }), exit: unsure}.try(t)
}

// A registered run whose bundle has no proofs is no better than one that was not
// logged: L0, said so, and undecided under a policy with a log.
func TestRegisteredWithoutProofs(t *testing.T) {
	k := loggedKit()
	k.bundle = func(b *receipt.Bundle) { b.Log, b.LogProof = nil, nil }
	r := verify.Verify(k.make(t), parsePolicy(t, k.keyLines()...), now)
	if r.Exit != verify.ExitClean || r.Assurance == nil || r.Assurance.Level != verify.L0 || !strings.Contains(r.Assurance.Detail, "no proof of it") {
		t.Errorf("got exit %d, %+v, want CLEAN at L0 without a proof", r.Exit, r.Assurance)
	}
	r = verify.Verify(k.make(t), k.logPolicy(t), now)
	if r.Exit != verify.ExitUndecided || r.Assurance != nil && r.Assurance.Level != verify.L0 {
		t.Errorf("got exit %d, %+v, want undecided at L0", r.Exit, r.Assurance)
	}
}

// A run that was registered and killed has no end to be logged. Its receipt is
// believed for what it is; a closed journal's is undecided without its proofs.
func TestRegisteredAndKilled(t *testing.T) {
	bare := func(b *receipt.Bundle) { b.Log, b.LogProof = nil, nil }
	tryAll(t,
		logCase{name: "killed", kit: func(k *kit) { k.open, k.bundle = true, bare }, exit: unsure},
		logCase{name: "closed", kit: func(k *kit) { k.bundle = bare }, exit: unsure, check: verify.CheckLogMembers, says: "no proof of it"},
		logCase{name: "killed, with a FINAL", kit: func(k *kit) { k.open = true }, exit: invalid, check: verify.CheckLogEntries, says: "without a closing row"},
	)
	k := loggedKit()
	k.open, k.bundle = true, bare
	r := verify.Verify(k.make(t), k.logPolicy(t), now)
	if r.Verdict != "INCONCLUSIVE" || r.Assurance == nil || !strings.Contains(r.Assurance.Detail, "killed") {
		t.Errorf("got %s, %+v, want INCONCLUSIVE at L0, killed", r.Verdict, r.Assurance)
	}
}
