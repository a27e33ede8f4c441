package verify_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// footprintVectors are bundles of testvectors/tamper whose set states a footprint.
func footprintVectors(t *testing.T, add func(bundleVector, func(*kit))) {
	vector := func(file, about, redteam, under string, exit int, check, verdict string, change func(*kit)) {
		add(bundleVector{file, about, strings.Fields(redteam), under, exit, check, verdict}, change)
	}
	with := func(gate bool, do func(*fixture.Run), names ...string) func(*kit) {
		return func(k *kit) { bound(k, gate, do, names...) }
	}
	vector("ok-footprint.cleanrun", "A run that changed what the sealed footprint allows.", "", "policy-footprint.txt", verify.ExitClean, "", "CLEAN", with(true, nil, "/work/b"))
	vector("footprint-outside.cleanrun", "A run that deleted a file out of the footprint.", "", "policy-footprint.txt", verify.ExitDirty, "", "DIRTY", with(true, deleteKey, "/work/b", keyFile))
	vector("rt58b-footprint.cleanrun", "A run that deleted such a file and put it back.", "58b", "policy.txt", verify.ExitDirty, "", "DIRTY", with(true, deleteAndRestore, "/work/b", keyFile))
	vector("footprint-reported.cleanrun", "The task has no gate: it is reported alone.", "", "policy.txt", verify.ExitClean, "", "CLEAN", with(false, deleteKey, "/work/b", keyFile))
	vector("footprint-reported.cleanrun", "The same where the policy requires a footprint within.", "", "policy-footprint.txt", verify.ExitUndecided, "", verify.Undecided, with(false, deleteKey, "/work/b", keyFile))
	vector("footprint-unopened.cleanrun", "The evidence keeps the name of a changed path back.", "", "policy.txt", verify.ExitUndecided, "", "INCONCLUSIVE", with(true, deleteKey, "/work/b"))

	invalid := func(file, about, check string, change func(*kit)) {
		vector(file, about, "", "policy.txt", verify.ExitInvalid, check, "", func(k *kit) {
			with(true, deleteKey, "/work/b", keyFile)(k)
			change(k)
		})
	}
	invalid("field-footprint.cleanrun", "The statement says that nothing is outside.", verify.CheckFields, func(k *kit) {
		k.statement = func(s *attest.Statement) { s.Predicate.Footprint.Outside.First = []attest.OutsidePath{} }
	})
	invalid("footprint-compact.cleanrun", "A compact proof of a run whose footprint only all rows show.", verify.CheckCompact, func(k *kit) {
		k.bundle = func(b *receipt.Bundle) {
			sealed, err := receipt.ParseSealed(b.Sealed)
			if err != nil {
				t.Fatal(err)
			}
			set, err := contraband.ParseSet(sealed.Set())
			if err != nil {
				t.Fatal(err)
			}
			ev, err := attest.ReadEvidence(b.Evidence)
			if err != nil {
				t.Fatal(err)
			}
			set.Footprint = nil
			p, err := compact.Prove(set, ev)
			if err != nil {
				t.Fatal(err)
			}
			if b.Proof, err = p.Marshal(); err != nil {
				t.Fatal(err)
			}
			b.Evidence = nil
		}
	})
	opened := func(file, about string, change func(*attest.Openings)) {
		invalid(file, about, verify.CheckEvidence, func(k *kit) {
			const said = "done\n"
			sum := sha256.Sum256([]byte(said))
			record := k.record
			var seq uint64
			k.record = func(r *fixture.Run) {
				record(r)
				seq = r.Add(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, journal.Detail{SHA256: sum[:]}, &fixture.Content{Size: uint64(len(said))})
			}
			names := k.openings
			k.openings = func(r *fixture.Run, p *fixture.Pack) {
				names(r, p)
				if err := r.OpenRow(p, seq, []byte(said)); err != nil {
					t.Fatal(err)
				}
			}
			k.pack = func(p *fixture.Pack) { change(p.Trailer.Openings) }
		})
	}
	opened("openings-empty.cleanrun", "Openings of nothing.", func(o *attest.Openings) { *o = attest.Openings{} })
	opened("openings-unsorted.cleanrun", "Opened paths out of order.", func(o *attest.Openings) { slices.Reverse(o.Paths) })
	opened("openings-repeated.cleanrun", "A path opened twice.", func(o *attest.Openings) { o.Paths = append(o.Paths, o.Paths[1]) })
	opened("openings-key.cleanrun", "A path under another key, which opens no digest.", func(o *attest.Openings) { o.Paths[0].Key[31] ^= 1 })
	opened("openings-path.cleanrun", "An allowed path in place of the one that was changed.", func(o *attest.Openings) { o.Paths[1].Path = "/work/c" })
	opened("openings-detail.cleanrun", "A detail that its row does not commit to.", func(o *attest.Openings) { o.Rows[0].Detail[len(o.Rows[0].Detail)-1] ^= 1 })
	opened("openings-content.cleanrun", "A content of the same length, with another hash.", func(o *attest.Openings) { (*o.Rows[0].Content)[0] ^= 1 })
	opened("openings-row.cleanrun", "A row that is not there.", func(o *attest.Openings) { o.Rows[0].Seq = 1 << 40 })
	opened("openings-marker.cleanrun", "A marker where the start row binds none.", func(o *attest.Openings) { o.Marker = make([]byte, 32) })
}
