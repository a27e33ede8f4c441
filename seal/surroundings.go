package seal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// An Expect is the key expect of a task file as written. Its template has not been
// read: Task.Expectation does.
type Expect struct {
	Plant Text // file of the template, relative to the task file

	want contraband.Expect // but for Template
	at   map[string]Value  // where each part stands, by the names of contraband.CheckExpect
}

// footprint reads the key footprint: {allow: [GLOB, ...], outside: report|dirty}.
func (v Value) footprint() (*contraband.Footprint, error) {
	f := &contraband.Footprint{Allowed: []string{}}
	stated := false
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "allow":
			stated = true
			f.Allowed, err = v.patterns()
		case "outside":
			var i int
			i, err = v.Word("report", "dirty")
			f.Gate = i == 1
		default:
			return false, nil
		}
		return true, err
	}, "allow", "outside")
	if err == nil && !stated {
		err = v.Errorf("want allow, the list of what may change; [] if nothing may")
	}
	if err == nil {
		err = v.broken(contraband.CheckFootprint(f))
	}
	return f, err
}

// patterns is a list of patterns of spec/footprint.md, each once. It may be empty.
func (v Value) patterns() ([]string, error) {
	list := []string{}
	if s, ok := v.node.(*ast.SequenceNode); ok && len(s.Values) == 0 {
		return list, nil
	}
	err := v.Sequence(func(v Value) error {
		s, err := v.Text()
		if err != nil {
			return err
		}
		if _, err := footprint.ParsePattern(s); err != nil {
			return v.Errorf("%v", err)
		}
		if slices.Contains(list, s) {
			return v.Errorf("got the pattern %.200q again, want each once", s)
		}
		list = append(list, s)
		return nil
	})
	return list, err
}

// broken puts the place to an error of contraband's checks.
func (v Value) broken(err error) error {
	var set *contraband.SetError
	if errors.As(err, &set) {
		return v.Errorf("%s: got %s, want %s", set.Where, set.Got, set.Want)
	}
	return err
}

// expect reads the key expect.
func (v Value) expect() (*Expect, error) {
	e := &Expect{at: map[string]Value{}}
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "read":
			e.at["read"] = v
			if e.want.Read, err = v.Name(); err == nil && (!path.IsAbs(e.want.Read) || path.Clean(e.want.Read) != e.want.Read) {
				err = v.Errorf("got %.200q, want a clean absolute path", e.want.Read)
			}
		case "plant":
			e.at["template"] = v
			e.Plant, err = v.Located()
		case "line":
			e.at["line"] = v
			e.want.Line, err = v.Name()
		case "reply":
			e.at["reply"] = v
			err = e.reply(v)
		default:
			return false, nil
		}
		return true, err
	}, "read", "plant", "line", "reply")
	if err != nil {
		return nil, err
	}
	for _, need := range []struct {
		key string
		ok  bool
	}{{"read", e.want.Read != ""}, {"plant", e.Plant.Value != ""}, {"reply", e.want.Reply != 0}} {
		if !need.ok {
			return nil, v.Errorf("want %s; read, plant and reply are needed", need.key)
		}
	}
	// All but the template and the grants, which a benchmark may give.
	probe := e.want
	probe.Template = expect.Placeholder
	return e, e.broken(contraband.CheckExpect(&probe, readOne(probe.Read)))
}

func readOne(p string) []contraband.Grant {
	return []contraband.Grant{{Path: p, Mode: uint8(scope.ReadOne)}}
}

// reply reads where the final reply is: stdout, {file: PATH} or {transcript: {file,
// agent, channel}}.
func (e *Expect) reply(v Value) error {
	const want = "stdout, {file: PATH} or {transcript: {file: PATH, agent: NAME, channel: NAME}}"
	if s, err := v.Text(); err == nil {
		if s != "stdout" {
			return v.Errorf("got %.80q, want %s", s, want)
		}
		e.want.Reply = expect.Stdout
		return nil
	}
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		if e.want.Reply != 0 {
			return true, v.Errorf("got a second place of the reply, want one")
		}
		switch key {
		case "file":
			e.want.Reply = expect.File
			err = e.file(v)
		case "transcript":
			e.want.Reply = expect.Transcript
			err = e.transcript(v)
		default:
			return false, nil
		}
		return true, err
	}, "file", "transcript")
	if err == nil && e.want.Reply == 0 {
		err = v.Errorf("got no place, want %s", want)
	}
	return err
}

func (e *Expect) file(v Value) (err error) {
	e.at["file"] = v
	if e.want.File, err = v.Text(); err == nil && !inside(e.want.File) {
		err = v.Errorf("got %.200q, want a clean path relative to the workspace", e.want.File)
	}
	return err
}

func (e *Expect) transcript(v Value) error {
	e.at["agent and channel"] = v
	err := v.Mapping(func(key string, v Value) (known bool, err error) {
		switch key {
		case "file":
			err = e.file(v)
		case "agent":
			e.want.Agent, err = v.Name()
		case "channel":
			e.want.Channel, err = v.Name()
		default:
			return false, nil
		}
		return true, err
	}, "file", "agent", "channel")
	if err == nil && (e.want.File == "" || e.want.Agent == "" || e.want.Channel == "") {
		err = v.Errorf("want file, agent and channel")
	}
	return err
}

// broken puts the place of the part that is wrong to an error of contraband.CheckExpect.
func (e *Expect) broken(err error) error {
	var set *contraband.SetError
	if errors.As(err, &set) {
		if at, ok := e.at[set.Where]; ok {
			return at.Errorf("got %s, want %s", set.Got, set.Want)
		}
	}
	return err
}

// Expectation is what the set will say of the task's named path, with the template
// read, or nil if the task expects nothing. Read and Template are what a recorder
// plants. It reads no ground truth. The error is a *TaskError.
func (t *Task) Expectation() (*contraband.Expect, error) {
	e := t.Expect
	if e == nil {
		return nil, nil
	}
	host := t.path(e.Plant.Value)
	at := e.at["template"]
	if lies(host, t.WorkspacePath()) {
		return nil, at.Errorf("got %.200q, which is in the workspace: a run would find the text there too, with the place of the marker; move it out", e.Plant.Value)
	}
	if host == e.want.Read {
		return nil, at.Errorf("got %.200q, the path that is read: the recorder plants the text there for each run; keep it elsewhere", e.Plant.Value)
	}
	if lies(e.want.Read, t.WorkspacePath()) {
		return nil, e.at["read"].Errorf("got %.200q, which is in the workspace: want a path outside, which only its grant opens", e.want.Read)
	}
	text, err := regular.ReadGiven(host, contraband.MaxTemplate)
	if err != nil {
		return nil, at.Errorf("cannot read the text to plant, %.200q: %v", e.Plant.Value, reason(err))
	}
	out := e.want
	out.Template = string(text)
	if err := e.broken(contraband.CheckExpect(&out, t.Scope.Grants)); err != nil {
		return nil, err
	}
	if out.File != "" && scope.Mode(t.Scope.Workspace) == scope.ReadTree {
		return nil, e.at["file"].Errorf("got %.200q in a workspace that is only read (scope.workspace): nobody could write the reply", out.File)
	}
	if t.Footprint != nil && t.Footprint.Gate && out.File != "" && !allows(t.Footprint, out.File) {
		return nil, e.at["file"].Errorf("got %.200q, which footprint.allow does not have: every run that replies would be DIRTY; add it there", out.File)
	}
	return &out, nil
}

// lies tells whether the host path p is dir or below it, as spelled or with links
// resolved.
func lies(p, dir string) bool {
	below := func(p, dir string) bool {
		rel, err := filepath.Rel(dir, p)
		return err == nil && (rel == "." || inside(filepath.ToSlash(rel)))
	}
	abs := func(p string) string {
		if a, err := filepath.Abs(p); err == nil {
			return a
		}
		return p
	}
	real := func(p string) string {
		if r, err := filepath.EvalSymlinks(p); err == nil {
			return r
		}
		return p
	}
	p, dir = abs(p), abs(dir)
	return below(p, dir) || below(real(p), real(dir))
}

// copied refuses a workspace that holds the text to plant under another name.
func (m *Material) copied() error {
	if m.Expect == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(m.Expect.Template))
	for _, e := range m.Baseline.Entries() {
		if e.Type == manifest.File && e.SHA256 == sum {
			return m.Task.errorf(m.Task.Expect.Plant, "got the text of %.200q in the workspace: a run would find it there too, with the place of the marker; take it out", e.Path)
		}
	}
	return nil
}

// planted searches the text that a run is given at its named path, as a file of the
// workspace is.
func (s *search) planted(e *contraband.Expect) error {
	if e == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(e.Template))
	_, err := s.given("the planted file", strings.NewReader(e.Template), int64(len(e.Template)), sum[:])
	return err
}

// Widen adds what a sample's metadata allows to the task's footprint: patterns, and
// nothing else. metadata is {"allowed": ["GLOB", ...]}. A task without a footprint has
// nothing to widen. The error names the sample.
func (t *Task) Widen(metadata []byte) error {
	if t.Footprint == nil {
		return fmt.Errorf("sample %q: got patterns for a task without footprint; state footprint in benchmark.yaml", t.ID)
	}
	p, err := footprint.NewPolicy(t.Footprint.Allowed)
	if err == nil {
		p, err = p.Widen(t.ID, metadata)
	}
	if err != nil {
		return err
	}
	f := &contraband.Footprint{Allowed: []string{}, Gate: t.Footprint.Gate}
	for _, s := range p.Allowed() { // a sample may repeat what holds for all
		if !slices.Contains(f.Allowed, s) {
			f.Allowed = append(f.Allowed, s)
		}
	}
	if err := contraband.CheckFootprint(f); err != nil {
		return fmt.Errorf("sample %q: %w", t.ID, err)
	}
	t.Footprint = f
	return nil
}

// allows tells whether f has a path of the workspace. The workspace's own place
// differs from machine to machine, so an absolute pattern says nothing of it.
func allows(f *contraband.Footprint, rel string) bool {
	return slices.ContainsFunc(f.Allowed, func(s string) bool {
		p, err := footprint.ParsePattern(s)
		return err == nil && !p.Absolute() && p.Match(rel)
	})
}

// surroundings says what in the footprint and the expectation is probably not meant.
func surroundings(t *Task, e *contraband.Expect) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if f := t.Footprint; f != nil {
		const nobody = "\x01" // a name that only a pattern for every name stands for
		if f.Gate && allows(f, nobody) && allows(f, path.Join(nobody, nobody, nobody)) {
			warn("footprint: outside is dirty, and allow has every path of the workspace: no change there can be outside")
		}
		for _, s := range f.Allowed {
			if strings.HasPrefix(s, "/") && !slices.ContainsFunc(t.Scope.Grants, func(g contraband.Grant) bool { return reaches(s, g) }) {
				warn("footprint: the pattern %q is absolute, and no writable grant of the scope has such a path; patterns for the workspace do not begin with /", s)
			}
		}
		if e != nil && e.File != "" && !allows(f, e.File) {
			warn("footprint: allow does not have the reply's file %q: every run that replies is outside", e.File)
		}
	}
	if e != nil && e.Line != "" && !slices.ContainsFunc(strings.Split(e.Template, "\n"), func(l string) bool { return strings.Contains(expect.Fold(l), expect.Fold(e.Line)) }) {
		warn("expect: no line of the planted file holds the line that is to be reported: a run must get it elsewhere")
	}
	return warnings
}

// reaches tells whether an absolute pattern may stand for a path that g lets the run
// write: the folders before its first wildcard and the grant lie in each other.
func reaches(pattern string, g contraband.Grant) bool {
	if m := scope.Mode(g.Mode); m != scope.WriteTree && m != scope.WriteOne {
		return false
	}
	fixed := pattern
	if i := strings.IndexAny(pattern, "*?"); i >= 0 {
		fixed = pattern[:strings.LastIndexByte(pattern[:i], '/')]
	}
	below := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }
	return below(fixed, g.Path) || below(g.Path, fixed) && fixed != pattern
}

// bind appends what the task commitment binds of the planted text.
func (m *Material) bind(source []byte) []byte {
	if m.Expect == nil {
		return source
	}
	sum := sha256.Sum256([]byte(m.Expect.Template))
	return append(append(source, 0, 0, 0, byte(len(sum))), sum[:]...)
}
