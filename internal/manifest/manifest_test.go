package manifest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

func write(t *testing.T, root, name, content string, mode os.FileMode) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, root, name, target string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

func sample(t *testing.T) string {
	root := t.TempDir()
	write(t, root, "a/b.txt", "content", 0o644)
	write(t, root, "a-b", "other", 0o644)
	write(t, root, "run.sh", "#!/bin/sh\n", 0o755)
	link(t, root, "a/up", "../a-b")
	link(t, root, "dangling", "nowhere")
	link(t, root, "loop", "loop")
	return root
}

func TestBuildParseRoot(t *testing.T) {
	m, err := Build(sample(t), []byte("prompt"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if p.Root() != m.Root() || len(p.Entries()) != 8 {
		t.Errorf("got root %x with %d entries, want %x with 8", p.Root(), len(p.Entries()), m.Root())
	}
	again, err := Build(sample(t), []byte("prompt"))
	if err != nil || again.Root() != m.Root() {
		t.Errorf("got root %x, %v for the same files elsewhere, want %x", again.Root(), err, m.Root())
	}
	for _, content := range []string{"content", "prompt"} {
		if !p.Contains(sha256.Sum256([]byte(content))) {
			t.Errorf("Contains(%q) is false", content)
		}
	}
	if p.Contains(sha256.Sum256([]byte("absent"))) {
		t.Error("Contains of an absent content is true")
	}
}

// naiveRoot is RFC 9162, section 2.1.1, word for word.
func naiveRoot(leaves [][]byte) [32]byte {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, leaves[0]...))
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	l, r := naiveRoot(leaves[:k]), naiveRoot(leaves[k:])
	return sha256.Sum256(append(append([]byte{1}, l[:]...), r[:]...))
}

func TestRootEqualsNaive(t *testing.T) {
	m, err := Build(sample(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= len(m.entries); n++ {
		part := Manifest{entries: m.entries[:n]}
		var leaves [][]byte
		for _, e := range part.entries {
			leaf, err := dcbor.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leaf)
		}
		if got, want := part.Root(), naiveRoot(leaves); got != want {
			t.Errorf("%d entries: got %x, want %x", n, got, want)
		}
	}
}

func TestEveryChangeChangesTheRoot(t *testing.T) {
	root := sample(t)
	base, err := Build(root, []byte("prompt"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[32]byte]string{base.Root(): "unchanged"}
	check := func(what string, prompt string) {
		t.Helper()
		m, err := Build(root, []byte(prompt))
		if err != nil {
			t.Fatal(err)
		}
		if old, ok := seen[m.Root()]; ok {
			t.Errorf("%s: got the root of %s", what, old)
		}
		seen[m.Root()] = what
	}
	check("another prompt", "prompt2")
	write(t, root, "a-b", "othex", 0o644)
	check("one byte of a file", "prompt")
	if err := os.Chmod(filepath.Join(root, "a-b"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("executable bit", "prompt")
	link(t, root, "a/more", "b.txt")
	check("a new link", "prompt")
	if err := os.Mkdir(filepath.Join(root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("an empty folder", "prompt")
}

// A planted link must not pull a file from outside into the baseline.
func TestRT58_LinkThatLeavesTheWorkspaceIsRefused(t *testing.T) {
	control := sample(t)
	link(t, control, "python", "/usr/bin/python3")
	if _, err := Build(control, nil); err != nil {
		t.Fatalf("control: links inside, and into system folders, are fine: %v", err)
	}
	for _, c := range []struct{ name, target, through string }{
		{"plain", "../secret", ""},
		{"absolute", "/srv/hidden/test", ""},
		{"almost", "/usr/../srv/hidden", ""},
		{"sibling", "/usr2/hidden", ""},
		{"deep/dir/l", "../../../x", ""},
		{"via", "here/../secret", "here"}, // "here" leads to ".", so ".." leaves
	} {
		root := sample(t)
		if c.through != "" {
			link(t, root, c.through, ".")
		}
		link(t, root, c.name, c.target)
		_, err := Build(root, nil)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Path != c.name || !strings.Contains(refused.Reason, "leads out") {
			t.Errorf("%s -> %s: got %v, want it refused by name", c.name, c.target, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	sum := sha256.Sum256([]byte("x"))
	prompt := Entry{Type: Prompt, SHA256: sum}
	file := Entry{Path: "a", Type: File, SHA256: sum}
	for name, entries := range map[string][]Entry{
		"no entry":                 {},
		"no prompt":                {file},
		"two prompts":              {prompt, {Path: "p", Type: Prompt, SHA256: sum}},
		"unsorted":                 {prompt, {Path: "b", Type: Dir}, file},
		"repeated":                 {prompt, file, file},
		"folder missing":           {prompt, {Path: "d/f", Type: File, SHA256: sum}},
		"folder is a link":         {prompt, {Path: "d", Type: Link, Target: "x"}, {Path: "d/f", Type: File, SHA256: sum}},
		"up":                       {prompt, {Path: "../f", Type: File, SHA256: sum}},
		"absolute":                 {prompt, {Path: "/f", Type: File, SHA256: sum}},
		"dot":                      {prompt, {Path: "./f", Type: File, SHA256: sum}},
		"trailing slash":           {prompt, {Path: "f/", Type: Dir}},
		"unknown type":             {prompt, {Path: "f", Type: 9}},
		"file without digest":      {prompt, {Path: "f", Type: File}},
		"link without target":      {prompt, {Path: "f", Type: Link}},
		"target on a file":         {prompt, {Path: "f", Type: File, SHA256: sum, Target: "x"}},
		"executable link":          {prompt, {Path: "f", Type: Link, Target: "x", Exec: true}},
		"folder with content size": {prompt, {Path: "f", Type: Dir, Size: 1}},
	} {
		data, err := dcbor.Marshal(encoded{Version, entries})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(data); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	data, err := dcbor.Marshal(encoded{Version, []Entry{prompt, file}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(data); err != nil {
		t.Errorf("control: %v", err)
	}
	if _, err := Parse(append(data, 0)); err == nil {
		t.Error("trailing byte: accepted")
	}
}

func FuzzParse(f *testing.F) {
	root := f.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600); err != nil {
		f.Fatal(err)
	}
	m, err := Build(root, []byte("prompt"))
	if err != nil {
		f.Fatal(err)
	}
	data, err := m.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		m.Root()
		again, err := m.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("got %x, %v, want the same bytes %x", again, err, data)
		}
	})
}
