package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/scope"
)

func planned(t *testing.T, c Config) *stage {
	t.Helper()
	for _, d := range []*string{&c.Workspace, &c.RunDir} {
		if *d == "" {
			*d = t.TempDir()
		}
	}
	if c.Command == nil {
		c.Command = []string{"true"}
	}
	s, err := prepare(&c)
	if err != nil {
		t.Fatal(err)
	}
	if err := scope.CheckRoots(s.Start.Roots); err != nil {
		t.Errorf("roots: %v", err)
	}
	for i, m := range s.Mounts {
		if i > 0 && s.Mounts[i-1].Path >= m.Path {
			t.Errorf("mount %s after %s, want parents first and each once", m.Path, s.Mounts[i-1].Path)
		}
		if m.Kind == mounts.Bind && within(s.RunDir, m.Source) && !slices.ContainsFunc(s.Mounts, func(m mounts.Mount) bool {
			return m.Kind == mounts.Mask || m.Kind == mounts.Private && within(s.RunDir, m.Path)
		}) {
			t.Errorf("mount %s shows the run folder", m.Path)
		}
	}
	return s
}

func mountAt(s *stage, path string) (mounts.Mount, bool) {
	i := slices.IndexFunc(s.Mounts, func(m mounts.Mount) bool { return m.Path == path })
	if i < 0 {
		return mounts.Mount{}, false
	}
	return s.Mounts[i], true
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		p, dir string
		want   bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}} {
		if got := within(c.p, c.dir); got != c.want {
			t.Errorf("within(%q, %q): got %v", c.p, c.dir, got)
		}
	}
}

func TestPlanHome(t *testing.T) {
	top := t.TempDir()
	home, ws := filepath.Join(top, "home"), filepath.Join(top, "home", "ws")
	for _, d := range []string{ws, filepath.Join(home, ".local", "bin"), filepath.Join(home, "venv", "bin"), filepath.Join(home, "venv", "lib")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + strings.Join([]string{filepath.Join(home, ".local/bin"), filepath.Join(home, "venv/bin"), filepath.Join(ws, "bin"), "/usr/bin", "relative"}, ":")
	s := planned(t, Config{Workspace: ws, Env: []string{"HOME=" + home, path}})
	for p, want := range map[string]mounts.Kind{
		home: mounts.Private, ws: mounts.Overlay, filepath.Join(home, ".local/bin"): mounts.Bind, filepath.Join(home, "venv"): mounts.Bind, "/tmp": mounts.Private,
	} {
		if m, ok := mountAt(s, p); !ok || m.Kind != want {
			t.Errorf("%s: got %v, %v, want kind %d", p, m, ok, want)
		}
	}
	for _, p := range []string{filepath.Join(home, ".local"), filepath.Join(home, "venv/bin"), filepath.Join(ws, "bin"), "/usr/bin"} {
		if m, ok := mountAt(s, p); ok {
			t.Errorf("got mount %v, want none of its own", m)
		}
	}
}

// A tool directory that holds the workspace or a hidden path would show what
// the run must not see.
func TestPlanToolsDoNotShowHiddenPaths(t *testing.T) {
	top := t.TempDir()
	ws, tests := filepath.Join(top, "proj", "ws"), filepath.Join(top, "kit", "tests")
	for _, d := range []string{ws, tests, filepath.Join(top, "proj", "lib"), filepath.Join(top, "kit", "bin"), filepath.Join(top, "kit", "lib"), filepath.Join(top, "proj", "bin")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := planned(t, Config{Workspace: ws, ToolDirs: []string{top}, HiddenHints: []string{tests}, Env: []string{"PATH=" + filepath.Join(top, "kit/bin") + ":" + filepath.Join(top, "proj/bin")}})
	for _, m := range s.Mounts {
		if m.Kind == mounts.Bind && (within(tests, m.Path) || within(ws, m.Path)) {
			t.Errorf("mount %s shows a hidden path", m.Path)
		}
	}
	if _, ok := mountAt(s, filepath.Join(top, "kit", "bin")); !ok {
		t.Error("the tool directory itself is not shown")
	}
	if !slices.ContainsFunc(s.Skipped, func(s string) bool { return strings.Contains(s, filepath.Join(top, "kit")) }) {
		t.Errorf("got skipped %q, want the prefix named", s.Skipped)
	}
}

func TestPlanObserveCoversRunDir(t *testing.T) {
	dir, err := os.MkdirTemp("/srv", "cleanrun-plan-")
	if err != nil {
		t.Skipf("no folder outside /tmp: %v", err)
	}
	defer os.RemoveAll(dir)
	s := planned(t, Config{RunDir: dir, Observe: true})
	if m, ok := mountAt(s, dir); !ok || m.Kind != mounts.Mask {
		t.Errorf("got %v, %v, want the run folder covered", m, ok)
	}
	if m, ok := mountAt(s, "/srv"); !ok || m.Kind != mounts.Bind {
		t.Errorf("got %v, %v, want the host's folder shown", m, ok)
	}
}

func TestLookup(t *testing.T) {
	if got := lookup([]string{"A=1", "AB=2", "A=3", "B"}, "A"); got != "3" {
		t.Errorf("got %q, want the last", got)
	}
}
