package eval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder from elsewhere with a link in it: what is written, removed or pruned
// through it would be somebody else's.
func TestLinksInFolder(t *testing.T) {
	for _, name := range []string{PlanFile, ResultsFile, LockFile, AttemptsDir, ReceiptsDir, TasksDir, AttemptsDir + "/a", TasksDir + "/a"} {
		dir := private(t)
		d := open(t, dir, plan("a"))
		for _, sub := range []string{AttemptsDir, TasksDir} {
			if err := os.Mkdir(d.Path(sub, "a"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		open(t, dir, plan("a")).Close() // the control
		at, outside := filepath.Join(dir, name), filepath.Join(t.TempDir(), "x")
		if err := os.Rename(at, outside); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, at); err != nil {
			t.Skip(err)
		}
		_, opened := Open(dir, plan("a"))
		_, read := Read(dir)
		_, asked := Running(dir)
		for what, err := range map[string]error{"Open": opened, "Read": read, "Running": asked} {
			if err == nil || !strings.Contains(err.Error(), at) {
				t.Errorf("%s as a link: %s: got %v, want it named", name, what, err)
			}
		}
	}
}
