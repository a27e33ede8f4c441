package verify_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var update = flag.Bool("update", false, "write testvectors/tamper again")

const vectorDir = "../testvectors/tamper"

// A bundleVector is one file of testvectors/tamper and what every driver
// (library, command line, browser) must say of it.
type bundleVector struct {
	File    string   `json:"file"`
	About   string   `json:"about"`
	RedTeam []string `json:"redteam"`
	Policy  string   `json:"policy"` // "" for none
	Exit    int      `json:"exit"`
	Check   string   `json:"check"` // that must fail, "" for none
	Verdict string   `json:"verdict"`
}

func TestTamperVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	data, err := os.ReadFile(filepath.Join(vectorDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []bundleVector
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("got %d vectors, want at least 20", len(list))
	}
	for _, v := range list {
		name := strings.TrimSuffix(v.File, ".cleanrun")
		if v.Policy == "" {
			name += ", no policy"
		}
		t.Run(name, func(t *testing.T) {
			bundle, err := os.ReadFile(filepath.Join(vectorDir, v.File))
			if err != nil {
				t.Fatal(err)
			}
			var policy *verify.Policy
			if v.Policy != "" {
				text, err := os.ReadFile(filepath.Join(vectorDir, v.Policy))
				if err != nil {
					t.Fatal(err)
				}
				if policy, err = verify.ParsePolicy(text); err != nil {
					t.Fatal(err)
				}
			}
			r := verify.Verify(bundle, policy, now)
			if got, want := of(r), (result{v.Exit, v.Check}); got != want || r.Verdict != v.Verdict {
				t.Fatalf("got %v, %s, want %v, %s\n%s", got, r.Verdict, want, v.Verdict, r.Text(v.File))
			}
			if rule := attest.RuleOpenings + ": "; strings.HasPrefix(name, "openings-") && !strings.Contains(r.FailedCheck().Detail, rule) {
				t.Errorf("got %s, want rule %s", r.FailedCheck().Detail, rule)
			}
		})
	}
}

// writeVectors makes the files. A format that changed changes them.
func writeVectors(t *testing.T) {
	if err := os.MkdirAll(vectorDir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(vectorDir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k := newKit()
	one := "owner " + k.owner.public.String() + "\nrunner " + k.runner.public.String() + "\n"
	write("policy.txt", []byte(one))
	write("policy-two.txt", []byte(one+"runner "+k.second.public.String()+"\nrequire second-signature\n"))

	var list []bundleVector
	add := func(v bundleVector, change func(*kit)) {
		k := newKit()
		k.groups = []fixture.Group{
			{Kind: contraband.KindReference, Class: contraband.ClassRaw, Items: []string{"file-raw"}},
			{Kind: contraband.KindReference, Class: contraband.ClassShingle, Items: fixture.Names("f", 16)},
		}
		if change != nil {
			change(k)
		}
		if v.Exit == verify.ExitInvalid {
			v.Verdict = verify.Invalid
		}
		write(v.File, k.make(t))
		list = append(list, v)
	}
	invalid := func(file, check, about string, redteam string, change func(*kit)) {
		add(bundleVector{file, about, strings.Fields(redteam), "policy.txt", verify.ExitInvalid, check, ""}, change)
	}
	add(bundleVector{"ok-clean.cleanrun", "An honest run.", []string{}, "policy.txt", verify.ExitClean, "", "CLEAN"}, nil)
	add(bundleVector{"ok-clean.cleanrun", "Without a policy nothing is decided.", []string{}, "", verify.ExitUndecided, "", verify.Undecided}, nil)
	add(bundleVector{"ok-dirty.cleanrun", "A run that read sealed content, some of it out of scope.", []string{"93"}, "policy.txt", verify.ExitDirty, "", "DIRTY"}, func(k *kit) { k.record = cheat })
	add(bundleVector{"ok-trace.cleanrun", "A run that read less than the limit.", []string{"48"}, "policy.txt", verify.ExitUndecided, "", "INCONCLUSIVE"}, func(k *kit) { k.record = trace })
	add(bundleVector{"ok-open.cleanrun", "A run whose journal has no final row.", []string{"8"}, "policy.txt", verify.ExitUndecided, "", "INCONCLUSIVE"}, func(k *kit) { k.open = true })
	add(bundleVector{"ok-two-signatures.cleanrun", "Two required signatures.", []string{}, "policy-two.txt", verify.ExitClean, "", "CLEAN"}, func(k *kit) { k.two = true })
	add(bundleVector{"rt73-stripped.cleanrun", "The second required signature is stripped.", []string{"73"}, "policy-two.txt", verify.ExitInvalid, verify.CheckSecond, ""}, nil)

	flip := func(member func(*receipt.Bundle) *[]byte, at func(n int) int) func(*kit) {
		return func(k *kit) {
			k.bundle = func(b *receipt.Bundle) {
				data := *member(b)
				data[at(len(data))] ^= 1
			}
		}
	}
	last := func(n int) int { return n - 1 }
	half := func(n int) int { return n / 2 }
	invalid("flip-receipt-signature.cleanrun", verify.CheckSignature, "The last bit of receipt.cose.", "", flip(func(b *receipt.Bundle) *[]byte { return &b.Receipt }, last))
	invalid("flip-receipt-statement.cleanrun", verify.CheckSignature, "A bit of the statement in receipt.cose.", "", flip(func(b *receipt.Bundle) *[]byte { return &b.Receipt }, half))
	invalid("flip-envelope.cleanrun", verify.CheckEnvelope, "A bit of the payload in statement.dsse.json.", "74", flip(func(b *receipt.Bundle) *[]byte { return &b.Statement }, half))
	invalid("flip-sealed.cleanrun", verify.CheckOwnerSig, "The last bit of task.sealed.", "", flip(func(b *receipt.Bundle) *[]byte { return &b.Sealed }, last))
	invalid("flip-evidence.cleanrun", verify.CheckEvidenceSum, "A bit of evidence.cbor.", "1", flip(func(b *receipt.Bundle) *[]byte { return &b.Evidence }, half))
	invalid("rt18-other-seal.cleanrun", verify.CheckBinding, "The run was recorded under another sealed set.", "18", func(k *kit) { k.sealDigest = &[32]byte{1} })
	invalid("rt30-entry-root.cleanrun", verify.CheckEvidence, "An entry leaves out a digest and keeps its root; all is signed so.", "30", func(k *kit) {
		k.pack = func(p *fixture.Pack) {
			for i := range p.Items {
				if e := p.Items[i].Entry; e != nil && len(e.Digests) > 64 {
					e.Digests = e.Digests[16:]
				}
			}
			p.Grow()
		}
	})
	invalid("rt31-tree-omits.cleanrun", verify.CheckEvidence, "The tree leaves out a digest; all is signed so.", "31", func(k *kit) {
		k.pack = func(p *fixture.Pack) {
			for i := range p.Items {
				if e := p.Items[i].Entry; e != nil && len(e.Digests) > 64 {
					kept := e.Digests
					e.Digests = kept[16:]
					p.Grow()
					e.Digests = kept
				}
			}
		}
	})
	invalid("rt12-no-rows.cleanrun", verify.CheckEvidence, "A journal of size 0.", "12", func(k *kit) {
		k.pack = func(p *fixture.Pack) { p.Items = nil; p.Rehead(); p.Grow() }
	})
	invalid("rt70-name-and-role.cleanrun", verify.CheckRunnerKey, "An attacker's key under the pinned name.", "70 71", func(k *kit) {
		k.runner = namedSigner("evals.example/runner", "attacker")
	})
	invalid("rt75-other-head.cleanrun", verify.CheckSubject, "The subject is not the journal head.", "75", func(k *kit) {
		k.statement = func(s *attest.Statement) { s.Subject[0].Digest.SHA256 = strings.Repeat("0", 64) }
	})
	invalid("rt75-two-subjects.cleanrun", verify.CheckStatement, "A second subject.", "75", func(k *kit) {
		k.statement = func(s *attest.Statement) { s.Subject = append(s.Subject, s.Subject[0]) }
	})
	invalid("rt75-predicate-type.cleanrun", verify.CheckStatement, "Another predicate type.", "75", func(k *kit) {
		k.statement = func(s *attest.Statement) { s.PredicateType = "https://slsa.dev/provenance/v1" }
	})
	invalid("rt83-stored-clean.cleanrun", verify.CheckVerdict, "The statement says CLEAN, the evidence DIRTY.", "83", func(k *kit) {
		k.record = cheat
		k.statement = func(s *attest.Statement) { s.Predicate.Verdict = attest.Clean }
	})
	invalid("rt84-stored-dirty.cleanrun", verify.CheckVerdict, "The statement says DIRTY, the evidence CLEAN.", "84", func(k *kit) {
		k.statement = func(s *attest.Statement) { s.Predicate.Verdict = attest.Dirty }
	})
	invalid("field-attempt.cleanrun", verify.CheckFields, "The statement names another attempt.", "81", func(k *kit) {
		k.statement = func(s *attest.Statement) { s.Predicate.Run.Attempt = 2 }
	})
	grading := func(k *kit) {
		g := gradedKit(k.record, fullReward)
		k.set, k.record = g.set, g.record
	}
	add(bundleVector{"ok-graded.cleanrun", "A graded run: the reward stands in the rows.", []string{}, "policy.txt", verify.ExitClean, "", "CLEAN"}, grading)
	add(bundleVector{"rt58f-planted.cleanrun", "A reward file was there when grading started.", []string{"58f"}, "policy.txt", verify.ExitDirty, "", "DIRTY"}, func(k *kit) {
		grading(k)
		k.record = func(r *fixture.Run) {
			honest(r)
			r.Grade(journal.PhaseEnd{How: journal.Exited})
			r.Guard("/cleanrun/reward/reward.txt", journal.GuardReward, false)
			r.Graded([]journal.Reward{fullReward}, &journal.PhaseEnd{How: journal.Exited})
		}
	})
	invalid("rt58f-other-grader.cleanrun", verify.CheckBinding, "The run was graded by another command than the sealed one.", "58f", func(k *kit) {
		grading(k)
		k.start = func(s *journal.Start) { s.Phases.Grade = []string{"true"} }
	})
	invalid("field-score.cleanrun", verify.CheckFields, "The statement says a higher score than the rows hold.", "", func(k *kit) {
		grading(k)
		k.statement = func(s *attest.Statement) { s.Predicate.Score.Value = "2" }
	})
	invalid("field-score-asserted.cleanrun", verify.CheckFields, "The statement calls a recorded reward asserted.", "", func(k *kit) {
		grading(k)
		k.statement = func(s *attest.Statement) { s.Predicate.Score.Source = attest.ScoreAsserted }
	})
	part := func(change func(*kit)) func(*kit) {
		return func(k *kit) {
			k.head = func(*contraband.Head) {}
			if change != nil {
				change(k)
			}
		}
	}
	add(bundleVector{"ok-part.cleanrun", "The sealed set is part of a benchmark's seal.", []string{}, "policy.txt", verify.ExitClean, "", "CLEAN"}, part(nil))
	invalid("part-flip-head.cleanrun", verify.CheckOwnerSig, "The last bit of the head's root, under the old signature.", "", part(func(k *kit) {
		k.bundle = func(b *receipt.Bundle) {
			s, err := receipt.ParseSealed(b.Sealed)
			if err != nil {
				t.Fatal(err)
			}
			h, err := contraband.ParseHead(s.Signed.Unauthenticated().Payload)
			if err != nil {
				t.Fatal(err)
			}
			b.Sealed[bytes.Index(b.Sealed, h.Root[:])+31] ^= 1
		}
	}))
	invalid("part-flip-proof.cleanrun", verify.CheckInclusion, "A bit of the inclusion proof; statement and run are of this part.", "11", part(func(k *kit) {
		k.part = func(p *receipt.Part) { p.Path[1][0] ^= 1 }
	}))
	invalid("part-index.cleanrun", verify.CheckInclusion, "The index of another set.", "11", part(func(k *kit) {
		k.part = func(p *receipt.Part) { p.Index = 0 }
	}))
	invalid("rt18-part-other-set.cleanrun", verify.CheckInclusion, "Another set beside the owner's head, its run and statement too.", "18", part(func(k *kit) {
		k.part = func(p *receipt.Part) {
			s, err := contraband.ParseSet(p.Set)
			if err != nil {
				t.Fatal(err)
			}
			s.Kept--
			if p.Set, err = s.Marshal(); err != nil {
				t.Fatal(err)
			}
		}
	}))
	invalid("part-other-benchmark.cleanrun", verify.CheckInclusion, "The head is of another benchmark than the set under it.", "", part(func(k *kit) {
		k.head = func(h *contraband.Head) { h.Benchmark = "other" }
	}))
	invalid("rt25-part-public-key.cleanrun", verify.CheckInclusion, "The head publishes a key that did not seal the set.", "25", part(func(k *kit) {
		k.head = func(h *contraband.Head) { h.Key, h.Data = []byte("0123456789abcdefghijklmnopqrstuv"), [32]byte{1} }
	}))
	invalid("rt70-part-owner.cleanrun", verify.CheckOwnerKey, "An attacker's head under the pinned owner's name.", "70", part(func(k *kit) {
		s := namedSigner("bench.example/owner", "attacker")
		k.sealedBy = &s
	}))
	with := func(change func(*compact.Proof)) func(*kit) {
		return func(k *kit) { k.record, k.bundle = trace, compacted(t, change) }
	}
	full := func(p *compact.Proof) int { // a bucket of two digests, and not the first
		return 1 + slices.IndexFunc(p.Buckets[1:], func(b []byte) bool { return len(b) == 2*bucket.EntrySize })
	}
	add(bundleVector{"ok-compact.cleanrun", "A compact proof in place of the evidence.", []string{"32"}, "policy.txt", verify.ExitUndecided, "", "INCONCLUSIVE"}, with(nil))
	invalid("rt33-compact-neighbour.cleanrun", verify.CheckCompact, "Two buckets of the compact proof have changed places.", "33", with(func(p *compact.Proof) {
		i := full(p)
		p.Buckets[i-1], p.Buckets[i] = p.Buckets[i], p.Buckets[i-1]
	}))
	invalid("rt34-compact-foreign.cleanrun", verify.CheckCompact, "A bucket of the compact proof holds a digest that belongs into another.", "34", with(func(p *compact.Proof) {
		p.Buckets[full(p)][0] ^= 0x80
	}))
	invalid("rt35-compact-unsorted.cleanrun", verify.CheckCompact, "A bucket of the compact proof is unsorted.", "35", with(func(p *compact.Proof) {
		b := p.Buckets[full(p)]
		p.Buckets[full(p)] = slices.Concat(b[bucket.EntrySize:], b[:bucket.EntrySize])
	}))
	invalid("rt36-compact-missing.cleanrun", verify.CheckCompact, "The compact proof has no bucket for one sealed item.", "36", with(func(p *compact.Proof) {
		p.Buckets = p.Buckets[1:]
	}))
	invalid("rt83-compact-clean.cleanrun", verify.CheckVerdict, "The statement says CLEAN, the compact proof INCONCLUSIVE.", "83", func(k *kit) {
		with(nil)(k)
		k.statement = func(s *attest.Statement) { s.Predicate.Verdict = attest.Clean }
	})
	write("policy-footprint.txt", []byte(one+"require footprint\n"))
	footprintVectors(t, add)
	logVectors(t, write, add)
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	write("index.json", append(data, '\n'))
}
