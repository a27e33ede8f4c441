package audit_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// killed makes the attempt of a trial an open journal, and adds a second attempt.
func killed(k *kit, task string, trial uint32) {
	first := k.at(task, trial, 1)
	first.Open, first.Score = true, ""
	k.attempts = append(k.attempts, fixture.Attempt{Task: task, Trial: trial, Attempt: 2, Score: "1"})
}

// Attack 82: attempts that were abandoned are hidden, or replaced without
// evidence, or more often than the policy allows.
func TestRT82_Attempts(t *testing.T) {
	const allowed = "require infrastructure-rate 20"
	for _, c := range []struct {
		name   string
		do     func(*kit)
		policy []string
		exit   int
		want   []string
		says   string
	}{
		{"control: replaced with evidence, as the policy allows", func(k *kit) { killed(k, "task-b", 1) }, []string{allowed}, 0, nil, ""},
		{"more often than the policy allows", func(k *kit) { killed(k, "task-b", 1) }, []string{"require infrastructure-rate 14"}, 3,
			[]string{audit.InfrastructureRate}, "1 of 7 attempts were replaced after failures of infrastructure; the policy allows 14%"},
		{"the policy says nothing", func(k *kit) { killed(k, "task-b", 1) }, nil, 3, []string{audit.InfrastructureRate}, "the policy allows 0%"},
		{"the first attempt is hidden", func(k *kit) {
			killed(k, "task-b", 1)
			k.drop("task-b", 1, 1)
		}, []string{allowed}, 3, []string{audit.AttemptHidden}, "task-b, trial 1, attempt 2: the attempt before it in the grid is 0: 1 attempt is not there"},
		{"one in the middle is hidden", func(k *kit) {
			killed(k, "task-b", 1)
			k.at("task-b", 1, 2).Attempt = 4
		}, []string{allowed}, 3, []string{audit.AttemptHidden}, "the attempt before it in the grid is 1: 2 attempts are not there"},
		{"a CLEAN attempt with a bad score is replaced", func(k *kit) {
			killed(k, "task-b", 1)
			first := k.at("task-b", 1, 1)
			first.Open, first.Score = false, "0"
		}, []string{allowed}, 3, []string{audit.AttemptReplaced}, "it is CLEAN, and another attempt stands in its place"},
		{"an INCONCLUSIVE attempt is replaced for its content", func(k *kit) {
			killed(k, "task-b", 1)
			first := k.at("task-b", 1, 1)
			first.Open, first.Do = false, fixture.Trace
		}, []string{allowed}, 3, []string{audit.AttemptReplaced}, "it is INCONCLUSIVE (trace)"},
		{"a killed attempt with a trace is replaced", func(k *kit) {
			killed(k, "task-b", 1)
			k.at("task-b", 1, 1).Do = fixture.Trace
		}, []string{allowed}, 3, []string{audit.AttemptReplaced}, "trace"},
		{"a DIRTY attempt is replaced", func(k *kit) {
			killed(k, "task-b", 1)
			first := k.at("task-b", 1, 1)
			first.Open, first.Do = false, fixture.Cheat
		}, []string{allowed}, 4, []string{audit.AttemptReplaced}, "it is DIRTY"},
		{"an attempt without a receipt is replaced", func(k *kit) {
			killed(k, "task-b", 1)
			k.drop("task-b", 1, 1)
			k.add = func() []submission.Attempt {
				return []submission.Attempt{{Cell: submission.Cell{Task: "task-b", Trial: 1, Attempt: 1, State: submission.Failed, Reasons: []string{}}}}
			}
		}, []string{allowed}, 3, []string{audit.AttemptReplaced}, "it is error"},
		{"a last attempt without a receipt is undecided", func(k *kit) {
			k.drop("task-b", 1, 1)
			k.add = func() []submission.Attempt {
				return []submission.Attempt{{Cell: submission.Cell{Task: "task-b", Trial: 1, Attempt: 1, State: submission.Failed, Reasons: []string{}}}}
			}
		}, nil, 3, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit()
			c.do(k)
			r := run(policy(c.policy...), k.make(t))
			expect(t, r, c.exit, c.want...)
			if len(c.want) > 0 {
				if got := detail(t, r.Submissions[0], c.want[0]); !strings.Contains(got, c.says) {
					t.Errorf("got %q, want it to say %q", got, c.says)
				}
			}
		})
	}
}

// A retry that a policy allows is counted once: the score is the last attempt's.
func TestLastAttemptCounts(t *testing.T) {
	k := newKit()
	killed(k, "task-b", 1)
	k.at("task-b", 1, 2).Score = "0"
	r := run(policy("require infrastructure-rate 20"), k.make(t))
	expect(t, r, 0)
	s := r.Submissions[0]
	if s.Replaced != 1 || s.Counts.Clean != 6 || s.Score.Plain.Scored != 6 || s.Score.Plain.Value != "0.833333" {
		t.Errorf("got %d replaced, %+v, %+v", s.Replaced, s.Counts, s.Score.Plain)
	}
	if !strings.Contains(r.Text(), "task-b  iC C") {
		t.Errorf("got\n%s", r.Text())
	}
}
