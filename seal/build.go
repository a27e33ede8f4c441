package seal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// Build makes the sealed set of a task. It depends on the material, the audit
// key and the control text (NewControl) alone: the same ones give the same
// bytes. A *LeakError says that the task gives its answer away.
func Build(m *Material, audit contraband.AuditKey, control string) (*contraband.Set, *Summary, error) {
	set, _, sum, err := sealTask(m, audit.Benchmark(m.Task.Benchmark, m.Task.Period), control, nil, new(scratch))
	if err == nil {
		sum.warnUncovered()
		sum.Warnings = append(sum.Warnings, sum.Surroundings...)
	}
	return set, sum, err
}

// A Builder builds the sets of many tasks, one after another in the same memory.
// It is used by one goroutine.
type Builder struct{ mem scratch }

// Build is the function Build under a benchmark's key. It returns the payload of
// the set too, and Warnings have neither what is uncovered nor Surroundings, which
// many tasks may share. watch, if not
// nil, sees what a run is given.
func (b *Builder) Build(m *Material, bench contraband.BenchmarkKey, control string, watch Watch) (*contraband.Set, []byte, *Summary, error) {
	return sealTask(m, bench, control, watch, &b.mem)
}

// sealTask is Builder.Build in this memory.
func sealTask(m *Material, bench contraband.BenchmarkKey, control string, watch Watch, mem *scratch) (*contraband.Set, []byte, *Summary, error) {
	fail := func(err error) (*contraband.Set, []byte, *Summary, error) { return nil, nil, nil, err }
	t := m.Task
	prompt := sha256.Sum256(m.Prompt)
	baseline := m.Baseline.Root()
	key := bench.Task(t.ID, prompt, baseline)
	sum := &Summary{Benchmark: t.Benchmark, Task: t.ID}

	mem.lists, mem.cut = mem.lists[:0], canon.Again(mem.cut, key)
	c := newCutter(mem.cut, mem)
	if err := c.all(m); err != nil {
		return fail(err)
	}
	find := newSearch(c, mem, sum.warn)
	find.watch = watch
	defer find.close()
	if err := find.prompt(m.Prompt); err != nil {
		return fail(err)
	}
	if err := find.planted(m.Expect); err != nil {
		return fail(err)
	}
	if err := find.workspace(m.Workspace, m.Baseline); err != nil {
		return fail(err)
	}

	s := &contraband.Set{
		Version: contraband.Version, Profile: contraband.Profile,
		Benchmark: t.Benchmark, Task: t.ID, Period: t.Period,
		Commitment: key.TaskCommitment(m.source()),
		Prompt:     prompt, Baseline: baseline,
		Scope: t.Scope, Channels: t.Channels, Phases: t.Phases, Footprint: t.Footprint, Expect: m.Expect,
		Sources: counts(c.sources), Uncovered: counts(c.uncovered),
		Control: control,
	}
	s.KeyCommit = key.Commit(s.Commitment, t.Period)
	pad := key.Padding()
	for i, p := range c.piles {
		s.Groups = append(s.Groups, p.groups(pad, i, find, mem, sum)...)
	}
	slices.SortFunc(s.Groups, compareGroups)
	// Two sources with the same items, all of them real, are one group.
	s.Groups = slices.CompactFunc(s.Groups, func(a, b contraband.Group) bool { return compareGroups(a, b) == 0 })
	s.Allowed = allowedList(pad, find, mem)
	s.Filter = filterList(pad, s.Groups, find)
	s.Kept = kept(find, sum)
	s.Small = small(find)
	controls, err := sealControls(s, c.f, control)
	if err != nil {
		return fail(err)
	}
	sum.Surroundings = surroundings(t, m.Expect)
	sum.finish(s, find.allowed)
	payload, err := s.MarshalSealed(controls)
	if err != nil {
		return fail(err)
	}
	return s, payload, sum, nil
}

// all cuts everything that the task names, so that nobody can leave a part out.
func (c *cutter) all(m *Material) error {
	t := m.Task
	if !c.slim {
		c.phrase(contraband.KindID, Text{Value: t.ID, Item: "task"})
	}
	if t.Title.Value != "" && !c.slim {
		c.phrase(contraband.KindTitle, t.Title)
	}
	for _, list := range []struct {
		kind  contraband.Kind
		texts []Text
	}{{contraband.KindSignal, t.Signals}, {contraband.KindCommand, t.Commands}, {contraband.KindReference, t.Tokens}} {
		if c.slim && list.kind.OncePerTask() {
			continue
		}
		for _, text := range list.texts {
			c.phrase(list.kind, text)
		}
	}
	for i := range m.sources {
		if err := c.file(&m.sources[i]); err != nil {
			return t.errorf(m.sources[i].at, "%s: %v", m.sources[i].label, err)
		}
	}
	for _, text := range t.Canaries {
		form := canon.Canonical([]byte(text.Value))
		if len(form) < contraband.CanarySize || canon.Poor(form[:contraband.CanarySize]) {
			return t.errorf(text, "got a canary of %d letters and digits, want at least %d, of at least 8 kinds at its beginning; draw a random one", len(form), contraband.CanarySize)
		}
		c.add(c.pile(contraband.KindCanary, text, text.Item), contraband.ClassCanary, form[:contraband.CanarySize], 0)
	}
	return nil
}

// groups pads what is left of a pile after subtraction.
func (p *pile) groups(pad *contraband.Padding, index int, find *search, mem *scratch, sum *Summary) (list []contraband.Group) {
	for class := contraband.ClassCanary; class <= contraband.ClassAtom; class++ {
		if len(p.items[class]) == 0 {
			continue
		}
		digests := mem.digests[:0]
		for _, id := range p.items[class] {
			if !find.allowed[id] {
				digests = append(digests, find.items.list[id].s)
			}
		}
		n := len(digests)
		if n == 0 {
			continue
		}
		items := mem.pad(pad, fmt.Sprintf("group %d %d %d", index, p.kind, class), digests, Padded(n))
		g := contraband.Group{Kind: p.kind, Class: class, Items: items,
			Threshold: contraband.Threshold(class, len(items)/32, n)}
		list = append(list, g)
		sum.Groups = append(sum.Groups, GroupSummary{Source: p.label, Kind: p.kind, Class: class,
			Items: n, Padded: len(items) / 32, Threshold: int(g.Threshold)})
	}
	return list
}

func compareGroups(a, b contraband.Group) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	if a.Class != b.Class {
		return int(a.Class) - int(b.Class)
	}
	return bytes.Compare(a.Items, b.Items)
}

// Padded is the power of two that hides that a list has n items.
func Padded(n int) int {
	size := contraband.MinGroup
	for size < n {
		size *= 2
	}
	return size
}

// scratch is memory that one goroutine uses for task after task.
type scratch struct {
	items     items
	cut, find *canon.Fingerprinter // of the last task
	ranks     [2][]uint32
	values    []uint32
	copy      []byte     // for io.CopyBuffer
	digests   [][32]byte // of one list
	sorted    [][32]byte
	start     []uint32
	lists     []byte // all lists of one task
}

// pad adds dummies up to size, sorts and joins. digests stand in mem.digests, if
// they have room there; the result in mem.lists.
func (mem *scratch) pad(pad *contraband.Padding, list string, digests [][32]byte, size int) []byte {
	dummy := pad.Of(list)
	for i := uint32(0); len(digests) < size; i++ {
		digests = append(digests, dummy(i))
	}
	mem.digests = digests
	mem.sorted, mem.start = sortDigests(digests, mem.sorted, mem.start)
	begin := len(mem.lists)
	for i := range mem.sorted {
		mem.lists = append(mem.lists, mem.sorted[i][:]...)
	}
	return mem.lists[begin:len(mem.lists):len(mem.lists)]
}

func allowedList(pad *contraband.Padding, find *search, mem *scratch) []byte {
	digests := mem.digests[:0]
	for id, ok := range find.allowed {
		if ok {
			digests = append(digests, find.items.list[id].s)
		}
	}
	if len(digests) == 0 {
		return []byte{}
	}
	return mem.pad(pad, "allowed", digests, Padded(len(digests)))
}

// filterList is padded to what the padded groups would need, so that it tells
// no more than they do.
func filterList(pad *contraband.Padding, groups []contraband.Group, find *search) []uint32 {
	size := 0
	for _, g := range groups {
		if g.Class.Filtered() {
			size += len(g.Items) / 32
		}
	}
	list := []uint32{}
	if size == 0 {
		return list
	}
	seen := make(map[uint32]bool, Padded(size))
	add := func(v uint32) {
		if !seen[v] {
			seen[v] = true
			list = append(list, v)
		}
	}
	for id := range find.items.list {
		if it := &find.items.list[id]; it.class.Filtered() && !find.allowed[id] {
			add(find.f.FilterValue(it.class, it.plain))
		}
	}
	dummy := pad.Of("filter")
	for i := uint32(0); len(list) < Padded(size); i++ {
		d := dummy(i)
		add(uint32(d[0])<<16 | uint32(d[1])<<8 | uint32(d[2]))
	}
	slices.Sort(list)
	return list
}

// strong are the items that references, tests and canaries have, each once.
func (s *search) strong() []bool {
	of := make([]bool, len(s.items.list))
	for _, p := range s.piles {
		if p.kind.OncePerTask() {
			continue
		}
		for _, ids := range p.items {
			for _, id := range ids {
				of[id] = true
			}
		}
	}
	return of
}

// kept is how many tenths of the novel part are left: shingles and lines of
// references and tests.
func kept(find *search, sum *Summary) uint8 {
	novel, left := 0, 0
	for id, strong := range find.strong() {
		if class := find.items.list[id].class; strong && (class == contraband.ClassShingle || class == contraband.ClassLine) {
			novel++
			if !find.allowed[id] {
				left++
			}
		}
	}
	if sum.Novel, sum.Kept = novel, left; novel == 0 {
		return 10
	}
	return uint8(10 * left / novel)
}

// small tells what padding hides: no whole object and fewer than 8 items.
func small(find *search) bool {
	n := 0
	for id, strong := range find.strong() {
		if !strong || find.allowed[id] {
			continue
		}
		if find.items.list[id].class.Whole() {
			return false
		}
		n++
	}
	return n < 8
}

// sealControls cuts the control text as a scanner will, and publishes its
// shingles one level deeper. It returns the shingles' digests.
func sealControls(s *contraband.Set, f *canon.Fingerprinter, control string) (list [][32]byte, err error) {
	list = make([][32]byte, 0, 256)
	f.Object([]byte(control), false, func(class contraband.Class, d [32]byte) {
		if class == contraband.ClassShingle {
			list = append(list, d)
		}
	})
	slices.SortFunc(list, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	if list = slices.Compact(list); len(list) < contraband.MinControls {
		return nil, fmt.Errorf("control text: got %d shingles, want at least %d; draw a new one", len(list), contraband.MinControls)
	}
	shown := make([][32]byte, len(list))
	for i, d := range list {
		shown[i] = contraband.Control(d)
	}
	slices.SortFunc(shown, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	s.Controls = make([]byte, 0, 32*len(shown))
	for _, c := range shown {
		s.Controls = append(s.Controls, c[:]...)
	}
	return list, nil
}

// The control text is syllables: it goes through every reading and form as an
// ordinary text does, and no other text holds a shingle of it by chance (6 bits
// a syllable, 24 syllables a shingle).
const (
	controlHead  = "cleanrun control file, random words:\n"
	consonants   = "bdfghjklmnprstvz" // 16
	vowels       = "aeio"             // 4
	controlWords = 600
)

// NewControl draws the control text of one task from random (crypto/rand). It
// is public: the sealed set holds it, and every run opens it.
func NewControl(random io.Reader) (string, error) {
	draw := make([]byte, 3*controlWords)
	if _, err := io.ReadFull(random, draw); err != nil {
		return "", fmt.Errorf("control text: %w", err)
	}
	var b strings.Builder
	b.Grow(len(controlHead) + 3*len(draw))
	b.WriteString(controlHead)
	for i, d := range draw {
		b.WriteByte(consonants[d>>4])
		b.WriteByte(vowels[d>>2&3])
		switch {
		case i%36 == 35:
			b.WriteByte('\n')
		case i%3 == 2:
			b.WriteByte(' ')
		}
	}
	return b.String(), nil
}
