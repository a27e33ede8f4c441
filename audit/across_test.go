package audit_test

import (
	"crypto/sha256"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

func expectAll(t testing.TB, r *audit.Report, exit int, want ...[]string) {
	t.Helper()
	if r.Exit != exit || len(r.Submissions) != len(want) {
		t.Fatalf("got exit %d for %d submissions, want %d\n%s", r.Exit, len(r.Submissions), exit, r.Text())
	}
	for i, s := range r.Submissions {
		if got := ids(s); !slices.Equal(got, want[i]) {
			t.Errorf("submission %d: got %q, want %q", i, got, want[i])
		}
	}
	if t.Failed() {
		t.Log(r.Text())
	}
}

var none = []string{}

// Attack 81: a receipt replayed for another model, task or attempt.
func TestRT81_Replay(t *testing.T) {
	t.Run("control: two models with runs of their own", func(t *testing.T) {
		a, b := newKit(), newKit()
		b.model = "model 3"
		expectAll(t, run(policy(), a.make(t), b.make(t)), 0, none, none)
	})
	t.Run("all receipts under another model", func(t *testing.T) {
		k := newKit()
		k.build = func(in *submission.Input) { in.Model.Name = "model 3" }
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.ReceiptOtherAgent)
		if got := detail(t, r.Submissions[0], audit.ReceiptOtherAgent); !strings.Contains(got, `the receipt is of agent "agent 1.0", model "model 2"; the submission of agent "agent 1.0", model "model 3"`) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("one receipt under another agent", func(t *testing.T) {
		k := newKit()
		a := k.at("task-b", 1, 1)
		a.Agent, a.Model = "better agent", k.model
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.ReceiptOtherAgent)
		if n := len(r.Submissions[0].Findings); n != 1 {
			t.Errorf("got %d findings, want 1", n)
		}
	})
	t.Run("one receipt of a submission in another one, of the same runner under another model", func(t *testing.T) {
		a, b := newKit(), newKit()
		b.model = "model 3"
		x := b.at("task-b", 1, 1)
		x.Agent, x.Model = a.agent, a.model // the bundle of a
		r := run(policy(), a.make(t), b.make(t))
		expectAll(t, r, 1, none, []string{audit.HeadReused, audit.ReceiptOtherAgent})
		if got := detail(t, r.Submissions[1], audit.HeadReused); !strings.Contains(got, "task-b, trial 1, attempt 1") || !strings.Contains(got, `model "model 2"`) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("one submission twice, under two agents without a name in the receipts", func(t *testing.T) {
		a, b := newKit(), newKit()
		a.agent, a.model, b.agent, b.model = "", "", "", ""
		b.build = func(in *submission.Input) {
			in.Agent.Files = []submission.File{{Name: "agent", SHA256: strings.Repeat("a", 64)}}
		}
		r := run(policy(), a.make(t), b.make(t))
		expectAll(t, r, 1, []string{audit.HeadReused}, []string{audit.HeadReused})
	})
	t.Run("somebody else's receipts, all of them", func(t *testing.T) {
		a, b := newKit(), newKit()
		b.signer = other
		r := run(policy("runner "+other.Public().String()), a.make(t), b.make(t))
		expectAll(t, r, 1, none, []string{audit.HeadReused, audit.ReceiptOtherRunner})
	})
	t.Run("somebody else's evidence, signed again", func(t *testing.T) {
		a, b := newKit(), newKit()
		b.signer, b.runner = other, other
		r := run(policy("runner "+other.Public().String()), a.make(t), b.make(t))
		expectAll(t, r, 3, []string{audit.HeadDisputed}, []string{audit.HeadDisputed})
	})
	t.Run("control: somebody else's run ids on other runs", func(t *testing.T) {
		a, b := newKit(), newKit()
		b.signer, b.runner = other, other
		for i := range b.attempts {
			b.attempts[i].Do = func(r *fixture.Run) { fixture.Honest(r); r.Read("/work/c", fixture.Content{Filler: 3}) }
		}
		r := run(policy("runner "+other.Public().String()), a.make(t), b.make(t))
		expectAll(t, r, 0, none, none)
	})
	t.Run("for another task", func(t *testing.T) {
		k := newKit()
		k.statement = func(s *submission.Statement) {
			a, b := cell(s, "task-a", 1, 1), cell(s, "task-b", 1, 1)
			a.Bundle, a.Receipt, a.Root, a.Run = b.Bundle, b.Receipt, b.Root, b.Run
			reroot(t, s, k.bundles)
		}
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.ReceiptUnlisted, audit.ReceiptSwapped, audit.HeadReused)
	})
	t.Run("for another attempt", func(t *testing.T) {
		k := newKit()
		k.statement = func(s *submission.Statement) {
			a, b := cell(s, "task-a", 1, 1), cell(s, "task-a", 2, 1)
			a.Bundle, a.Receipt, a.Root, a.Run = b.Bundle, b.Receipt, b.Root, b.Run
			reroot(t, s, k.bundles)
		}
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.ReceiptUnlisted, audit.ReceiptSwapped, audit.HeadReused)
		if got := detail(t, r.Submissions[0], audit.ReceiptSwapped); !strings.Contains(got, "the receipt is of task-a, trial 2") {
			t.Errorf("got %q", got)
		}
	})
}

// The same folder twice is one eval that is published twice.
func TestSameSubmissionTwice(t *testing.T) {
	dir := newKit().make(t)
	expectAll(t, run(policy(), dir, dir), 1, []string{audit.HeadReused}, []string{audit.HeadReused})
}

func TestSeals(t *testing.T) {
	later := mustSeal(owner, "bench", []string{"task-a", "task-b", "task-c", "task-d"})
	under := func(seal *fixture.Seal) *kit {
		k := newKit()
		k.seal, k.agent = seal, "agent of "+seal.Claims.Benchmark
		return k
	}
	t.Run("mixed", func(t *testing.T) {
		k := newKit()
		k.add = func() []submission.Attempt {
			data, err := later.Bundle(k.runner, fixture.Attempt{Task: "task-b", Trial: 1, Attempt: 1, Agent: k.agent, Model: k.model, Score: "1"})
			if err != nil {
				t.Fatal(err)
			}
			k.bundles[sum(data)] = data
			return []submission.Attempt{attempt(t, data)}
		}
		k.drop("task-b", 1, 1)
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.SealMixed)
		if got := detail(t, r.Submissions[0], audit.SealMixed); !strings.Contains(got, "1 receipt under the seal") || !strings.Contains(got, "5 receipts under the seal") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("sets that were sealed one by one", func(t *testing.T) {
		k := newKit()
		k.seal = mustSeal(owner, "bench", tasks)
		for _, task := range tasks {
			if err := k.seal.Alone(owner, task); err != nil {
				t.Fatal(err)
			}
		}
		r := run(policy(), k.make(t))
		expect(t, r, 1, audit.SealOther)
		if got := detail(t, r.Submissions[0], audit.SealOther); !strings.Contains(got, "its receipts are under no benchmark's seal") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of another benchmark than most", func(t *testing.T) {
		second := mustSeal(owner, "easy-bench", tasks)
		b := under(second)
		c := newKit()
		c.model = "model 3"
		r := run(policy(), b.make(t), newKit().make(t), c.make(t))
		expectAll(t, r, 1, []string{audit.SealOther}, none, none)
		if got := detail(t, r.Submissions[0], audit.SealOther); !strings.Contains(got, "the one of most submissions") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of another benchmark than a head of zeros", func(t *testing.T) {
		expectAll(t, audit.Run([]string{newKit().make(t)}, audit.Options{Policy: policy(), Now: now, Seal: new([32]byte)}), 1, []string{audit.SealOther})
	})
	t.Run("of another benchmark than the audit was given", func(t *testing.T) {
		dir := newKit().make(t)
		for _, c := range []struct {
			seal *fixture.Seal
			exit int
			want []string
		}{{sealed(), 0, none}, {later, 1, []string{audit.SealOther}}} {
			head := sha256.Sum256(c.seal.Head)
			r := audit.Run([]string{dir}, audit.Options{Policy: policy(), Now: now, Seal: &head})
			expectAll(t, r, c.exit, c.want)
		}
	})
}

// A vendor that seals its own junk set is the party that is judged, whatever keys
// it uses and whatever the policy pins.
func TestVendorSealsItsOwnSet(t *testing.T) {
	vendor, second := fixture.NewKey("vendor.example/runner"), fixture.NewKey("vendor.example/owner")
	pin := func(lines ...string) *verify.Policy {
		p, err := verify.ParsePolicy([]byte(strings.Join(lines, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	own := func(by fixture.Key) *kit {
		k := newKit()
		k.seal, k.signer, k.runner, k.agent = mustSeal(by, "bench", tasks), vendor, vendor, "vendor's agent"
		return k
	}
	good, runs := "owner "+owner.Public().String(), "runner "+vendor.Public().String()
	honest := newKit()
	for _, c := range []struct {
		name   string
		policy *verify.Policy
		k      *kit
		exit   int
		want   []string
	}{
		{"control: a pinned owner's seal", pin(good, runs), func() *kit { k := own(vendor); k.seal = sealed(); return k }(), 0, none},
		{"one key, owner pinned", pin(good, runs), own(vendor), 3, []string{audit.SealedByJudged}},
		{"one key, pinned in both roles", pin("owner "+vendor.Public().String(), runs), own(vendor), 3, []string{audit.SealedByJudged}},
		{"one key, no owner pinned", pin(runs), own(vendor), 3, []string{audit.SealedByJudged}},
		{"two keys, owner pinned", pin(good, runs), own(second), 3, []string{audit.SealedByJudged}},
		{"two keys, no owner pinned", pin(runs), own(second), 3, []string{audit.SealedByJudged}},
		{"two keys, the vendor's pinned as owner", pin("owner "+second.Public().String(), runs), own(second), 0, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(c.policy, c.k.make(t))
			expect(t, r, c.exit, c.want...)
			if len(c.want) > 0 && !strings.Contains(r.Text(), "sealed by the party being judged") {
				t.Errorf("got\n%s", r.Text())
			}
		})
	}
	t.Run("beside an honest submission", func(t *testing.T) {
		p := pin(good, runs, "runner "+runner.Public().String())
		expectAll(t, run(p, own(second).make(t), honest.make(t)), 3, []string{audit.SealedByJudged}, none)
	})
}

// Members that are no regular files are not followed.
func TestMembersAreNotFollowed(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
		exit int
	}{{audit.MemberCOSE, []string{audit.SubmissionInvalid}, 1}, {audit.MemberDSSE, []string{audit.SubmissionInvalid}, 1}, {"", []string{audit.BundleInvalid}, 1}} {
		k := newKit()
		dir := k.make(t)
		name := c.name
		if name == "" {
			name = k.nameOf(t, "task-b", 1, 1)
		}
		rename(t, dir, name, "../moved")
		if err := os.Symlink("../moved", dir+"/"+name); err != nil {
			t.Skip("no symbolic links here:", err)
		}
		r := run(policy(), dir)
		expect(t, r, c.exit, c.want...)
		if got := detail(t, r.Submissions[0], c.want[0]); !strings.Contains(got, "got a symbolic link, want a regular file") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestNoSubmission(t *testing.T) {
	if r := run(policy()); r.Exit != 3 {
		t.Errorf("got exit %d for no folder, want 3", r.Exit)
	}
	expect(t, run(policy(), t.TempDir()+"/none"), 1, audit.FolderUnusable)
	expect(t, run(policy(), t.TempDir()), 1, audit.FolderUnusable)
}
