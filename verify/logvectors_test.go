package verify_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// logVectors are the logged bundles of testvectors/tamper. Their log has one
// witness, whom the policy asks for.
func logVectors(t *testing.T, write func(string, []byte), add func(bundleVector, func(*kit))) {
	const policy = "policy-log.txt"
	logged := func(change func(*kit)) func(*kit) {
		return func(k *kit) {
			k.logging = &fixture.Logging{Log: fixture.NewLog("log.example/1", 1), Owner: k.owner, Runner: k.runner, Heads: []uint64{4}, Between: 1}
			if change != nil {
				change(k)
			}
		}
	}
	k := newKit()
	logged(nil)(k)
	write(policy, []byte(strings.Join(k.keyLines(), "\n")+"\n"+k.logging.Log.PolicyLines(1)))

	vector := func(file, about, redteam, under string, exit int, check, verdict string, change func(*kit)) {
		add(bundleVector{file, about, strings.Fields(redteam), under, exit, check, verdict}, logged(change))
	}
	bad := func(file, about, redteam, check string, change func(*kit)) {
		vector(file, about, redteam, policy, verify.ExitInvalid, check, "", change)
	}
	open := func(file, about, redteam string, change func(*kit)) {
		vector(file, about, redteam, policy, verify.ExitUndecided, "", verify.Undecided, change)
	}
	vector("ok-logged.cleanrun", "A run that was registered, with a CHECKPOINT: assurance L1.", "", policy, verify.ExitClean, "", "CLEAN", nil)
	vector("ok-logged.cleanrun", "The same under a policy that pins no log: assurance L0.", "85", "policy.txt", verify.ExitClean, "", "CLEAN", nil)
	bad("rt03-longer.cleanrun", "A CHECKPOINT of more rows than the journal has.", "3", verify.CheckLogEntries, func(k *kit) { k.logging.Heads = []uint64{40} })
	bad("rt03-left-out.cleanrun", "A CHECKPOINT that FINAL counts is left out.", "3", verify.CheckLogOrder, func(k *kit) {
		k.logging.Member = func(m *receipt.LogMember, _ *proof.LogProof) { m.Checkpoints = nil }
	})
	bad("rt19-sealed-late.cleanrun", "The set was sealed after the run was registered.", "19", verify.CheckLogOrder, func(k *kit) { k.logging.Late = true })
	bad("rt76-other-entry.cleanrun", "The proof of REGISTER is that of SEAL.", "76", verify.CheckLogInclusion, func(k *kit) {
		k.logging.Member = func(m *receipt.LogMember, _ *proof.LogProof) { m.Register.Path = m.Seal.Path }
	})
	bad("rt77-other-log.cleanrun", "A log that the policy does not pin.", "77", verify.CheckLogCheckpoints, func(k *kit) { k.logging.Log = fixture.NewLog("other.example/log", 1) })
	bad("rt77-attackers-key.cleanrun", "Another key under the pinned log's name.", "77", verify.CheckLogCheckpoints, func(k *kit) { k.logging.Log.Key = fixture.NewKeyFrom("log.example/1", "attacker") })
	bad("rt78-split-view.cleanrun", "Two checkpoints of one size with two roots.", "78", verify.CheckLogCheckpoints, func(k *kit) {
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
	})
	open("rt79-no-witness.cleanrun", "No witness cosigned.", "79", func(k *kit) { k.logging.Log.Witnesses = nil })
	open("rt80-stale.cleanrun", "A day between the registration and the end of a run that took no time.", "80", func(k *kit) { k.took = 86400 })
	bad("rt81-other-attempt.cleanrun", "The registration is of another attempt.", "81", verify.CheckLogEntries, func(k *kit) {
		k.logging.Register = func(r *entry.Register) { r.Attempt = 2 }
	})
	bad("log-member-alone.cleanrun", "log.cbor without log.tlog-proof.", "", verify.CheckLogMembers, func(k *kit) {
		k.bundle = func(b *receipt.Bundle) { b.LogProof = nil }
	})
}
