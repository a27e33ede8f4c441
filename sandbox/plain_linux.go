package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/landlock"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/snapshot"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Folders of a run folder that a run without namespaces works in. They are removed
// after it; what changed in the workspace is in stateDir/upper then.
const (
	plainWorkspace = "workspace"
	plainHome      = "home"
	plainTemp      = "tmp"
	plainCaches    = "private"
	plainControl   = "control"
	plainTests     = "tests"
	plainReward    = "reward"
)

var plainFolders = []string{plainWorkspace, plainHome, plainTemp, plainCaches, plainControl, plainTests, plainReward}

// plainBlind is what this backend does not see or hide besides blind.
var plainBlind = []string{"host-metadata", "host-processes", "shared-tmp"}

// sharedFolders are those of all users. There the run sees names, and gets at what
// it made itself.
var sharedFolders = []string{"/dev/shm", "/tmp", "/var/tmp"}

// plain is what the stages of a run without namespaces are told.
type plain struct {
	Source string   // the workspace that the run's is a copy of
	Hide   []string // absent even where the host is shown
	Text   []byte   // of the control file
}

// within RunDir.
func (s *stage) own(folder string) string { return filepath.Join(s.RunDir, folder) }

func (s *stage) controlAt() string {
	if s.Plain != nil {
		return filepath.Join(s.own(plainControl), filepath.Base(ControlPath))
	}
	return ControlPath
}

// testsAt is where hidden tests appear. Without namespaces no folder can be made at
// the place that the task names.
func (s *stage) testsAt() string {
	if p := s.Start.Phases; p == nil || p.Tests == "" {
		return ""
	} else if s.Plain == nil {
		return p.Tests
	}
	return s.own(plainTests)
}

func (s *stage) rewardAt() string {
	if p := s.Start.Phases; p == nil || p.RewardDir == "" {
		return ""
	} else if s.Plain == nil {
		return p.RewardDir
	}
	return s.own(plainReward)
}

// preparePlain plans a run without namespaces: roots, but no mounts.
func (s *stage) preparePlain(c *Config) error {
	if err := s.planPhases(c); err != nil {
		return err
	}
	if c.Plant != nil {
		return refused("Plant", "namespaces: without them no file can be shown at "+c.Plant.Path, "the backend "+PlainBackend,
			"run where user namespaces work (cleanrun doctor)")
	}
	if err := checkLimits(c.Limits); err != nil {
		return err
	}
	s.Limits = c.Limits
	s.Plain = &plain{Source: s.Workspace, Text: []byte(c.ControlText)}
	s.Workspace = s.own(plainWorkspace)
	if err := s.plainPlaces(); err != nil {
		return err
	}
	for _, d := range plainFolders {
		if _, err := os.Lstat(s.own(d)); !errors.Is(err, fs.ErrNotExist) {
			return refused("RunDir", "a folder without "+d, s.own(d), "use a new folder")
		}
		if d == plainWorkspace || d == plainTests || d == plainReward && s.rewardAt() == "" {
			continue
		}
		if err := os.Mkdir(s.own(d), 0o700); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	if c.ControlText != "" {
		if err := os.WriteFile(s.controlAt(), []byte(c.ControlText), 0o400); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	if c.Prompt != "" {
		at := filepath.Join(s.own(plainControl), filepath.Base(PromptPath))
		if err := os.WriteFile(at, []byte(c.Prompt), 0o400); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		s.Command = slices.Clone(s.Command) // the caller's stays as it is
		for i := range s.Command {
			s.Command[i] = strings.ReplaceAll(s.Command[i], PromptPath, at)
		}
	}
	home := lookup(c.Env, "HOME")
	p := &planner{stage: s, hints: s.Hints, roots: map[string]scope.Root{}, mounts: map[string]mounts.Mount{}, home: home}
	for _, r := range append(scope.SystemRoots(), scope.KernelRoots()...) {
		p.roots[r.Path] = r
	}
	for _, d := range append(pathDirs(c.Env, home), c.ToolDirs...) {
		if !within(s.Plain.Source, d) {
			p.tool(d)
		}
	}
	for _, d := range append(slices.Clone(sharedFolders), s.own(plainHome), s.own(plainTemp), s.own(plainCaches)) {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			p.root(d, scope.WriteTree, scope.Private)
		}
	}
	p.closed(false)
	// What was copied may be read under its own name: commands and prompts know it.
	p.root(s.Plain.Source, scope.ReadTree, scope.Private)
	p.root(s.RunDir, scope.NoTree, scope.Closed)
	for _, d := range []string{plainHome, plainTemp, plainCaches} {
		p.root(s.own(d), scope.WriteTree, scope.Private)
	}
	p.root(s.own(plainControl), scope.ReadTree, scope.Private)
	if at := s.testsAt(); at != "" {
		p.root(at, scope.ReadTree, scope.Private)
	}
	if at := s.rewardAt(); at != "" {
		p.root(at, scope.WriteTree, scope.Private)
	}
	for _, g := range c.Grants {
		if err := p.plainGrant(g); err != nil {
			return err
		}
	}
	mode := scope.WriteTree
	if c.ReadOnly {
		mode = scope.ReadTree
	}
	p.root(s.Workspace, mode, scope.Workspace)
	if home = filepath.Clean(home); filepath.IsAbs(home) && home != "/" {
		s.Plain.Hide = append(s.Plain.Hide, home)
		if err := p.linkTools(home); err != nil {
			return err
		}
	}
	s.Plain.Hide = append(s.Plain.Hide, "/run", "/tmp", "/var/tmp")
	s.plainEnv(c.Env, home)
	p.finish()
	s.Mounts = nil
	s.Start.Backend = PlainBackend + s.wall()
	s.Start.Blind = slices.Sorted(slices.Values(slices.Concat(blind, plainBlind)))
	return nil
}

// plainGrant takes what is granted for reading as it is. A private copy at the same path, as
// a writable one would need, takes a mount.
func (p *planner) plainGrant(g scope.Root) error {
	if err := scope.CheckPath(g.Path); err != nil {
		return refused("Grants", "a clean absolute path", g.Path, "correct the task's scope")
	}
	if g.Mode == scope.WriteTree || g.Mode == scope.WriteOne {
		return refused("Grants", "paths to read: without namespaces the run could only change the host's own file", g.Path,
			"run where user namespaces work (cleanrun doctor)")
	}
	if _, err := os.Stat(g.Path); err != nil {
		return refused("Grants", "an existing path", fmt.Sprintf("%s (%v)", g.Path, err), "make it, or take it out of the task's scope")
	}
	p.root(g.Path, g.Mode, scope.Grant)
	return nil
}

// linkTools makes the tools that lie in the user's home reachable from the private one.
func (p *planner) linkTools(home string) error {
	var tools []string
	for at, r := range p.roots {
		if r.Class == scope.Toolchain && at != home && within(at, home) {
			tools = append(tools, at)
		}
	}
	slices.Sort(tools)
	for i, at := range tools {
		if i > 0 && within(at, tools[i-1]) {
			tools[i] = tools[i-1] // a link above leads there
			continue
		}
		rel, err := filepath.Rel(home, at)
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		link := filepath.Join(p.own(plainHome), rel)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if err := os.Symlink(at, link); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	return nil
}

// plainEnv leads the program to its private places.
func (s *stage) plainEnv(env []string, home string) {
	set := map[string]string{"HOME": s.own(plainHome), "TMPDIR": s.own(plainTemp)}
	for _, name := range []string{"GOCACHE", "GOTMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"} {
		if lookup(env, name) != "" {
			set[name] = filepath.Join(s.own(plainCaches), strings.ToLower(name))
			_ = os.Mkdir(set[name], 0o700) // the program makes it, or says that it cannot
		}
	}
	s.Env = nil
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, ok := set[name]; ok {
			continue
		}
		if name == "PWD" && within(value, s.Plain.Source) {
			e = "PWD=" + s.Workspace + strings.TrimPrefix(value, s.Plain.Source)
		}
		s.Env = append(s.Env, e)
	}
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s.Env = append(s.Env, name+"="+set[name])
	}
}

// clearPlain removes what the run worked in, and what a failed set-up left.
func (s *stage) clearPlain() error {
	if s.Plain == nil {
		return nil
	}
	for pause := time.Millisecond; ; pause *= 2 {
		var errs []error
		for _, d := range plainFolders {
			errs = append(errs, snapshot.Remove(s.own(d)))
		}
		err := errors.Join(errs...)
		if err == nil || pause > 2*time.Second {
			return err
		}
		time.Sleep(pause) // if the broker was killed, its tracees end a moment later
	}
}

// wall names the version of Landlock that holds the run, "" without one.
func (s *stage) wall() string {
	if s.Landlock = landlock.ABI(); s.Landlock == 0 {
		return ""
	}
	return fmt.Sprintf("+landlock-%d", s.Landlock)
}

// domain is what the program itself is restricted to: what the kernel opens for it, and
// signals.
func (s *stage) domain() landlock.Domain {
	d := landlock.Domain{Alone: true, NoTCP: s.Plain != nil}
	for _, r := range s.Start.Roots {
		switch r.Mode {
		case scope.ReadTree:
			d.Rules = append(d.Rules, landlock.Rule{Path: r.Path, Access: landlock.Read})
		case scope.ReadOne:
			a := landlock.Read
			if st, err := os.Stat(r.Path); err == nil && st.IsDir() {
				a = landlock.List
			}
			d.Rules = append(d.Rules, landlock.Rule{Path: r.Path, Access: a})
		case scope.WriteTree, scope.WriteOne:
			d.Rules = append(d.Rules, landlock.Rule{Path: r.Path, Access: landlock.Write})
		}
	}
	if s.Start.Observe {
		d.Rules = append(d.Rules, landlock.Rule{Path: "/", Access: landlock.Read})
	}
	return d
}

// brokerDomain restricts the broker of a run without namespaces too, since it opens the
// files: what it may open besides is the run folder, what is copied from, and itself.
func (s *stage) brokerDomain() (landlock.Domain, error) {
	d := s.domain()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return d, err
	}
	for _, p := range []string{self, s.Plain.Source, s.Tests} {
		if p != "" {
			d.Rules = append(d.Rules, landlock.Rule{Path: p, Access: landlock.Read})
		}
	}
	d.Rules = append(d.Rules, landlock.Rule{Path: s.RunDir, Access: landlock.Write})
	return d, nil
}

// walled marks a broker that is in its domain.
const walled = "walled"

// wallIn restricts the process and starts it again: a domain holds one thread and what it
// starts, and the runtime has other threads by now.
func (s *stage) wallIn() error {
	d, err := s.brokerDomain()
	if err != nil {
		return err
	}
	if err := landlock.Restrict(d); err != nil {
		return err
	}
	keep := []int{linkFD, configFD}
	if s.Cgroup {
		keep = append(keep, cgroupFD)
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return syscall.Exec("/proc/self/exe", []string{stageBroker, walled}, os.Environ())
}

// plainDelta compares the copy with what was copied.
func (r *recording) plainDelta() ([]overlay.Change, error) {
	changes, err := r.index.Changes(r.Workspace)
	r.changes = changes
	return changes, err
}

// setAside puts what changed where other recordings have it, and takes away what the run
// made in shared folders.
func (r *recording) setAside() error {
	if r.Plain == nil || r.broker == nil {
		return nil
	}
	for _, p := range r.broker.Plain.Made() {
		_ = snapshot.Remove(p) // it may be somebody else's by now
	}
	return snapshot.Export(r.changes, r.Workspace, filepath.Join(r.own(stateDir), "upper"))
}
