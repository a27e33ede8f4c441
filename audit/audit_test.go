package audit_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// The positive controls: what holds and is CLEAN gives 0, and each verdict its
// code.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*kit)
		exit int
		text string
		want []string
	}{
		{"clean", func(k *kit) {}, 0, "6 CLEAN", nil},
		{"dirty", func(k *kit) { k.at("task-b", 2, 1).Do = fixture.Cheat }, 4, "DIRTY       task-b, trial 2, attempt 1  whole-object, out-of-scope", nil},
		{"inconclusive", func(k *kit) { k.at("task-b", 1, 1).Do = fixture.Trace }, 3, "INCONCLUSIVE task-b, trial 1, attempt 1  trace", nil},
		{"dirty and inconclusive", func(k *kit) {
			k.at("task-a", 1, 1).Do, k.at("task-b", 1, 1).Do = fixture.Trace, fixture.Cheat
		}, 4, "task-b  D C", nil},
		{"missing trial", func(k *kit) { k.drop("task-c", 2, 1) }, 3, "task-c  C -", nil},
		{"missing task", func(k *kit) { k.drop("task-c", 2, 1); k.drop("task-c", 1, 1) }, 3, "task-c  - -", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit()
			c.do(k)
			r := run(policy(), k.make(t))
			expect(t, r, c.exit, c.want...)
			if text := r.Text(); !strings.Contains(text, c.text) {
				t.Errorf("no %q in\n%s", c.text, text)
			}
		})
	}
}

func TestScores(t *testing.T) {
	k := newKit()
	k.at("task-a", 1, 1).Score = "0"
	k.at("task-b", 1, 1).Do = fixture.Cheat
	k.at("task-c", 1, 1).Do = fixture.Trace
	k.at("task-c", 2, 1).Score = ""
	r := run(policy(), k.make(t))
	expect(t, r, 4)
	s := r.Submissions[0]
	if got := s.Score.Plain; got.Value != "0.833333" || got.Scored != 5 || got.Unscored != 1 || got.Missing != 0 || got.Tasks != 3 {
		t.Errorf("plain: got %+v", got)
	}
	if got := s.Score.Ruled; got.Value != "0.500000" || got.Scored != 4 || got.Unscored != 2 || got.Missing != 0 || got.Tasks != 2 {
		t.Errorf("ruled: got %+v", got)
	}
	if s.Recomputed == nil || *s.Recomputed != s.Score || s.Source != "asserted" {
		t.Errorf("recomputed %+v, source %q", s.Recomputed, s.Source)
	}
}

// A score is called by its weakest source.
func TestSources(t *testing.T) {
	graded := func(k *kit, value string) {
		for i := range k.attempts {
			k.attempts[i].Score, k.attempts[i].Grader = "", value
		}
	}
	for _, c := range []struct {
		name   string
		do     func(*kit)
		source string
		value  string
	}{
		{"asserted", func(*kit) {}, attest.ScoreAsserted, "1.000000"},
		{"no score", func(k *kit) {
			for i := range k.attempts {
				k.attempts[i].Score = ""
			}
		}, "", ""},
		{"the runner's grader", func(k *kit) { graded(k, "1") }, audit.SourceRunner, "1.000000"},
		{"the runner's grader fails", func(k *kit) { graded(k, "0") }, audit.SourceRunner, "0.000000"},
		{"one asserted", func(k *kit) {
			graded(k, "1")
			k.at("task-b", 1, 1).Grader, k.at("task-b", 1, 1).Score = "", "0"
		}, attest.ScoreAsserted, "0.833333"},
	} {
		k := newKit()
		c.do(k)
		r := run(policy(), k.make(t))
		expect(t, r, 0)
		if s := r.Submissions[0]; s.Source != c.source || s.Score.Plain.Value != c.value || c.value != "" && !strings.Contains(r.Text(), "mean "+c.value+" "+c.source) {
			t.Errorf("%s: got source %q, %+v\n%s", c.name, s.Source, s.Score.Plain, r.Text())
		}
	}
}
