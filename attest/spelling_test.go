package attest_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Every other spelling of the same values is refused.
func TestEvidenceSpelling(t *testing.T) {
	good := pack(t).Bytes()
	if _, err := attest.ReadEvidence(good); err != nil {
		t.Fatalf("control: %v", err)
	}
	p := pack(t)
	head := p.Header.Append(nil)
	rest := good[len(head):]
	cases := map[string][]byte{
		"RT61_trailing byte":      append(slices.Clone(good), 0),
		"RT61_trailing item":      append(slices.Clone(good), good[len(head):]...),
		"RT61_cut":                good[:len(good)-1],
		"RT61_empty":              {},
		"RT61_indefinite array":   slices.Concat(head, []byte{0x9f}, rest[1:]),
		"RT60_long array head":    slices.Concat(head, []byte{0x98, 2}, rest[1:]),
		"RT63_2 GB length":        slices.Concat(head, []byte{0x82, 0x5a, 0x7f, 0xff, 0xff, 0xff}, rest[4:]),
		"RT63_64-bit length":      slices.Concat(head, []byte{0x82, 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, rest[4:]),
		"three-element item":      slices.Concat(head, []byte{0x83}, rest[1:]),
		"RT59_header with a twin": slices.Concat([]byte{0xa4}, head[1:], []byte{3, 0x40}, rest),
		"another major type":      slices.Concat(head, []byte{0x82, 0x78}, rest[2:]),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := attest.ReadEvidence(data)
			var e *attest.EvidenceError
			if !errors.As(err, &e) || e.Rule != attest.RuleShape {
				t.Fatalf("got %v, want rule %s", err, attest.RuleShape)
			}
		})
	}
}

func FuzzReadEvidence(f *testing.F) {
	f.Add(pack(f).Bytes())
	g := play(f, graded(cheat.Rows, "text 1", "json 0"))
	f.Add(g.pack)
	f.Add(openedPack(f).Bytes())
	limits := bounded{allowed: []string{"a/**"}, gate: true, do: imported, names: importedNames + "+"}
	set := limits.set(f)
	f.Add(limits.pack(f, set).Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := attest.ReadEvidence(data)
		if err != nil {
			if ev != nil {
				t.Fatal("a partial result with an error")
			}
			return
		}
		attest.Derive(g.set, ev) // whatever it says, it says something
		if attest.Derive(set, ev).Footprint == nil {
			t.Fatal("no word of the footprint")
		}
		// Accepted bytes are the only spelling of what they say.
		h := attest.Header{Version: attest.EvidenceVersion, Rows: ev.Size(), Root: ev.Root()}
		again := h.Append(nil)
		for seq := range ev.Size() {
			row, entry := ev.Row(seq)
			raw, err := journal.EncodeRow(nil, row)
			if err != nil {
				t.Fatal(err)
			}
			it := attest.Item{Row: raw, Entry: entry}
			again = it.Append(again)
		}
		if !bytes.HasPrefix(data, again) {
			t.Fatal("accepted a second spelling")
		}
	})
}

func BenchmarkReadEvidence(b *testing.B) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		b.Fatal(err)
	}
	r := fixture.NewRun(set, [32]byte{9}, nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	for range 4000 {
		r.Read("/work/a", fixture.Content{Filler: 500, Size: 20000})
	}
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		b.Fatal(err)
	}
	data := p.Bytes()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		ev, err := attest.ReadEvidence(data)
		if err != nil {
			b.Fatal(err)
		}
		attest.Derive(set, ev)
	}
}
