package main

import (
	"crypto/sha256"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// compactRate checks the compact proof of a run of a million digests under 2,000
// sealed items, and says how large it is.
func compactRate(_ string, repeat int) (Measure, error) {
	var m Measure
	set, err := fixture.Set([]fixture.Group{{Kind: contraband.KindReference, Class: contraband.ClassShingle, Items: fixture.Names("f", 2000)}}, nil)
	if err != nil {
		return m, err
	}
	sealed := []byte("sealed set")
	r := fixture.NewRun(set, sha256.Sum256(sealed), nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	for range 500 {
		r.Read("/work/a", fixture.Content{Filler: 2000})
	}
	r.Close(journal.Final{})
	pack, err := r.Pack()
	if err != nil {
		return m, err
	}
	a, err := attest.Build(set, sealed, pack.Bytes(), nil)
	if err != nil {
		return m, err
	}
	p, err := compact.Prove(set, a.Evidence)
	if err != nil {
		return m, err
	}
	data, err := p.Marshal()
	if err != nil {
		return m, err
	}
	var times []float64
	for range repeat {
		began := time.Now()
		p, err := compact.Parse(data)
		if err != nil {
			return m, err
		}
		ev, err := p.Check(set, &a.Statement.Predicate)
		if err != nil {
			return m, err
		}
		if _, err := attest.DeriveShown(set, ev, &a.Statement.Predicate); err != nil {
			return m, err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return Measure{Unit: "ms, KB", Values: map[string]float64{"parse, check, derive": median(times), "KB": float64(len(data)) / 1000}}, nil
}
