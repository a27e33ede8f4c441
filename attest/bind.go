package attest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Refusal ids. The list is closed; spec/statement.md says what to do about each.
const (
	RefusedNoTask    = "no-task"   // the run was recorded without a task
	RefusedSeal      = "seal"      // the run was recorded under another sealed set
	RefusedTask      = "task"      // benchmark, task or commitment of the start row and the set differ
	RefusedProfile   = "profile"   // the set's digests are of another profile
	RefusedBaseline  = "baseline"  // the workspace was not as sealed when the run started
	RefusedWorkspace = "workspace" // no bounded workspace
	RefusedScope     = "scope"     // roots or grants that the task does not state
	RefusedChannels  = "channels"  // channels that the task does not state
	RefusedPhases    = "phases"    // another setup or grader than the task states
	RefusedMarker    = "marker"    // no marker in a run that plants a file, or one in a run that does not
	RefusedScore     = "score"     // a claimed score beside a recorded reward, or a malformed one
	RefusedStatement = "statement" // the statement would be too large
)

// Bind checks that the run in ev was recorded under this sealed set: seal is the
// SHA-256 of its file. Until it holds, a verdict means nothing. The error is a
// *Refusal.
//
// System and kernel roots are held to their fixed lists when the journal is
// read. Toolchain and private roots are the runner's choice, which Bind only
// keeps from swallowing the workspace's surroundings; they are asserted.
func Bind(set *contraband.Set, seal [32]byte, ev *Evidence) error {
	start := ev.start
	if start.Seal == [32]byte{} {
		return &Refusal{RefusedNoTask, "a run that was recorded without a task", "one that is bound to a sealed set", "record it again with cleanrun run -task or -sealed"}
	}
	const another = "use the task.sealed of this run (RUNDIR/task.sealed)"
	if start.Seal != seal {
		return &Refusal{RefusedSeal, fmt.Sprintf("a sealed set with SHA-256 %x", seal), fmt.Sprintf("%x, which the start row binds", start.Seal), another}
	}
	for _, f := range []struct{ id, what, got, want string }{
		{RefusedTask, "benchmark", quote(set.Benchmark), quote(start.Benchmark)},
		{RefusedTask, "task", quote(set.Task), quote(start.Task)},
		{RefusedTask, "commitment", fmt.Sprintf("%x", set.Commitment), fmt.Sprintf("%x", start.Commitment)},
		{RefusedProfile, "profile", quote(set.Profile), quote(contraband.Profile)},
		{RefusedBaseline, "baseline", fmt.Sprintf("%x", set.Baseline), fmt.Sprintf("%x", start.Baseline)},
		{RefusedChannels, "channels", sealedChannels(set), startChannels(start)},
	} {
		if f.got != f.want {
			return &Refusal{f.id, f.what + " " + f.got + " in the sealed set", f.want + ", as the start row binds", another}
		}
	}
	if err := bindPhases(set.Phases, start.Phases); err != nil {
		return err
	}
	if sealed, bound := set.Expect != nil, len(start.Marker) > 0; sealed != bound {
		got, want := "a start row without a marker", "one that binds a marker: the task plants a file"
		if bound {
			got, want = "a start row that binds a marker", "one without: the task plants no file"
		}
		return &Refusal{RefusedMarker, got, want, "record the run again with this task"}
	}
	return bindScope(set, start)
}

// bindPhases holds setup and grading to what the owner sealed. Whoever chooses
// the grader chooses the score.
func bindPhases(sealed *contraband.Phases, start *journal.Phases) error {
	if sealed == nil {
		return nil // the runner's choice, which verify reports
	}
	const again = "record the run again with this task"
	if start == nil {
		return &Refusal{RefusedPhases, "a run of an agent alone", "the setup and grader of the sealed set", again}
	}
	for _, f := range []struct{ what, got, want string }{
		{"setup", fmt.Sprintf("%q", start.Setup), fmt.Sprintf("%q", sealed.Setup)},
		{"grader", fmt.Sprintf("%q", start.Grade), fmt.Sprintf("%q", sealed.Grade)},
		{"place of the tests", quote(start.Tests), quote(sealed.Tests)},
		{"reward rule", quote(start.Reward), quote(sealed.Reward)},
		{"reward folder", quote(start.RewardDir), quote(sealed.RewardDir)},
		{"guard list", fmt.Sprintf("%q", start.Guard), fmt.Sprintf("%q", sealed.Guard)},
	} {
		if f.got != f.want {
			return &Refusal{RefusedPhases, fmt.Sprintf("%s %.200s in the start row", f.what, f.got), fmt.Sprintf("%.200s, as sealed", f.want), again}
		}
	}
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func sealedChannels(set *contraband.Set) string {
	list := []string{}
	for _, c := range set.Channels {
		list = append(list, c.Name+": "+c.Role)
	}
	return fmt.Sprintf("%q", list)
}

func startChannels(start *journal.Start) string {
	list := []string{}
	for _, c := range start.Channels {
		list = append(list, c.Name+": "+c.Role)
	}
	return fmt.Sprintf("%q", list)
}

// bindScope holds the start row's roots to the sealed scope.
func bindScope(set *contraband.Set, start *journal.Start) error {
	var work []scope.Root
	var grants []contraband.Grant
	for _, r := range start.Roots {
		switch r.Class {
		case scope.Workspace:
			work = append(work, r)
		case scope.Grant:
			grants = append(grants, contraband.Grant{Path: r.Path, Mode: uint8(r.Mode)})
		}
	}
	if len(work) != 1 || work[0].Path != start.Workspace || start.Workspace == "/" {
		return &Refusal{RefusedWorkspace, fmt.Sprintf("%d workspace roots for the workspace %q", len(work), start.Workspace), "exactly one, its path, and not \"/\"", "record the run with -task or -sealed from a folder of its own"}
	}
	if uint8(work[0].Mode) != set.Scope.Workspace {
		return &Refusal{RefusedScope, "a workspace " + modeName(work[0].Mode), modeName(scope.Mode(set.Scope.Workspace)) + ", as sealed", "record the run again with this task"}
	}
	if !slices.Equal(grants, set.Scope.Grants) {
		return &Refusal{RefusedScope, fmt.Sprintf("%d grants %v", len(grants), grants), fmt.Sprintf("the %d sealed ones, %v", len(set.Scope.Grants), set.Scope.Grants), "record the run again with this task"}
	}
	for _, r := range start.Roots {
		// A tree that the runner chose must not open what lies around the
		// workspace, where hidden tests are.
		tree := r.Mode == scope.ReadTree || r.Mode == scope.WriteTree
		around := r.Path == "/" || strings.HasPrefix(start.Workspace, r.Path+"/")
		if tree && around && (r.Class == scope.Toolchain || r.Class == scope.Private && r.Path == "/") {
			return &Refusal{RefusedScope, fmt.Sprintf("%s root %q around the workspace %q", className(r.Class), r.Path, start.Workspace), "none above the workspace", "move the workspace or take the folder off PATH"}
		}
		// What a private folder holds is no footprint's business: none may be where
		// one is stated for.
		if set.Footprint != nil && r.Class == scope.Private {
			if at := bounding(start, r.Path); at != "" {
				return &Refusal{RefusedScope, fmt.Sprintf("private root %q in %q", r.Path, at), "none there: the sealed set states a footprint", "record the run again with HOME and TMPDIR elsewhere"}
			}
		}
	}
	return nil
}

// bounding is the workspace or the granted tree to write around a path, "" for none.
func bounding(start *journal.Start, path string) string {
	for _, r := range start.Roots {
		if (r.Class == scope.Workspace || r.Class == scope.Grant && r.Mode == scope.WriteTree) && strings.HasPrefix(path, r.Path+"/") {
			return r.Path
		}
	}
	return ""
}

var modeNames = [...]string{scope.ReadTree: "read-tree", scope.WriteTree: "write-tree", scope.ReadOne: "read-one", scope.WriteOne: "write-one",
	scope.NoTree: "none"}

func modeName(m scope.Mode) string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", m)
}

var scopeClasses = [...]string{
	scope.Workspace: "workspace", scope.Grant: "grant", scope.System: "system",
	scope.Toolchain: "toolchain", scope.Private: "private", scope.Kernel: "kernel",
	scope.Closed: "closed",
}

func className(c scope.Class) string {
	if int(c) < len(scopeClasses) {
		return scopeClasses[c]
	}
	return fmt.Sprintf("class %d", c)
}

// Challenge returns which of the set's controls the attester of this journal
// must open, by their place in the set: contraband.ChallengeControls of the
// checkpoint body of the head (journal.FormatHead).
func Challenge(set *contraband.Set, ev *Evidence) []int {
	return contraband.ChallengeControls(journal.FormatHead(ev.Head()), len(set.Controls)/32)
}

// Head is the journal head.
func (e *Evidence) Head() journal.Head {
	return journal.Head{Run: e.start.Run, Size: e.header.Rows, Root: e.header.Root}
}
