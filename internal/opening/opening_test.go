package opening

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"

	"filippo.io/age"
)

const (
	pyc = "pkg/__pycache__/m.cpython-312.pyc"
	py  = "pkg/m.py"
)

var project = map[string]string{py: "source", "keep.txt": "keep", "copy.txt": "same"}

// Each changed path of the workspace and of grants is shown, and nothing else.
func TestChangedPaths(t *testing.T) {
	r := record(t, project, func(s *contraband.Set) {
		s.Scope.Grants = []contraband.Grant{{Path: "/data", Mode: uint8(scope.WriteTree)}}
	})
	r.begin(nil)
	r.write("out.txt", "x")
	r.write("/private/scratch", "x")
	r.write("/data/new", "x")
	r.op(journal.OpMkdir, "d")
	r.op(journal.OpUtime, "keep.txt")
	r.op(journal.OpChmod, "keep.txt")
	r.add(journal.Row{Op: journal.OpUnlink, Result: 2}, journal.Detail{Path: r.name("missing")})
	r.add(journal.Row{Op: journal.OpRename}, journal.Detail{Path: r.name("from"), Path2: r.name("to")})
	r.add(journal.Row{Op: journal.OpRename}, journal.Detail{Path: "/private/a", Path2: r.name("in")})
	r.op(journal.OpUnlink, "out.txt")
	r.grade()
	r.write("graded", "x")
	o, rep := r.collect("")
	if got, want := r.names(o), "/data/new d from in keep.txt out.txt to"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if rep.Names != 7 || len(o.Rows) != 0 || len(o.Marker) != 0 {
		t.Errorf("got %d names, %d rows", rep.Names, len(o.Rows))
	}
	again, _ := r.collect("")
	a := attest.Trailer{Openings: o}
	b := attest.Trailer{Openings: again}
	if !bytes.Equal(a.Append(nil), b.Append(nil)) {
		t.Error("two collections differ")
	}
}

// A run that changes more paths than a pack can name gets a receipt all the same. The reply's name is always there.
func TestNamesAreBounded(t *testing.T) {
	names, size := maxNames, maxNameBytes
	defer func() { maxNames, maxNameBytes = names, size }()
	for _, c := range []struct {
		names, size int
		want        string
		unopened    int
	}{{100, 1 << 20, "a b c z", 0}, {4, 1 << 20, "a b c z", 0}, {2, 1 << 20, "a b z", 1}, {100, 0, "z", 3}} {
		r := record(t, project, func(s *contraband.Set) {
			s.Scope.Grants = []contraband.Grant{{Path: "/named", Mode: uint8(scope.ReadOne)}}
			s.Expect = &contraband.Expect{Read: "/named", Template: expect.Placeholder, Reply: expect.File, File: "z"}
		})
		r.begin(nil)
		for _, name := range []string{"c", "a", "b", "z"} {
			r.write(name, "x")
		}
		maxNames, maxNameBytes = c.names, c.size
		o, rep := r.collect("")
		if got := r.names(o); got != c.want || rep.Unopened != c.unopened {
			t.Errorf("at most %d names, %d bytes: got %q, %d not shown, want %q, %d", c.names, c.size, got, rep.Unopened, c.want, c.unopened)
		}
	}
}

// A setup that the runner chose is shown like the agent, a sealed one is not.
func TestRT58b_SetupByTheRunner(t *testing.T) {
	for _, c := range []struct {
		sealed *contraband.Phases
		want   string
	}{{nil, "by-setup out.txt"}, {&contraband.Phases{Setup: []string{}, Grade: []string{"grade"}, Reward: journal.RewardExit, Guard: []string{}}, "out.txt"}} {
		r := record(t, project, func(s *contraband.Set) { s.Phases = c.sealed })
		r.phase = journal.PhaseSetup
		r.begin(nil)
		r.write("by-setup", "x")
		r.phase = journal.PhaseAgent
		r.write("out.txt", "x")
		if o, rep := r.collect(""); r.names(o) != c.want || rep.Names != len(strings.Fields(c.want)) {
			t.Errorf("sealed phases %v: got %q, want %q", c.sealed, r.names(o), c.want)
		}
	}
}

func TestNothingToShow(t *testing.T) {
	r := record(t, project, nil)
	r.begin(nil)
	if o, rep := r.collect(""); o != nil || rep.Names != 0 {
		t.Errorf("got %v of a run that changed nothing", o)
	}
	r.set.Footprint = nil
	if o, _ := r.collect(""); o != nil {
		t.Errorf("got %v of a set that asks for nothing", o)
	}
}

// A cached module is left out only if it is what its source compiled to when the agent had
// ended; a run that plants code there, or has it restored later, is told.
func TestRT58e_CachedModules(t *testing.T) {
	for name, c := range map[string]struct {
		run   func(*recording)
		after func(*recording) // outside the run
		names string
		why   string
	}{
		"of the sealed source":      {run: func(r *recording) { r.write(pyc, "compiled source") }, names: pyc + "*"},
		"poisoned":                  {run: func(r *recording) { r.write(pyc, "compiled other") }, names: pyc, why: "differs"},
		"of a source that it wrote": {run: func(r *recording) { r.write(py, "new"); r.write(pyc, "compiled new") }, names: pyc + "* " + py},
		"of a source before": {run: func(r *recording) { r.write(pyc, "compiled source"); r.write(py, "new") },
			names: pyc + " " + py, why: "differs"},
		"of a copy of a sealed file": {run: func(r *recording) {
			o := r.create(py)
			sum := sha256.Sum256([]byte("same")) // which the store does not keep
			r.add(journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Object: o, Size: 4}, journal.Detail{Path: r.name(py), SHA256: sum[:]})
			r.write(pyc, "compiled same")
		}, names: pyc + "* " + py},
		"as the import system writes": {run: func(r *recording) {
			r.op(journal.OpMkdir, "pkg/__pycache__")
			o := r.create(pyc + ".140")
			r.add(journal.Row{Op: journal.OpRename, Object: o}, journal.Detail{Path: r.name(pyc + ".140"), Path2: r.name(pyc)})
			r.wrote(pyc, o, "compiled source")
		}, names: "pkg/__pycache__ " + pyc + "* " + pyc + ".140"},
		"through another name": {run: func(r *recording) {
			o := r.create(pyc)
			r.wrote(pyc, o, "compiled source")
			r.add(journal.Row{Op: journal.OpLink, Object: o}, journal.Detail{Path: r.name(pyc), Path2: r.name("allowed/x")})
			r.wrote("allowed/x", o, "compiled other")
		}, names: "allowed/x " + pyc, why: "differs"},
		"restored by grading": {run: func(r *recording) {
			r.write(pyc, "compiled other")
			r.grade()
			r.write(pyc, "compiled source")
		}, names: pyc, why: "differs"},
		"removed again": {run: func(r *recording) { r.write(pyc, "compiled source"); r.op(journal.OpUnlink, pyc) }, names: pyc},
		"RT58b_poisoned, then made good": {run: func(r *recording) { r.write(pyc, "compiled evil"); r.write(pyc, "compiled source") },
			names: pyc, why: "for a while it was something else: differs"},
		"RT58b_poisoned for who opens it": {run: func(r *recording) {
			o := r.create("allowed/x")
			r.wrote("allowed/x", o, "compiled evil")
			r.add(journal.Row{Op: journal.OpRename, Object: o}, journal.Detail{Path: r.name("allowed/x"), Path2: r.name(pyc)})
			r.store(journal.Row{Op: journal.OpOpen, Dir: journal.DirIn, Origin: journal.OriginRun, Object: o, Flags: journal.FlagRead}, r.name(pyc), "compiled evil")
			r.write(pyc, "compiled source")
		}, names: "allowed/x " + pyc, why: "for a while it was something else: differs"},
		"of the sealed source, then of another": {run: func(r *recording) {
			r.write(pyc, "compiled source")
			r.write(py, "new")
			r.write(pyc, "compiled new")
		}, names: pyc + "* " + py},
		"a stale one was there": {run: func(r *recording) {
			r.objects++
			r.store(journal.Row{Op: journal.OpOpen, Dir: journal.DirIn, Origin: journal.OriginInput, Object: r.objects, Flags: journal.FlagRead}, r.name(pyc), "compiled old")
			r.write(pyc, "compiled source")
		}, names: pyc + "*"},
		"no source": {run: func(r *recording) { r.op(journal.OpUnlink, py); r.write(pyc, "compiled source") },
			names: pyc + " " + py, why: "there is no source of it"},
		"the folder was moved there": {run: func(r *recording) {
			r.add(journal.Row{Op: journal.OpRename, Flags: journal.FlagDirectory}, journal.Detail{Path: r.name("pkg"), Path2: r.name("old")})
			r.add(journal.Row{Op: journal.OpRename, Flags: journal.FlagDirectory}, journal.Detail{Path: r.name("other"), Path2: r.name("pkg")})
			r.write(pyc, "compiled source")
		}, names: "old other pkg " + pyc, why: "there is no source of it"},
		"a link of the sealed source was written": {run: func(r *recording) {
			r.objects++
			o := r.objects
			r.add(journal.Row{Op: journal.OpLink, Object: o}, journal.Detail{Path: r.name(py), Path2: r.name("allowed/m")})
			r.add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagTrunc, Object: o}, journal.Detail{Path: r.name("allowed/m")})
			r.wrote("allowed/m", o, "new")
			r.write(pyc, "compiled source")
		}, names: "allowed/m " + pyc + " " + py, why: "differs"},
		"by another name": {run: func(r *recording) { r.write("pkg/__pycache__/m.pyc", "compiled source") }, names: "pkg/__pycache__/m.pyc"},
		"allowed":         {run: func(r *recording) { r.write("allowed/__pycache__/m.cpython-312.pyc", "anything") }, names: "allowed/__pycache__/m.cpython-312.pyc"},
		"the sealed source changed since": {run: func(r *recording) { r.write(pyc, "compiled source") },
			after: func(r *recording) { must(r.t, os.WriteFile(filepath.Join(r.at, py), []byte("sourcE"), 0o644)) },
			names: pyc, why: "its source is not kept: pkg/m.py is not what was sealed any more"},
		"the sealed source is longer now": {run: func(r *recording) { r.write(pyc, "compiled source") },
			after: func(r *recording) { must(r.t, os.WriteFile(filepath.Join(r.at, py), []byte("source and more"), 0o644)) },
			names: pyc, why: "its source is not kept: "},
		"the workspace is gone": {run: func(r *recording) { r.write(pyc, "compiled source") },
			after: func(r *recording) { must(r.t, os.Rename(r.at, r.at+"2")) },
			names: pyc, why: "its source is not kept: the sealed workspace is not there: "},
		"its content is gone": {run: func(r *recording) { r.write(pyc, "compiled source") },
			after: func(r *recording) {
				sum := sha256.Sum256([]byte("compiled source"))
				must(r.t, os.Remove(filepath.Join(r.dir, objectsDir, objects.Name(sum))))
			}, names: pyc, why: "its content is not kept: the run folder does not have it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, project, nil)
			r.begin(nil)
			c.run(r)
			must(t, r.w.Flush())
			if c.after != nil {
				c.after(r)
			}
			o, rep := r.collect("")
			if got := r.names(o); got != c.names {
				t.Errorf("got %q, want %q", got, c.names)
			}
			why := ""
			for _, m := range rep.Counted {
				why += m.Why
			}
			if (c.why == "") != (why == "") || !strings.HasPrefix(why, c.why) {
				t.Errorf("got %q, want %q", why, c.why)
			}
			if got := strings.Count(c.names, "*"); got != rep.Compiled {
				t.Errorf("got %d compiled, want %d", rep.Compiled, got)
			}
			if slices.ContainsFunc(r.asked, func(p string) bool { return strings.HasPrefix(p, "allowed/") }) {
				t.Errorf("compiled %q, which may change anyhow", r.asked)
			}
		})
	}
}

// A workspace in another place is held to the baseline too.
func TestWorkspaceElsewhere(t *testing.T) {
	r := record(t, project, nil)
	r.begin(nil)
	r.write(pyc, "compiled source")
	must(t, r.w.Flush())
	elsewhere := r.at + "2"
	must(t, os.Rename(r.at, elsewhere))
	if o, _ := r.collect(elsewhere); r.names(o) != pyc+"*" {
		t.Errorf("got %q", r.names(o))
	}
	must(t, os.WriteFile(filepath.Join(elsewhere, py), []byte("evil!!"), 0o644))
	if o, rep := r.collect(elsewhere); r.names(o) != pyc || len(rep.Counted) != 1 {
		t.Errorf("got %q", r.names(o))
	}
}

func TestEncrypted(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	must(t, err)
	keys, _, err := vault.New([]age.Recipient{id.Recipient()})
	must(t, err)
	r := record(t, project, nil)
	r.begin(keys)
	r.write(py, "new")
	r.write(pyc, "compiled new")
	if o, _ := r.collect(""); r.names(o) != pyc+"* "+py {
		t.Errorf("got %q", r.names(o))
	}
	r.keys = nil
	if _, _, err := r.try(""); err == nil {
		t.Error("opened without keys")
	}
}

// What the run folder holds is held to the rows.
func TestDamagedFolder(t *testing.T) {
	for name, damage := range map[string]func(*recording){
		"another detail": func(r *recording) {
			p := filepath.Join(r.dir, journal.DetailsFile)
			b, err := os.ReadFile(p)
			must(r.t, err)
			b = bytes.Replace(b, []byte("out.txt"), []byte("key.txt"), 1)
			must(r.t, os.WriteFile(p, b, 0o600))
		},
		"no details": func(r *recording) { must(r.t, os.Truncate(filepath.Join(r.dir, journal.DetailsFile), 5)) },
		"another baseline": func(r *recording) {
			must(r.t, os.WriteFile(filepath.Join(r.at, py), []byte("other"), 0o644))
			m, err := manifest.Build(r.at, []byte("prompt"))
			must(r.t, err)
			b, err := m.Marshal()
			must(r.t, err)
			must(r.t, os.WriteFile(filepath.Join(r.dir, baselineFile), b, 0o600))
		},
		"another secret": func(r *recording) {
			must(r.t, os.WriteFile(filepath.Join(r.dir, journal.SecretFile), make([]byte, 32), 0o600))
		},
		"no rows": func(r *recording) { must(r.t, os.Truncate(filepath.Join(r.dir, journal.RowsFile), 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, project, nil)
			r.begin(nil)
			r.write("out.txt", "x")
			r.write(pyc, "compiled source")
			if _, rep := r.collect(""); rep.Names != 2 {
				t.Fatalf("undamaged: got %d names", rep.Names)
			}
			damage(r)
			if o, _, err := r.try(""); err == nil {
				t.Errorf("got %v, want an error", o)
			}
		})
	}
}
