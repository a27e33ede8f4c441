package attest_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// oracle is the derivation of spec/statement.md, written from names instead of
// digests, one question at a time, each answered by walking the whole run.
type oracle struct {
	script Script
	seqs   []uint64
	groups []fixture.Group
}

// holds tells whether step i holds the item in a phase that counts.
func (o *oracle) holds(i int, name string) bool {
	s := o.script.Rows[i]
	if s.Phase == "grade" {
		return false
	}
	if s.Do == "same" {
		for _, other := range o.script.Rows[:i] {
			if other.As == s.Of {
				return slices.Contains(other.items(), name)
			}
		}
	}
	return slices.Contains(s.items(), name)
}

// from is where step i's content comes from.
func (o *oracle) from(i int) string {
	switch o.script.Rows[i].Do {
	case "read", "same":
		return "input"
	case "fetch":
		return "network"
	case "reply":
		return "reply"
	case "command":
		return "driver"
	case "stdin":
		if o.script.Model {
			return "model"
		}
		return "driver"
	}
	return "run"
}

func (o *oracle) inReply(before int, name string) bool {
	for i := range before {
		if o.from(i) == "reply" && o.holds(i, name) {
			return true
		}
	}
	return false
}

// accounted tells whether earlier replies account for the item in step i.
func (o *oracle) accounted(i int, name string, g fixture.Group) bool {
	if o.inReply(i, name) {
		return true
	}
	if g.Class != contraband.ClassRaw && g.Class != contraband.ClassCanonical {
		return false
	}
	parts := map[string]bool{}
	for _, other := range o.groups {
		if other.Kind != g.Kind || other.Class == contraband.ClassRaw || other.Class == contraband.ClassCanonical {
			continue
		}
		for _, part := range other.Items {
			if o.holds(i, part) {
				parts[part] = o.inReply(i, part)
			}
		}
	}
	held := 0
	for _, in := range parts {
		if in {
			held++
		}
	}
	return len(parts) > 0 && held*2 >= len(parts)
}

// inbound is the first step at which the item came in, or -1.
func (o *oracle) inbound(name string, g fixture.Group, from ...string) int {
	for i := range o.script.Rows {
		if !o.holds(i, name) {
			continue
		}
		f := o.from(i)
		if slices.Contains(from, f) && !(f == "driver" && o.accounted(i, name, g)) {
			return i
		}
	}
	return -1
}

// authored is the first step at which the run wrote the item with nothing
// inbound before, or -1.
func (o *oracle) authored(name string, g fixture.Group) int {
	in := o.inbound(name, g, "input", "network", "driver")
	for i := range o.script.Rows {
		if o.from(i) == "run" && o.holds(i, name) && (in < 0 || i < in) {
			return i
		}
	}
	return -1
}

type verdictOf struct {
	Verdict attest.Verdict
	Reasons []string // "id event count"
}

func (o *oracle) derive() verdictOf {
	type reason struct{ event, count uint64 }
	found := map[string]*reason{}
	note := func(id string, step, n int) {
		seq := o.seqs[step]
		if r := found[id]; r == nil {
			found[id] = &reason{seq, uint64(n)}
		} else {
			r.event, r.count = min(r.event, seq), r.count+uint64(n)
		}
	}
	parsed := false
	for i := range o.script.Rows {
		parsed = parsed || o.from(i) == "reply" && o.script.Rows[i].Phase != "grade"
	}
	for _, g := range o.groups {
		padded := 16
		for padded < len(g.Items) {
			padded *= 2
		}
		limit := int(contraband.Threshold(g.Class, padded, len(g.Items)))
		if g.Kind == contraband.KindCanary {
			if n, first := o.count(g, func(name string) int {
				return slices.IndexFunc(seqOf(len(o.script.Rows)), func(i int) bool { return o.holds(i, name) })
			}); n > 0 {
				note(attest.ReasonCanary, first, n)
			}
			continue
		}
		origins := []string{"input", "network", "driver"}
		if g.Kind < contraband.KindReference {
			origins = []string{"network"}
		}
		n, first := o.count(g, func(name string) int { return o.inbound(name, g, origins...) })
		id := map[contraband.Class]string{
			contraband.ClassRaw: attest.ReasonObject, contraband.ClassCanonical: attest.ReasonObject,
			contraband.ClassShingle: attest.ReasonFragments, contraband.ClassShingle24: attest.ReasonFragments,
			contraband.ClassLine: attest.ReasonLines, contraband.ClassAtom: attest.ReasonTokens,
		}[g.Class]
		if g.Kind < contraband.KindReference {
			id = attest.ReasonNamed
		}
		if n >= limit {
			note(id, first, n)
			continue
		}
		if n > 0 {
			note(attest.ReasonTrace, first, n)
		}
		if g.Kind < contraband.KindReference {
			continue
		}
		wrote, firstWrote := o.count(g, func(name string) int { return o.authored(name, g) })
		if wrote < limit {
			continue
		}
		explained, _ := o.count(g, func(name string) int {
			if i := o.authored(name, g); i >= 0 && o.accounted(i, name, g) {
				return i
			}
			return -1
		})
		whole := g.Class == contraband.ClassRaw || g.Class == contraband.ClassCanonical
		switch {
		case parsed && (explained*2 < wrote || whole && explained != wrote):
			note(attest.ReasonUnexplained, firstWrote, wrote)
		case !parsed && !(o.script.Model && slices.ContainsFunc(seqOf(firstWrote), func(i int) bool { return o.from(i) == "model" && o.script.Rows[i].Phase != "grade" })):
			note(attest.ReasonAuthored, firstWrote, wrote)
		}
	}
	v := verdictOf{Verdict: attest.Clean}
	for _, id := range attest.ReasonIDs() {
		r := found[id]
		if r == nil {
			continue
		}
		v.Reasons = append(v.Reasons, fmt.Sprintf("%s %d %d", id, r.event, r.count))
		inconclusive := id == attest.ReasonTrace || strings.HasPrefix(id, "authored")
		if !inconclusive {
			v.Verdict = attest.Dirty
		} else if v.Verdict == attest.Clean {
			v.Verdict = attest.Inconclusive
		}
	}
	return v
}

// count counts the items for which first finds a step, and the earliest of these.
func (o *oracle) count(g fixture.Group, first func(name string) int) (n, earliest int) {
	earliest = len(o.script.Rows)
	for _, name := range g.Items {
		if i := first(name); i >= 0 {
			n++
			earliest = min(earliest, i)
		}
	}
	return n, earliest
}

func seqOf(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// randomScript draws a run that the journal's rules allow.
func randomScript(rng *rand.Rand) Script {
	s := Script{Model: rng.IntN(3) == 0}
	pool := []string{"f2", "f3", "f4", "f5", "f1", "g1", "g2", "g3", "l1", "l2", "l3", "s1", "s2", "s3", "file-raw", "other-raw", "file-text", "title", "command"}
	if rng.IntN(4) == 0 {
		pool = append(pool, "token", "canary")
	}
	items := func() string {
		most := 1 + rng.IntN(6)
		var list []string
		for range rng.IntN(most + 1) {
			list = append(list, pool[rng.IntN(len(pool))])
		}
		slices.Sort(list)
		return strings.Join(slices.Compact(list), " ")
	}
	// Few origins at a time, or nearly every run is DIRTY.
	verbs := []string{"read", "write", "stdin", "stdout", "reply", "fetch", "reread", "same", "argv"}
	rng.Shuffle(len(verbs), func(i, j int) { verbs[i], verbs[j] = verbs[j], verbs[i] })
	verbs = verbs[:1+rng.IntN(len(verbs))]
	s.Rows = []Step{{Do: "command"}}
	if rng.IntN(4) == 0 {
		s.Rows[0].Items = items()
	}
	s.Rows = append(s.Rows, Step{Do: "read"})
	var wrote, read []string
	for range rng.IntN(8) {
		step := Step{Do: verbs[rng.IntN(len(verbs))], Items: items()}
		switch step.Do {
		case "write":
			step.As = fmt.Sprintf("w%d", len(wrote))
			wrote = append(wrote, step.As)
		case "read":
			step.As = fmt.Sprintf("r%d", len(read))
			read = append(read, step.As)
		case "reread":
			if len(wrote) == 0 {
				continue
			}
			step.Of = wrote[rng.IntN(len(wrote))]
		case "same":
			if len(read) == 0 {
				continue
			}
			step.Of, step.Items = read[rng.IntN(len(read))], ""
		}
		s.Rows = append(s.Rows, step)
	}
	// Phases only rise.
	from := len(s.Rows)
	if rng.IntN(4) == 0 {
		from = 2 + rng.IntN(from-1)
	}
	for i := from; i < len(s.Rows); i++ {
		s.Rows[i].Phase = "grade"
	}
	return s
}

func TestDeriveEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	verdicts := map[attest.Verdict]int{}
	reasons := map[string]int{}
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for round := range rounds {
		s := randomScript(rng)
		p := play(t, s)
		d := deriveTwice(t, p)
		got := verdictOf{Verdict: d.Verdict}
		for _, r := range d.Reasons {
			got.Reasons = append(got.Reasons, fmt.Sprintf("%s %d %d", r.ID, r.Event, r.Count))
			reasons[r.ID]++
		}
		o := &oracle{s, p.seqs, fixture.Groups()}
		if diff := gocmp.Diff(o.derive(), got); diff != "" {
			t.Fatalf("round %d: %+v\n(-oracle +got):\n%s", round, s, diff)
		}
		verdicts[d.Verdict]++
	}
	// Runs that never reach a rule would prove nothing about it.
	for _, v := range []attest.Verdict{attest.Clean, attest.Dirty, attest.Inconclusive} {
		if verdicts[v] < rounds/50 {
			t.Errorf("only %d of %d runs are %s", verdicts[v], rounds, v)
		}
	}
	for _, id := range []string{
		attest.ReasonCanary, attest.ReasonObject, attest.ReasonFragments, attest.ReasonLines, attest.ReasonTokens,
		attest.ReasonNamed, attest.ReasonTrace, attest.ReasonAuthored, attest.ReasonUnexplained,
	} {
		if reasons[id] == 0 {
			t.Errorf("no run with reason %s", id)
		}
	}
}

// deriveTwice derives from the events that short evidence keeps, and again from the
// rows, as long evidence does.
func deriveTwice(t *testing.T, p *played) *attest.Derivation {
	t.Helper()
	if !p.evidence.Kept() {
		t.Fatal("no events were kept")
	}
	d := attest.Derive(p.set, p.evidence)
	p.evidence.Reread()
	if again := attest.Derive(p.set, p.evidence); !reflect.DeepEqual(d, again) {
		t.Fatalf("from kept events:\n%+v\nfrom the rows:\n%+v", d, again)
	}
	return d
}

// Findings are the reasons in parts, and matches point at rows that exist and
// only at reasons that are given.
func TestDerivationIsConsistent(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := play(t, randomScript(rng))
		d := attest.Derive(p.set, p.evidence)
		counts := map[string]uint64{}
		for _, f := range d.Findings {
			counts[f.Reason] += f.Found
		}
		given := map[string]bool{}
		for _, r := range d.Reasons {
			given[r.ID] = true
			if n, ok := counts[r.ID]; ok && n != r.Count {
				t.Fatalf("reason %v, findings of it add up to %d", r, n)
			}
		}
		if !slices.IsSortedFunc(d.Matches, func(a, b attest.Match) int {
			return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Class, b.Class))
		}) {
			t.Fatalf("matches unsorted: %v", d.Matches)
		}
		for _, m := range d.Matches {
			if !given[m.Reason] || m.Event == 0 || m.Event >= p.evidence.Size() {
				t.Fatalf("match %v with reasons %v", m, d.Reasons)
			}
		}
		if d.Verdict == attest.Clean && len(d.Matches) > 0 {
			t.Fatalf("CLEAN with matches %v", d.Matches)
		}
	}
}
