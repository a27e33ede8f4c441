package compact_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// rule is the rule that an error names, "" for none.
func rule(err error) string {
	var e *compact.Error
	if errors.As(err, &e) {
		return e.Rule
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// row finds the shown row of which want is true.
func row(p *compact.Proof, want func(journal.Row, *compact.Entry) bool) *compact.Row {
	for i := range p.Rows {
		if r, err := journal.ParseRow(p.Rows[i].Row); err == nil && want(r, p.Rows[i].Entry) {
			return &p.Rows[i]
		}
	}
	panic("no such row")
}

func shows(_ journal.Row, e *compact.Entry) bool { return e != nil && e.Shown != nil }

// Each proof has one thing wrong, and is refused for that.
func TestProofRefused(t *testing.T) {
	a := record(t, fixture.Groups(), cheat)
	other := record(t, fixture.Groups(), func(r *fixture.Run) { r.Argv(true, fixture.Content{Size: 41}); cheat(r) })
	long := func(b *[]byte) { *b = append(slices.Clone(*b), make([]byte, 32)...) }
	short := func(b *[]byte) { *b = (*b)[32:] }
	flip := func(b *[]byte) { *b = slices.Clone(*b); (*b)[0] ^= 1 }
	filled := func(p *compact.Proof) int {
		return slices.IndexFunc(p.Buckets, func(b []byte) bool { return len(b) >= 2*bucket.EntrySize })
	}
	for name, c := range map[string]struct {
		proof  func(*compact.Proof)
		stated func(*attest.Predicate)
		want   string
	}{
		"positive control":              {},
		"another version":               {proof: func(p *compact.Proof) { p.Version = "cleanrun/compact/v0" }, want: compact.RuleVersion},
		"half a hash":                   {proof: func(p *compact.Proof) { p.RowPath = p.RowPath[1:] }, want: compact.RuleShape},
		"RT11 row path short":           {proof: func(p *compact.Proof) { short(&p.RowPath) }, want: compact.RuleRowPath},
		"RT11 row path long":            {proof: func(p *compact.Proof) { long(&p.RowPath) }, want: compact.RuleRowPath},
		"row path flipped":              {proof: func(p *compact.Proof) { flip(&p.RowPath) }, want: compact.RuleRowPath},
		"entry path short":              {proof: func(p *compact.Proof) { short(&p.EntryPath) }, want: compact.RuleEntryPath},
		"entry path long":               {proof: func(p *compact.Proof) { long(&p.EntryPath) }, want: compact.RuleEntryPath},
		"entry path flipped":            {proof: func(p *compact.Proof) { flip(&p.EntryPath) }, want: compact.RuleEntryPath},
		"no first row":                  {proof: func(p *compact.Proof) { p.Rows = p.Rows[1:] }, want: compact.RuleRows},
		"no last row":                   {proof: func(p *compact.Proof) { p.Rows = p.Rows[:len(p.Rows)-1] }, want: compact.RuleRows},
		"no row":                        {proof: func(p *compact.Proof) { p.Rows = nil }, want: compact.RuleRows},
		"rows swapped":                  {proof: func(p *compact.Proof) { p.Rows[1], p.Rows[2] = p.Rows[2], p.Rows[1] }, want: compact.RuleRows},
		"a row with another commitment": {proof: func(p *compact.Proof) { b := &p.Rows[2].Row; *b = slices.Clone(*b); (*b)[len(*b)-1] ^= 1 }, want: compact.RuleRowPath},
		"an entry fewer":                {proof: func(p *compact.Proof) { row(p, shows).Entry = nil }, want: compact.RuleEntry},
		"another number of digests": {proof: func(p *compact.Proof) {
			r := row(p, shows)
			e := *r.Entry
			e.Shown, e.Count = nil, e.Count+1
			r.Entry = &e
		}, want: compact.RuleEntryPath},
		"fewer opaque bytes":              {proof: func(p *compact.Proof) { row(p, shows).Entry.Opaque++ }, want: compact.RuleEntryPath},
		"RT30 another root of an entry":   {proof: func(p *compact.Proof) { row(p, shows).Entry.Root[0] ^= 1 }, want: compact.RuleShown},
		"a shown digest elsewhere":        {proof: func(p *compact.Proof) { row(p, shows).Entry.Count += 64 }, want: compact.RuleShown},
		"a shown digest that is none":     {proof: func(p *compact.Proof) { flip(&row(p, shows).Entry.Shown.Digests) }, want: compact.RuleShown},
		"a path of digests short":         {proof: func(p *compact.Proof) { short(&row(p, shows).Entry.Shown.Path) }, want: compact.RuleShown},
		"a place fewer":                   {proof: func(p *compact.Proof) { s := row(p, shows).Entry.Shown; s.Places = s.Places[1:] }, want: compact.RuleShape},
		"RT36 a bucket missing":           {proof: func(p *compact.Proof) { p.Buckets = p.Buckets[1:] }, want: compact.RuleBuckets},
		"a bucket left over":              {proof: func(p *compact.Proof) { p.Buckets = append(p.Buckets, []byte{}) }, want: compact.RuleBuckets},
		"RT33 the neighbour's bucket":     {proof: func(p *compact.Proof) { i := filled(p); p.Buckets[i-1], p.Buckets[i] = p.Buckets[i], p.Buckets[i-1] }, want: compact.RuleBuckets},
		"RT34 a digest of another bucket": {proof: func(p *compact.Proof) { b := &p.Buckets[filled(p)]; flip(b); (*b)[0] ^= 0x81 }, want: compact.RuleBuckets},
		"RT35 an unsorted bucket": {proof: func(p *compact.Proof) {
			b := &p.Buckets[filled(p)]
			n := bucket.EntrySize
			*b = slices.Concat((*b)[n:2*n], (*b)[:n], (*b)[2*n:])
		}, want: compact.RuleBuckets},
		"RT31 a digest left out":       {proof: func(p *compact.Proof) { b := &p.Buckets[filled(p)]; *b = (*b)[bucket.EntrySize:] }, want: compact.RuleBuckets},
		"bucket path short":            {proof: func(p *compact.Proof) { short(&p.BucketPath) }, want: compact.RuleBuckets},
		"bucket path long":             {proof: func(p *compact.Proof) { long(&p.BucketPath) }, want: compact.RuleBuckets},
		"bucket path flipped":          {proof: func(p *compact.Proof) { flip(&p.BucketPath) }, want: compact.RuleBuckets},
		"RT36 other digests asked for": {proof: func(p *compact.Proof) { p.Controls = p.Controls[32:] }, want: compact.RuleShown},
		"controls unsorted": {proof: func(p *compact.Proof) {
			p.Controls = slices.Concat(p.Controls[32:64], p.Controls[:32], p.Controls[64:])
		}, want: compact.RuleRows},
		"buckets of another run":              {proof: func(p *compact.Proof) { o := other.prove(t); p.Buckets, p.BucketPath = o.Buckets, o.BucketPath }, want: compact.RuleBuckets},
		"another depth signed":                {stated: func(s *attest.Predicate) { s.Evidence.Depth++ }, want: compact.RuleStatement},
		"another depth and count signed":      {stated: func(s *attest.Predicate) { s.Evidence.Depth++; s.Evidence.Digests *= 2 }, want: compact.RuleBuckets},
		"another tree signed":                 {stated: func(s *attest.Predicate) { s.Evidence.Tree = strings.Repeat("0", 64) }, want: compact.RuleBuckets},
		"another journal signed":              {stated: func(s *attest.Predicate) { s.Journal.Root = strings.Repeat("0", 64) }, want: compact.RuleRowPath},
		"a smaller journal signed":            {stated: func(s *attest.Predicate) { s.Journal.Size-- }, want: compact.RuleRows},
		"no journal":                          {stated: func(s *attest.Predicate) { s.Journal.Size = 0 }, want: compact.RuleStatement},
		"another run signed":                  {stated: func(s *attest.Predicate) { s.Run.ID = strings.Repeat("0", 32) }, want: compact.RuleRows},
		"other entries signed":                {stated: func(s *attest.Predicate) { s.Evidence.Entries = strings.Repeat("0", 64) }, want: compact.RuleEntryPath},
		"a root in capitals":                  {stated: func(s *attest.Predicate) { s.Evidence.Tree = strings.ToUpper(s.Evidence.Tree) }, want: compact.RuleStatement},
		"a reason of a row that is not there": {stated: func(s *attest.Predicate) { s.Reasons = s.Reasons[:0] }},
	} {
		stated := *a.stated
		stated.Reasons = slices.Clone(stated.Reasons)
		p := a.prove(t)
		if c.proof != nil {
			c.proof(p)
		}
		if c.stated != nil {
			c.stated(&stated)
		}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if p, err = compact.Parse(data); err == nil {
			_, err = p.Check(a.set, &stated)
		}
		if got := rule(err); got != c.want {
			t.Errorf("%s: got rule %q (%v), want %q", name, got, err, c.want)
		}
	}
}

// A row that decides nothing, and a first row that is not the tree's: proofs that
// an attacker makes with every path right.
func TestProofShowsWhatDecides(t *testing.T) {
	a := record(t, fixture.Groups(), cheat)
	p := a.prove(t)
	var phases []journal.Phase
	for i := range p.Rows {
		r, err := journal.ParseRow(p.Rows[i].Row)
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, r.Phase)
		if e := p.Rows[i].Entry; r.Phase == journal.PhaseGrade && e != nil && e.Shown != nil {
			t.Errorf("row %d of the grade phase shows digests", r.Seq)
		}
	}
	if n := int(a.evidence(t).Size()); len(p.Rows) >= n || !slices.Contains(phases, journal.PhaseGrade) {
		t.Errorf("got %d of %d rows", len(p.Rows), n)
	}
}

// The oracle: of an honest run, every sealed item is proved to be absent from the
// sorted list of all digests.
func TestFoundEqualsList(t *testing.T) {
	for _, do := range []func(*fixture.Run){cheat, func(r *fixture.Run) { r.Read("/work/a", fixture.Content{Filler: 300}) }} {
		a := record(t, fixture.Groups(), do)
		all := map[[16]byte]bool{}
		for i := range a.pack.Items {
			if e := a.pack.Items[i].Entry; e != nil {
				for d := range slices.Chunk(e.Digests, 16) {
					all[[16]byte(d)] = true
				}
			}
		}
		ev, err := a.prove(t).Check(a.set, a.stated)
		if err != nil {
			t.Fatal(err)
		}
		d, err := attest.DeriveShown(a.set, ev, a.stated)
		if err != nil {
			t.Fatal(err)
		}
		full := attest.Derive(a.set, a.evidence(t))
		if d.Counts != full.Counts || !slices.Equal(d.Reasons, full.Reasons) || len(all) == 0 {
			t.Errorf("got %+v, %v, want %+v, %v", d.Counts, d.Reasons, full.Counts, full.Reasons)
		}
	}
}

// RT32: a tree that leaves out, postdates or turns a digest passes as a compact
// proof, which is why the aggregation is called trusted, and a small proof
// convicts who signed it.
func TestRT32_FraudConvicts(t *testing.T) {
	read := func(r *fixture.Run) {
		r.Argv(true, fixture.Content{Size: 40})
		r.Read("/work/copy", fixture.Content{Items: fixture.Names("f", 12), Filler: 5})
		for range 40 {
			r.Read("/work/a", fixture.Content{Filler: 50})
		}
	}
	a := record(t, fixture.Groups(), read)
	at := slices.IndexFunc(a.pack.Items, func(it attest.Item) bool { return it.Entry != nil && len(it.Entry.Digests) == 16*17 })
	stated, p, honest := liar(t, a, func(p *fixture.Pack) {
		fresh := fixture.S("something else")
		p.Items[at].Entry.Digests = fresh[:16]
	})
	if stated.Verdict != attest.Clean && len(stated.Reasons) > 0 && stated.Reasons[0].ID == attest.ReasonFragments {
		t.Fatalf("the lie is no lie: %v", stated.Reasons)
	}
	ev, err := p.Check(a.set, stated)
	if err != nil {
		t.Fatalf("got %v: the compact proof of the liar should hold", err)
	}
	if d, err := attest.DeriveShown(a.set, ev, stated); err != nil || d.Verdict == attest.Dirty {
		t.Fatalf("got %v, %v: the compact proof of the liar should hold", d, err)
	}
	f, err := compact.Accuse(a.set, honest, p, stated)
	if err != nil || f == nil {
		t.Fatalf("got %v, %v, want an accusation", f, err)
	}
	data, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := compact.ParseFraud(data)
	if err != nil {
		t.Fatal(err)
	}
	if crime, err := got.Convicts(stated); err != nil || crime != fmt.Sprintf("the signed tree leaves out a digest of event %d", at) {
		t.Errorf("got %q, %v", crime, err)
	}
	// At a million events and a hundred million digests, each path is at most as
	// long as this.
	if most := len(data) + 32*(20+20+17+27) - len(f.RowPath) - len(f.EntryPath) - len(f.BucketPath) - len(f.Entry.Shown.Path); most > compact.MaxFraud {
		t.Errorf("a fraud proof of a large run takes %d bytes, want at most %d", most, compact.MaxFraud)
	}
	for i := range data {
		broken := bytes.Clone(data)
		broken[i] ^= 1
		if f, err := compact.ParseFraud(broken); err == nil {
			if crime, err := f.Convicts(stated); err == nil {
				t.Fatalf("byte %d changed: still convicts: %s", i, crime)
			}
		}
	}
	// The honest runner is not convicted.
	if f, err := compact.Accuse(a.set, honest, a.prove(t), a.stated); err != nil || f != nil {
		t.Errorf("the honest runner: got %v, %v", f, err)
	}
	if _, err := got.Convicts(a.stated); rule(err) != compact.RuleBuckets {
		t.Errorf("the proof against another statement: got %v", err)
	}
	other := record(t, fixture.Groups(), cheat)
	if _, err := compact.Accuse(a.set, other.evidence(t), p, stated); rule(err) != compact.RuleStatement {
		t.Errorf("evidence of another run: got %v", err)
	}
}

// A digest that the signed tree has at a later event than the evidence.
func TestRT32_FraudConvictsLaterFirst(t *testing.T) {
	a := record(t, fixture.Groups(), func(r *fixture.Run) {
		r.Argv(true, fixture.Content{Size: 40})
		r.Read("/work/first", fixture.Content{Items: []string{"f1", "f2", "f3"}, Filler: 5})
		r.Grade(journal.PhaseEnd{How: journal.Exited})
		r.Read("/cleanrun/tests/t", fixture.Content{Items: []string{"f1", "f2", "f3"}})
		r.Graded([]journal.Reward{{Value: "0", Source: journal.FromExit}}, &journal.PhaseEnd{How: journal.Exited, Code: 1})
	})
	if a.stated.Verdict != attest.Dirty {
		t.Fatalf("got %s", a.stated.Verdict)
	}
	at := slices.IndexFunc(a.pack.Items, func(it attest.Item) bool { return it.Entry != nil && len(it.Entry.Digests) == 16*8 })
	stated, p, honest := liar(t, a, func(p *fixture.Pack) {
		fresh := fixture.S("something else")
		p.Items[at].Entry.Digests = fresh[:16]
	})
	if _, err := p.Check(a.set, stated); err != nil || stated.Verdict == attest.Dirty {
		t.Fatalf("got %v, %s: the compact proof of the liar should hold", err, stated.Verdict)
	}
	f, err := compact.Accuse(a.set, honest, p, stated)
	if err != nil || f == nil {
		t.Fatalf("got %v, %v, want an accusation", f, err)
	}
	if crime, err := f.Convicts(stated); err != nil || !strings.Contains(crime, fmt.Sprintf("of event %d as if event", at)) {
		t.Errorf("got %q, %v", crime, err)
	}
}

// The page has each rule, and shows the proof of this run.
func TestSpec(t *testing.T) {
	page, err := os.ReadFile("../spec/compact.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{compact.RuleShape, compact.RuleVersion, compact.RuleStatement, compact.RuleRows, compact.RuleRowPath, compact.RuleEntry,
		compact.RuleEntryPath, compact.RuleShown, compact.RuleBuckets, compact.RuleFirst, compact.RuleUnneeded, compact.RuleWhole, compact.RuleAtOdds} {
		if !bytes.Contains(page, []byte("\n| `"+id+"` |")) {
			t.Errorf("spec/compact.md has no line for rule %s", id)
		}
	}
	groups := []fixture.Group{fixture.Groups()[2]}
	groups[0].Items = groups[0].Items[:1]
	a := record(t, groups, func(r *fixture.Run) {
		r.Read("/usr/bin/cat", fixture.Content{Filler: 3})
		r.Read("/work/copy", fixture.Content{Items: []string{"file-raw"}, Filler: 2})
	})
	if want := "```\n" + diagnostic(a.prove(t)) + "```"; !bytes.Contains(page, []byte(want)) {
		t.Errorf("spec/compact.md shows another example; it should be\n%s", want)
	}
}

// diagnostic writes a proof in the notation of RFC 8949, section 8, rows and paths
// cut.
func diagnostic(p *compact.Proof) string {
	var b strings.Builder
	cut := func(path []byte) string { return fmt.Sprintf("h'%x...' / %d hashes /", path[:8], len(path)/32) }
	fmt.Fprintf(&b, "{\n  1: %q,\n  2: [\n", p.Version)
	for i := range p.Rows {
		r, err := journal.ParseRow(p.Rows[i].Row)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "    [h'%x...', ", p.Rows[i].Row[:8])
		if e := p.Rows[i].Entry; e == nil {
			fmt.Fprintf(&b, "null],  / row %d /\n", r.Seq)
		} else {
			fmt.Fprintf(&b, "  / row %d /\n      [%d, %d, %d, %d, %d, %d, %d, null, h'%x', %d,", r.Seq, e.Seen, e.Scanned, e.Baseline, e.Declared, e.Opaque, e.Canonical, e.Bounds, e.Root, e.Count)
			if s := e.Shown; s == nil {
				fmt.Fprintf(&b, " null]],\n")
			} else if len(s.Places) == 1 {
				fmt.Fprintf(&b, "\n      [[%d], h'%x', %s]]],\n", s.Places[0], s.Digests, cut(s.Path))
			} else {
				fmt.Fprintf(&b, "\n      [[%d, %d, ...], h'%x...' / %d digests /, %s]]],\n", s.Places[0], s.Places[1], s.Digests[:8], len(s.Places), cut(s.Path))
			}
		}
	}
	fmt.Fprintf(&b, "  ],\n  3: %s,\n  4: %s,\n  5: [", cut(p.RowPath), cut(p.EntryPath))
	shown := p.Buckets[0]
	for _, one := range p.Buckets {
		if len(one) == bucket.EntrySize {
			shown = one
			break
		}
	}
	fmt.Fprintf(&b, "..., h'%x', ...],  / %d buckets, one of them with one digest /\n", shown, len(p.Buckets))
	fmt.Fprintf(&b, "  6: %s,\n  7: h'%x...'  / %d controls /\n}\n", cut(p.BucketPath), p.Controls[:8], len(p.Controls)/32)
	return b.String()
}

func FuzzParse(f *testing.F) {
	a := record(f, fixture.Groups(), cheat)
	data, err := a.prove(f).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := compact.Parse(data)
		if err != nil {
			return
		}
		again, err := p.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("accepted another encoding than its own: %v", err)
		}
		if ev, err := p.Check(a.set, a.stated); err == nil {
			if _, err := attest.DeriveShown(a.set, ev, a.stated); err != nil {
				t.Fatalf("a proof that holds under the statement is at odds with it: %v", err)
			}
		}
	})
}

func FuzzParseFraud(f *testing.F) {
	a := record(f, fixture.Groups(), cheat)
	f.Add([]byte("\xa7\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := compact.ParseFraud(data)
		if err != nil {
			return
		}
		if again, err := p.Marshal(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("accepted another encoding than its own: %v", err)
		}
		if crime, err := p.Convicts(a.stated); err == nil {
			t.Fatalf("convicts an honest run: %s", crime)
		}
	})
}
