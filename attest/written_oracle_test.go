package attest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A plainChange is an operation in plaintext.
type plainChange struct {
	op       journal.Op
	from, to string
	folder   bool
}

// writtenOracle answers from plaintext, one path at a time, for the patterns out/** and
// /srv/data/db/*.
type writtenOracle struct {
	changes []plainChange
	opened  []string
}

// uses lists the changes that count of one path.
func (o *writtenOracle) uses(path string) (of []plainChange) {
	if path != "/work" && !strings.HasPrefix(path, "/work/") && path != "/srv/data" && !strings.HasPrefix(path, "/srv/data/") {
		return nil
	}
	for _, c := range o.changes {
		if c.op != journal.OpUtime && (c.from == path || c.to == path) {
			of = append(of, c)
		}
	}
	return of
}

func (o *writtenOracle) within(path string) bool {
	if path == "/work/out" || strings.HasPrefix(path, "/work/out/") {
		return true
	}
	for _, c := range o.uses(path) {
		if c.folder {
			return false // the other pattern stands for names alone
		}
	}
	name, ok := strings.CutPrefix(path, "/srv/data/db/")
	return ok && !strings.Contains(name, "/")
}

func (o *writtenOracle) judge() (written, unopened int, outside []string) {
	seen := map[string]bool{}
	for _, c := range o.changes {
		for _, path := range []string{c.from, c.to} {
			if path == "" || seen[path] || len(o.uses(path)) == 0 {
				continue
			}
			seen[path] = true
			written++
			switch {
			case !slices.Contains(o.opened, path):
				unopened++
			case !o.within(path):
				of := o.uses(path)
				outside = append(outside, path+" "+of[len(of)-1].op.String())
			}
		}
	}
	slices.Sort(outside)
	return written, unopened, outside
}

func TestFootprintEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 5))
	pool := []string{"/work", "/work/a", "/work/out", "/work/out/x", "/work/out/x/y", "/work/outs", "/work2/a", "/srv/data", "/srv/data/db", "/srv/data/db/x", "/srv/data/db/x/y", "/tmp/x", "/tmp/out"}
	ops := []journal.Op{journal.OpUnlink, journal.OpChmod, journal.OpUtime, journal.OpMkdir, journal.OpRename, journal.OpRename, journal.OpLink}
	outcomes := map[string]int{}
	for round := range 400 {
		o := &writtenOracle{}
		for range 1 + rng.IntN(7) {
			c := plainChange{op: ops[rng.IntN(len(ops))], from: pool[rng.IntN(len(pool))]}
			if c.op == journal.OpRename || c.op == journal.OpLink {
				for c.to = c.from; c.to == c.from; {
					c.to = pool[rng.IntN(len(pool))]
				}
				c.folder = c.op == journal.OpRename && rng.IntN(3) == 0
			}
			o.changes = append(o.changes, c)
		}
		b := bounded{allowed: []string{"out/**", "/srv/data/db/*"}, gate: rng.IntN(2) == 0}
		for _, path := range pool {
			if len(o.uses(path)) > 0 && rng.IntN(6) > 0 {
				o.opened = append(o.opened, path)
				b.names += " " + path
			}
		}
		b.do = func(r *fixture.Run) {
			for _, c := range o.changes {
				var flags journal.Flags
				if c.folder {
					flags = journal.FlagDirectory
				}
				r.Change(c.op, flags, c.from, c.to)
			}
		}
		written, unopened, outside := o.judge()
		f := b.build(t).Derivation.Footprint
		var got []string
		for _, one := range f.Outside {
			got = append(got, one.Path+" "+one.Op)
		}
		outcome := attest.FootprintWithin
		switch {
		case len(outside) > 0:
			outcome = attest.FootprintOutside
		case unopened > 0:
			outcome = attest.FootprintInconclusive
		}
		outcomes[outcome]++
		if fmt.Sprint(f.Written, f.Unopened, got, f.Outcome) != fmt.Sprint(written, unopened, outside, outcome) {
			t.Fatalf("round %d: %+v, opened %q: got %d written, %d not opened, outside %q, %s, want %d, %d, %q, %s",
				round, o.changes, o.opened, f.Written, f.Unopened, got, f.Outcome, written, unopened, outside, outcome)
		}
	}
	for _, outcome := range []string{attest.FootprintWithin, attest.FootprintOutside, attest.FootprintInconclusive} {
		if outcomes[outcome] < 20 {
			t.Errorf("got %v, want at least 20 of %s", outcomes, outcome)
		}
	}
}
