//go:build unix

package scanner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// TestLargeObject: an object that is read in pieces and whose digests go over
// the disk has the digests of the same object in memory. The sealed file
// stands in it clear and, over the edge of two pieces, in base64.
func TestLargeObject(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it reads 33 MiB")
	}
	key := testKey("large")
	s := seal(t, key)
	text := []byte(strings.Repeat(prose(80, 5000), 50)) // repeats, so that the slow parts stay small
	big := bytes.Repeat(text, (small+1<<20)/len(text)+1)
	copy(big[1<<20:], prose(81, 2_000_000)) // more digests than fit into memory
	copy(big[small-len(secret)/2:], b64([]byte(secret)))
	at := 20 << 20
	copy(big[at:], secret)
	dir := recorded(t, s.set, nil, false, open("/work/big", big))
	_, ev, _ := scanDir(t, dir, key, s.set, 2)
	want := map[[16]byte]bool{}
	salt := saltOf(t, dir)
	canon.New(key, s.set.Filter).Object(big, false, func(_ contraband.Class, s [32]byte) { want[contraband.RunDigest(salt, s)] = true })
	e := entry(ev, 0)
	have := map[[16]byte]bool{}
	for d := range slices.Chunk(e.Digests, 16) {
		have[[16]byte(d)] = true
	}
	for d := range want {
		if !have[d] {
			t.Fatal("got fewer digests than the whole has")
		}
	}
	if len(have) <= spillAt {
		t.Errorf("got %d digests, want more than %d: nothing went over the disk", len(have), spillAt)
	}
	if n := s.found(t, ev, salt, 0)[contraband.ClassShingle]; n < len(s.items[contraband.ClassShingle]) {
		t.Errorf("got %d of %d sealed shingles", n, len(s.items[contraband.ClassShingle]))
	}
	// Without the clear copy, the one in base64 is found.
	copy(big[at:], prose(82, 900))
	dir = recorded(t, s.set, nil, false, open("/work/big", big))
	_, ev, _ = scanDir(t, dir, key, s.set, 1)
	if n, all := s.found(t, ev, saltOf(t, dir), 0)[contraband.ClassShingle], len(s.items[contraband.ClassShingle]); n < all-4 {
		t.Errorf("got %d of %d sealed shingles of the base64 over the edge of two pieces", n, all)
	}
}

// TestRT51_BombsStaySmall: bombs are reported, and memory stays where it is.
func TestRT51_BombsStaySmall(t *testing.T) {
	key := testKey("bomb")
	s := seal(t, key)
	zeros := make([]byte, 100<<20)
	one := gzipped(t, zeros)
	two := gzipped(t, bytes.Repeat(one, 20))
	for name, c := range map[string]struct {
		data []byte
		want uint32
	}{
		"ratio":   {one, attest.BoundRatio},
		"bytes":   {gzipped(t, bytes.Repeat(noise(5, 20<<10), 4000)), attest.BoundBytes},
		"twice":   {two, attest.BoundRatio},
		"control": {gzipped(t, []byte(prose(9, 3000))), 0},
	} {
		var e *attest.Entry
		peak := peakOf(func() {
			_, ev, _ := scanDir(t, recorded(t, s.set, nil, false, open("/work/x", c.data)), key, s.set, 2)
			e = entry(ev, 0)
		})
		if e.Bounds&c.want != c.want || c.want == 0 && e.Bounds != 0 {
			t.Errorf("%s: got bounds %x, want %x", name, e.Bounds, c.want)
		}
		if peak > 400<<20 {
			t.Errorf("%s: got a heap of %d MiB, want at most 400", name, peak>>20)
		}
	}
}

// peakOf runs f and returns by how much the heap grew meanwhile, at most.
func peakOf(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.HeapInuse
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return peak.Load() - min(before, peak.Load())
}

// BenchmarkScan scans a run that read 64 files of Go source (novel text), beside
// SHA-256 over the same bytes.
func BenchmarkScan(b *testing.B) {
	key := testKey("bench")
	s := seal(b, key)
	var steps []step
	var total int
	for i := range 64 {
		data := []byte(prose(uint64(1000+i), 60_000))
		total += len(data)
		steps = append(steps, open(fmt.Sprintf("/work/%d", i), data))
	}
	dir := recorded(b, s.set, nil, false, steps...)
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(total))
		for b.Loop() {
			for _, x := range steps {
				sha256.Sum256(x.data)
			}
		}
	})
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			b.SetBytes(int64(total))
			for b.Loop() {
				if _, err := Scan(context.Background(), root, io.Discard, Config{Key: key, Set: s.set, Workers: workers}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
