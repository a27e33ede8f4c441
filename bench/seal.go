package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// sealRows are 500 tasks with 20 megabytes of ground truth.
var sealRows = fixture.Rows{Tasks: 500, Lines: 385, Seed: 1}

// sealRate seals a benchmark of the shape of SWE-bench, from reading its data to
// the signed file, on one core and on all.
func sealRate(tmp string, repeat int) (Measure, error) {
	dir, err := os.MkdirTemp(tmp, "seal-")
	if err != nil {
		return Measure{}, err
	}
	defer os.RemoveAll(dir)
	rows, err := sealRows.Write(dir)
	if err != nil {
		return Measure{}, err
	}
	size := 0
	for _, r := range rows {
		size += len(r.Patch) + len(r.TestPatch) + len(r.Hints) + len(r.FailPass)
	}
	audit, err := contraband.NewAuditKey([]byte("0123456789abcdefghijklmnopqrstuv"))
	if err != nil {
		return Measure{}, err
	}
	rates := map[string][]float64{}
	for range repeat {
		for name, workers := range map[string]int{"on one core": 1, "on all cores": runtime.GOMAXPROCS(0)} {
			d, err := sealOnce(dir, audit, workers)
			if err != nil {
				return Measure{}, err
			}
			rates[name] = append(rates[name], float64(size)/1e6/d.Seconds())
		}
	}
	m := Measure{Unit: "MB/s", Values: map[string]float64{}}
	for name, l := range rates {
		m.Values[name] = median(l)
	}
	return m, nil
}

func sealOnce(dir string, audit contraband.AuditKey, workers int) (d time.Duration, err error) {
	old := runtime.GOMAXPROCS(workers) // the garbage collector has to share the core too
	defer runtime.GOMAXPROCS(old)
	defer debug.SetGCPercent(debug.SetGCPercent(150)) // as the command does
	begin := time.Now()
	b, err := benchmark.Load(filepath.Join(dir, "benchmark.yaml"))
	if err != nil {
		return 0, err
	}
	defer b.Close()
	built, err := b.Seal(benchmark.Options{Key: audit.Benchmark(b.Name, b.Period), Workers: workers, Random: rand.Reader, Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, built.Close()) }()
	payload, err := built.Head.Marshal()
	if err != nil {
		return 0, err
	}
	signed, err := receipt.Sign1(receipt.KindBenchmark, benchOwner{}, b.Name, payload)
	if err != nil {
		return 0, err
	}
	f, err := os.Create(filepath.Join(dir, "b.sealed"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := built.Write(f, signed); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// benchOwner signs the head with a key that is no secret.
type benchOwner struct{}

var benchOwnerKey = ed25519.NewKeyFromSeed([]byte("0123456789abcdefghijklmnopqrstuv"))

func (benchOwner) Public() receipt.PublicKey {
	key, err := receipt.NewPublicKey("bench.example/owner", benchOwnerKey.Public())
	if err != nil {
		panic(err) // the name is a good one
	}
	return key
}

func (benchOwner) Sign(message []byte) ([]byte, error) {
	return ed25519.Sign(benchOwnerKey, message), nil
}
