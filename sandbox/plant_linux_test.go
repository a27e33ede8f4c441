package sandbox_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope"
)

const skillText = "# Health\n\nSay " + expect.Placeholder + " at the end.\n"

// planting is a run of a shell script with a file planted at a path.
func planting(t *testing.T, at, script string) sandbox.Config {
	t.Helper()
	c := shell(folder(t, filepath.Join(base(t), "ws")), script)
	c.Start = journal.Start{Benchmark: "b", Task: "t", Trial: 1, Attempt: 1, Commitment: [32]byte{1}, Seal: [32]byte{2}}
	c.Grants = []scope.Root{{Path: at, Mode: scope.ReadOne, Class: scope.Grant}}
	c.Plant = &sandbox.Plant{Path: at, Template: skillText}
	return c
}

// plantedText is what the file must hold, by the run's own secret; the start row must
// bind it.
func (r *recorded) plantedText(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	seed := journal.Secret(raw).Marker()
	if commit := expect.Commit(seed); string(r.rows[0].Start.Marker) != string(commit[:]) {
		t.Errorf("the start row binds %x, want %x", r.rows[0].Start.Marker, commit)
	}
	return expect.Plant(skillText, seed)
}

// reads checks that the run opened the planted file whole and within its scope.
func (r *recorded) reads(t *testing.T, at, text string) {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	l := r.opens(at)
	if len(l) == 0 {
		t.Errorf("no open of %s; stderr %q", at, r.stderr)
	}
	for _, e := range l {
		if e.Flags&journal.FlagPath != 0 {
			continue
		}
		if e.Dir != journal.DirIn || e.Origin != journal.OriginInput || e.Size != uint64(len(text)) || string(e.D.SHA256) != string(sum[:]) || e.Flags&journal.FlagOutOfScope != 0 {
			t.Errorf("%v: origin %v, size %d, SHA-256 %x: want the planted file of %d bytes, in scope", e, e.Origin, e.Size, e.D.SHA256, len(text))
		}
	}
}

// A file is there for one run, with a marker of its own, and nothing else of its
// folders is, nor anything of it outside.
func TestSandboxPlant(t *testing.T) {
	dir := base(t)
	at := filepath.Join(dir, "skills", "health", "SKILL.md")
	beside := write(t, filepath.Join(dir, "skills", "other", "SKILL.md"), secretText)
	c := planting(t, at, "cat "+at+"; cat "+at+" >/dev/null; cat "+beside+" 2>/dev/null || echo none")
	first := run(t, c)
	text := first.plantedText(t)
	if first.stdout != text+"none\n" || strings.Contains(text, expect.Placeholder) || !strings.Contains(text, "Say CR-") {
		t.Errorf("stdout %q, want the planted text and none", first.stdout)
	}
	first.reads(t, at, text)
	first.closed(t)
	c.RunDir, c.Env = "", nil
	second := run(t, c)
	if again := second.plantedText(t); again == text || second.stdout != again+"none\n" {
		t.Errorf("a second run of the same seal has %q, the first %q", again, text)
	}
	if _, err := os.Lstat(filepath.Dir(at)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("outside, %s is there: %v", filepath.Dir(at), err)
	}
}

// Each way to change the planted file, or what its name leads to, fails and is a row;
// the run reads the same text afterwards. A folder of a private place, such as HOME, is
// where the run may change names.
func TestSandboxPlantChanged(t *testing.T) {
	const attack = `
try() { "$@" 2>/dev/null && echo "done: $*"; }
F=$1; D=${F%/*}; U=${D%/*}
try sh -c "echo x > $F"; try sh -c "echo x >> $F"; try truncate -s 0 $F; try rm -f $F; try mv $F $F.old
echo x > new; try mv new $F; try ln $F copy; try ln -s new $F; try ln -sfn new $F; try chmod 600 $F; try touch -d 1999-01-01 $F; try mkdir $F
try mv $D $D.old; try mv $U $U.old; try rmdir $D; try rm -rf $D; try mount --bind new $F; try umount $F; try mount -o remount,rw,bind $F; try setfattr -n user.a -v b $F
cat $F`
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{
		"root":        "/srv/cleanrun-no-such/health/SKILL.md",
		"home":        filepath.Join(home, ".agent", "skills", "SKILL.md"),
		"top of home": filepath.Join(home, "SKILL.md"),
	} {
		t.Run(name, func(t *testing.T) {
			c := planting(t, at, attack)
			c.Command = append(c.Command, "sh", at)
			c.Env = environment(home)
			r := run(t, c)
			text := r.plantedText(t)
			if r.stdout != text {
				t.Errorf("stdout %q, want the planted text alone", r.stdout)
			}
			r.reads(t, at, text)
			r.closed(t)
			for what, f := range map[string]func(entry) bool{
				"open for writing": func(e entry) bool { return e.Op == journal.OpOpen && e.Flags&journal.FlagWrite != 0 && e.D.Path == at },
				"unlink":           func(e entry) bool { return e.Op == journal.OpUnlink && e.D.Path == at },
				"rename away":      func(e entry) bool { return e.Op == journal.OpRename && e.D.Path == at },
				"rename over":      func(e entry) bool { return e.Op == journal.OpRename && e.D.Path2 == at },
				"hard link":        func(e entry) bool { return e.Op == journal.OpLink && e.D.Path == at },
				"chmod":            func(e entry) bool { return e.Op == journal.OpChmod && e.D.Path == at },
				"folder renamed":   func(e entry) bool { return e.Op == journal.OpRename && e.D.Path == filepath.Dir(at) },
				"mount":            func(e entry) bool { return e.Op == journal.OpDenied && strings.Contains(e.D.Syscall, "mount") },
			} {
				if strings.HasPrefix(what, "folder") && name == "top of home" {
					continue
				}
				if e := r.has(t, what, f); e.Result == 0 {
					t.Errorf("%s succeeded: %v", what, e)
				}
			}
		})
	}
}

// What is outside at the path is covered and stays as it is, also where the whole host
// is in view. Where it is in view without the file, none can be made.
func TestSandboxPlantCovers(t *testing.T) {
	at := write(t, filepath.Join(base(t), "skills", "SKILL.md"), "the file outside\n")
	for _, observe := range []bool{false, true} {
		c := planting(t, at, "cat "+at+"; echo x > "+at)
		c.Observe = observe
		r := run(t, c)
		text := r.plantedText(t)
		if r.stdout != text {
			t.Errorf("observe %v: stdout %q, want the planted text", observe, r.stdout)
		}
		r.reads(t, at, text)
		r.closed(t)
		if b, err := os.ReadFile(at); err != nil || string(b) != "the file outside\n" {
			t.Errorf("observe %v: outside there is %q now, %v", observe, b, err)
		}
	}
	if st, err := os.Stat(at); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("outside it has mode %v now, %v", st.Mode(), err)
	}
}

// What cannot be planted is refused before anything runs, with what to do.
func TestSandboxPlantRefused(t *testing.T) {
	dir := base(t)
	at := filepath.Join(dir, "SKILL.md")
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	move := func(to string) func(*sandbox.Config) {
		return func(c *sandbox.Config) { c.Plant.Path, c.Grants[0].Path = to, to }
	}
	for name, c := range map[string]struct {
		field string
		edit  func(*sandbox.Config)
	}{
		"not granted":           {"Plant", func(c *sandbox.Config) { c.Plant.Path = "/srv/other" }},
		"granted to be written": {"Plant", func(c *sandbox.Config) { c.Grants[0].Mode = scope.WriteOne }},
		"no task":               {"Plant", func(c *sandbox.Config) { c.Start = journal.Start{} }},
		"no placeholder":        {"Plant", func(c *sandbox.Config) { c.Plant.Template = "text" }},
		"two placeholders":      {"Plant", func(c *sandbox.Config) { c.Plant.Template += c.Plant.Template }},
		"in the workspace":      {"Plant", func(c *sandbox.Config) { move(filepath.Join(c.Workspace, "SKILL.md"))(c) }},
		"around the workspace":  {"Plant", move(dir)},
		"a system folder":       {"Plant", move("/usr/no-such-file")},
		"through a link":        {"Plant", func(c *sandbox.Config) { c.Observe = true; move(filepath.Join(link, "passwd"))(c) }},
		"in view and absent":    {"Plant", func(c *sandbox.Config) { c.Observe = true }},
		"proc":                  {"Plant", move("/proc/version")},
		"control file":          {"Plant", func(c *sandbox.Config) { c.ControlText = "control"; move(sandbox.ControlPath)(c) }},
		"in a writable grant": {"Plant", func(c *sandbox.Config) {
			c.Grants = append(c.Grants, scope.Root{Path: dir, Mode: scope.WriteTree, Class: scope.Grant})
		}},
		"without namespaces": {"Plant", func(c *sandbox.Config) { c.Backend = sandbox.PlainBackend }},
		"a secret in it":     {"Secrets", func(c *sandbox.Config) { c.Secrets = []sandbox.Secret{{Name: "K", Value: []byte("at the end")}} }},
		"a pattern finds it": {"Secrets", func(c *sandbox.Config) { c.RemovePatterns = []string{"CR-[A-Z2-7]{16}"} }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := planting(t, at, "true")
			cfg.RunDir, cfg.Env = runDir(t), environment(t.TempDir())
			c.edit(&cfg)
			if name == "around the workspace" {
				cfg.Workspace = folder(t, filepath.Join(dir, "ws"))
			}
			_, err := sandbox.Run(context.Background(), cfg)
			var un *sandbox.Unavailable
			if errors.As(err, &un) {
				t.Skipf("%v (%s)", err, un.Hint)
			}
			var refused *sandbox.Refused
			if !errors.As(err, &refused) || refused.Field != c.field || refused.Hint == "" {
				t.Fatalf("got %v, want a refusal of %s with a hint", err, c.field)
			}
			if _, err := os.Stat(filepath.Join(cfg.RunDir, "journal")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a journal was begun: %v", err)
			}
		})
	}
}
