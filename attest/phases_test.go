package attest_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// What an owner can seal, a run can state, and the reverse: the two types have
// one rule.
func TestPhasesOfSetAndStartHaveOneRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	texts := []string{"", "/", "/t", "/t/r", "/t2", "tests", "/a/../b", "/a\nb", "a", "b", "out/v", "../v", ".", "a\x00", "\xff", "/é", "/\u2028", strings.Repeat("a", 1024),
		strings.Repeat("a", 1025), strings.Repeat("b", 65535), strings.Repeat("c", 65536)}
	one := func(list []string) string { return list[rng.IntN(len(list))] }
	some := func(most int) (list []string) {
		for range rng.IntN(most + 1) {
			list = append(list, one(texts))
		}
		return list
	}
	accepted, refused := 0, 0
	for range 40_000 {
		p := journal.Phases{Setup: some(1), Grade: some(2), Guard: some(2)}
		if rng.IntN(2) == 0 {
			p.Guard = nil
		}
		if rng.IntN(2) == 0 {
			slices.Sort(p.Guard)
		}
		p.Tests = one([]string{"", "/t", "/t", one(texts)})
		p.Reward = one([]string{"", "exit-code", "stdout", "file", "file", one(texts)})
		p.RewardDir = one([]string{"", "/t2", one(texts)})
		run := journal.CheckPhases(&p)
		sealed := contraband.CheckPhases(&contraband.Phases{Setup: p.Setup, Grade: p.Grade, Tests: p.Tests, Reward: p.Reward, RewardDir: p.RewardDir, Guard: p.Guard})
		if (run == nil) != (sealed == nil) {
			t.Fatalf("%.200q: the start row says %v, the sealed set %v", p, run, sealed)
		}
		if run == nil {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 500 || refused < 500 {
		t.Errorf("got %d accepted and %d refused, want at least 500 of both", accepted, refused)
	}
}
