package seal

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
)

// A repo is a git repository in the workspace of a task on disk.
type repo struct {
	fixture.Repo
	t    testing.TB
	task string // folder of the task file
}

func newRepo(t testing.TB, below string, init ...string) *repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here:", err)
	}
	r := &repo{t: t, task: folder(t, sampleFiles())}
	r.T, r.Dir = t, filepath.Join(r.task, "workspace", below)
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Git(append([]string{"init", "-q", "-b", "main"}, init...)...)
	return r
}

func (r *repo) seal() (*Summary, error) {
	r.t.Helper()
	m, err := Load(filepath.Join(r.task, "task.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	_, sum, err := Build(m, auditKey(r.t), testControl)
	return sum, err
}

// answer is the hidden test, other is text of the repository's own.
var answer, other = sampleFiles()["hidden/test_nested.py"], prose(70, 100)

// RT45b, incidents i1 and i2: the answer is in a pack of the repository that
// the workspace is, whatever leads to it.
func TestRT45b_PackedHistory(t *testing.T) {
	for _, c := range []struct {
		name, below, object string
		init                []string
		make                func(r *repo)
	}{
		{name: "one commit back", object: ".git: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Commit("t.py", other)
		}},
		{name: "as a delta", object: ".git: blob ", make: func(r *repo) {
			for i := range 8 {
				r.Commit("t.py", other+prose(80, 20*i))
			}
			r.Commit("t.py", other+prose(80, 120)+strings.Join(strings.SplitAfter(answer, "\n")[:60], ""))
			r.Commit("t.py", "")
		}},
		{name: "deleted file", object: ".git: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Commit("t.py", "")
		}},
		{name: "another branch", object: ".git: blob ", make: func(r *repo) {
			r.Git("checkout", "-q", "-b", "fix")
			r.Commit("t.py", answer)
			r.Git("checkout", "-q", "main")
		}},
		{name: "tag", object: ".git: tag ", make: func(r *repo) { r.Git("tag", "-a", "v1", "-m", answer) }},
		{name: "commit message", object: ".git: commit ", make: func(r *repo) {
			r.Git("commit", "-q", "--allow-empty", "-m", answer)
			os.Remove(filepath.Join(r.Dir, ".git/COMMIT_EDITMSG"))
		}},
		{name: "unreachable", object: ".git: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Pack()
			r.Git("reset", "-q", "--hard", "HEAD~1")
			r.Git("reflog", "expire", "--expire=now", "--all")
		}},
		{name: "compressed in a blob", object: ".git: blob ", make: func(r *repo) {
			r.Commit("t.bin", string(gz(answer)))
			r.Commit("t.bin", "")
		}},
		{name: "SHA-256", object: ".git: blob ", init: []string{"--object-format=sha256"}, make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Commit("t.py", other)
		}},
		{name: "repository below", below: "vendor/lib", object: "vendor/lib/.git: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Commit("t.py", other)
		}},
		{name: "git folder elsewhere in the workspace", below: "sub", object: "store: blob ", init: []string{"--separate-git-dir=../store"}, make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Commit("t.py", other)
		}},
		{name: "bare", object: "mirror.git: blob ", below: "sub", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Pack()
			r.Git("clone", "-q", "--bare", "--no-local", ".", "../mirror.git")
			os.RemoveAll(r.Dir)
			r.Dir = filepath.Join(r.Dir, "../mirror.git")
		}},
		{name: "pack under another name", object: "data.bin: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Pack()
			packs, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
			if err := os.Rename(packs[0], filepath.Join(r.task, "workspace/data.bin")); err != nil {
				r.t.Fatal(err)
			}
			os.RemoveAll(filepath.Join(r.Dir, ".git"))
			os.Remove(filepath.Join(r.Dir, "t.py"))
			r.Dir = "" // nothing to pack
		}},
		{name: "bundle", object: "history.bundle: blob ", below: "sub", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Git("bundle", "create", "-q", "../history.bundle", "--all")
			os.RemoveAll(r.Dir)
			r.Dir = ""
		}},
		{name: "in an archive", object: "src.tar.gz: blob ", below: "sub", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Pack()
			packs, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
			data, err := os.ReadFile(packs[0])
			if err != nil {
				r.t.Fatal(err)
			}
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			w.WriteHeader(&tar.Header{Name: "src/.git/objects/pack/x.pack", Mode: 0o644, Size: int64(len(data))})
			w.Write(data)
			w.Close()
			os.RemoveAll(r.Dir)
			if err := os.WriteFile(filepath.Join(r.task, "workspace/src.tar.gz"), gz(b.String()), 0o644); err != nil {
				r.t.Fatal(err)
			}
			r.Dir = ""
		}},
		{name: "bundle in history", object: ".git: blob ", make: func(r *repo) {
			r.Commit("t.py", answer)
			r.Git("bundle", "create", "-q", "a.bundle", "--all")
			r.Git("checkout", "-q", "--orphan", "new")
			r.Git("rm", "-q", "--cached", "t.py")
			os.Remove(filepath.Join(r.Dir, "t.py"))
			r.Commit("b.txt", other)
			r.Git("branch", "-q", "-D", "main")
			r.Git("reflog", "expire", "--expire=now", "--all")
			r.Git("prune", "--expire=now")
			os.Remove(filepath.Join(r.Dir, "a.bundle"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, c.below, c.init...)
			r.Commit("start.txt", prose(71, 20))
			c.make(r)
			if r.Dir != "" {
				r.Pack()
			}
			_, err := r.seal()
			var leak *LeakError
			if !errors.As(err, &leak) || !strings.HasPrefix(leak.Object, c.object) || leak.Source != "hidden/test_nested.py" {
				t.Fatalf("got %v, want an object of %q refused", err, c.object)
			}
			if !regexp.MustCompile(`: (blob|tag|commit) [0-9a-f]{40,64}$`).MatchString(leak.Object) {
				t.Errorf("got %q, want the id of an object", leak.Object)
			}
		})
	}
}

// The controls of the attacks above: the same ways with other text pass, and a
// fragment below the threshold is allowed.
func TestPackedHistoryWithoutTheAnswer(t *testing.T) {
	r := newRepo(t, "")
	r.Commit("t.py", other)
	r.Git("checkout", "-q", "-b", "fix")
	r.Commit("t.py", other+prose(72, 50))
	r.Git("tag", "-a", "v1", "-m", prose(73, 30))
	r.Git("checkout", "-q", "main")
	r.Pack()
	sum, err := r.seal()
	if err != nil || len(sum.Warnings) > 0 {
		t.Fatalf("got %v, %+v", err, sum)
	}
	before := sum.Allowed

	r.Commit("part.py", prose(74, 20)+strings.Join(strings.SplitAfter(answer, "\n")[50:53], ""))
	r.Commit("part.py", "")
	r.Pack()
	if sum, err = r.seal(); err != nil || sum.Allowed <= before {
		t.Errorf("a fragment in the history: got %v, %+v, want more than %d allowed items", err, sum, before)
	}
}

// A repository is data: its configuration, hooks and index run or decide
// nothing.
func TestRepositoryIsOnlyData(t *testing.T) {
	r := newRepo(t, "")
	r.Commit("t.py", answer)
	r.Commit("t.py", other)
	r.Pack()
	trap := filepath.Join(t.TempDir(), "trap")
	for _, key := range []string{"core.fsmonitor", "core.pager", "core.sshCommand", "uploadpack.packObjectsHook", "core.alternateRefsCommand"} {
		r.Git("config", key, "touch "+trap)
	}
	indexes, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.idx"))
	for _, name := range indexes {
		os.Chmod(name, 0o644)
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_DIR", filepath.Join(t.TempDir(), "elsewhere"))
	t.Setenv("GIT_TRACE", trap)
	_, err := r.seal()
	var leak *LeakError
	if !errors.As(err, &leak) {
		t.Errorf("got %v, want the leak found", err)
	}
	if _, err := os.Lstat(trap); err == nil {
		t.Error("something that the repository or the environment names was run")
	}
}

// What cannot be searched is refused by name, never passed over.
func TestHistoryThatCannotBeSearched(t *testing.T) {
	damage := func(change func(data []byte) []byte) func(r *repo) {
		return func(r *repo) {
			packs, _ := filepath.Glob(filepath.Join(r.Dir, ".git/objects/pack/*.pack"))
			data, err := os.ReadFile(packs[0])
			if err != nil {
				r.t.Fatal(err)
			}
			os.Chmod(packs[0], 0o644)
			if err := os.WriteFile(packs[0], change(data), 0o644); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	alternates := func(line string) func(r *repo) {
		return func(r *repo) {
			if err := os.WriteFile(filepath.Join(r.Dir, ".git/objects/info/alternates"), []byte(line+"\n"), 0o644); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	const pack = `\.git/objects/pack/pack-[0-9a-f]+\.pack`
	for _, c := range []struct {
		name, path, reason string
		make               func(r *repo)
	}{
		{name: "control", make: func(*repo) {}},
		{name: "no git", path: pack, reason: "install git", make: func(r *repo) { r.t.(*testing.T).Setenv("PATH", "") }},
		{name: "cut", path: pack, reason: "git cannot read it", make: damage(func(d []byte) []byte { return d[:len(d)-30] })},
		{name: "one bit", path: pack, reason: "git cannot read it", make: damage(func(d []byte) []byte { d[len(d)/2] ^= 1; return d })},
		{name: "thin bundle", path: `thin\.bundle`, reason: "git cannot read it", make: func(r *repo) {
			r.Git("bundle", "create", "-q", "thin.bundle", "HEAD~1..main")
		}},
		{name: "alternates outside", path: `\.git/objects/info/alternates`, reason: "outside the workspace", make: alternates("../../../outside/objects")},
		{name: "absolute alternates", path: `\.git/objects/info/alternates`, reason: "outside the workspace", make: alternates("/srv/objects")},
		{name: "quoted alternates", path: `\.git/objects/info/alternates`, reason: "outside the workspace", make: alternates(`"../x"`)},
		{name: "alternates inside", make: alternates("../../sub/objects")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepo(t, "")
			r.Commit("t.py", other)
			r.Commit("t.py", other+"one more line of text\n")
			r.Pack()
			c.make(r)
			sum, err := r.seal()
			if c.reason == "" {
				if err != nil || len(sum.Warnings) > 0 {
					t.Errorf("got %v, %+v, want it sealed", err, sum)
				}
				return
			}
			var refused *manifest.RefusedError
			if !errors.As(err, &refused) || !regexp.MustCompile("^"+c.path+"$").MatchString(refused.Path) || !strings.Contains(refused.Reason, c.reason) {
				t.Errorf("got %v, want %s refused: %s", err, c.path, c.reason)
			}
		})
	}
	// Eight bytes of another file may be the magic by chance.
	files := sampleFiles()
	files["workspace/program"] = "\x7fELF....PACK\x00\x00\x00\x02...." + other
	s := build(t, files)
	if len(s.sum.Warnings) != 1 || !strings.Contains(s.sum.Warnings[0], "not searched") {
		t.Errorf("magic inside a file: got warnings %q, want one", s.sum.Warnings)
	}
}

// The magic is found wherever a read is cut.
func TestPackFinder(t *testing.T) {
	content := []byte("xxPACK\x00\x00\x00\x02yyPACK\x00\x00\x00\x04PACK\x00\x00\x00PACK\x00\x00\x00\x03PACK")
	want := "[2 27]"
	for size := 1; size <= len(content); size++ {
		var f packFinder
		if _, err := io.CopyBuffer(struct{ io.Writer }{&f}, struct{ io.Reader }{bytes.NewReader(content)}, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.at); got != want {
			t.Errorf("in pieces of %d: got %s, want %s", size, got, want)
		}
	}
}

// A history of a few thousand objects takes seconds.
func TestLongHistoryIsFast(t *testing.T) {
	r := newRepo(t, "")
	var in bytes.Buffer
	text := strings.SplitAfter(prose(75, 150), "\n")
	for i := range 1500 {
		text[i%len(text)] = prose(uint64(1000+i), 1)
		data := strings.Join(text, "")
		fmt.Fprintf(&in, "commit refs/heads/long\ncommitter a <a@b> %d +0000\ndata 1\nx\nM 644 inline dir/f%d.py\ndata %d\n%s\n", 1700000000+i, i%40, len(data), data)
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = r.Dir, &in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.Commit("t.py", other)
	r.Pack()
	out := r.Git("count-objects", "-v")
	start := time.Now()
	sum, err := r.seal()
	if err != nil || len(sum.Warnings) > 0 {
		t.Fatalf("got %v, %+v", err, sum)
	}
	took := time.Since(start)
	t.Logf("%v for %s", took, regexp.MustCompile(`in-pack: \d+`).FindString(out))
	if took > 2*time.Minute { // a few seconds on an idle machine
		t.Errorf("got %v, want seconds", took)
	}
}
