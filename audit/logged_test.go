package audit_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// loggedKit logs every attempt in one log with two witnesses.
func loggedKit(log *fixture.Log) *kit {
	k := newKit()
	for i := range k.attempts {
		k.attempts[i].Log = &fixture.Logging{Log: log, Owner: owner, Runner: runner, Heads: []uint64{3}}
	}
	return k
}

func newLog() *fixture.Log { return fixture.NewLog("log.example/1", 2) }

func TestLoggedSubmission(t *testing.T) {
	log := newLog()
	dir := loggedKit(log).make(t)
	r := run(policy(log.PolicyLines(2)), dir)
	expect(t, r, 0)
	if s := r.Submissions[0]; s.Logged != 6 || s.Cells[0].Level != verify.L1 || !strings.Contains(r.Text(), " assurance   L1: 6 bundles sealed and registered before the run\n") {
		t.Errorf("got %d\n%s", s.Logged, r.Text())
	}
	// A policy without a log says nothing of it.
	r = run(policy(), dir)
	expect(t, r, 0)
	if s := r.Submissions[0]; s.Logged != 0 || s.Cells[0].Level != verify.L0 || strings.Contains(r.Text(), "assurance") {
		t.Errorf("got %d\n%s", s.Logged, r.Text())
	}
}

// RT85: one bundle at a lower assurance is named, and so is a submission that is
// not logged at all under a policy that asks for it.
func TestRT85_LowerAssurance(t *testing.T) {
	log := newLog()
	k := loggedKit(log)
	k.at("task-b", 2, 1).Log = nil
	r := run(policy(log.PolicyLines(2)), k.make(t))
	expect(t, r, 3, audit.AssuranceLower)
	if n := len(r.Submissions[0].Findings); n != 1 {
		t.Errorf("got %d findings", n)
	}
	at := slices.IndexFunc(r.Submissions[0].Cells, func(c audit.Cell) bool { return c.Task == "task-b" && c.Trial == 2 })
	want := "task-b, trial 2, attempt 1: the file " + r.Submissions[0].Cells[at].Bundle + audit.BundleExt + ": L0, and 5 other bundles of the submission are at L1: log-members: the run was not logged"
	if got := detail(t, r.Submissions[0], audit.AssuranceLower); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.Contains(r.Text(), " assurance   L1: 5 bundles sealed and registered before the run; L0: 1 bundle\n") {
		t.Errorf("got\n%s", r.Text())
	}
	r = run(policy(log.PolicyLines(2)), newKit().make(t))
	expect(t, r, 3, audit.AssuranceLower)
	if n := len(r.Submissions[0].Findings); n != 6 {
		t.Errorf("got %d findings", n)
	}
	// A killed run has no end to log: its state says enough.
	dead := newLog()
	k = loggedKit(dead)
	a := k.at("task-b", 2, 1)
	a.Open, a.Log.Unended = true, true
	expect(t, run(policy(dead.PolicyLines(2)), k.make(t)), 3)
	// Witnesses who are not there lower it too.
	few := newLog()
	k = loggedKit(few)
	k.at("task-a", 1, 1).Log.Note = func(_ int, note []byte) []byte {
		lines := strings.SplitAfter(string(note), "\n")
		return []byte(strings.Join(lines[:len(lines)-2], ""))
	}
	expect(t, run(policy(few.PolicyLines(2)), k.make(t)), 3, audit.AssuranceLower)
}

// RT27: verify cannot decide a bundle of a key period that is over, nor does audit.
func TestRT27_KeyPeriod(t *testing.T) {
	r := run(policy("require period 2026-2"), newKit().make(t))
	expect(t, r, 3, audit.BundleUndecided)
	if got := detail(t, r.Submissions[0], audit.BundleUndecided); !strings.Contains(got, "key-period: ") {
		t.Errorf("got %q", got)
	}
}

// RT78: a log that showed two runners two trees of one size. Each bundle verifies.
func TestRT78_SplitViewAcrossBundles(t *testing.T) {
	log := newLog()
	log.Add([]byte("an entry that both see"))
	fork := log.Fork()
	fork.Add([]byte("one that the first runner does not see"))
	log.Add([]byte("one that the second runner does not see"))
	a, b := loggedKit(log), loggedKit(fork)
	b.agent = "agent 2.0"
	p := policy(log.PolicyLines(2))
	one, two := a.make(t), b.make(t)
	for _, dir := range []string{one, two} {
		expect(t, run(p, dir), 0)
	}
	r := run(p, one, two)
	expectAll(t, r, 1, []string{audit.SplitView}, []string{audit.SplitView})
	f := r.Submissions[1].Findings[0]
	if len(f.Evidence) != 2 {
		t.Fatalf("got %+v", f)
	}
	var seen []*proof.Verified
	for _, note := range f.Evidence {
		u, err := proof.ParseCheckpoint([]byte(note))
		if err != nil {
			t.Fatal(err)
		}
		v, err := u.Verify(log.Key.Public())
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, v)
		for l := range strings.Lines(note) {
			if !strings.Contains(r.Text(), "   "+l) {
				t.Errorf("the text lacks %q", l)
			}
		}
	}
	if x, y := seen[0].Checkpoint(), seen[1].Checkpoint(); x.Size != y.Size || x.Root == y.Root {
		t.Errorf("got %+v and %+v", x, y)
	}
	var junit bytes.Buffer
	if err := r.WriteJUnit(&junit); err != nil || !strings.Contains(junit.String(), audit.SplitView) {
		t.Errorf("got %s, %v", junit.String(), err)
	}
	// Control: the same two runners in one log.
	log = newLog()
	a, b = loggedKit(log), loggedKit(log)
	b.agent = "agent 2.0"
	expectAll(t, run(policy(log.PolicyLines(2)), a.make(t), b.make(t)), 0, none, none)
}

// RT78: two trees of one size within one bundle.
func TestRT78_SplitViewInABundle(t *testing.T) {
	log := newLog()
	k := loggedKit(log)
	size := uint64(0)
	k.at("task-c", 1, 1).Log.Note = func(place int, note []byte) []byte {
		switch place {
		case 1:
			size = log.Size()
		case 2:
			return log.CheckpointOf(size, [32]byte{7})
		}
		return note
	}
	r := run(policy(log.PolicyLines(2)), k.make(t))
	expect(t, r, 1, audit.SplitView)
	if f := r.Submissions[0].Findings[0]; len(f.Evidence) != 2 || !strings.HasPrefix(f.Where, "task-c, trial 1") {
		t.Errorf("got %+v", f)
	}
}

// An attempt that was registered and killed cannot be logged to its end: it is no
// finding of its own. One that was not even registered is.
func TestRegisteredAndKilled(t *testing.T) {
	for _, registered := range []bool{true, false} {
		log := newLog()
		k := loggedKit(log)
		killed(k, "task-b", 1)
		next := k.at("task-b", 1, 2)
		next.Log = &fixture.Logging{Log: log, Owner: owner, Runner: runner, Heads: []uint64{3}}
		if !registered {
			k.at("task-b", 1, 1).Log = nil
		}
		r := run(policy(append([]string{"require infrastructure-rate 20"}, log.PolicyLines(2))...), k.make(t))
		if registered {
			expect(t, r, 0)
		} else {
			expect(t, r, 3, audit.AssuranceLower)
		}
	}
}
