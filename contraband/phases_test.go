package contraband

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func samplePhases() *Phases {
	return &Phases{Setup: []string{"make", "deps"}, Grade: []string{"sh", "-c", "run\n"}, Tests: "/cleanrun/tests", Reward: "file",
		RewardDir: "/cleanrun/reward", Guard: []string{"out/verdict", "verdict.txt"}}
}

func TestSetWithPhases(t *testing.T) {
	s := sampleSet()
	s.Phases = samplePhases()
	data, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSet(data)
	if err != nil || !reflect.DeepEqual(back.Phases, s.Phases) {
		t.Fatalf("got %+v, %v", back, err)
	}
	s.Phases = nil
	without, err := s.Marshal()
	if err != nil || bytes.Equal(without, data) {
		t.Fatalf("got the same bytes without phases, %v", err)
	}
	if back, err = ParseSet(without); err != nil || back.Phases != nil {
		t.Fatalf("got %+v, %v", back, err)
	}
}

// Each case breaks one thing; all fail at the rule phases.
func TestPhasesRules(t *testing.T) {
	for name, edit := range map[string]func(*Phases){
		"control":                   func(*Phases) {},
		"control: setup alone":      func(p *Phases) { *p = Phases{Setup: []string{"make"}} },
		"control: exit code":        func(p *Phases) { p.Reward, p.RewardDir = "exit-code", "" },
		"nothing":                   func(p *Phases) { *p = Phases{} },
		"tests without a grader":    func(p *Phases) { *p = Phases{Setup: []string{"make"}, Tests: "/t"} },
		"guard without a grader":    func(p *Phases) { *p = Phases{Setup: []string{"make"}, Guard: []string{"v"}} },
		"no program":                func(p *Phases) { p.Grade[0] = "" },
		"NUL":                       func(p *Phases) { p.Setup[1] = "a\x00" },
		"not UTF-8":                 func(p *Phases) { p.Setup[1] = "\xff" },
		"too long":                  func(p *Phases) { p.Setup[1] = strings.Repeat("a", maxPhaseArgs) },
		"no rule":                   func(p *Phases) { p.Reward = "" },
		"unknown rule":              func(p *Phases) { p.Reward = "vibes" },
		"folder without its rule":   func(p *Phases) { p.Reward = "stdout" },
		"rule without its folder":   func(p *Phases) { p.RewardDir = "" },
		"relative tests":            func(p *Phases) { p.Tests = "tests" },
		"unclean tests":             func(p *Phases) { p.Tests = "/a//b" },
		"tests everywhere":          func(p *Phases) { p.Tests = "/" },
		"line break in a place":     func(p *Phases) { p.Tests = "/a\nb" },
		"reward in the tests":       func(p *Phases) { p.RewardDir = p.Tests + "/r" },
		"tests in the reward":       func(p *Phases) { p.Tests = p.RewardDir + "/t" },
		"RT58f guard outside":       func(p *Phases) { p.Guard[0] = "../v" },
		"RT58f guard absolute":      func(p *Phases) { p.Guard[0] = "/v" },
		"RT58f guard of everything": func(p *Phases) { p.Guard[0] = "." },
		"guard unclean":             func(p *Phases) { p.Guard[0] = "out/./v" },
		"guard unsorted":            func(p *Phases) { p.Guard[0], p.Guard[1] = p.Guard[1], p.Guard[0] },
		"guard twice":               func(p *Phases) { p.Guard[1] = p.Guard[0] },
	} {
		s := sampleSet()
		s.Phases = samplePhases()
		edit(s.Phases)
		_, err := s.Marshal()
		if strings.HasPrefix(name, "control") {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var broken *SetError
		if !errors.As(err, &broken) || broken.Rule != RulePhases {
			t.Errorf("%s: got %v, want rule %s", name, err, RulePhases)
		}
	}
}
