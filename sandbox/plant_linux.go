package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/scope"
)

const plantElsewhere = "choose a path that nothing is shown at, such as one below /srv or HOME, and seal the task again"

// checkPlant refuses what cannot be planted in any run.
func (s *stage) checkPlant(c *Config) error {
	p := c.Plant
	if p == nil {
		return nil
	}
	if !slices.ContainsFunc(c.Grants, func(g scope.Root) bool { return g.Path == p.Path && g.Mode == scope.ReadOne }) {
		return refused("Plant", "a path that Grants has with mode read-one", p.Path, "correct the task's scope")
	}
	if s.Start.Task == "" {
		return refused("Plant", "a run with a task, whose start row binds the marker", "none", "give the sealed task with -sealed")
	}
	if n := strings.Count(p.Template, expect.Placeholder); n != 1 {
		return refused("Plant", "a text with "+expect.Placeholder+" once", fmt.Sprintf("%d times", n), "correct the planted file and seal the task again")
	}
	return nil
}

// planted tells whether a granted path is made for this run.
func (c *Config) planted(g scope.Root) bool { return c.Plant != nil && c.Plant.Path == g.Path }

// plant shows a file at a path that need not exist outside. Nothing that the run can
// rename may lie above it: then its name could lead to another file. It comes when all
// other mounts are planned.
func (p *planner) plant(c *Config) error {
	if c.Plant == nil {
		return nil
	}
	at := c.Plant.Path
	no := func(got string) error {
		return refused("Plant", "a path where a file can be shown for one run", at+": "+got, plantElsewhere)
	}
	if err := scope.CheckPath(at); err != nil || at == "/" {
		return no("not a clean absolute path")
	}
	if p.kernel(at) || within(at, p.RunDir) || within(p.RunDir, at) || within(at, p.Workspace) {
		return no("it lies in the workspace, the run folder or the kernel's files")
	}
	for other := range p.mounts {
		if within(other, at) {
			return no("the run is shown " + other)
		}
	}
	up, covered := p.above(at)
	switch {
	case !covered || up.Kind == mounts.Private || up.Path == filepath.Dir(ControlPath):
	case up.Kind == mounts.Bind:
		if err := coverable(at); err != nil {
			return no(fmt.Sprintf("no file to cover (%v), and none can be made in %s, which is shown as it is outside", err, up.Path))
		}
	default:
		return no("what is at " + up.Path + " can be changed by the run, or is shown later")
	}
	for d := filepath.Dir(at); d != "/"; d = filepath.Dir(d) {
		if _, own := p.mounts[d]; own {
			continue
		}
		up, _ := p.above(d)
		switch up.Kind {
		case mounts.Private:
			p.mount(mounts.Mount{Path: d, Kind: mounts.Pin, Must: true})
		case mounts.Overlay:
			return no("the run can rename " + d)
		}
	}
	p.mount(mounts.Mount{Path: at, Kind: mounts.Planted, Must: true})
	return nil
}

// coverable wants a regular file at its own name, with no link on the way.
func coverable(at string) error {
	st, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(at); err != nil || real != at || !st.Mode().IsRegular() {
		return fmt.Errorf("a link or no regular file")
	}
	return nil
}

// fillPlant puts the run's marker in its place and binds it in the start row. What is
// removed before storage must not be in the text: its digest is judged.
func (s *stage) fillPlant(c *Config) error {
	if c.Plant == nil {
		return nil
	}
	seed := s.Keep.Secret.Marker()
	text := []byte(expect.Plant(c.Plant.Template, seed))
	r, err := redact.New(s.Keep.Remove)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if r.Bytes(bytes.Clone(text)).Bytes > 0 {
		return refused("Secrets", "values, shapes of keys and patterns that the planted file does not hold", "one in it",
			"take it out of the planted file and seal the task again, or choose a narrower pattern")
	}
	for i := range s.Mounts {
		if s.Mounts[i].Kind == mounts.Planted {
			s.Mounts[i].Content = text
		}
	}
	commit := expect.Commit(seed)
	s.Start.Marker = commit[:]
	return nil
}

// checkPlanted looks, when nothing of the run is left, whether the path still leads to
// what was planted.
func (r *recording) checkPlanted() error {
	for _, m := range r.Mounts {
		if m.Kind != mounts.Planted {
			continue
		}
		fd, err := unix.Openat2(unix.AT_FDCWD, m.Path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return fmt.Errorf("the planted file %s is gone: %w", m.Path, err)
		}
		f := os.NewFile(uintptr(fd), m.Path)
		got, err := io.ReadAll(io.LimitReader(f, int64(len(m.Content))+1))
		f.Close()
		if err != nil {
			return fmt.Errorf("the planted file %s: %w", m.Path, err)
		}
		if !bytes.Equal(got, m.Content) {
			return fmt.Errorf("the planted file %s is not as it was planted", m.Path)
		}
	}
	return nil
}
