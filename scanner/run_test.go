//go:build unix

package scanner

import (
	"bytes"
	"context"
	"crypto/sha256"

	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

const canary = "canary-7f3e9c1ab54d20866f1e-0b9d"

func testKey(seed string) contraband.TaskKey {
	sum := sha256.Sum256([]byte(seed))
	k, err := contraband.NewTaskKey(sum[:])
	if err != nil {
		panic(err)
	}
	return k
}

// prose returns n words that no other seed gives.
func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 99))
	var b strings.Builder
	for i := range n {
		for range 3 + r.IntN(7) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteString([]string{" ", " ", "_", "(", ".", "\n"}[(i+int(r.Uint32N(6)))%6])
	}
	return b.String()
}

var secret = prose(1, 900) // the sealed file

// A sealed is a set made of one secret file, and its true items by class.
type sealed struct {
	set   *contraband.Set
	items map[contraband.Class]map[[32]byte]bool
}

func seal(t testing.TB, key contraband.TaskKey) *sealed {
	t.Helper()
	s := &sealed{items: map[contraband.Class]map[[32]byte]bool{}}
	filter := []uint32{key.Filter().Value(contraband.ClassCanary, canon.Canonical([]byte(canary))[:24])}
	take := func(class contraband.Class, d [32]byte) {
		if s.items[class] == nil {
			s.items[class] = map[[32]byte]bool{}
		}
		s.items[class][d] = true
	}
	fp := canon.New(key, filter)
	fp.Object([]byte(secret), false, take)
	fp.Object([]byte(canary), false, func(c contraband.Class, d [32]byte) {
		if c == contraband.ClassCanary {
			take(c, d)
		}
	})
	set := &contraband.Set{
		Version: contraband.Version, Profile: contraband.Profile, Benchmark: "b", Task: "t",
		Commitment: [32]byte{9}, Control: prose(2, 900), Filter: filter, Kept: 10,
	}
	set.KeyCommit = key.Commit(set.Commitment, set.Period)
	var controls [][32]byte
	fp.Object([]byte(set.Control), false, func(c contraband.Class, d [32]byte) {
		if c == contraband.ClassShingle {
			controls = append(controls, contraband.Control(d))
		}
	})
	slices.SortFunc(controls, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, c := range slices.Compact(controls) {
		set.Controls = append(set.Controls, c[:]...)
	}
	for _, class := range []contraband.Class{contraband.ClassCanary, contraband.ClassRaw, contraband.ClassCanonical, contraband.ClassShingle} {
		kind := contraband.KindReference
		if class == contraband.ClassCanary {
			kind = contraband.KindCanary
		}
		set.Groups = append(set.Groups, group(key, kind, class, s.items[class]))
	}
	s.set = set
	return s
}

// group pads items as sealing does.
func group(key contraband.TaskKey, kind contraband.Kind, class contraband.Class, items map[[32]byte]bool) contraband.Group {
	var list [][32]byte
	for it := range items {
		list = append(list, it)
	}
	size := 16
	for size < len(list) {
		size *= 2
	}
	for i := uint32(0); len(list) < size; i++ {
		list = append(list, key.Dummy(fmt.Sprint("test ", kind, class), i))
	}
	return contraband.Group{Kind: kind, Class: class, Threshold: contraband.Threshold(class, size, len(items)), Items: concat(list)}
}

// A step is one row with the content that it exposes.
type step struct {
	row  journal.Row
	path string
	data []byte
}

func open(path string, data []byte) step {
	return step{row: journal.Row{Op: journal.OpOpen, Proc: 1, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput}, path: path, data: data}
}

func argv(text string) step {
	return step{row: journal.Row{Op: journal.OpArgv, Proc: 1, Flags: journal.FlagText, Dir: journal.DirOut, Origin: journal.OriginRun}, data: []byte(text)}
}

func stdin(data string) step {
	return step{row: journal.Row{Op: journal.OpStdin, Dir: journal.DirIn, Origin: journal.OriginDriver}, data: []byte(data)}
}

func stdout(data string) step {
	return step{row: journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, data: []byte(data)}
}

// chunks cuts text into stdin chunks of n bytes.
func chunks(text string, n int) (out []step) {
	for part := range slices.Chunk([]byte(text), n) {
		out = append(out, stdin(string(part)))
	}
	return out
}

// recorded writes a run folder with the control file and these steps. Files named
// base are the baseline.
func recorded(t testing.TB, set *contraband.Set, base map[string]string, model bool, steps ...step) string {
	t.Helper()
	work, dir := t.TempDir(), t.TempDir()
	for name, data := range base {
		must(t, os.WriteFile(filepath.Join(work, name), []byte(data), 0o600))
	}
	m, err := manifest.Build(work, []byte("the prompt"))
	must(t, err)
	data, err := m.Marshal()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, BaselineFile), data, 0o600))
	key := journal.Secret{4, 5, 6}
	roots := append(scope.SystemRoots(), scope.KernelRoots()...)
	roots = append(roots,
		scope.Root{Path: "/work", Mode: scope.WriteTree, Class: scope.Workspace},
		scope.Root{Path: "/cleanrun", Mode: scope.ReadTree, Class: scope.Private})
	start := journal.Start{
		Run: [16]byte{1}, Roots: roots, Workspace: "/work", Recorder: "cleanrun test", Backend: "test", Baseline: m.Root(),
		Benchmark: "b", Task: "t", Trial: 1, Attempt: 1, Commitment: set.Commitment, Seal: [32]byte{7},
	}
	graded := slices.ContainsFunc(steps, func(s step) bool { return s.row.Phase == journal.PhaseGrade })
	if graded {
		start.Phases = &journal.Phases{Grade: []string{"check"}, Reward: journal.RewardExit}
	}
	if model {
		start.Channels = []journal.Channel{{Name: "stdin", Role: "model"}}
	}
	must(t, os.MkdirAll(filepath.Join(dir, ObjectsDir), 0o700))
	w, err := journal.Create(dir, key, start)
	must(t, err)
	add := func(s step) {
		t.Helper()
		r := s.row
		r.Size = uint64(len(s.data))
		d := journal.Detail{Path: s.path}
		switch {
		case r.Flags&journal.FlagText != 0:
			d.Text = s.data
		case r.Size > 0:
			sum := sha256.Sum256(s.data)
			d.SHA256 = sum[:]
			if m.Contains(sum) && !chunked(&r) && r.Flags&journal.FlagControl == 0 { // as the recorder does
				break
			}
			p := filepath.Join(dir, ObjectsDir, filepath.FromSlash(objects.Name(sum)))
			must(t, os.MkdirAll(filepath.Dir(p), 0o700))
			must(t, os.WriteFile(p, s.data, 0o600))
		}
		must(t, w.Append(&r, &d))
	}
	object := uint32(1)
	number := map[string]uint32{}
	numbered := func(s step) step {
		name := s.path
		if name == "" {
			name = fmt.Sprint("stream ", s.row.Op)
		}
		if s.row.Flags&journal.FlagText == 0 && s.row.Op != journal.OpFork && s.row.Op != journal.OpExit {
			if number[name] == 0 {
				number[name] = object
				object++
			}
			s.row.Object = number[name]
		}
		return s
	}
	add(step{row: journal.Row{Op: journal.OpFork, Child: 1}})
	control := open("/cleanrun/control.txt", []byte(set.Control))
	control.row.Flags |= journal.FlagControl
	add(numbered(control))
	first := argv("agent --go")
	first.row.Dir, first.row.Origin = journal.DirIn, journal.OriginDriver
	add(first)
	phase, proc := journal.PhaseAgent, uint32(1)
	end := func() {
		add(step{row: journal.Row{Op: journal.OpExit, Proc: proc, Phase: phase}})
		if graded {
			add(step{row: journal.Row{Op: journal.OpPhase, Phase: phase, End: &journal.PhaseEnd{How: journal.Exited}}})
		}
	}
	for _, s := range steps {
		if s.row.Phase == journal.PhaseGrade && phase != s.row.Phase {
			end()
			phase, proc = s.row.Phase, 2
			add(step{row: journal.Row{Op: journal.OpFork, Phase: phase, Child: proc}})
		}
		s.row.Phase = phase
		if s.row.Proc == 1 {
			s.row.Proc = proc
		}
		add(numbered(s))
	}
	end()
	_, err = w.Final(journal.Final{Outcome: journal.Completed}, nil)
	must(t, err)
	must(t, w.Close())
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scanDir scans and reads the evidence back with the verifier's reader.
func scanDir(t *testing.T, dir string, key contraband.TaskKey, set *contraband.Set, workers int) ([]byte, *attest.Evidence, Report) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	var out bytes.Buffer
	rep, err := Scan(context.Background(), root, &out, Config{Key: key, Set: set, Workers: workers})
	must(t, err)
	ev, err := attest.ReadEvidence(out.Bytes())
	must(t, err)
	return out.Bytes(), ev, rep
}

// found counts the sealed items by class in the rows from on.
func (s *sealed) found(t *testing.T, ev *attest.Evidence, salt [16]byte, from uint64) map[contraband.Class]int {
	t.Helper()
	have := map[[16]byte]bool{}
	for r, e := range ev.Rows() {
		if e == nil || r.Seq < from {
			continue
		}
		for i := 0; i < len(e.Digests); i += 16 {
			have[[16]byte(e.Digests[i:])] = true
		}
	}
	n := map[contraband.Class]int{}
	for class, items := range s.items {
		for it := range items {
			if have[contraband.RunDigest(salt, it)] {
				n[class]++
			}
		}
	}
	return n
}

// salt of a run folder.
func saltOf(t *testing.T, dir string) [16]byte {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, journal.RowsFile))
	must(t, err)
	defer f.Close()
	for line, err := range journal.Rows(f) {
		must(t, err)
		return contraband.RunSalt(line.Raw)
	}
	t.Fatal("no rows")
	return [16]byte{}
}

// entry returns the entry of the i-th step of the agent phase.
func entry(ev *attest.Evidence, i int) *attest.Entry {
	_, e := rowOf(ev, i)
	return e
}

// rowOf is the row of that step, and its entry.
func rowOf(ev *attest.Evidence, i int) (seq uint64, e *attest.Entry) {
	n := 0
	for r, e := range ev.Rows() {
		if r.Phase >= journal.PhaseAgent && r.Op != journal.OpDir && r.Op != journal.OpExit && r.Op != journal.OpFinal {
			if n == i {
				return r.Seq, e
			}
			n++
		}
	}
	return 0, nil
}

func scanError(t *testing.T, dir string, key contraband.TaskKey, set *contraband.Set, maker workerMaker) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	var out bytes.Buffer
	_, err = scan(context.Background(), root, &out, Config{Key: key, Set: set}, maker)
	left, _ := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if len(left) > 0 {
		t.Errorf("left %v behind", left)
	}
	return err
}
