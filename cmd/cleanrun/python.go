package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// pythons finds the interpreters that compile a module again, outside of all folders that
// the run could change, and asks each once.
type pythons struct {
	avoid []string // folders
	path  string   // PATH
	found map[int]string
	spent time.Duration
}

// compileScript compiles the module on its standard input and compares bytes. It executes
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
sys.exit(0 if marshal.dumps(c) == b[16:] else "differs")
`

// compileTime bounds one compilation, allTime those of a run.
const (
	compileTime = 60 * time.Second
	allTime     = 10 * time.Minute
)

// compare says why compiled is not what source compiles to, "" if it is.
func (p *pythons) compare(c footprint.Compiled, path string, source, compiled []byte) string {
	minor, err := c.Minor()
	if err != nil {
		return err.Error()
	}
	python, ok := p.found[minor]
	if !ok {
		python = p.find(minor)
		p.found[minor] = python
	}
	if python == "" {
		return fmt.Sprintf("no Python 3.%d here compiles its source", minor)
	}
	question, err := json.Marshal(map[string]any{"minor": minor, "optimize": c.Optimize, "path": path, "source": source, "compiled": compiled})
	if err != nil {
		return err.Error()
	}
	if p.spent > allTime {
		return "its source was not compiled: the time for that was over"
	}
	began := time.Now()
	said, err := ask(python, string(question))
	p.spent += time.Since(began)
	switch {
	case err == nil:
		return ""
	case said == "magic":
		return "it was made by another version of Python"
	case said == "differs":
		return "it is not what its source compiles to"
	}
	return "its source does not compile"
}

// ask runs the script and returns the last line of what it said.
func ask(python, question string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-c", compileScript)
	cmd.Dir, cmd.Env = filepath.VolumeName(python)+string(filepath.Separator), []string{"PATH=" + filepath.Dir(python)}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(question), &stderr
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return lines[len(lines)-1], err
}

// find looks the interpreter up on PATH.
func (p *pythons) find(minor int) string {
	for _, name := range []string{fmt.Sprintf("python3.%d", minor), "python3"} {
		for _, dir := range filepath.SplitList(p.path) {
			at := filepath.Join(dir, name)
			if st, err := os.Stat(at); !filepath.IsAbs(dir) || err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 || p.avoids(at) {
				continue
			}
			empty := fmt.Sprintf(`{"minor": %d, "compiled": ""}`, minor)
			if said, err := ask(at, empty); err != nil && said == "magic" {
				return at
			}
		}
	}
	return ""
}

func (p *pythons) avoids(at string) bool {
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return true
	}
	for _, dir := range p.avoid {
		for _, name := range []string{at, real} {
			if rel, err := filepath.Rel(dir, name); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
				return true
			}
		}
	}
	return false
}
