package compact_test

import (
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// An honest run of a million digests under a set of 2,048 items, padding included:
// bytes of the proof, and the time to parse and check it and to derive the
// verdict.
func BenchmarkMillionDigests(b *testing.B) {
	groups := []fixture.Group{{Kind: contraband.KindReference, Class: contraband.ClassShingle, Items: fixture.Names("f", 2000)}}
	a := record(b, groups, func(r *fixture.Run) {
		r.Argv(true, fixture.Content{Size: 40})
		for range 500 {
			r.Read("/work/a", fixture.Content{Filler: 2000})
		}
	})
	data, err := a.prove(b).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := compact.Parse(data)
		if err != nil {
			b.Fatal(err)
		}
		ev, err := p.Check(a.set, a.stated)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := attest.DeriveShown(a.set, ev, a.stated); err != nil {
			b.Fatal(err)
		}
	}
	if len(data) > 600_000 {
		b.Errorf("got a proof of %d bytes, want at most 600,000", len(data))
	}
	b.ReportMetric(float64(len(data)), "bytes")
}

// What attest -compact adds for that run.
func BenchmarkProveMillionDigests(b *testing.B) {
	groups := []fixture.Group{{Kind: contraband.KindReference, Class: contraband.ClassShingle, Items: fixture.Names("f", 2000)}}
	a := record(b, groups, func(r *fixture.Run) {
		r.Argv(true, fixture.Content{Size: 40})
		for range 500 {
			r.Read("/work/a", fixture.Content{Filler: 2000})
		}
	})
	ev := a.evidence(b)
	for b.Loop() {
		if _, err := compact.Prove(a.set, ev); err != nil {
			b.Fatal(err)
		}
	}
}
