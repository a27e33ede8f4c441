package canon

import (
	"github.com/cleanrun-dev/cleanrun/contraband"
	"syscall"
	"testing"
)

func BenchmarkStage(b *testing.B) {
	text := goSource(b, 1<<20)
	key := testKey("bench")
	filter := make([]uint32, 1024)
	for i := range filter {
		d := key.Dummy("bench", uint32(i))
		filter[i] = uint32(d[0])<<16 | uint32(d[1])<<8 | uint32(d[2])
	}
	f := New(key, filter)
	emit := func(contraband.Class, [32]byte) {}
	each := func(name string, fn func(p []byte)) {
		b.Run(name, func(b *testing.B) {
			var r0, r1 syscall.Rusage
			n := 0
			syscall.Getrusage(1, &r0)
			defer func() {
				syscall.Getrusage(1, &r1)
				b.ReportMetric(float64(r1.Utime.Nano()-r0.Utime.Nano())/float64(n)/float64(len(text)), "cpu-ns/B")
			}()
			for b.Loop() {
				n++
				for i := 0; i < len(text); i += blockSize {
					fn(text[i : i+blockSize])
				}
			}
		})
	}
	var fo former
	each("form", func(p []byte) { f.canon, f.breaks = fo.form(f.canon[:0], f.breaks[:0], p, false) })
	each("all", func(p []byte) {})
	b.Run("object", func(b *testing.B) {
		var r0, r1 syscall.Rusage
		n := 0
		syscall.Getrusage(1, &r0)
		for b.Loop() {
			n++
			f.Object(text, false, emit)
		}
		syscall.Getrusage(1, &r1)
		b.ReportMetric(float64(r1.Utime.Nano()-r0.Utime.Nano())/float64(n)/float64(len(text)), "cpu-ns/B")
	})
	c := Canonical(text[:blockSize])
	each("roll", func(p []byte) { f.ranks = f.t.orders[0].roll(f.ranks, c) })
	each("winnow", func(p []byte) { f.picks = winnow(f.picks, f.ranks, 49) })
	each("poor", func(p []byte) {
		for _, i := range f.picks {
			if poor(c[i : i+48]) {
				panic(1)
			}
		}
	})
	each("digest", func(p []byte) {
		for _, i := range f.picks {
			f.d.Digest(contraband.ClassShingle, c[i:i+48])
		}
	})
	each("canaries", func(p []byte) { f.t.canaries(c, func(w []byte) { f.d.Digest(contraband.ClassCanary, w) }) })
	s := f.Stream(false)
	each("atoms", func(p []byte) { s.atoms(p, false, emit) })
	each("masks", func(p []byte) { f.masks(p) })
	f.canon, f.breaks = fo.form(f.canon[:0], f.breaks[:0], text[:blockSize], false)
	each("lines", func(p []byte) { s.lines(f.canon, 0, false, emit) })
}
