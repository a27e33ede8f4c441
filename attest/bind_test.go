package attest_test

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Bind refuses a run that was recorded under something else than the set.
func TestBindRefuses(t *testing.T) {
	grant := []contraband.Grant{{Path: "/srv/data", Mode: uint8(scope.ReadTree)}}
	cases := []struct {
		name  string
		id    string
		set   func(*contraband.Set)
		start func(*journal.Start)
		after func(*contraband.Set) // changes the set after the run
		seal  string
	}{
		{name: "control"},
		{name: "control with a grant", set: func(s *contraband.Set) { s.Scope.Grants = grant }},
		{name: "no task", id: attest.RefusedNoTask, start: func(s *journal.Start) {
			s.Benchmark, s.Task, s.Trial, s.Attempt, s.Commitment, s.Seal = "", "", 0, 0, [32]byte{}, [32]byte{}
		}},
		{name: "RT18 another file", id: attest.RefusedSeal, seal: "another sealed set"},
		{name: "RT18 another task", id: attest.RefusedTask, after: func(s *contraband.Set) { s.Task = "task-2" }},
		{name: "RT18 another benchmark", id: attest.RefusedTask, after: func(s *contraband.Set) { s.Benchmark = "other" }},
		{name: "RT18 another commitment", id: attest.RefusedTask, after: func(s *contraband.Set) { s.Commitment[0] ^= 1 }},
		{name: "RT29 another profile", id: attest.RefusedProfile, after: func(s *contraband.Set) { s.Profile = "canon-text/0" }},
		{name: "another baseline", id: attest.RefusedBaseline, start: func(s *journal.Start) { s.Baseline[0] ^= 1 }},
		{name: "a channel that the task does not declare", id: attest.RefusedChannels, start: func(s *journal.Start) {
			s.Channels = []journal.Channel{{Name: "stdin", Role: "model"}}
		}},
		{name: "a channel left out", id: attest.RefusedChannels, set: func(s *contraband.Set) {
			s.Channels = []contraband.Channel{{Name: "stdin", Role: "driver"}}
		}, start: func(s *journal.Start) { s.Channels = []journal.Channel{} }},
		{name: "a read-only workspace made writable", id: attest.RefusedScope, set: func(s *contraband.Set) { s.Scope.Workspace = uint8(scope.ReadTree) }},
		{name: "a grant that the task does not state", id: attest.RefusedScope, start: func(s *journal.Start) {
			s.Roots = append(s.Roots, scope.Root{Path: "/srv/data", Class: scope.Grant})
		}},
		{name: "a grant widened", id: attest.RefusedScope, set: func(s *contraband.Set) { s.Scope.Grants = grant }, start: func(s *journal.Start) {
			i := slices.IndexFunc(s.Roots, func(r scope.Root) bool { return r.Class == scope.Grant })
			s.Roots[i].Mode = scope.WriteTree
		}},
		{name: "a toolchain around the workspace", id: attest.RefusedScope, start: func(s *journal.Start) {
			move(s, "/home/u/work")
			s.Roots = append(s.Roots, scope.Root{Path: "/home/u", Class: scope.Toolchain})
		}},
		{name: "control: a toolchain beside it", start: func(s *journal.Start) {
			move(s, "/home/u/work")
			s.Roots = append(s.Roots, scope.Root{Path: "/home/u/wo", Class: scope.Toolchain})
		}},
		{name: "control with a grader", set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardFile) }},
		{name: "control: a grader that only the runner states", start: func(s *journal.Start) {
			s.Phases = &journal.Phases{Grade: []string{"true"}, Reward: journal.RewardExit}
		}},
		{name: "a grader left out", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases = nil }},
		{name: "another grader", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases.Grade = []string{"true"} }},
		{name: "another setup", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases.Setup = []string{"fetch-answer"} }},
		{name: "tests elsewhere", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases.Tests = "/tmp/tests" }},
		{name: "another reward rule", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases.Reward = journal.RewardStdout }},
		{name: "another reward folder", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardFile) },
			start: func(s *journal.Start) { s.Phases.RewardDir = "/work" }},
		{name: "RT58f a guarded file left out", id: attest.RefusedPhases, set: func(s *contraband.Set) { s.Phases = fixture.Phases(journal.RewardExit) },
			start: func(s *journal.Start) { s.Phases.Guard = nil }},
		{name: "control with a planted file", set: planting},
		{name: "a task that plants a file, a run that did not", id: attest.RefusedMarker, set: planting, start: func(s *journal.Start) { s.Marker = nil }},
		{name: "a run that planted a file, a task that does not", id: attest.RefusedMarker, start: func(s *journal.Start) { s.Marker = make([]byte, 32) }},
		{name: "control with a footprint and a private root elsewhere", set: limited, start: func(s *journal.Start) { private(s, "/work2/home") }},
		{name: "control with a private root in the workspace", start: func(s *journal.Start) { private(s, "/work/home") }},
		{name: "a private root in a grant where a footprint is stated", id: attest.RefusedScope, set: granting(scope.WriteTree), start: func(s *journal.Start) { private(s, "/srv/data/tmp") }},
		{name: "control with a private root in a grant that is only read", set: granting(scope.ReadTree), start: func(s *journal.Start) { private(s, "/srv/data/tmp") }},
		{name: "control with a private root beside a grant", set: granting(scope.WriteTree), start: func(s *journal.Start) { private(s, "/srv/data2/tmp") }},
		{name: "a private root where a footprint is stated", id: attest.RefusedScope, set: limited, start: func(s *journal.Start) { private(s, "/work/home") }},
		{name: "no bounded workspace", id: attest.RefusedWorkspace, start: func(s *journal.Start) {
			s.Roots = slices.DeleteFunc(s.Roots, func(r scope.Root) bool { return r.Path == "/" })
			move(s, "/")
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set, err := fixture.Set(fixture.Groups(), c.set)
			if err != nil {
				t.Fatal(err)
			}
			seal := sha256.Sum256([]byte("sealed"))
			r := fixture.NewRun(set, seal, c.start)
			r.Close(journal.Final{})
			p, err := r.Pack()
			if err != nil {
				t.Fatal(err)
			}
			ev, err := attest.ReadEvidence(p.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				c.after(set)
			}
			if c.seal != "" {
				seal = sha256.Sum256([]byte(c.seal))
			}
			err = attest.Bind(set, seal, ev)
			if c.id == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var refused *attest.Refusal
			if !errors.As(err, &refused) || refused.ID != c.id || refused.Hint == "" {
				t.Fatalf("got %v, want refusal %s with a hint", err, c.id)
			}
		})
	}
}

func limited(s *contraband.Set) { s.Footprint = &contraband.Footprint{Allowed: []string{"out/**"}} }

// granting limits the run, and grants a tree.
func granting(m scope.Mode) func(*contraband.Set) {
	return func(s *contraband.Set) {
		limited(s)
		s.Scope.Grants = []contraband.Grant{{Path: "/srv/data", Mode: uint8(m)}}
	}
}

// private adds a private folder.
func private(s *journal.Start, path string) {
	s.Roots = append(s.Roots, scope.Root{Path: path, Mode: scope.WriteTree, Class: scope.Private})
	scope.SortRoots(journal.Secret{7}.PathKey(), s.Roots)
}

// planting has the task plant a file.
func planting(s *contraband.Set) {
	s.Scope.Grants = []contraband.Grant{{Path: "/srv/skill.md", Mode: uint8(scope.ReadOne)}}
	s.Expect = &contraband.Expect{Read: "/srv/skill.md", Template: "say " + expect.Placeholder, Reply: expect.Stdout}
}

// move puts the workspace elsewhere.
func move(s *journal.Start, to string) {
	for i := range s.Roots {
		if s.Roots[i].Class == scope.Workspace {
			s.Roots[i].Path = to
		}
	}
	s.Workspace = to
}
