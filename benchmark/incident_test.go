package benchmark

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// Incidents that happened to published benchmarks, rebuilt with invented
// content. Each list of tasks has one that is sound, as control.

// repoAt makes a git repository of a workspace that exists.
func repoAt(t *testing.T, dir string) *fixture.Repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here, which searches histories:", err)
	}
	r := &fixture.Repo{T: t, Dir: dir}
	r.Git("init", "-q", "-b", "main")
	r.Git("add", "-A")
	r.Git("commit", "-q", "-m", "base")
	return r
}

// badTasks seals and returns which tasks are bad, and how.
func badTasks(t *testing.T, b *Benchmark) (got []string, text string) {
	t.Helper()
	_, err := b.Seal(Options{Key: benchKey(t, b), Random: strings.NewReader(prose(7, 20000)), Dir: t.TempDir()})
	var bad *BadTasksError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v, want bad tasks", err)
	}
	for _, p := range bad.Problems {
		got = append(got, p.Task+" "+p.Kind)
	}
	return got, err.Error()
}

// TestIncident01_HistoryHoldsTheFix: the workspace comes with its repository, in
// which another branch, a tag, the stash, the reflog or an unreachable commit
// has the fix (git log --all, git show hash:path).
func TestIncident01_HistoryHoldsTheFix(t *testing.T) {
	dir := folderOfTasks(t, 7)
	hide := map[string]func(r *fixture.Repo, fix string){
		"ta": func(r *fixture.Repo, fix string) { // a branch that is not checked out
			r.Git("checkout", "-q", "-b", "upstream")
			r.Commit("main.py", fix)
			r.Git("checkout", "-q", "main")
		},
		"tb": func(r *fixture.Repo, fix string) { // a tag
			r.Commit("main.py", fix)
			r.Git("tag", "v2")
			r.Git("reset", "-q", "--hard", "HEAD~1")
		},
		"tc": func(r *fixture.Repo, fix string) { // the stash
			if err := os.WriteFile(filepath.Join(r.Dir, "main.py"), []byte(fix), 0o644); err != nil {
				t.Fatal(err)
			}
			r.Git("stash", "-q")
		},
		"td": func(r *fixture.Repo, fix string) { // the reflog alone
			r.Commit("main.py", fix)
			r.Git("reset", "-q", "--hard", "HEAD~1")
		},
		"te": func(r *fixture.Repo, fix string) { // no reference at all, a loose object
			r.Commit("main.py", fix)
			r.Git("reset", "-q", "--hard", "HEAD~1")
			r.Git("reflog", "expire", "--expire=now", "--all")
		},
		"tf": func(r *fixture.Repo, fix string) { // the message of a commit on a remote's branch
			r.Git("checkout", "-q", "-b", "x")
			r.Git("commit", "-q", "--allow-empty", "-m", fix)
			r.Git("update-ref", "refs/remotes/origin/main", "HEAD")
			r.Git("checkout", "-q", "main")
			r.Git("branch", "-q", "-D", "x")
		},
		"tg": func(r *fixture.Repo, fix string) { r.Commit("other.py", prose(4711, 20)) }, // a history without it
	}
	for name, f := range hide {
		base := filepath.Join(dir, "tasks", name)
		fix, err := os.ReadFile(filepath.Join(base, "solution", "fix.py"))
		if err != nil {
			t.Fatal(err)
		}
		r := repoAt(t, filepath.Join(base, "ws"))
		f(r, string(fix))
		if name == "te" {
			continue
		}
		r.Git("repack", "-q", "-a", "-d", "-k")
	}
	got, text := badTasks(t, loadBenchmark(t, dir))
	want := []string{"task-a leak", "task-b leak", "task-c leak", "task-d leak", "task-e leak", "task-f leak"}
	if !slices.Equal(got, want) || strings.Count(text, "answer: .git") < len(want) || !strings.Contains(text, "of solution/fix.py") {
		t.Errorf("got %q, want %q\n%s", got, want, text)
	}
}

// TestIncident02_DeletedImplementation: the task is to write what was deleted,
// and it is one commit back.
func TestIncident02_DeletedImplementation(t *testing.T) {
	dir := folderOfTasks(t, 2)
	base := filepath.Join(dir, "tasks", "ta")
	fix, err := os.ReadFile(filepath.Join(base, "solution", "fix.py"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, base, map[string]string{"ws/lib.py": string(fix)})
	r := repoAt(t, filepath.Join(base, "ws"))
	r.Commit("lib.py", "")
	got, text := badTasks(t, loadBenchmark(t, dir))
	if !slices.Equal(got, []string{"task-a leak"}) || !strings.Contains(text, "a whole object of solution/fix.py") {
		t.Errorf("got %q\n%s", got, text)
	}
}

// TestIncident05_TestsInTheEnvironment: the folder of tests is in what the agent
// is given.
func TestIncident05_TestsInTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: h\ntasks:\n  - harbor: tasks\n"})
	for i, name := range []string{"queue", "ring", "stack"} {
		put(t, filepath.Join(dir, "tasks", name), harborTask(uint64(i)))
	}
	put(t, filepath.Join(dir, "tasks", "ring", "environment", "tests"), map[string]string{"test_outputs.py": prose(3001, 40)})
	got, text := badTasks(t, loadBenchmark(t, dir))
	if !slices.Equal(got, []string{"ring leak"}) || !strings.Contains(text, "tests/test_outputs.py holds a whole object of tests/test_outputs.py") {
		t.Errorf("got %q\n%s", got, text)
	}
}

// TestIncident16_HintColumns: a data set has a column of hints that hold the
// answer. Named by no field it is said by name; named as reference it is found
// when a harness sends it, and the same run without is not.
func TestIncident16_HintColumns(t *testing.T) {
	dir := t.TempDir()
	hint := strings.TrimSpace(prose(61, 6))
	yaml := func(columns string) string {
		return "benchmark: b\ntasks:\n  - jsonl: d.jsonl\n    fields: {id: id, prompt: p, reference: " + columns + "}\n    workspaces: ws\n"
	}
	quoted := strings.NewReplacer("\n", `\n`, `"`, `\"`)
	put(t, dir, map[string]string{"ws/a.py": prose(62, 20), "benchmark.yaml": yaml("[patch]"),
		"d.jsonl": `{"id":"a","p":"Repair it.","patch":"` + quoted.Replace(prose(63, 20)) + `","hints_text":"` + quoted.Replace(hint) + `"}` + "\n"})
	if w := loadBenchmark(t, dir).Warnings; len(w) != 1 || !strings.Contains(w[0], `column "hints_text" sounds like an answer or a hint`) {
		t.Errorf("got %q", w)
	}
	put(t, dir, map[string]string{"benchmark.yaml": yaml("[patch, hints_text]")})
	file, _ := sealAll(t, loadBenchmark(t, dir), nil)
	set, _, err := openSealed(t, file).Set("a")
	if err != nil {
		t.Fatal(err)
	}
	key, err := auditKey(t).TaskFor(set)
	if err != nil {
		t.Fatal(err)
	}
	met := func(sent string) (n int) {
		sealed := map[[32]byte]bool{}
		for _, g := range set.Groups {
			for d := range slices.Chunk(g.Items, 32) {
				sealed[[32]byte(d)] = true
			}
		}
		seen := map[[32]byte]bool{}
		canon.New(key, set.Filter).Object([]byte(sent), true, func(_ contraband.Class, s [32]byte) {
			if sealed[s] && !seen[s] {
				seen[s] = true
				n++
			}
		})
		return n
	}
	if n := met("Repair it. Hint: " + hint + "\nGo on."); n < 3 {
		t.Errorf("got %d sealed items in what the harness sends, want at least 3", n)
	}
	if n := met("Repair it. Hint: " + prose(64, 6) + "\nGo on."); n != 0 {
		t.Errorf("got %d sealed items in another text", n)
	}
}
