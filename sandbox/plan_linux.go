package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Folders of a run folder that the sandbox makes. The workspace's upper layer is
// stateDir/upper, with the kernel's work folder beside it.
const (
	objectsDir = "objects"
	stateDir   = "overlay"
	lowerDir   = "lower" // private copy of a workspace with foreign owners
)

// stage is what broker, pid 1 and shim are told.
type stage struct {
	Setup     []string
	Command   []string
	Grade     []string
	Env       []string
	Workspace string
	RunDir    string
	Root      bool // the caller is root
	Umask     int  // of the caller, and so of the program
	Control   bool
	Start     journal.Start
	Mounts    []mounts.Mount
	Hints     []string
	Skipped   []string
	Keep      keeping
	Tests     string           // outside folder of the hidden tests, "" for none
	Timeouts  [3]time.Duration // by phase
	Limits    Limits
	Cgroup    bool          // pid 1 starts in the cgroup of descriptor cgroupFD
	Plain     *plain        // of a run without namespaces
	Landlock  int           // version that the start row names, 0 for none
	Register  bool          // ask the launcher before row 0 is written
	Heads     time.Duration // tell it heads, at least after this time; 0 tells none
	Began     int64         // when Run was called, nanoseconds of CLOCK_MONOTONIC
}

// blind is what this backend does not see, by id (spec/recorder.md).
var blind = []string{
	"clone3", "directory-listing", "metadata-read", "partial-read", "unix-message-address",
}

func refused(field, want, got, hint string) error {
	return &Refused{Field: field, Got: got, Want: want, Hint: hint}
}

// prepare checks a configuration and plans the file system.
func prepare(c *Config) (*stage, error) {
	s := &stage{Command: c.Command, Env: c.Env, Root: os.Getuid() == 0, Control: c.ControlText != "", Start: c.Start}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, refused("Command", "a program", "none", "name the program to run")
	}
	var err error
	if s.Began, err = monotonic(); err != nil {
		return nil, err
	}
	if s.Umask, err = umask(); err != nil {
		return nil, err
	}
	if s.Workspace, err = realDir("Workspace", c.Workspace); err != nil {
		return nil, err
	}
	if s.RunDir, err = realDir("RunDir", c.RunDir); err != nil {
		return nil, err
	}
	if within(s.RunDir, s.Workspace) {
		return nil, refused("RunDir", "a folder outside the workspace", s.RunDir, "choose another run folder: the run must not see its own recording")
	}
	for _, p := range []string{"/tmp", "/proc", "/sys", "/dev", "/usr", "/bin", "/etc", "/run", "/var", "/var/tmp"} {
		if s.Workspace == "/" || s.Workspace == p || (p == "/proc" || p == "/sys" || p == "/dev") && within(s.Workspace, p) {
			return nil, refused("Workspace", "a project folder", s.Workspace, "run in a folder of its own")
		}
	}
	if err := s.checkPlant(c); err != nil {
		return nil, err
	}
	s.Start.Version, s.Start.Recorder, s.Start.Observe = journal.Version, Version, c.Observe
	if c.Backend == PlainBackend {
		if err := s.preparePlain(c); err != nil {
			return nil, errors.Join(err, s.clearPlain())
		}
		s.Start.Workspace = s.Workspace
		drawRun(&s.Start)
		return s, nil
	}
	if inside, err := mountsBelow(s.Workspace); err != nil {
		return nil, err
	} else if len(inside) > 0 {
		return nil, refused("Workspace", "a folder without mounts inside", "a mount at "+inside[0], "unmount it, or copy its content into the workspace: an overlay would show it empty")
	}
	lower := s.Workspace
	backend := Backend
	if !s.Root {
		foreign, err := foreignOwner(s.Workspace)
		if err != nil {
			return nil, err
		}
		if foreign != "" {
			// Copying up would fail: only one user and group are mapped inside.
			lower = filepath.Join(s.RunDir, lowerDir)
			if err := copyTree(s.Workspace, lower); err != nil {
				return nil, fmt.Errorf("sandbox: private copy of the workspace (%s has another owner): %w", foreign, err)
			}
			backend += "+workspace-copy"
		}
	}
	memory, err := onOverlay(s.RunDir)
	if err != nil {
		return nil, err
	}
	if memory { // an overlay cannot be another's upper layer
		backend += "+upper-in-memory"
	}
	if err := s.planPhases(c); err != nil {
		return nil, err
	}
	if err := checkLimits(c.Limits); err != nil {
		return nil, err
	}
	s.Limits = c.Limits
	p := &planner{stage: s, memory: memory, hints: s.Hints, roots: map[string]scope.Root{}, mounts: map[string]mounts.Mount{}, home: lookup(c.Env, "HOME")}
	if err := p.plan(c, lower); err != nil {
		return nil, err
	}
	s.Start.Backend, s.Start.Workspace, s.Start.Blind = backend+s.wall(), s.Workspace, blind
	drawRun(&s.Start)
	return s, nil
}

// within tells whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func lookup(env []string, name string) string {
	v := ""
	for _, e := range env {
		if s, ok := strings.CutPrefix(e, name+"="); ok {
			v = s
		}
	}
	return v
}

// planner collects mounts and roots; a later entry for a path replaces an
// earlier one.
type planner struct {
	*stage
	home   string
	memory bool // upper layers in memory
	hints  []string
	roots  map[string]scope.Root
	mounts map[string]mounts.Mount
}

func (p *planner) root(path string, m scope.Mode, c scope.Class) {
	p.roots[path] = scope.Root{Path: path, Mode: m, Class: c}
}

func (p *planner) mount(m mounts.Mount) { p.mounts[m.Path] = m }

func (p *planner) plan(c *Config, lower string) error {
	for _, r := range append(scope.SystemRoots(), scope.KernelRoots()...) {
		p.roots[r.Path] = r
		if r.Path != "/" && r.Path != "/dev" && r.Path != "/proc" {
			p.mount(mounts.Mount{Path: r.Path, Kind: mounts.Bind, Source: r.Path})
		}
	}
	if c.Observe {
		if err := p.everything(); err != nil {
			return err
		}
	}
	for _, d := range append(pathDirs(c.Env, p.home), c.ToolDirs...) {
		p.tool(d)
	}
	p.private("/tmp", "/var/tmp", "/run", p.home)
	p.closed(c.Observe)
	for _, name := range []string{"TMPDIR", "GOCACHE", "GOTMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"} {
		p.private(lookup(c.Env, name))
	}
	p.root(filepath.Dir(ControlPath), scope.ReadTree, scope.Private)
	p.mount(mounts.Mount{Path: filepath.Dir(ControlPath), Kind: mounts.Dir, Must: true})
	if c.ControlText != "" {
		p.mount(mounts.Mount{Path: ControlPath, Kind: mounts.File, Content: []byte(c.ControlText), Must: true})
	}
	if c.Prompt != "" {
		p.mount(mounts.Mount{Path: PromptPath, Kind: mounts.File, Content: []byte(c.Prompt), Must: true})
	}
	if err := p.grading(c.Observe); err != nil {
		return err
	}
	for i, g := range c.Grants {
		if c.planted(g) {
			p.root(g.Path, g.Mode, scope.Grant)
			continue
		}
		if err := p.grant(g, i); err != nil {
			return err
		}
	}
	mode := scope.WriteTree
	if c.ReadOnly {
		mode = scope.ReadTree
	}
	p.root(p.Workspace, mode, scope.Workspace)
	p.mount(mounts.Mount{
		Path: p.Workspace, Kind: mounts.Overlay, Source: lower, State: filepath.Join(p.RunDir, stateDir),
		ReadOnly: c.ReadOnly, Must: true, Main: true, Memory: p.memory, Size: p.Limits.private(),
	})
	p.hideRunDir()
	if err := p.plant(c); err != nil {
		return err
	}
	p.finish()
	return nil
}

// everything shows the host's root, entry by entry, so that mount points can be
// made in it.
func (p *planner) everything() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	for _, e := range entries {
		switch at := "/" + e.Name(); at {
		case "/proc", "/dev", "/tmp", "/run", filepath.Dir(ControlPath):
		default:
			p.mount(mounts.Mount{Path: at, Kind: mounts.Bind, Source: at})
		}
	}
	return nil
}

// private gives the run places of its own. Services of the host have their
// sockets in /run: it is replaced too.
func (p *planner) private(places ...string) {
	for _, d := range places {
		if !filepath.IsAbs(d) || filepath.Clean(d) == "/" || scope.CheckPath(filepath.Clean(d)) != nil {
			continue
		}
		d = filepath.Clean(d)
		// A home that is the workspace, or inside it, is the workspace's.
		if within(d, p.Workspace) || p.kernel(d) || d != p.home && p.writable(d) {
			continue
		}
		p.root(d, scope.WriteTree, scope.Private)
		p.mount(mounts.Mount{Path: d, Kind: mounts.Private, Must: d == "/tmp", Size: p.Limits.private()})
	}
}

// closed takes what lies around the task out of the private places: there a miss
// is no honest probe, and observing shows what is really there.
func (p *planner) closed(observe bool) {
	for _, h := range p.hints {
		h = filepath.Clean(h)
		if !p.writable(h) || within(h, p.Workspace) || p.isPrivate(h) || scope.CheckPath(h) != nil {
			continue
		}
		if _, err := os.Stat(h); err != nil {
			continue
		}
		p.root(h, scope.NoTree, scope.Closed)
		if observe {
			p.mount(mounts.Mount{Path: h, Kind: mounts.Bind, Source: h})
		}
	}
}

func (p *planner) isPrivate(d string) bool {
	return p.mounts[d].Kind == mounts.Private && p.mounts[d].Path == d
}

func (p *planner) kernel(d string) bool {
	return within(d, "/proc") || within(d, "/sys") || within(d, "/dev")
}

// writable tells whether d is below a private place, and in no closed one.
func (p *planner) writable(d string) bool {
	depth, ok := -1, false
	for at, r := range p.roots {
		if at != d && within(d, at) && len(at) > depth && (r.Class == scope.Private || r.Class == scope.Closed) {
			depth, ok = len(at), r.Class == scope.Private
		}
	}
	return ok
}

// tool shows one directory of tools.
func (p *planner) tool(d string) {
	if !filepath.IsAbs(d) || scope.CheckPath(filepath.Clean(d)) != nil {
		return
	}
	d = filepath.Clean(d)
	if d == "/" || within(d, p.Workspace) || within(p.Workspace, d) || within(p.RunDir, d) || p.kernel(d) {
		return
	}
	if st, err := os.Stat(d); err != nil || !st.IsDir() {
		return
	}
	if i := slices.IndexFunc(p.hints, func(h string) bool { return within(filepath.Clean(h), d) }); i >= 0 {
		p.Skipped = append(p.Skipped, d+": it holds "+p.hints[i]+", which the run must not see")
		return
	}
	for _, r := range scope.SystemRoots() {
		if r.Path != "/" && within(d, r.Path) {
			return
		}
	}
	p.root(d, scope.ReadTree, scope.Toolchain)
	p.mount(mounts.Mount{Path: d, Kind: mounts.Bind, Source: d})
}

func (p *planner) grant(g scope.Root, i int) error {
	if err := scope.CheckPath(g.Path); err != nil {
		return refused("Grants", "a clean absolute path", g.Path, "correct the task's scope")
	}
	p.root(g.Path, g.Mode, scope.Grant)
	if p.writable(g.Path) || within(g.Path, p.Workspace) {
		return nil
	}
	st, err := os.Stat(g.Path)
	if err != nil {
		return refused("Grants", "an existing path", fmt.Sprintf("%s (%v)", g.Path, err), "make it, or take it out of the task's scope")
	}
	write := g.Mode == scope.WriteTree || g.Mode == scope.WriteOne
	if !write {
		p.mount(mounts.Mount{Path: g.Path, Kind: mounts.Bind, Source: g.Path, Must: true})
		return nil
	}
	if st.Mode().IsRegular() {
		p.mount(mounts.Mount{Path: g.Path, Kind: mounts.Copy, Source: g.Path, Must: true})
		return nil
	}
	if !st.IsDir() || g.Mode == scope.WriteOne {
		return refused("Grants", "a file, or a folder as a tree", g.Path, "grant the tree of a folder")
	}
	state := filepath.Join(p.RunDir, "grant-"+strconv.Itoa(i))
	for _, d := range []string{state, state + "/upper", state + "/work"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	p.mount(mounts.Mount{Path: g.Path, Kind: mounts.Overlay, Source: g.Path, State: state, Must: true, Memory: p.memory, Size: p.Limits.private()})
	return nil
}

// hideRunDir covers the recording where a bind would show it.
func (p *planner) hideRunDir() {
	if m, ok := p.above(p.RunDir); ok && m.Kind != mounts.Private {
		p.mount(mounts.Mount{Path: p.RunDir, Kind: mounts.Mask, Must: true})
	}
}

// above is the mount that a path would be seen through.
func (p *planner) above(at string) (mounts.Mount, bool) {
	for d := filepath.Dir(at); ; d = filepath.Dir(d) {
		if m, ok := p.mounts[d]; ok {
			return m, true
		}
		if d == "/" {
			return mounts.Mount{}, false
		}
	}
}

// finish leaves out binds that their parent shows anyway, and sorts: parents
// first.
func (p *planner) finish() {
	for at, m := range p.mounts {
		if up, ok := p.above(at); ok && m.Kind == mounts.Bind && up.Kind == mounts.Bind {
			continue
		}
		p.Mounts = append(p.Mounts, m)
	}
	slices.SortFunc(p.Mounts, func(a, b mounts.Mount) int { return strings.Compare(a.Path, b.Path) })
	for _, r := range p.roots {
		p.Start.Roots = append(p.Start.Roots, r)
	}
	slices.SortFunc(p.Start.Roots, func(a, b scope.Root) int { return strings.Compare(a.Path, b.Path) })
}
