package attest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// naiveRoot is RFC 9162, section 2.1.1, by the letter.
func naiveRoot(leaves [][]byte) [32]byte {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, leaves[0]...))
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	l, r := naiveRoot(leaves[:k]), naiveRoot(leaves[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, l[:], r[:]))
}

func TestDigestRootEqualsNaive(t *testing.T) {
	var digests []byte
	for n := range 300 {
		if got, want := attest.DigestRoot(digests), naiveRoot(slices.Collect(slices.Chunk(digests, 16))); got != want {
			t.Fatalf("%d digests: got %x, want %x", n, got, want)
		}
		d := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
		digests = append(digests, d[:16]...)
	}
}

// A second preimage: digests that are made to look like a node of the tree.
func TestRT10_LeafIsNoNode(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	both := attest.DigestRoot(slices.Concat(one, two))
	l, r := attest.DigestRoot(one), attest.DigestRoot(two)
	if attest.DigestRoot(slices.Concat(l[:], r[:])) == both {
		t.Fatal("four digests that spell two hashes have the root of two digests")
	}
	if attest.DigestRoot(slices.Concat(one, two)) != both {
		t.Fatal("control: the same digests have another root")
	}
}

// What Append writes is what the generic deterministic codec writes.
func TestAppendEqualsCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	number := func() uint64 { return rng.Uint64() >> rng.IntN(64) }
	text := func(n int) []byte {
		b := make([]byte, rng.IntN(n))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for range 2000 {
		it := attest.Item{Row: text(300)}
		if rng.IntN(4) > 0 {
			it.Entry = &attest.Entry{
				Seen: number(), Scanned: number(), Baseline: number(), Declared: number(), Opaque: number(), Canonical: number(),
				Bounds: uint32(rng.IntN(32)), Root: [32]byte{byte(rng.Uint32())}, Digests: text(70000),
			}
			if rng.IntN(2) == 0 {
				same := number()
				it.Entry.Same = &same
			}
		}
		check(t, &it, it.Append(nil))
		tr := attest.Trailer{Depth: uint8(rng.Uint32()), Digests: number(), Controls: text(500)}
		check(t, &struct {
			_        struct{} `cbor:",toarray"`
			Tree     [32]byte
			Depth    uint8
			Digests  uint64
			Controls []byte
		}{Depth: tr.Depth, Digests: tr.Digests, Controls: tr.Controls}, tr.Append(nil))
		content := text(200)
		tr.Openings = &attest.Openings{
			Paths:  []attest.OpenedPath{{Path: "/w/a", Key: [32]byte{byte(rng.Uint32())}, Compiled: rng.IntN(2) == 0}},
			Rows:   []attest.OpenedRow{{Seq: number(), Detail: text(90)}, {Seq: number(), Content: &content}},
			Marker: text(40),
		}
		check(t, &tr, tr.Append(nil))
	}
	h := attest.Header{Version: attest.EvidenceVersion, Rows: 70000}
	check(t, &h, h.Append(nil))
}

func check(t *testing.T, v any, got []byte) {
	t.Helper()
	want, err := dcbor.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%+v: got %x, want %x", v, got[:min(80, len(got))], want[:min(80, len(want))])
	}
}

// pack is a run with several contents, for tests that break one thing.
func pack(t testing.TB) *fixture.Pack {
	t.Helper()
	set, err := fixture.Set(fixture.Groups(), func(s *contraband.Set) {
		s.Channels = []contraband.Channel{{Name: "stdin", Role: "model"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	r.Argv(true, fixture.Content{Size: 40})
	first := r.Read("/work/a", fixture.Content{Items: []string{"f2"}, Filler: 5})
	r.Read("/work/b", fixture.Content{Same: &first})
	r.Read("/usr/bin/tool", fixture.Content{Baseline: true})
	r.Stdin(fixture.Content{Filler: 1})
	r.Write("/work/c", fixture.Content{Filler: 2})
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// entries returns the numbers of the items with an entry, in the order in which
// pack makes them: control, argv, read, same, baseline, stdin, wrote.
func entries(p *fixture.Pack) (list []int) {
	for i := range p.Items {
		if p.Items[i].Entry != nil {
			list = append(list, i)
		}
	}
	return list
}

const (
	atControl = iota
	atArgv
	atRead
	atSame
	atBaseline
	atStdin
	atWrote
)

// exempt takes a content for an object of the baseline.
func exempt(at int) func(p *fixture.Pack) {
	return func(p *fixture.Pack) {
		e := p.Items[entries(p)[at]].Entry
		e.Scanned, e.Declared, e.Baseline, e.Canonical, e.Opaque, e.Bounds, e.Digests, e.Same = 0, 0, e.Seen, 0, 0, 0, nil, nil
	}
}

func edit(t *testing.T, p *fixture.Pack, at int, change func(*journal.Row)) {
	t.Helper()
	row, err := journal.ParseRow(p.Items[at].Row)
	if err != nil {
		t.Fatal(err)
	}
	change(&row)
	if p.Items[at].Row, err = journal.EncodeRow(nil, &row); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenEvidence(t *testing.T) {
	entry := func(p *fixture.Pack, at int) *attest.Entry { return p.Items[entries(p)[at]].Entry }
	number := func(n uint64) *uint64 { return &n }
	cases := []struct {
		name  string
		rule  string
		event int // place in entries, -1 for any
		brk   func(p *fixture.Pack)
	}{
		{"RT1_row-bit", attest.RuleHead, -1, func(p *fixture.Pack) { edit(t, p, 3, func(r *journal.Row) { r.Commit[0] ^= 1 }) }},
		{"RT2_rows-dropped", attest.RuleHead, -1, func(p *fixture.Pack) {
			p.Items = p.Items[:len(p.Items)-1]
			p.Header.Rows--
		}},
		{"RT2_rows-dropped-count-kept", attest.RuleShape, -1, func(p *fixture.Pack) { p.Items = p.Items[:len(p.Items)-1] }},
		{"RT4_rows-swapped", attest.RuleJournal, -1, func(p *fixture.Pack) {
			p.Items[3], p.Items[4] = p.Items[4], p.Items[3]
			p.Rehead()
		}},
		{"RT5_row-repeated", attest.RuleJournal, -1, func(p *fixture.Pack) {
			p.Items = slices.Insert(p.Items, 4, p.Items[3])
			p.Rehead()
		}},
		{"RT6_gap-in-seq", attest.RuleJournal, -1, func(p *fixture.Pack) {
			p.Items = slices.Delete(p.Items, 4, 5)
			p.Rehead()
		}},
		{"RT12_size-0", attest.RuleEmpty, -1, func(p *fixture.Pack) {
			p.Items = nil
			p.Rehead()
			p.Grow()
		}},
		{"RT15_row-after-final", attest.RuleJournal, -1, func(p *fixture.Pack) {
			n := len(p.Items)
			p.Items = append(p.Items, p.Items[3])
			edit(t, p, n, func(r *journal.Row) { r.Seq = uint64(n) })
			p.Rehead()
		}},
		{"RT30_root-of-entry", attest.RuleRoot, atRead, func(p *fixture.Pack) { entry(p, atRead).Root[5] ^= 1; entry(p, atSame).Root[5] ^= 1 }},
		{"RT30_digest-changed", attest.RuleRoot, atRead, func(p *fixture.Pack) { entry(p, atRead).Digests[95] ^= 1 }},
		{"RT31_tree-omits-digest", attest.RuleTree, -1, func(p *fixture.Pack) {
			e := entry(p, atRead)
			kept := e.Digests
			e.Digests = kept[16:]
			p.Grow()
			e.Digests = kept
		}},
		{"RT31_tree-swaps-digest", attest.RuleTree, -1, func(p *fixture.Pack) {
			e := entry(p, atRead)
			kept := e.Digests
			e.Digests = slices.Clone(kept)
			e.Digests[len(kept)-1] ^= 1
			p.Grow()
			e.Digests = kept
		}},
		{"RT31_tree-dates-digest-later", attest.RuleTree, -1, func(p *fixture.Pack) {
			e, later := entry(p, atRead), entry(p, atWrote)
			kept, keptLater := e.Digests, later.Digests
			e.Digests, later.Digests = kept[16:], slices.Concat(kept[:16], keptLater)
			p.Grow()
			e.Digests, later.Digests = kept, keptLater
		}},
		{"RT57_scope-flag", attest.RuleJournal, atRead, func(p *fixture.Pack) {
			edit(t, p, entries(p)[atRead], func(r *journal.Row) { r.Flags |= journal.FlagOutOfScope })
			p.Rehead()
		}},
		{"version", attest.RuleVersion, -1, func(p *fixture.Pack) { p.Header.Version = "cleanrun/evidence/v2" }},
		{"more-rows-than-bytes", attest.RuleRows, -1, func(p *fixture.Pack) { p.Header.Rows = 1 << 60 }},
		{"content-without-entry", attest.RuleEntry, atRead, func(p *fixture.Pack) { p.Items[entries(p)[atRead]].Entry = nil }},
		{"entry-without-content", attest.RuleEntry, -1, func(p *fixture.Pack) { p.Items[1].Entry = entry(p, atRead) }},
		{"seen-is-not-size", attest.RuleCoverage, atRead, func(p *fixture.Pack) { entry(p, atRead).Seen--; entry(p, atRead).Scanned-- }},
		{"sum", attest.RuleCoverage, atRead, func(p *fixture.Pack) { entry(p, atRead).Scanned-- }},
		{"sum-wraps", attest.RuleCoverage, atRead, func(p *fixture.Pack) {
			e := entry(p, atRead)
			e.Scanned, e.Baseline = 1<<63+e.Seen, 1<<63
		}},
		{"opaque-above-scanned", attest.RuleCoverage, atRead, func(p *fixture.Pack) { entry(p, atRead).Opaque = 1001 }},
		{"canonical-of-baseline", attest.RuleCoverage, atBaseline, func(p *fixture.Pack) { entry(p, atBaseline).Canonical = 5 }},
		{"baseline-of-argv", attest.RuleCoverage, atArgv, exempt(atArgv)},
		{"baseline-of-stdin", attest.RuleCoverage, atStdin, exempt(atStdin)},
		{"baseline-of-control", attest.RuleCoverage, atControl, exempt(atControl)},
		{"baseline-in-part", attest.RuleCoverage, atRead, func(p *fixture.Pack) { e := entry(p, atRead); e.Scanned--; e.Baseline++ }},
		{"digests-of-baseline", attest.RuleCoverage, atBaseline, func(p *fixture.Pack) { entry(p, atBaseline).Digests = make([]byte, 16) }},
		{"canonical-too-large", attest.RuleCoverage, atRead, func(p *fixture.Pack) { entry(p, atRead).Canonical = 1 << 60 }},
		{"canonical-sum-too-large", attest.RuleCoverage, atWrote, func(p *fixture.Pack) {
			entry(p, atRead).Canonical, entry(p, atWrote).Canonical = 1<<52, 1<<52
		}},
		{"canonical-wraps", attest.RuleCoverage, atWrote, func(p *fixture.Pack) {
			entry(p, atWrote).Canonical = 1<<64 - 1
		}},
		// A hidden file must not be passed off as the model's channel.
		{"declared-file", attest.RuleDeclared, atRead, func(p *fixture.Pack) {
			e := entry(p, atRead)
			e.Scanned, e.Declared, e.Canonical = 0, e.Seen, 0
		}},
		{"model-channel-scanned", attest.RuleDeclared, atStdin, func(p *fixture.Pack) {
			e := entry(p, atStdin)
			e.Scanned, e.Declared = e.Seen, 0
		}},
		{"same-later", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Same = number(uint64(entries(p)[atWrote])) }},
		{"same-itself", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Same = number(uint64(entries(p)[atSame])) }},
		{"same-without-content", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Same = number(1) }},
		{"same-beyond-the-end", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Same = number(1 << 62) }},
		{"same-of-another-root", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Root[0] ^= 1 }},
		{"same-of-same", attest.RuleSame, atWrote, func(p *fixture.Pack) {
			e := entry(p, atWrote)
			e.Same, e.Root, e.Digests = number(uint64(entries(p)[atSame])), entry(p, atSame).Root, nil
		}},
		{"same-with-digests", attest.RuleSame, atSame, func(p *fixture.Pack) { entry(p, atSame).Digests = entry(p, atRead).Digests }},
		{"digests-unsorted", attest.RuleDigests, atRead, func(p *fixture.Pack) {
			e := entry(p, atRead)
			e.Digests = slices.Concat(e.Digests[16:], e.Digests[:16])
			e.Root = attest.DigestRoot(e.Digests)
		}},
		{"digests-repeated", attest.RuleDigests, atRead, func(p *fixture.Pack) {
			e := entry(p, atRead)
			e.Digests = slices.Concat(e.Digests[:16], e.Digests)
			e.Root = attest.DigestRoot(e.Digests)
		}},
		{"digests-cut", attest.RuleDigests, atRead, func(p *fixture.Pack) { e := entry(p, atRead); e.Digests = e.Digests[:len(e.Digests)-1] }},
		{"no-digest", attest.RuleNoDigests, atWrote, func(p *fixture.Pack) {
			e := entry(p, atWrote)
			e.Digests, e.Canonical = nil, 96
			e.Root = attest.DigestRoot(nil)
			p.Grow()
		}},
		{"no-digest-of-text", attest.RuleNoDigests, atArgv, func(p *fixture.Pack) {
			e := entry(p, atArgv)
			e.Digests, e.Canonical = nil, 48
			e.Root = attest.DigestRoot(nil)
			p.Grow()
		}},
		{"tree-depth", attest.RuleTree, -1, func(p *fixture.Pack) { p.Trailer.Depth++ }},
		{"tree-count", attest.RuleTree, -1, func(p *fixture.Pack) { p.Trailer.Digests-- }},
		{"controls-unsorted", attest.RuleControls, -1, func(p *fixture.Pack) {
			c := p.Trailer.Controls
			p.Trailer.Controls = slices.Concat(c[32:], c[:32])
		}},
		{"controls-repeated", attest.RuleControls, -1, func(p *fixture.Pack) {
			p.Trailer.Controls = slices.Concat(p.Trailer.Controls[:32], p.Trailer.Controls)
		}},
		{"controls-cut", attest.RuleControls, -1, func(p *fixture.Pack) { p.Trailer.Controls = p.Trailer.Controls[:33] }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := pack(t)
			if _, err := attest.ReadEvidence(p.Bytes()); err != nil {
				t.Fatalf("control: %v", err)
			}
			event := -1
			if c.event >= 0 {
				event = entries(p)[c.event]
			}
			c.brk(p)
			_, err := attest.ReadEvidence(p.Bytes())
			var e *attest.EvidenceError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an EvidenceError", err)
			}
			if e.Rule != c.rule || event >= 0 && e.Event != uint64(event) {
				t.Fatalf("got %v, want rule %s, event %d", err, c.rule, event)
			}
		})
	}
	// One canonical byte less than a window needs no digest.
	p := pack(t)
	e := entry(p, atWrote)
	e.Digests, e.Canonical, e.Root = nil, 95, attest.DigestRoot(nil)
	p.Grow()
	if _, err := attest.ReadEvidence(p.Bytes()); err != nil {
		t.Errorf("95 canonical bytes without a digest: %v", err)
	}
}

// RT7: rows of another run behind this run's start row. Their path digests are
// made with another key, so the scope flags of the rows no longer hold.
func TestRT7_SplicedRows(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	record := func(secret byte) *fixture.Pack {
		r := fixture.NewRunWithSecret(set, [32]byte{9}, journal.Secret{secret}, func(s *journal.Start) { s.Run[15] = secret })
		r.Control()
		r.Phase = journal.PhaseAgent
		r.Read("/work/a", fixture.Content{Filler: 3})
		r.Close(journal.Final{})
		p, err := r.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := record(1), record(2)
	for _, p := range []*fixture.Pack{a, b} {
		if _, err := attest.ReadEvidence(p.Bytes()); err != nil {
			t.Fatalf("control: %v", err)
		}
	}
	a.Items = append(a.Items[:1], b.Items[1:]...)
	a.Rehead()
	a.Grow()
	_, err = attest.ReadEvidence(a.Bytes())
	var rule *journal.RuleError
	if !errors.As(err, &rule) || rule.Rule != journal.RuleScope {
		t.Fatalf("got %v, want the journal's rule %s", err, journal.RuleScope)
	}
}
