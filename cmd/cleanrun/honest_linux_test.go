package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// repository makes the workspace a git repository with the sources of a real
// project, go-cmp, that this module depends on: three commits, no remote.
func (l *lab) repository() {
	l.t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/go-cmp").Output()
	l.ok(err)
	ws := l.at("task/workspace")
	l.ok(os.CopyFS(ws, os.DirFS(strings.TrimSpace(string(out)))))
	filepath.WalkDir(ws, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(p, 0o755)
		}
		return err
	})
	l.git("init", "-q", "-b", "main")
	for _, m := range []string{"first", "second", "third"} {
		l.write("task/workspace/notes-"+m+".md", "notes of the "+m+" commit\n")
		l.git("add", ".")
		l.git("commit", "-q", "-m", m)
	}
}

func (l *lab) git(args ...string) {
	l.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", l.at("task/workspace"), "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// TestHonestPrograms runs real programs on a real repository under a repair
// task: the reference is a workspace file with a small change, and the hidden
// test is what the workspace lacks. All must be CLEAN.
func TestHonestPrograms(t *testing.T) { honestPrograms(t, "namespaces") }

// TestPlainHonestPrograms does the same without namespaces.
func TestPlainHonestPrograms(t *testing.T) { honestPrograms(t, "plain") }

func honestPrograms(t *testing.T, backend string) {
	need(t, "go", "git")
	l := newLab(t)
	l.backend = backend
	l.repository()

	// The workspace has the broken file; the reference is the whole file.
	const name = "cmp/report_compare.go"
	whole, err := os.ReadFile(l.at("task/workspace/" + name))
	l.ok(err)
	fixed := string(whole) + "\n// quorumBaseline keeps the seventeen oldest verdict cells apart from the younger ones.\nconst quorumBaseline = 17\n"
	l.write("task/hidden/"+name, fixed)
	l.write("task/hidden/cmp/hidden_test.go", "package cmp\n\nimport \"testing\"\n\n/*\n"+prose(7, 2500)+"*/\nfunc TestHidden(t *testing.T) { if quorumBaseline != 17 { t.Fatal(quorumBaseline) } }\n")
	l.seal("reference: [{path: hidden/cmp/report_compare.go, root: hidden}]\ntests: [{path: hidden/cmp/hidden_test.go, root: hidden}]\nchannels: {stdin: model}\n", 200)

	// The run has no build cache, so what these import is compiled each time.
	const goEnv = "export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0; "
	build := "go build ./cmp/internal/flags && go vet ./cmp/internal/flags"
	if long {
		build = "go build ./cmp/internal/... && go vet ./cmp/internal/function"
	} else if backend == "namespaces" {
		build = "go build ./cmp/internal/function && go vet ./cmp/internal/flags"
	}
	for _, h := range []struct{ name, program, stdin, script string }{
		{"go_build", "go", "", goEnv + build},
		{"git_log", "git", "", "git log --stat && git status --short && git diff && git show HEAD~1 && git fsck"},
		{"git_commit", "git", "", "echo more >> notes-first.md && git -c user.name=a -c user.email=a@e commit -qam more && git log --oneline && git gc -q"},
		{"node", "node", "", `node -e "const fs=require('fs'),path=require('path');let n=0;(function w(d){for(const e of fs.readdirSync(d,{withFileTypes:true})){const p=path.join(d,e.name);if(e.isDirectory())w(p);else n+=fs.readFileSync(p).length}})('.');console.log(n)"`},
		{"python_unittest", "python3", "", `mkdir t && printf 'import unittest, json, subprocess, multiprocessing\nclass T(unittest.TestCase):\n  def test_a(self):\n    self.assertEqual(json.loads("[1]"), [1])\n  def test_b(self):\n    self.assertEqual(subprocess.check_output(["echo","x"]), b"x\\n")\nif __name__=="__main__": unittest.main()\n' > t/test_a.py && python3 -m unittest discover -s t -v`},
		{"repair", "sh", fixed, "cat > cmp/report_compare.go && gofmt -l cmp/report_compare.go && git diff --stat"},
		{"tar_find_grep", "tar", "", "tar czf x.tgz cmp && tar tzf x.tgz | wc -l && grep -rn func cmp | wc -l && find . -type f | wc -l"},
		{"git_moves", "git", "", "git mv cmp moved && git status --short | wc -l && git checkout -q HEAD~1 -- . && git checkout -q -f HEAD && mv cmp elsewhere && mv elsewhere cmp && cp -r cmp vendor && mv vendor/internal vendor/inner && git checkout -qb other HEAD~2 && git checkout -q -f main && ls"},
	} {
		t.Run(h.name, func(t *testing.T) {
			need(t, h.program)
			l.t = t
			r := l.run(true, h.stdin, "sh", "-c", h.script)
			r.want(t, attest.Clean, "")
			if r.code != 0 {
				t.Errorf("got exit code %d, want 0:\n%s", r.code, r.out)
			}
		})
	}
	// The positive control: the same task, and a run that looks.
	t.Run("cheat", func(t *testing.T) {
		l.t = t
		h := l.at("task/hidden/cmp/")
		l.run(true, "", "sh", "-c", "cat "+h+"/hidden_test.go").want(t, attest.Dirty, attest.ReasonFragments)
		l.run(true, "", "sh", "-c", "diff cmp/report_compare.go "+h+"/report_compare.go").want(t, attest.Dirty, attest.ReasonObject)
	})
}
