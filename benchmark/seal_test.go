package benchmark

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// naiveRoot is RFC 9162, section 2.1.1, as it is written there.
func naiveRoot(leaves [][]byte) []byte {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	return rfc6962.DefaultHasher.HashChildren(naiveRoot(leaves[:k]), naiveRoot(leaves[k:]))
}

// Five hundred rows, each a patch of files that are there, context lines
// included, are sealed at once: every set is the one that its task gives alone,
// and every part holds.
func TestSealFiveHundredRows(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 60
	}
	dir, rows := rowsFolder(t, fixture.Rows{Tasks: n, Lines: 24, Seed: 5})
	b := loadBenchmark(t, dir)
	if len(b.Warnings) > 0 {
		t.Errorf("got warnings %q", b.Warnings)
	}
	file, built := sealAll(t, b, nil)
	if len(built.Left) > 0 || len(built.Tasks) != n || built.Head.Tasks != uint64(n) || built.Head.Weak != 0 {
		t.Fatalf("got %d tasks, %v left out", len(built.Tasks), built.Left)
	}
	s := openSealed(t, file)
	if !slices.Equal(s.Tasks(), b.IDs()) || len(s.Tasks()) != n {
		t.Fatalf("got %d tasks", len(s.Tasks()))
	}
	var leaves [][]byte
	for i, id := range s.Tasks() {
		set, payload, err := s.Set(id)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, rfc6962.DefaultHasher.HashLeaf(payload))
		if set.TooSmall() || set.Kept != 10 {
			t.Errorf("%s: small %v, kept %d", id, set.TooSmall(), set.Kept)
		}
		if i%23 > 0 {
			continue
		}
		task, err := b.Task(id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := task.Load()
		if err != nil {
			t.Fatal(err)
		}
		alone, _, err := seal.Build(m, auditKey(t), set.Control)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := alone.Marshal(); err != nil || !bytes.Equal(again, payload) {
			t.Errorf("%s: the set is not the one that the task gives alone (%v)", id, err)
		}
		part, _, err := s.Part(id)
		if err != nil {
			t.Fatal(err)
		}
		p, err := receipt.ParseSealed(part)
		if err != nil || p.Part == nil || p.Part.Index != uint64(i) || !bytes.Equal(p.Set(), payload) {
			t.Errorf("%s: got part %v, %v", id, p, err)
		}
	}
	if got := naiveRoot(leaves); !bytes.Equal(got, built.Head.Root[:]) {
		t.Errorf("got root %x, want %x", built.Head.Root, got)
	}
	// Nothing of the answers can be read in the file.
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[:10] {
		for _, line := range strings.Split(r.Patch, "\n") {
			if len(line) > 20 && bytes.Contains(raw, []byte(line[1:])) {
				t.Errorf("the seal holds %q", line)
			}
		}
	}
	// The same data is what the seal says; nothing else is.
	c, err := b.Check(s, benchKey(t, b), Options{})
	if err != nil || c.Tasks != n || len(c.Differences) > 0 || len(c.Left) > 0 {
		t.Errorf("check: got %+v, %v", c, err)
	}
}

// Proofs hold for every place in trees of every size up to 40.
func TestPartsOfAllSizes(t *testing.T) {
	payloads := [][]byte{}
	for i := range 40 {
		payloads = append(payloads, []byte(fmt.Sprintf("set %d", i)))
		s := &Sealed{}
		var leaves [][]byte
		for _, p := range payloads {
			leaf := rfc6962.DefaultHasher.HashLeaf(p)
			leaves = append(leaves, leaf)
			s.sets = append(s.sets, sealedSet{leaf: [32]byte(leaf)})
		}
		head := &contraband.Head{Tasks: uint64(len(payloads)), Root: [32]byte(naiveRoot(leaves))}
		for j, p := range payloads {
			path, err := s.path(j)
			if err != nil {
				t.Fatal(err)
			}
			if err := head.Includes(new(contraband.Set), p, uint64(j), path); err != nil {
				t.Errorf("%d of %d: %v", j, i+1, err)
			}
			if err := head.Includes(new(contraband.Set), append(p, 'x'), uint64(j), path); err == nil {
				t.Errorf("%d of %d: another payload is proved", j, i+1)
			}
		}
	}
}

// Every bad task is named with its file and reason, not the first alone, and
// left out only if that is asked for.
func TestBadTasksAreNamed(t *testing.T) {
	dir := folderOfTasks(t, 6)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, "tasks", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	put(t, filepath.Join(dir, "tasks"), map[string]string{
		"ta/ws/copy.py":      read("ta/solution/fix.py"),                    // leaks its own answer
		"tb/solution/fix.py": "x = 1\n", "tb/hidden/test_fix.py": "y = 2\n", // seals nothing strong
		"tc/ws/other.py":     read("td/hidden/test_fix.py"), // holds another's tests
		"te/solution/fix.py": read("td/solution/fix.py"),    // has another's answer
	})
	b := loadBenchmark(t, dir)
	o := Options{Key: benchKey(t, b), Random: strings.NewReader(prose(7, 2000)), Dir: t.TempDir()}
	_, err := b.Seal(o)
	var bad *BadTasksError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v, want the list of bad tasks", err)
	}
	var got []string
	for _, p := range bad.Problems {
		got = append(got, p.Task+" "+p.Kind)
	}
	if want := []string{"task-a leak", "task-b small", "task-c overlap", "task-e twin"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q\n%v", got, want, err)
	}
	for _, want := range []string{
		filepath.Join("tasks", "ta", "task.yaml") + ": task task-a: leak: the task leaks its own answer: copy.py holds",
		"task task-c: overlap: it gives away the answer of task \"task-d\": other.py holds a whole object of hidden/test_fix.py",
		"task task-e: twin: it has the answer of task \"task-d\"",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the list lacks %q:\n%v", want, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) > 0 {
		t.Errorf("got %q, want nothing left behind", left)
	}
	file, built := sealAll(t, b, func(o *Options) { o.SkipWeak = true })
	if got := openSealed(t, file).Tasks(); !slices.Equal(got, []string{"task-d", "task-f"}) || built.Head.Weak != 4 {
		t.Errorf("got %q, weak %d", got, built.Head.Weak)
	}
	// A file that cannot be read is not a weak task: it is never left out.
	if err := os.Remove(filepath.Join(dir, "tasks", "tf", "hidden", "test_fix.py")); err != nil {
		t.Fatal(err)
	}
	o.SkipWeak = true
	if _, err := b.Seal(o); !errors.As(err, &bad) || bad.Weak() || bad.Problems[len(bad.Problems)-1].Kind != "data" {
		t.Errorf("got %v", err)
	}
}

// Tasks of one repository at several commits give away each other's answers by
// nature; the owner says so.
func TestOverlapReport(t *testing.T) {
	dir := folderOfTasks(t, 3)
	fix, err := os.ReadFile(filepath.Join(dir, "tasks", "ta", "solution", "fix.py"))
	if err != nil {
		t.Fatal(err)
	}
	// The later two workspaces hold the first fix among other lines: read once,
	// reported twice.
	put(t, filepath.Join(dir, "tasks"), map[string]string{"tb/ws/main.py": prose(50, 20) + string(fix), "tc/ws/main.py": prose(50, 20) + string(fix)})
	b := loadBenchmark(t, dir)
	var bad *BadTasksError
	if _, err := b.Seal(Options{Key: benchKey(t, b), Random: strings.NewReader(prose(7, 1000)), Dir: t.TempDir()}); !errors.As(err, &bad) || len(bad.Problems) != 2 {
		t.Fatalf("got %v, want two overlaps", err)
	}
	put(t, dir, map[string]string{"benchmark.yaml": "benchmark: bench-1\noverlap: report\ntasks:\n  - folder: tasks\n"})
	_, built := sealAll(t, loadBenchmark(t, dir), nil)
	if built.Head.Tasks != 3 || len(built.Warnings) != 2 || !strings.Contains(built.Warnings[0], `task-b: it gives away the answer of task "task-a": main.py holds`) {
		t.Errorf("got %q", built.Warnings)
	}
}

// What a task's own workspace holds is no answer of it, so two tasks may have
// it: ten headers, none long enough to be a leak.
func TestOverlapOfWhatIsGiven(t *testing.T) {
	for _, given := range []bool{true, false} {
		dir := folderOfTasks(t, 2)
		for _, name := range []string{"ta", "tb"} {
			base := filepath.Join(dir, "tasks", name)
			fix, err := os.ReadFile(filepath.Join(base, "solution", "fix.py"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(fix)+prose(uint64(900+len(fix)), 150), "\n")
			for i := range 10 {
				header := prose(uint64(77+i), 3)
				lines[4*i] = header + lines[4*i]
				if given {
					put(t, base, map[string]string{fmt.Sprintf("ws/header%d.py", i): header})
				}
			}
			put(t, base, map[string]string{"solution/fix.py": strings.Join(lines, "")})
		}
		built, err := loadBenchmark(t, dir).Seal(Options{Key: auditKey(t).Benchmark("bench-1", ""), Random: strings.NewReader(prose(7, 1000)), Dir: t.TempDir()})
		var bad *BadTasksError
		switch {
		case given && (err != nil || built.Tasks[0].Allowed == 0):
			t.Errorf("got %v, want two tasks whose common lines are given away", err)
		case !given && (!errors.As(err, &bad) || bad.Problems[0].Kind != "twin"):
			t.Errorf("got %v, want the twin", err)
		}
		if built != nil {
			built.Close()
		}
	}
}

// Every byte of the file is guarded by its frame or the root; the signature is
// verify's.
func TestSealedFileTampered(t *testing.T) {
	dir := folderOfTasks(t, 3)
	file, _ := sealAll(t, loadBenchmark(t, dir), nil)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := openSealed(t, file)
	head := len(bytesHead(len(s.Signed()))) + len(s.Signed())
	open := func(data []byte) (*Sealed, error) {
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return OpenSealed(name)
	}
	for at := 0; at < len(data); at += 1 + len(data)/300 {
		broken := bytes.Clone(data)
		broken[at] ^= 1 << (at % 8)
		got, err := open(broken)
		if err == nil {
			// Only a signature or a key id may have changed, which need a key.
			_, err = got.Unverified().Verify(newOwner(t, "bench.example/owner").public)
			got.Close()
			if err == nil || at >= head {
				t.Fatalf("byte %d of %d: accepted", at, len(data))
			}
		}
	}
	for name, broken := range map[string][]byte{
		"cut": data[:len(data)-1], "half": data[:len(data)/2], "empty": nil, "longer": append(bytes.Clone(data), 0), "twice": append(bytes.Clone(data), data...),
		"a length of four gigabytes": append(bytes.Clone(data[:head]), 0x5a, 0xff, 0xff, 0xff, 0xff),
		"an indefinite length":       append([]byte{0x5f}, data...),
		"a long length":              append([]byte{0x5a, 0, 0}, data[1:]...),
	} {
		if _, err := open(broken); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
