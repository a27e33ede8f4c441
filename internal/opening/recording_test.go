package opening

import (
	"context"
	"crypto/sha256"
	"os"
	"path"
	"path/filepath"
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
