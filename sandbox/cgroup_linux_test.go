package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A folder laid out like a cgroup stands in for one: it shows which files are
// written, and what is done where controllers are missing.
func TestMakeCgroup(t *testing.T) {
	parent := t.TempDir()
	control := filepath.Join(parent, "cgroup.subtree_control")
	l := Limits{Memory: 1 << 30, Processes: 100, Disk: 1 << 20}
	if _, err := makeCgroup(parent, "none", l); !errors.Is(err, errNoCgroup) {
		t.Errorf("no hierarchy: got %v", err)
	}
	for have, want := range map[string]bool{"memory pids\n": true, "cpu memory io pids\n": true, "memory\n": false, "": false, "pids memory.x\n": false} {
		if err := os.WriteFile(control, []byte(have), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := makeCgroup(parent, "run", l)
		if (err == nil) != want || !want && !errors.Is(err, errNoCgroup) {
			t.Errorf("controllers %q: got %v", have, err)
		}
		if err != nil {
			continue
		}
		for file, content := range map[string]string{"memory.max": "1073741824", "pids.max": "116", "memory.swap.max": "0"} {
			if b, err := os.ReadFile(filepath.Join(g.dir, file)); err != nil || string(b) != content {
				t.Errorf("%s: got %q %v, want %q", file, b, err, content)
			}
		}
		for file, content := range map[string]string{"memory.events": "low 0\noom_kill 2\n", "pids.events": "max 0\n"} {
			if err := os.WriteFile(filepath.Join(g.dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if met := g.met(); len(met) != 1 || met[0] != "memory: limit reached, processes killed" {
			t.Errorf("reached: %q", met)
		}
		g.fd.Close()
		if err := os.RemoveAll(g.dir); err != nil {
			t.Fatal(err)
		}
	}
	if g, err := newCgroup(l, "test-of-cleanrun"); err == nil {
		if _, err := os.Stat(g.dir); err != nil {
			t.Error(err)
		}
		g.close()
		if _, err := os.Stat(g.dir); err == nil {
			t.Errorf("%s is left", g.dir)
		}
	} else if !errors.Is(err, errNoCgroup) {
		t.Error(err)
	} else {
		t.Log("no delegated cgroup v2 with memory and pids here: a real one was not tried")
	}
}
