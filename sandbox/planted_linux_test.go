package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
)

// Nothing in a run can change a planted file, so what the recorder finds at the end is
// tried without one: a path that does not show the planted text gives the run up.
func TestSandboxPlantedAtTheEnd(t *testing.T) {
	const text = "Say CR-AAAAAAAAAAAAAAAA.\n"
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "SKILL.md")
	r := &recording{stage: &stage{Mounts: []mounts.Mount{{Path: "/etc", Kind: mounts.Bind}, {Path: at, Kind: mounts.Planted, Content: []byte(text)}}}}
	write := func(name, content string) error {
		return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)
	}
	for _, c := range []struct {
		name, want string
		change     func() error
	}{
		{"as planted", "", func() error { return write("SKILL.md", text) }},
		{"other text", "is not as it was planted", func() error { return write("SKILL.md", strings.ToLower(text)) }},
		{"more", "is not as it was planted", func() error { return write("SKILL.md", text+"x") }},
		{"less", "is not as it was planted", func() error { return write("SKILL.md", text[:5]) }},
		{"gone", "is gone", func() error { return os.Remove(at) }},
		{"a link to the same text", "is gone", func() error { return errors.Join(write("other", text), os.Symlink("other", at)) }},
		{"a folder", "is a directory", func() error { return errors.Join(os.Remove(at), os.Mkdir(at, 0o700)) }},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		got := r.checkPlanted()
		if c.want == "" && got != nil || c.want != "" && (got == nil || !strings.Contains(got.Error(), c.want) || !strings.Contains(got.Error(), at)) {
			t.Errorf("%s: got %v, want %q", c.name, got, c.want)
		}
	}
}
