package opening

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"

	"filippo.io/age"
)

// A recording is a run folder that a test writes by hand, beside its workspace.
type recording struct {
	t       *testing.T
	dir     string // run folder
	at      string // workspace
	set     *contraband.Set
	keys    *vault.Keys
	w       *journal.Writer
	files   []*os.File
	objects uint32
	phase   journal.Phase
	asked   []string // modules that were compiled
}

var secret = journal.Secret{9}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// record begins a run of the workspace's files.
func record(t *testing.T, workspace map[string]string, edit func(*contraband.Set)) *recording {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &recording{t: t, dir: filepath.Join(top, "run"), at: filepath.Join(top, "ws"), phase: journal.PhaseAgent}
	must(t, os.MkdirAll(filepath.Join(r.dir, objectsDir), 0o700))
	must(t, os.Mkdir(r.at, 0o755))
	for name, text := range workspace {
		p := filepath.Join(r.at, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o644))
	}
	base, err := manifest.Build(r.at, []byte("prompt"))
	must(t, err)
	r.set, err = fixture.Set(fixture.Groups(), func(s *contraband.Set) {
		s.Baseline = base.Root()
		s.Footprint = &contraband.Footprint{Allowed: []string{"out.txt", "allowed/**"}, Gate: true}
		if edit != nil {
			edit(s)
		}
	})
	must(t, err)
	b, err := base.Marshal()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.dir, baselineFile), b, 0o600))
	return r
}

// begin writes the start row. An encrypted run folder has keys.
func (r *recording) begin(keys *vault.Keys) {
	r.t.Helper()
	r.keys = keys
	start := journal.Start{Run: [16]byte{1}, Benchmark: r.set.Benchmark, Task: r.set.Task, Trial: 1, Attempt: 1, Commitment: r.set.Commitment,
		Seal: [32]byte{1}, Baseline: r.set.Baseline, Workspace: r.at, Channels: []journal.Channel{}, Recorder: "test", Backend: "none", Blind: []string{},
		Roots: []scope.Root{{Path: "/", Mode: scope.ReadOne, Class: scope.System}, {Path: "/usr", Class: scope.System},
			{Path: "/private", Mode: scope.WriteTree, Class: scope.Private}, {Path: r.at, Mode: scope.WriteTree, Class: scope.Workspace}},
		Phases: &journal.Phases{Grade: []string{"grade"}, Reward: "exit-code"}}
	for _, g := range r.set.Scope.Grants {
		start.Roots = append(start.Roots, scope.Root{Path: g.Path, Mode: scope.Mode(g.Mode), Class: scope.Grant})
	}
	if r.set.Expect != nil {
		seed := expect.Commit(secret.Marker())
		start.Marker = seed[:]
	}
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(r.dir, name))
		must(r.t, err)
		r.files = append(r.files, f)
		return f
	}
	config := journal.Config{Rows: create(journal.RowsFile), Details: create(journal.DetailsFile), SaveHead: func([]byte) error { return nil },
		Clock: func() uint64 { return 0 }, Secret: secret, Start: start}
	name, b := journal.SecretFile, secret[:]
	if keys != nil {
		var err error
		config.Details, err = keys.Records(r.files[1])
		must(r.t, err)
		name = vault.SecretFile
		b, err = keys.EncryptBytes(b)
		must(r.t, err)
	}
	must(r.t, os.WriteFile(filepath.Join(r.dir, name), b, 0o600))
	var err error
	r.w, err = journal.NewWriter(config)
	must(r.t, err)
	r.add(journal.Row{Op: journal.OpFork, Child: 1, Proc: 0}, journal.Detail{})
}

func (r *recording) add(row journal.Row, d journal.Detail) uint64 {
	r.t.Helper()
	row.Phase = r.phase
	if row.Proc == 0 && row.Op != journal.OpFork && row.Op != journal.OpWrote && row.Op != journal.OpPhase {
		row.Proc = 1
		if r.phase == journal.PhaseGrade {
			row.Proc = 2
		}
	}
	var name string // that the row gives
	switch {
	case row.Result != 0:
	case row.Op == journal.OpMkdir, row.Op == journal.OpOpen && row.Flags&journal.FlagCreate != 0:
		name = d.Path
	case row.Op == journal.OpLink, row.Op == journal.OpRename:
		name = d.Path2
	}
	if name != "" {
		d.Text = []byte(path.Base(name))
		row.Flags, row.Dir, row.Origin, row.Size = row.Flags|journal.FlagText, journal.DirOut, journal.OriginRun, uint64(len(d.Text))
	}
	must(r.t, r.w.Append(&row, &d))
	return row.Seq
}

// store keeps a content, and fills in a row and detail that expose it.
func (r *recording) store(row journal.Row, p, text string) uint64 {
	r.t.Helper()
	sum := sha256.Sum256([]byte(text))
	file, b := sum, []byte(text)
	if r.keys != nil {
		var err error
		file = r.keys.Name(sum)
		b, err = r.keys.EncryptBytes(b)
		must(r.t, err)
	}
	at := filepath.Join(r.dir, objectsDir, filepath.FromSlash(objects.Name(file)))
	must(r.t, os.MkdirAll(filepath.Dir(at), 0o700))
	must(r.t, os.WriteFile(at, b, 0o600))
	row.Size = uint64(len(text))
	return r.add(row, journal.Detail{Path: p, SHA256: sum[:]})
}

// create makes a file in the workspace, or anywhere if its name is absolute.
func (r *recording) create(name string) uint32 {
	r.t.Helper()
	r.objects++
	r.add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagCreate, Object: r.objects}, journal.Detail{Path: r.name(name)})
	return r.objects
}

func (r *recording) name(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(r.at, name)
}

func (r *recording) wrote(name string, object uint32, text string) uint64 {
	r.t.Helper()
	return r.store(journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Object: object}, r.name(name), text)
}

func (r *recording) write(name, text string) {
	r.t.Helper()
	r.wrote(name, r.create(name), text)
}

func (r *recording) op(op journal.Op, name string) {
	r.t.Helper()
	r.add(journal.Row{Op: op}, journal.Detail{Path: r.name(name)})
}

// grade ends the agent's phase and begins the next.
func (r *recording) grade() {
	r.t.Helper()
	r.add(journal.Row{Op: journal.OpExit}, journal.Detail{})
	r.add(journal.Row{Op: journal.OpPhase, End: &journal.PhaseEnd{How: journal.Exited}}, journal.Detail{})
	r.phase = journal.PhaseGrade
	r.add(journal.Row{Op: journal.OpFork, Child: 2, Proc: 0}, journal.Detail{})
}

// collect ends the recording. A module is honest here if it is "compiled " and its source.
func (r *recording) collect(workspace string) (*attest.Openings, Report) {
	r.t.Helper()
	o, rep, err := r.try(workspace)
	must(r.t, err)
	return o, rep
}

func (r *recording) try(workspace string) (*attest.Openings, Report, error) {
	r.t.Helper()
	if r.w != nil {
		must(r.t, r.w.Close())
		for _, f := range r.files {
			must(r.t, f.Close())
		}
		r.w = nil
	}
	root, err := os.OpenRoot(r.dir)
	must(r.t, err)
	defer root.Close()
	return Collect(context.Background(), root, Config{Set: r.set, Keys: r.keys, Workspace: workspace,
		Compiler: func(workspace string) func(footprint.Compiled, []byte, []byte) string {
			if workspace != r.at {
				r.t.Errorf("got workspace %s, want %s", workspace, r.at)
			}
			return func(m footprint.Compiled, source, pyc []byte) string {
				r.asked = append(r.asked, strings.TrimPrefix(m.Path, r.at+"/"))
				if string(pyc) != "compiled "+string(source) {
					return "differs"
				}
				return ""
			}
		}})
}

// names lists the opened paths, relative to the workspace, a star at compiled ones.
func (r *recording) names(o *attest.Openings) string {
	var out []string
	if o != nil {
		for _, p := range o.Paths {
			name := strings.TrimPrefix(p.Path, r.at+"/")
			if p.Compiled {
				name += "*"
			}
			if p.Key != scope.Key(secret.PathKey(), p.Path) {
				r.t.Errorf("%s: got another key", p.Path)
			}
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

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

// What a named path needs is shown: marker, reply and opens, with contents bounded.
func TestNamedPath(t *testing.T) {
	expecting := func(reply expect.Reply, file string) func(*contraband.Set) {
		return func(s *contraband.Set) {
			s.Footprint = nil
			s.Scope.Grants = []contraband.Grant{{Path: "/named", Mode: uint8(scope.ReadOne)}}
			s.Expect = &contraband.Expect{Read: "/named", Template: "marker: " + expect.Placeholder, Reply: reply, File: file}
		}
	}
	open := func(r *recording) uint64 {
		r.objects++
		return r.store(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Object: r.objects}, "/named", "planted")
	}
	said := func(r *recording, text string) uint64 {
		return r.store(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, "", text)
	}
	rows := func(o *attest.Openings) (out []string) {
		for _, row := range o.Rows {
			text := "-"
			if row.Content != nil {
				text = string(*row.Content)
			}
			out = append(out, fmt.Sprint(row.Seq, " ", text))
		}
		return out
	}
	t.Run("stdout", func(t *testing.T) {
		r := record(t, project, expecting(expect.Stdout, ""))
		r.begin(nil)
		a, b, c := open(r), said(r, "one"), said(r, "two")
		r.write("out.txt", "not shown")
		o, rep := r.collect("")
		if got, want := rows(o), []string{fmt.Sprint(a, " -"), fmt.Sprint(b, " one"), fmt.Sprint(c, " two")}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if seed := secret.Marker(); !bytes.Equal(o.Marker, seed[:]) || len(o.Paths) != 0 || rep.Rows != 3 || rep.Names != 0 {
			t.Errorf("got marker %x, paths %q, %d rows", o.Marker, r.names(o), rep.Rows)
		}
		for _, row := range o.Rows {
			if row.Salt != secret.Salt(row.Seq) {
				t.Errorf("row %d: got another salt", row.Seq)
			}
		}
	})
	t.Run("too much stdout", func(t *testing.T) {
		r := record(t, project, expecting(expect.Stdout, ""))
		r.begin(nil)
		a := open(r)
		said(r, strings.Repeat("x", 20<<10))
		o, _ := r.collect("")
		if got, want := rows(o), []string{fmt.Sprint(a, " -")}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("file", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		o := r.create("answer.txt")
		r.wrote("answer.txt", o, "first")
		last := r.wrote("answer.txt", o, "second")
		said(r, "not shown")
		r.write("other.txt", "not shown")
		got, rep := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " second")}; !slices.Equal(rows, want) || r.names(got) != "answer.txt" || rep.Names != 0 {
			t.Errorf("got %q, %q, want %q", rows, r.names(got), want)
		}
	})
	t.Run("a reply that is a sealed file", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		sum := sha256.Sum256([]byte("same"))
		last := r.add(journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Object: r.create("answer.txt"), Size: 4},
			journal.Detail{Path: r.name("answer.txt"), SHA256: sum[:]})
		got, _ := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " same")}; !slices.Equal(rows, want) {
			t.Errorf("got %q, want %q", rows, want)
		}
		must(t, os.Remove(filepath.Join(r.at, "copy.txt")))
		got, rep := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " -")}; !slices.Equal(rows, want) || !slices.Equal(rep.Missing, []uint64{last}) {
			t.Errorf("got %q, missing %v, want %q", rows, rep.Missing, want)
		}
	})
	t.Run("no reply", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		o, _ := r.collect("")
		if len(o.Rows)+len(o.Paths) != 0 || len(o.Marker) != 32 {
			t.Errorf("got %v", o)
		}
	})
	t.Run("with a footprint", func(t *testing.T) {
		r := record(t, project, func(s *contraband.Set) {
			expecting(expect.File, "answer.txt")(s)
			s.Footprint = &contraband.Footprint{Allowed: []string{"answer.txt"}}
		})
		r.begin(nil)
		r.write("answer.txt", "text")
		r.write("b.txt", "text")
		o, rep := r.collect("")
		if r.names(o) != "answer.txt b.txt" || rep.Names != 2 || len(o.Rows) != 1 {
			t.Errorf("got %q, %d names, %d rows", r.names(o), rep.Names, len(o.Rows))
		}
	})
}
