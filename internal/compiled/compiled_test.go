package compiled

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// project makes a folder with a source, an empty one, and what Python caches of them. path
// is the folder of that interpreter.
func project(t *testing.T) (dir, path string, modules map[string]footprint.Compiled) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	dir, err = filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"m.py": "def f():\n    return 42\n", "empty.py": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "-c", "import py_compile, sys\nprint(sys.executable)\nfor name in sys.argv[1:]: py_compile.compile(name, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)",
		filepath.Join(dir, "m.py"), filepath.Join(dir, "empty.py"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path = filepath.Dir(strings.TrimSpace(string(out)))
	modules = map[string]footprint.Compiled{}
	list, err := filepath.Glob(filepath.Join(dir, "__pycache__", "*.pyc"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		m, ok := footprint.ParseCompiled("__pycache__/" + filepath.Base(p))
		if !ok {
			t.Skipf("python3 is no CPython: it caches %s", p)
		}
		modules[m.Source] = m
	}
	if len(modules) != 2 {
		t.Fatalf("got %d cached modules, want 2", len(modules))
	}
	return dir, path, modules
}

func TestCheck(t *testing.T) {
	dir, path, modules := project(t)
	m := modules["m.py"]
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pyc, source := read(m.Path), read("m.py")
	with := func(edit func([]byte)) []byte {
		b := bytes.Clone(pyc)
		edit(b)
		return b
	}
	whole := m // as the run saw it
	whole.Path, whole.Source = filepath.Join(dir, m.Path), filepath.Join(dir, m.Source)
	c := NewChecker(path)
	for name, f := range map[string]struct {
		source, pyc []byte
		why         string
	}{
		"honest":                       {source, pyc, ""},
		"time of writing of its own":   {source, with(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 7) }), ""},
		"other code":                   {source, with(func(b []byte) { b[len(b)-1] ^= 1 }), "it is not what its source compiles to"},
		"more code":                    {source, append(bytes.Clone(pyc), 'N'), "it is not what its source compiles to"},
		"source of another size":       {append(bytes.Clone(source), '\n'), pyc, "got a source of"},
		"source of another text":       {bytes.Replace(source, []byte("42"), []byte("43"), 1), pyc, "it is not what its source compiles to"},
		"source that does not compile": {bytes.Replace(source, []byte("def"), []byte("ded"), 1), pyc, "its source does not compile"},
		"held to a hash":               {source, with(func(b []byte) { b[4] = 1 }), "got flags 1"},
		"of another version":           {source, with(func(b []byte) { b[0] ^= 1 }), "it was made by another version of Python"},
		"too short":                    {source, pyc[:10], "got 10 bytes"},
		"nothing":                      {source, nil, "got 0 bytes"},
	} {
		if got := c.Check(whole, f.source, f.pyc); got != f.why && (f.why == "" || !strings.HasPrefix(got, f.why)) {
			t.Errorf("%s: got %q, want %q", name, got, f.why)
		}
	}
	empty := modules["empty.py"]
	b := read(empty.Path)
	empty.Source = filepath.Join(dir, empty.Source)
	for _, source := range [][]byte{nil, {}} {
		if got := c.Check(empty, source, b); got != "" {
			t.Errorf("empty source: %s", got)
		}
	}
	other := whole
	other.Tag = "pypy-310"
	if got := c.Check(other, source, pyc); !strings.Contains(got, "want cpython-3N") {
		t.Errorf("got %q of another Python", got)
	}

	// In a folder, with its times.
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if got := c.CheckIn(root, dir, m); got != "" {
		t.Errorf("in the folder: %s", got)
	}
	// The import system replaces the name that the module holds.
	if got := c.CheckIn(root, "/elsewhere", m); got != "" {
		t.Errorf("under another path: %s", got)
	}
	long := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(dir, "m.py"), long, long); err != nil {
		t.Fatal(err)
	}
	if got := c.CheckIn(root, dir, m); !strings.Contains(got, "time of writing") {
		t.Errorf("source of another time: got %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "m.py")); err != nil {
		t.Fatal(err)
	}
	if got := c.CheckIn(root, dir, m); !strings.HasPrefix(got, "its source cannot be read") {
		t.Errorf("without source: got %q", got)
	}
}

// An interpreter where the run could put one is not asked: it could say anything.
func TestRT58e_PlantedInterpreter(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the interpreter is a script")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "ws", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// It says yes to everything but the question that finds out whether it is one.
	fake := "#!/bin/sh\nread -r q\ncase \"$q\" in *'\"source\"'*) exit 0;; esac\necho magic >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "ws"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	m, ok := footprint.ParseCompiled("/w/__pycache__/m.cpython-399.pyc")
	if !ok {
		t.Fatal("no cached module")
	}
	pyc := make([]byte, 16)
	if got := NewChecker(bin).Check(m, nil, pyc); got != "" {
		t.Errorf("outside of what the run could change: got %q", got)
	}
	for _, path := range []string{bin, filepath.Join(dir, "link", "bin")} {
		for _, avoid := range []string{filepath.Join(dir, "ws"), filepath.Join(dir, "link")} {
			if got := NewChecker(path, "/nowhere", avoid).Check(m, nil, pyc); got != "no Python 3.99 here compiles its source" {
				t.Errorf("%s, avoiding %s: got %q", path, avoid, got)
			}
		}
	}
	if got := NewChecker("").Check(m, nil, pyc); got != "no Python 3.99 here compiles its source" {
		t.Errorf("no PATH: got %q", got)
	}
}
