// Package compiled asks an interpreter of Python whether a cached module is what its
// source compiles to.
//
// Limits. Only what CPython 3 caches under __pycache__ is compared, and only with an
// interpreter of the same version that lies outside of all folders that the run could
// change. Where another build of it writes other code, an honest module does not compare
// equal. The interpreter reads hostile source: it compiles it and executes nothing of it.
package compiled

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// A Checker finds the interpreters that compile a module again, and asks each once. It is
// not for several goroutines.
type Checker struct {
	avoid []string // folders
	path  string   // PATH
	found map[int]string
	spent time.Duration
}

// NewChecker looks for interpreters in the folders of path, a list as in PATH, and takes
// none that lies in a folder of avoid: what the run could change.
func NewChecker(path string, avoid ...string) *Checker {
	c := &Checker{path: path, found: map[int]string{}}
	for _, dir := range avoid {
		c.avoid = append(c.avoid, dir)
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			c.avoid = append(c.avoid, real)
		}
	}
	return c
}

// MaxModule bounds a source, and what it compiles to, in bytes.
const MaxModule = 16 << 20

// CheckIn says why the cached module m of a workspace is not what its source there compiles
// to, "" if it is. at is the workspace's path as the run saw it, which the module holds.
func (c *Checker) CheckIn(root *os.Root, at string, m footprint.Compiled) string {
	pyc, err := regular.ReadIn(root, filepath.FromSlash(m.Path), MaxModule)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	name := filepath.FromSlash(m.Source)
	source, err := regular.ReadIn(root, name, MaxModule)
	if err != nil {
		return "its source cannot be read: " + err.Error()
	}
	st, err := root.Lstat(name)
	if err != nil {
		return "its source cannot be read: " + err.Error()
	}
	if err := footprint.CheckHeader(pyc, st.ModTime(), int64(len(source))); err != nil {
		return err.Error()
	}
	return c.compare(m, filepath.Join(at, name), source, pyc)
}

// Check is CheckIn of contents whose times nobody kept: the module may name any time of
// writing. One that Python would not load for that is still what it would write.
func (c *Checker) Check(m footprint.Compiled, source, pyc []byte) string {
	written := time.Time{}
	if len(pyc) >= 12 {
		written = time.Unix(int64(binary.LittleEndian.Uint32(pyc[8:])), 0)
	}
	if err := footprint.CheckHeader(pyc, written, int64(len(source))); err != nil {
		return err.Error()
	}
	return c.compare(m, m.Source, source, pyc)
}

// compileScript compiles the module on its standard input and writes its code. It executes
// nothing of it, takes 2 GiB at most, and loads no file but those of the interpreter: -I and -S leave out the
// environment, the user's folder, the current folder and all .pth files.
const compileScript = `import sys, json, base64, marshal, importlib.util
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
except (ImportError, ValueError, OSError):
    pass
q = json.load(sys.stdin)
if sys.version_info[:2] != (3, q["minor"]) or sys.implementation.name != "cpython":
    sys.exit("other")
b = base64.b64decode(q["compiled"])
if b[:4] != importlib.util.MAGIC_NUMBER:
    sys.exit("magic")
c = compile(base64.b64decode(q["source"]), q["path"], "exec", dont_inherit=True, optimize=q["optimize"])
sys.stdout.buffer.write(marshal.dumps(c))
`

// headerSize is the length of what stands before the code (PEP 552), which CheckHeader read.
const headerSize = 16

// compileTime bounds one compilation, allTime those of a run.
const (
	compileTime = 60 * time.Second
	allTime     = 10 * time.Minute
)

// compare says why pyc is not what source compiles to under the name path, "" if it is.
func (c *Checker) compare(m footprint.Compiled, path string, source, pyc []byte) string {
	minor, err := m.Minor()
	if err != nil {
		return err.Error()
	}
	python, ok := c.found[minor]
	if !ok {
		python = c.find(minor)
		c.found[minor] = python
	}
	if python == "" {
		return fmt.Sprintf("no Python 3.%d here compiles its source", minor)
	}
	if source == nil {
		source = []byte{} // an empty file: nil would be JSON's null
	}
	question, err := json.Marshal(map[string]any{"minor": minor, "optimize": m.Optimize, "path": path, "source": source, "compiled": pyc})
	if err != nil {
		return err.Error()
	}
	if c.spent > allTime {
		return "its source was not compiled: the time for that was over"
	}
	began := time.Now()
	code, said, err := ask(python, string(question))
	c.spent += time.Since(began)
	switch {
	case err == nil:
		if err := sameCode(code, pyc[headerSize:], minor); err != nil {
			return "it is not what its source compiles to: " + err.Error()
		}
		return ""
	case said == "magic":
		return "it was made by another version of Python"
	}
	return "its source does not compile"
}

// ask runs the script and returns the last line of what it said.
func ask(python, question string) (code []byte, said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-c", compileScript)
	cmd.Dir, cmd.Env = filepath.VolumeName(python)+string(filepath.Separator), []string{"PATH=" + filepath.Dir(python)}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(question), &stdout, &stderr
	err = cmd.Run()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return stdout.Bytes(), lines[len(lines)-1], err
}

// find looks the interpreter up on PATH.
func (c *Checker) find(minor int) string {
	for _, name := range []string{fmt.Sprintf("python3.%d", minor), "python3"} {
		for _, dir := range filepath.SplitList(c.path) {
			at := filepath.Join(dir, name)
			if st, err := os.Stat(at); !filepath.IsAbs(dir) || err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 || c.avoids(at) {
				continue
			}
			empty := fmt.Sprintf(`{"minor": %d, "compiled": ""}`, minor)
			if _, said, err := ask(at, empty); err != nil && said == "magic" {
				return at
			}
		}
	}
	return ""
}

func (c *Checker) avoids(at string) bool {
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return true
	}
	for _, dir := range c.avoid {
		for _, name := range []string{at, real} {
			if rel, err := filepath.Rel(dir, name); err == nil && rel != ".." && !strings.HasPrefix(filepath.ToSlash(rel), "../") {
				return true
			}
		}
	}
	return false
}
