package benchmark

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// A Difference is one way in which a seal is not what its data gives.
type Difference struct {
	Task  string // "" for the head
	Field string // of the head or the set: revision, data, key, groups, ...
	Got   string // in the seal
	Want  string // from the data
}

func (d Difference) String() string {
	where := "head"
	if d.Task != "" {
		where = "task " + d.Task
	}
	return fmt.Sprintf("%s: %s: got %s, want %s", where, d.Field, d.Got, d.Want)
}

// A Comparison is what Check found.
type Comparison struct {
	Tasks       int // sets that were rebuilt and are equal, byte for byte
	Differences []Difference
	Left        []string // tasks of the data that the seal leaves out
}

// Check rebuilds every set of a benchmark's seal from the data and compares it
// byte for byte, under the key that sealed it: the one in a public head, or the
// owner's. The control text is taken from each set. It says nothing of who
// signed. An error means that the comparison could not be made at all.
func (b *Benchmark) Check(s *Sealed, key contraband.BenchmarkKey, o Options) (*Comparison, error) {
	c := &comparing{b: b, s: s, key: key, data: newDataList(b)}
	head := s.Head()
	for _, f := range []struct{ field, got, want string }{
		{"benchmark", head.Benchmark, b.Name}, {"period", head.Period, b.Period}, {"revision", head.Revision, b.Revision},
	} {
		if f.got != f.want {
			c.differ("", f.field, fmt.Sprintf("%.200q", f.got), fmt.Sprintf("%.200q, as in %s", f.want, b.File))
		}
	}
	if public, ok := head.Public(); ok && !bytes.Equal(public.Publish(), key.Publish()) {
		c.differ("", "key", "another public key", "the key that is given")
	}
	names := s.Tasks()
	sealed := map[string]bool{}
	for _, n := range names {
		sealed[n] = true
	}
	for _, id := range b.IDs() {
		if !sealed[id] {
			c.out.Left = append(c.out.Left, id)
			names = append(names, id)
		}
	}
	if got, want := head.Weak, uint64(len(c.out.Left)); got != want {
		c.differ("", "weak", fmt.Sprintf("%d tasks left out", got), fmt.Sprintf("%d, the tasks of the data that are not sealed", want))
	}
	n := o.Workers
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	var next, done atomic.Int64
	var group sync.WaitGroup
	for range min(n, len(names)) {
		group.Go(func() {
			mem := new(seal.Builder)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(names) {
					return
				}
				c.task(names[i], sealed[names[i]], mem)
				if k := done.Add(1); o.Progress != nil {
					o.Progress(uint64(k), uint64(len(names)))
				}
			}
		})
	}
	group.Wait()
	if _, ok := head.Public(); ok {
		if got := c.data.digest(); got != head.Data {
			c.differ("", "data", fmt.Sprintf("%x", head.Data[:8]), fmt.Sprintf("%x, the digest of the data here", got[:8]))
		}
	}
	slices.SortStableFunc(c.out.Differences, func(x, y Difference) int { return cmp.Compare(x.Task, y.Task) })
	return &c.out, c.failed
}

type comparing struct {
	b    *Benchmark
	s    *Sealed
	key  contraband.BenchmarkKey
	data *dataList

	mu     sync.Mutex
	out    Comparison
	failed error
}

func (c *comparing) differ(task, field, got, want string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Differences = append(c.out.Differences, Difference{task, field, got, want})
}

// task rebuilds one set. Of a task that is left out only the data counts.
func (c *comparing) task(id string, sealed bool, mem *seal.Builder) {
	t, err := c.b.Task(id)
	if err != nil {
		c.differ(id, "task", "a sealed set", fmt.Sprintf("a task of the data: %v", err))
		return
	}
	m, err := t.Load()
	if err == nil {
		c.data.add(m)
	}
	if !sealed {
		return
	}
	if err != nil {
		c.differ(id, "task", "a sealed set", fmt.Sprintf("data that can be read: %v", err))
		return
	}
	got, payload, err := c.s.Set(id)
	if err != nil {
		c.mu.Lock()
		c.failed = err
		c.mu.Unlock()
		return
	}
	_, again, _, err := mem.Build(m, c.key, got.Control, nil)
	if err == nil && bytes.Equal(payload, again) {
		c.mu.Lock()
		c.out.Tasks++
		c.mu.Unlock()
		return
	}
	var want *contraband.Set
	if err == nil {
		want, err = contraband.ParseSet(again) // as got was, so that nil and empty are one
	}
	if err != nil {
		c.differ(id, "task", "a sealed set", fmt.Sprintf("a task that can be sealed: %v", err))
		return
	}
	c.fields(id, got, want)
}

// fields names what differs. If prompt or workspace do, so does the key, and all
// digests follow: only the cause is told.
func (c *comparing) fields(id string, got, want *contraband.Set) {
	n := 0
	say := func(field, got, want string) {
		n++
		c.differ(id, field, got, want)
	}
	hash := func(field string, got, want [32]byte) {
		if got != want {
			say(field, fmt.Sprintf("%x", got[:8]), fmt.Sprintf("%x", want[:8]))
		}
	}
	hash("prompt", got.Prompt, want.Prompt)
	hash("baseline", got.Baseline, want.Baseline)
	if n > 0 {
		return
	}
	if _, err := c.key.TaskFor(got); err != nil {
		say("key", "a set that another key sealed", "one that this key sealed")
		return
	}
	hash("commitment", got.Commitment, want.Commitment)
	g, w := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range g.NumField() {
		name := g.Type().Field(i).Name
		if name == "Commitment" || name == "KeyCommit" || reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			continue
		}
		switch name {
		case "Groups":
			mine, theirs := groupItems(got), groupItems(want)
			say("groups", fmt.Sprintf("%d groups, in which %d digests are none of the data's", len(got.Groups), missing(mine, theirs)),
				fmt.Sprintf("%d groups, of whose digests %d are missing", len(want.Groups), missing(theirs, mine)))
		case "Allowed", "Controls":
			say(fieldName(name), fmt.Sprintf("%d bytes", g.Field(i).Len()), fmt.Sprintf("another list of %d bytes", w.Field(i).Len()))
		case "Footprint", "Expect":
			say(fieldName(name), fmt.Sprintf("%.1000v", g.Field(i).Interface()), fmt.Sprintf("%.1000v", w.Field(i).Interface()))
		default:
			say(fieldName(name), fmt.Sprintf("%.120v", g.Field(i).Interface()), fmt.Sprintf("%.120v", w.Field(i).Interface()))
		}
	}
	if n == 0 {
		say("bytes", "another encoding", "the deterministic one")
	}
}

// fieldName is a field as spec/sealed-set.md calls it.
func fieldName(goName string) string { return string(goName[0]|0x20) + goName[1:] }

func groupItems(s *contraband.Set) map[[32]byte]bool {
	all := map[[32]byte]bool{}
	for _, g := range s.Groups {
		for d := range slices.Chunk(g.Items, 32) {
			all[[32]byte(d)] = true
		}
	}
	return all
}

func missing(of, in map[[32]byte]bool) (n int) {
	for d := range of {
		if !in[d] {
			n++
		}
	}
	return n
}

// A dataList is all that a public benchmark is made of (spec/benchmark.md, "Data
// digest"): anybody who has the same data computes the same digest.
type dataList struct {
	base string // folder of benchmark.yaml

	mu   sync.Mutex
	rows []dataRow
}

type dataRow struct {
	kind, name string // "file" and a path, or "baseline" and a task
	sum        [32]byte
}

func newDataList(b *Benchmark) *dataList {
	d := &dataList{base: filepath.Dir(b.File)}
	d.file(seal.HashFile(b.File, b.data))
	for _, f := range b.files {
		d.file(f)
	}
	return d
}

func (d *dataList) file(f seal.HashedFile) {
	name := f.Host
	if rel, err := filepath.Rel(d.base, f.Host); err == nil {
		name = rel
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, dataRow{"file", filepath.ToSlash(name), f.SHA256})
}

// add notes what one task was made of.
func (d *dataList) add(m *seal.Material) {
	for _, f := range m.Files {
		d.file(f)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, dataRow{"baseline", m.Task.ID, m.Baseline.Root()})
}

func (d *dataList) digest() [32]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.rows, func(a, b dataRow) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), bytes.Compare(a.sum[:], b.sum[:]))
	})
	d.rows = slices.Compact(d.rows)
	h := sha256.New()
	h.Write([]byte("cleanrun/data/v1"))
	field := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	for i := range d.rows {
		field([]byte(d.rows[i].kind))
		field([]byte(d.rows[i].name))
		field(d.rows[i].sum[:])
	}
	return [32]byte(h.Sum(nil))
}
