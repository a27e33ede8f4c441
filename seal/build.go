package seal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// Build makes the sealed set of a task. It depends on the material, the audit
// key and the control text (NewControl) alone: the same ones give the same
// bytes. A *LeakError says that the task gives its answer away.
func Build(m *Material, audit contraband.AuditKey, control string) (*contraband.Set, *Summary, error) {
	t := m.Task
	prompt := sha256.Sum256(m.Prompt)
	baseline := m.Baseline.Root()
	key := audit.Task(t.Benchmark, t.Period, t.ID, prompt, baseline)
	sum := &Summary{Benchmark: t.Benchmark, Task: t.ID}

	c := &cutter{f: canon.New(key, nil), sources: map[contraband.Kind]uint32{}, uncovered: map[contraband.Kind]uint32{}}
	if err := c.all(m); err != nil {
		return nil, nil, err
	}
	find := newSearch(key, c.piles, sum.warn)
	defer find.close()
	if err := find.prompt(m.Prompt); err != nil {
		return nil, nil, err
	}
	if err := find.workspace(m.Workspace, m.Baseline); err != nil {
		return nil, nil, err
	}

	s := &contraband.Set{
		Version: contraband.Version, Profile: contraband.Profile,
		Benchmark: t.Benchmark, Task: t.ID, Period: t.Period,
		Commitment: key.TaskCommitment(m.source()),
		Prompt:     prompt, Baseline: baseline,
		Scope: t.Scope, Channels: t.Channels, Phases: t.Phases,
		Sources: counts(c.sources), Uncovered: counts(c.uncovered),
		Control: control,
	}
	s.KeyCommit = key.Commit(s.Commitment, t.Period)
	for i, p := range c.piles {
		s.Groups = append(s.Groups, p.groups(key, i, find.allowed, sum)...)
	}
	slices.SortFunc(s.Groups, compareGroups)
	// Two sources with the same items, all of them real, are one group.
	s.Groups = slices.CompactFunc(s.Groups, func(a, b contraband.Group) bool { return compareGroups(a, b) == 0 })
	s.Allowed = allowedList(key, find.allowed)
	s.Filter = filterList(key, s.Groups, c.piles, find.allowed)
	s.Kept = kept(c.piles, find.allowed, sum)
	s.Small = small(c.piles, find.allowed)
	if err := sealControls(s, c.f, control); err != nil {
		return nil, nil, err
	}
	sum.finish(s, find.allowed)
	if _, err := s.Marshal(); err != nil {
		return nil, nil, err
	}
	return s, sum, nil
}

// all cuts everything that the task names, so that nobody can leave a part out.
func (c *cutter) all(m *Material) error {
	t := m.Task
	c.phrase(contraband.KindID, Text{Value: t.ID, Item: "task"})
	if t.Title.Value != "" {
		c.phrase(contraband.KindTitle, t.Title)
	}
	for _, list := range []struct {
		kind  contraband.Kind
		texts []Text
	}{{contraband.KindSignal, t.Signals}, {contraband.KindCommand, t.Commands}, {contraband.KindReference, t.Tokens}} {
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
		c.add(c.pile(contraband.KindCanary, text, text.Item), contraband.ClassCanary, form[:contraband.CanarySize])
	}
	return nil
}

// groups pads what is left of a pile after subtraction.
func (p *pile) groups(key contraband.TaskKey, index int, allowed map[item]bool, sum *Summary) (list []contraband.Group) {
	for class := contraband.ClassCanary; class <= contraband.ClassAtom; class++ {
		var digests [][32]byte
		for _, d := range p.items[class] {
			if !allowed[item{class, d}] {
				digests = append(digests, d)
			}
		}
		n := len(digests)
		if n == 0 {
			continue
		}
		items := pad(key, fmt.Sprintf("group %d %d %d", index, p.kind, class), digests, padded(n))
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

// padded is the power of two that hides n.
func padded(n int) int {
	size := contraband.MinGroup
	for size < n {
		size *= 2
	}
	return size
}

// pad adds dummies up to size, sorts and joins.
func pad(key contraband.TaskKey, list string, digests [][32]byte, size int) []byte {
	all := slices.Clone(digests)
	for i := uint32(0); len(all) < size; i++ {
		all = append(all, key.Dummy(list, i))
	}
	slices.SortFunc(all, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	out := make([]byte, 0, 32*len(all))
	for _, d := range all {
		out = append(out, d[:]...)
	}
	return out
}

func allowedList(key contraband.TaskKey, allowed map[item]bool) []byte {
	if len(allowed) == 0 {
		return []byte{}
	}
	var digests [][32]byte
	for it := range allowed { // pad sorts
		digests = append(digests, it.s)
	}
	return pad(key, "allowed", digests, padded(len(digests)))
}

// filterList is padded to what the padded groups would need, so that it tells
// no more than they do.
func filterList(key contraband.TaskKey, groups []contraband.Group, piles []*pile, allowed map[item]bool) []uint32 {
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
	f := key.Filter()
	seen := map[uint32]bool{}
	add := func(v uint32) {
		if !seen[v] {
			seen[v] = true
			list = append(list, v)
		}
	}
	for _, p := range piles {
		for it, plain := range p.plain { // sorted below
			if it.class.Filtered() && !allowed[it] {
				add(f.Value(it.class, plain))
			}
		}
	}
	for i := uint32(0); len(list) < padded(size); i++ {
		d := key.Dummy("filter", i)
		add(uint32(d[0])<<16 | uint32(d[1])<<8 | uint32(d[2]))
	}
	slices.Sort(list)
	return list
}

// kept is how many tenths of the novel part are left: shingles and lines of
// references and tests.
func kept(piles []*pile, allowed map[item]bool, sum *Summary) uint8 {
	novel := map[item]bool{}
	for _, p := range piles {
		for it := range p.plain {
			if !p.kind.OncePerTask() && (it.class == contraband.ClassShingle || it.class == contraband.ClassLine) {
				novel[it] = true
			}
		}
	}
	left := 0
	for it := range novel {
		if !allowed[it] {
			left++
		}
	}
	if sum.Novel, sum.Kept = len(novel), left; len(novel) == 0 {
		return 10
	}
	return uint8(10 * left / len(novel))
}

// small tells what padding hides: no whole object and fewer than 8 items.
func small(piles []*pile, allowed map[item]bool) bool {
	items := map[item]bool{}
	for _, p := range piles {
		for it := range p.plain {
			if p.kind.OncePerTask() || allowed[it] {
				continue
			}
			if it.class.Whole() {
				return false
			}
			items[it] = true
		}
	}
	return len(items) < 8
}

// sealControls cuts the control text as a scanner will, and publishes its
// shingles one level deeper.
func sealControls(s *contraband.Set, f *canon.Fingerprinter, control string) error {
	var list [][32]byte
	seen := map[[32]byte]bool{}
	f.Object([]byte(control), false, func(class contraband.Class, d [32]byte) {
		if class == contraband.ClassShingle && !seen[d] {
			seen[d] = true
			list = append(list, contraband.Control(d))
		}
	})
	if len(list) < contraband.MinControls {
		return fmt.Errorf("control text: got %d shingles, want at least %d; draw a new one", len(list), contraband.MinControls)
	}
	slices.SortFunc(list, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, c := range list {
		s.Controls = append(s.Controls, c[:]...)
	}
	return nil
}
