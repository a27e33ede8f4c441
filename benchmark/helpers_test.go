package benchmark

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

var prose = fixture.Prose

func auditKey(t testing.TB) contraband.AuditKey {
	t.Helper()
	k, err := contraband.NewAuditKey([]byte("0123456789abcdefghijklmnopqrstuv"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// owner signs heads in tests.
type ownerKey struct {
	public receipt.PublicKey
	key    ed25519.PrivateKey
}

func newOwner(t testing.TB, name string) ownerKey {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	public, err := receipt.NewPublicKey(name, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return ownerKey{public, key}
}

func (s ownerKey) Public() receipt.PublicKey           { return s.public }
func (s ownerKey) Sign(message []byte) ([]byte, error) { return ed25519.Sign(s.key, message), nil }

// rowsFolder writes an invented data set of the shape of SWE-bench.
func rowsFolder(t testing.TB, r fixture.Rows) (dir string, rows []fixture.Row) {
	t.Helper()
	dir = t.TempDir()
	rows, err := r.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, rows
}

func loadBenchmark(t testing.TB, dir string) *Benchmark {
	t.Helper()
	b, err := Load(filepath.Join(dir, "benchmark.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func benchKey(t testing.TB, b *Benchmark) contraband.BenchmarkKey {
	return auditKey(t).Benchmark(b.Name, b.Period)
}

// sealAll seals and signs a benchmark and returns the file's name.
func sealAll(t testing.TB, b *Benchmark, change func(*Options)) (string, *Built) {
	t.Helper()
	o := Options{Key: benchKey(t, b), Random: rand.Reader, Dir: t.TempDir()}
	if change != nil {
		change(&o)
	}
	built, err := b.Seal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { built.Close() })
	return writeSealed(t, built), built
}

func writeSealed(t testing.TB, built *Built) string {
	t.Helper()
	payload, err := built.Head.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := receipt.Sign1(receipt.KindBenchmark, newOwner(t, "bench.example/owner"), built.Head.Benchmark, payload)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := built.Write(&out, signed); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "b.sealed")
	if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func openSealed(t testing.TB, name string) *Sealed {
	t.Helper()
	s, err := OpenSealed(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put writes files below an existing folder.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// folderOfTasks is a benchmark of n tasks with a task.yaml each.
func folderOfTasks(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: bench-1\ntasks:\n  - folder: tasks\n"})
	for i := range n {
		put(t, filepath.Join(dir, "tasks", "t"+string(rune('a'+i))), map[string]string{
			"task.yaml": "benchmark: bench-1\ntask: task-" + string(rune('a'+i)) + "\nprompt: Do it.\nworkspace: ws\n" +
				"reference:\n  - path: solution/*\ntests:\n  - path: hidden/*\n    root: hidden\n",
			"ws/main.py":         prose(uint64(100*i+1), 40),
			"solution/fix.py":    prose(uint64(100*i+2), 40),
			"hidden/test_fix.py": prose(uint64(100*i+3), 40),
		})
	}
	return dir
}

// harborTask are the files of a task of Harbor's shape.
func harborTask(seed uint64) map[string]string {
	return map[string]string{
		"task.toml": "schema_version = \"1.1\"\n\n[task]\nname = \"invented/task\"\ndescription = \"Repair the invented service so that its queue drains\"\n\n" +
			"[metadata]\ndifficulty = \"easy\"\ntags = [\"queue\"]\n\n[verifier]\ntimeout_sec = 120.0\n\n[environment]\ncpus = 1\n",
		"instruction.md":         "Repair the queue service number " + string(rune('a'+seed%26)) + ". Write the result to out.txt.\n",
		"environment/Dockerfile": "FROM debian:13\nWORKDIR /app\nCOPY . /app\n",
		"environment/queue.py":   prose(1000+seed, 50),
		"solution/solve.sh":      "#!/bin/bash\n" + prose(2000+seed, 30),
		"tests/test.sh":          "#!/bin/bash\n" + prose(1, 30) + "\necho 1 > /logs/verifier/reward.txt\n",
		"tests/test_outputs.py":  prose(3000+seed, 40),
	}
}
