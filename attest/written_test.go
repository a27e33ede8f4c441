package attest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A bounded run may change what its set allows.
type bounded struct {
	allowed []string
	gate    bool
	chosen  bool               // the set states no phases: the runner chose them
	do      func(*fixture.Run) // the agent
	names   string             // opened, separated by spaces; "+" behind one calls it compiled
	end     func(*fixture.Run) // nil closes the journal
}

func (b bounded) set(t testing.TB) *contraband.Set {
	t.Helper()
	set, err := fixture.Set(fixture.Groups(), func(s *contraband.Set) {
		s.Footprint = &contraband.Footprint{Allowed: b.allowed, Gate: b.gate}
		s.Scope.Grants = []contraband.Grant{{Path: "/srv/data", Mode: uint8(scope.WriteTree)}}
		if !b.chosen {
			s.Phases = &contraband.Phases{Setup: []string{}, Grade: []string{"/usr/bin/grader"}, Reward: journal.RewardExit, Guard: []string{}}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// pack records the run. A sealed setup and the grader change files too, which counts for
// nothing.
func (b bounded) pack(t testing.TB, set *contraband.Set) *fixture.Pack {
	t.Helper()
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), func(s *journal.Start) {
		s.Phases = &journal.Phases{Setup: []string{}, Grade: []string{"/usr/bin/grader"}, Reward: journal.RewardExit, Guard: []string{}}
	})
	r.Control()
	r.Write("/work/by-setup", fixture.Content{})
	r.Phase = journal.PhaseAgent
	r.Argv(true, fixture.Content{Size: 40})
	b.do(r)
	if b.end != nil {
		b.end(r)
	} else {
		r.Grade(journal.PhaseEnd{How: journal.Exited})
		r.Write("/work/by-grader", fixture.Content{})
		r.Graded([]journal.Reward{{Value: "0", Source: journal.FromExit}}, &journal.PhaseEnd{How: journal.Exited, Code: 1})
		r.Close(journal.Final{})
	}
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(b.names) {
		path, compiled := strings.CutSuffix(name, "+")
		if compiled {
			path += " compiled"
		}
		r.OpenPaths(p, path)
	}
	return p
}

func (b bounded) build(t testing.TB) *attest.Attestation {
	t.Helper()
	set := b.set(t)
	a, err := attest.Build(set, []byte("sealed"), b.pack(t, set).Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	removed = journal.OpUnlink
	moved   = journal.OpRename
	folder  = journal.FlagDirectory
)

func writeAnswer(r *fixture.Run) { r.Write("/work/out/result.txt", fixture.Content{}) }

// imported is what an import leaves behind.
func imported(r *fixture.Run) {
	r.Change(journal.OpMkdir, 0, "/work/__pycache__", "")
	r.Make("/work/__pycache__/m.cpython-312.pyc.1405")
	r.Change(moved, 0, "/work/__pycache__/m.cpython-312.pyc.1405", "/work/__pycache__/m.cpython-312.pyc")
}

const importedNames = " /work/__pycache__ /work/__pycache__/m.cpython-312.pyc.1405 /work/__pycache__/m.cpython-312.pyc"

// A footprint is of what was done. Each case is judged with a gate and without.
func TestFootprint(t *testing.T) {
	answer := "/work/out/result.txt"
	for name, c := range map[string]struct {
		bounded
		outcome string
		outside string // "op path" of each, separated by ", "
		counts  string // written, compiled, unopened
	}{
		"the answer alone": {bounded{do: writeAnswer, names: answer}, attest.FootprintWithin, "", "1 0 0"},
		"deletes the key beside the answer": {bounded{do: func(r *fixture.Run) {
			writeAnswer(r)
			r.Change(removed, 0, "/work/keys/private.key", "")
		}, names: answer + " /work/keys/private.key"}, attest.FootprintOutside, "unlink /work/keys/private.key", "2 0 0"},
		"RT58b_deletes the key and puts it back": {bounded{do: func(r *fixture.Run) {
			writeAnswer(r)
			r.Change(removed, 0, "/work/keys/private.key", "")
			r.Make("/work/keys/private.key")
		}, names: answer + " /work/keys/private.key"}, attest.FootprintOutside, "open /work/keys/private.key", "2 0 0"},
		"RT58b_made and gone again": {bounded{do: func(r *fixture.Run) {
			r.Make("/work/tool")
			r.Change(removed, 0, "/work/tool", "")
		}, names: "/work/tool"}, attest.FootprintOutside, "unlink /work/tool", "1 0 0"},
		"Incident21_moves the tests away for a while": {bounded{do: func(r *fixture.Run) {
			writeAnswer(r)
			r.Change(moved, folder, "/work/tests", "/work/out/t")
			r.Change(moved, folder, "/work/out/t", "/work/tests")
		}, names: answer + " /work/tests /work/out/t"}, attest.FootprintOutside, "rename /work/tests", "3 0 0"},
		"a folder moved within": {bounded{do: func(r *fixture.Run) { r.Change(moved, folder, "/work/out/a", "/work/out/b") },
			names: "/work/out/a /work/out/b"}, attest.FootprintWithin, "", "2 0 0"},
		// The pattern logs/* stands for the name logs/a, not for what is below it.
		"a folder moved to where names alone are allowed": {bounded{do: func(r *fixture.Run) { r.Change(moved, folder, "/work/out/a", "/work/logs/a") },
			names: "/work/out/a /work/logs/a"}, attest.FootprintOutside, "rename /work/logs/a", "2 0 0"},
		"a file moved to where names are allowed": {bounded{do: func(r *fixture.Run) { r.Change(moved, 0, "/work/out/a", "/work/logs/a") },
			names: "/work/out/a /work/logs/a"}, attest.FootprintWithin, "", "2 0 0"},
		"a hard link to a file outside, written through": {bounded{do: func(r *fixture.Run) {
			r.Change(journal.OpLink, 0, "/work/keys/private.key", answer)
			writeAnswer(r)
		}, names: answer + " /work/keys/private.key"}, attest.FootprintOutside, "link /work/keys/private.key", "2 0 0"},
		"RT58e_what an import leaves": {bounded{do: func(r *fixture.Run) { writeAnswer(r); imported(r) },
			names: answer + importedNames + "+"}, attest.FootprintWithin, "", "4 1 0"},
		"RT58e_a cached module that nobody vouches for": {bounded{do: imported, names: importedNames}, attest.FootprintOutside,
			"mkdir /work/__pycache__, rename /work/__pycache__/m.cpython-312.pyc, rename /work/__pycache__/m.cpython-312.pyc.1405", "3 0 0"},
		"RT58e_conftest.py called compiled": {bounded{do: func(r *fixture.Run) { r.Make("/work/conftest.py") },
			names: "/work/conftest.py+"}, attest.FootprintOutside, "open /work/conftest.py", "1 0 0"},
		"RT58e_a program in the cache folder": {bounded{do: func(r *fixture.Run) { imported(r); r.Make("/work/__pycache__/x.py") },
			names: "/work/__pycache__/x.py" + importedNames + "+"}, attest.FootprintOutside,
			"mkdir /work/__pycache__, open /work/__pycache__/x.py", "4 1 0"},
		"a name that is not shown": {bounded{do: func(r *fixture.Run) { writeAnswer(r); r.Make("/work/x") }, names: answer},
			attest.FootprintInconclusive, "", "2 0 1"},
		"no name is shown": {bounded{do: writeAnswer}, attest.FootprintInconclusive, "", "1 0 1"},
		"one outside, one not shown": {bounded{do: func(r *fixture.Run) { r.Make("/work/x"); r.Make("/work/y") }, names: "/work/y"},
			attest.FootprintOutside, "open /work/y", "2 0 1"},
		"in a grant": {bounded{do: func(r *fixture.Run) { r.Make("/srv/data/db/a"); r.Make("/srv/data/b") },
			names: "/srv/data/db/a /srv/data/b"}, attest.FootprintOutside, "open /srv/data/b", "2 0 0"},
		"by each operation": {bounded{do: func(r *fixture.Run) {
			r.Change(journal.OpChmod, 0, "/work/a1", "")
			r.Change(journal.OpChown, 0, "/work/a2", "")
			r.Change(journal.OpXattr, 0, "/work/a3", "")
			r.Change(journal.OpSymlink, 0, "/work/a4", "")
			r.Change(journal.OpMknod, 0, "/work/a5", "")
			r.Change(journal.OpBind, 0, "/work/a6", "")
			r.Change(journal.OpTruncate, 0, "/work/a7", "")
			r.Cut("/work/a8")
		}, names: "/work/a1 /work/a2 /work/a3 /work/a4 /work/a5 /work/a6 /work/a7 /work/a8"}, attest.FootprintOutside,
			"chmod /work/a1, chown /work/a2, xattr /work/a3, symlink /work/a4, mknod /work/a5, bind /work/a6, truncate /work/a7, open /work/a8", "8 0 0"},
		"what is no change": {bounded{do: func(r *fixture.Run) {
			r.Read("/work/a", fixture.Content{})
			r.Change(journal.OpUtime, 0, "/work/a", "")
			r.Add(journal.Row{Op: journal.OpUnlink, Result: 2}, journal.Detail{Path: "/work/absent"}, nil)
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite, Result: 13}, journal.Detail{Path: "/usr/bin/python3"}, nil)
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagPseudo}, journal.Detail{Path: "/work/fifo"}, nil)
			r.Make("/tmp/scratch")
		}}, attest.FootprintWithin, "", "0 0 0"},
		"an open journal": {bounded{do: writeAnswer, names: answer, end: func(*fixture.Run) {}}, attest.FootprintInconclusive, "", "1 0 0"},
		"a lost event": {bounded{do: func(r *fixture.Run) {
			writeAnswer(r)
			r.Add(journal.Row{Op: journal.OpLost}, journal.Detail{}, nil)
		}, names: answer, end: func(r *fixture.Run) { r.Close(journal.Final{Lost: 1}) }}, attest.FootprintInconclusive, "", "1 0 0"},
		"a change that no row explains": {bounded{do: writeAnswer, names: answer,
			end: func(r *fixture.Run) {
				r.Close(journal.Final{Delta: journal.DeltaResult{Changed: 2, Unexplained: 1}})
			}}, attest.FootprintInconclusive, "", "1 0 0"},
		"a process that still lives": {bounded{do: writeAnswer, names: answer, end: func(r *fixture.Run) { r.Final(journal.Final{}) }},
			attest.FootprintInconclusive, "", "1 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.allowed = []string{"out/**", "logs/*", "/srv/data/db/*"}
			for _, c.gate = range []bool{false, true} {
				a := c.build(t)
				f := a.Derivation.Footprint
				var outside []string
				for _, o := range f.Outside {
					outside = append(outside, o.Op+" "+o.Path)
				}
				if got := strings.Join(outside, ", "); f.Outcome != c.outcome || got != c.outside || f.Gate != c.gate {
					t.Errorf("got %s: %s, want %s: %s", f.Outcome, got, c.outcome, c.outside)
				}
				if got := fmt.Sprint(f.Written, f.Compiled, f.Unopened); got != c.counts {
					t.Errorf("got %s written, compiled, unopened, want %s", got, c.counts)
				}
				reasons := map[string]uint64{}
				for _, r := range a.Derivation.Reasons {
					reasons[r.ID] = r.Count
				}
				matches := uint64(0)
				for _, m := range a.Derivation.Matches {
					if m.Class == "footprint" {
						matches++
					}
				}
				want, unopened := uint64(len(f.Outside)), f.Unopened
				if !c.gate {
					want, unopened = 0, 0
				}
				if reasons[attest.ReasonFootprint] != want || reasons[attest.ReasonUnopened] != unopened || (want > 0) != (matches > 0) || matches > want {
					t.Errorf("gate %v: got reasons %v and %d matches, want %d outside, %d not opened", c.gate, reasons, matches, want, unopened)
				}
				verdict := attest.Clean
				switch {
				case want > 0:
					verdict = attest.Dirty
				case len(reasons) > 0:
					verdict = attest.Inconclusive
				}
				if a.Derivation.Verdict != verdict {
					t.Errorf("gate %v: got %s, want %s for %v", c.gate, a.Derivation.Verdict, verdict, reasons)
				}
				if s := a.Statement.Predicate.Footprint; s.Outcome != f.Outcome || s.Outside.Total != uint64(len(f.Outside)) || len(s.Outside.First) != len(f.Outside) {
					t.Errorf("got statement %+v of %+v", s, f)
				}
			}
		})
	}
}

// A runner that may choose the setup runs the agent there: what such a setup changes
// counts. That of a sealed setup does not, and a grader's never.
func TestRT58b_SetupByTheRunner(t *testing.T) {
	b := bounded{allowed: []string{"out/**"}, gate: true, do: writeAnswer, names: "/work/out/result.txt"}
	if f := b.build(t).Derivation.Footprint; f.Outcome != attest.FootprintWithin || f.Written != 1 {
		t.Errorf("control, sealed setup: got %+v", f)
	}
	b.chosen = true
	hidden := b.build(t).Derivation
	if f := hidden.Footprint; f.Outcome != attest.FootprintInconclusive || f.Unopened != 1 || hidden.Verdict != attest.Inconclusive {
		t.Errorf("name not shown: got %+v, %s", f, hidden.Verdict)
	}
	b.names += " /work/by-setup"
	d := b.build(t).Derivation
	if f := d.Footprint; f.Outcome != attest.FootprintOutside || f.Written != 2 || len(f.Outside) != 1 || f.Outside[0].Path != "/work/by-setup" {
		t.Errorf("got %+v", f)
	}
	if d.Verdict != attest.Dirty || d.Reasons[0].ID != attest.ReasonFootprint {
		t.Errorf("got %s, %v", d.Verdict, d.Reasons)
	}
	b.allowed = append(b.allowed, "by-setup")
	if f := b.build(t).Derivation.Footprint; f.Outcome != attest.FootprintWithin || f.Written != 2 {
		t.Errorf("control, allowed: got %+v", f)
	}
}

// Without a footprint in the set nothing is said of one, whatever is opened.
func TestNoFootprint(t *testing.T) {
	b := bounded{gate: true, do: writeAnswer, names: "/work/out/result.txt"}
	set := b.set(t)
	set.Footprint = nil
	a, err := attest.Build(set, []byte("sealed"), b.pack(t, set).Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Derivation.Footprint != nil || a.Statement.Predicate.Footprint != nil || bytes.Contains(a.Bytes, []byte("footprint")) {
		t.Errorf("got %s", a.Bytes)
	}
	if f := b.build(t).Statement.Predicate.Footprint; f == nil || f.Outcome != attest.FootprintOutside {
		t.Errorf("control: got %+v", f)
	}
}

// The event of the reason is the first change outside, that of a path its last.
func TestFootprintEvents(t *testing.T) {
	var first, last uint64
	a := bounded{gate: true, do: func(r *fixture.Run) {
		r.Make("/work/out")
		first = r.Change(removed, 0, "/work/b", "")
		r.Change(removed, 0, "/work/a", "")
		r.Spawn()
		last = r.Change(journal.OpChmod, 0, "/work/b", "")
	}, allowed: []string{"out"}, names: "/work/out /work/b /work/a"}.build(t)
	d := a.Derivation
	if r := d.Reasons[0]; r != (attest.Reason{ID: attest.ReasonFootprint, Event: first, Count: 2}) {
		t.Errorf("got %+v, want event %d, count 2", r, first)
	}
	want := []attest.OutsidePath{{Path: "/work/a", Event: first + 1, Process: 1, Op: "unlink"}, {Path: "/work/b", Event: last, Process: 2, Op: "chmod"}}
	if !slices.Equal(d.Footprint.Outside, want) {
		t.Errorf("got %+v, want %+v", d.Footprint.Outside, want)
	}
}

// A statement lists what fits and binds the rest.
func TestFootprintList(t *testing.T) {
	long := strings.Repeat("\x01", 200) // six bytes each in JSON
	a := bounded{gate: true, do: func(r *fixture.Run) {
		for i := range 50 {
			r.Make(fmt.Sprintf("/work/%02d%s", i, map[bool]string{true: long}[i < 8]))
		}
	}, names: func() (names string) {
		for i := range 50 {
			names += fmt.Sprintf(" /work/%02d%s", i, map[bool]string{true: long}[i < 8])
		}
		return names
	}()}.build(t)
	all := a.Derivation.Footprint.Outside
	c := a.Statement.Predicate.Footprint.Outside
	if len(all) != 50 || c.Total != 50 || len(c.First) != 32 {
		t.Fatalf("got %d paths, %d stated, %d listed", len(all), c.Total, len(c.First))
	}
	size := 0
	for i, o := range c.First {
		b, err := json.Marshal(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
		if i < 6 && o.Path != all[i].Path || i >= 6 && o.Path != all[i+2].Path {
			t.Errorf("place %d: got %q", i, o.Path)
		}
	}
	if size > attest.MaxOutsideBytes {
		t.Errorf("got %d bytes of paths, want at most %d", size, attest.MaxOutsideBytes)
	}
	list, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if list, err = jcs.Transform(list); err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(list); c.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("got %s, want %x", c.SHA256, sum)
	}
	if _, err := attest.ParseStatement(a.Bytes); err != nil {
		t.Error(err)
	}
}

// The footprint in spec/statement.md is this run's.
func TestSpecFootprint(t *testing.T) {
	a := bounded{allowed: []string{"out/**"}, gate: true, do: func(r *fixture.Run) {
		writeAnswer(r)
		imported(r)
		r.Change(removed, 0, "/work/keys/private.key", "")
	}, names: "/work/out/result.txt /work/keys/private.key" + importedNames + "+"}.build(t)
	b, err := json.Marshal(a.Statement.Predicate.Footprint)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = jcs.Transform(b); err != nil {
		t.Fatal(err)
	}
	shows(t, "statement.md", "```json\n"+string(b)+"\n```")
}
