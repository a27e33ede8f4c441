package bucket

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// proven makes a tree and the proof of digests, some in it and some not.
func proven(t testing.TB, n, in, out int, seed uint64) (entries []Entry, digests [][DigestSize]byte, p *Proof, root [32]byte) {
	t.Helper()
	entries = random(n, seed)
	for _, i := range rand.New(rand.NewPCG(seed, 2)).Perm(n)[:in] {
		digests = append(digests, entries[i].Digest)
	}
	for _, e := range random(out, seed+1000) {
		digests = append(digests, e.Digest)
	}
	b := NewProver(uint64(n), digests)
	for _, e := range entries {
		if err := b.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	p, root, err := b.Proof()
	if err != nil {
		t.Fatal(err)
	}
	return entries, digests, p, root
}

// The oracle is the sorted list of all entries.
func TestProofEqualsList(t *testing.T) {
	for n := range 120 {
		for _, c := range []struct{ in, out int }{{0, 1}, {0, 30}, {min(n, 1), 0}, {n / 2, 5}, {n, 50}} {
			if c.in+c.out == 0 {
				continue
			}
			entries, digests, p, root := proven(t, n, c.in, c.out, uint64(n))
			if want, _, err := Root(entries); err != nil || root != want {
				t.Fatalf("%d entries: the prover gives another root, %v", n, err)
			}
			want := map[[DigestSize]byte]Entry{}
			for _, d := range digests {
				if i, ok := slices.BinarySearchFunc(entries, d, func(e Entry, d [DigestSize]byte) int { return bytes.Compare(e.Digest[:], d[:]) }); ok {
					want[d] = entries[i]
				}
			}
			got, err := p.Check(root, Depth(uint64(n)), digests)
			if err != nil || !maps.Equal(got, want) {
				t.Fatalf("%d entries, %+v: got %d found, %v, want %d", n, c, len(got), err, len(want))
			}
			single, err := p.Single(Depth(uint64(n)), digests, digests[0])
			if err != nil {
				t.Fatal(err)
			}
			one, err := single.Check(root, Depth(uint64(n)), digests[:1])
			if e, ok := want[digests[0]]; err != nil || ok != (len(one) == 1) || one[digests[0]] != e {
				t.Fatalf("%d entries: the proof of one digest alone: got %v, %v", n, one, err)
			}
		}
	}
}

// Each proof has one thing wrong.
func TestProofRefused(t *testing.T) {
	entries, digests, _, root := proven(t, 200, 5, 20, 9)
	depth := Depth(200)
	places := Places(depth, digests)
	full := -1 // a bucket of at least two
	for _, n := range places {
		if k := slices.Index(places, n); full < 0 && countIn(entries, depth, n) >= 2 {
			full = k
		}
	}
	if full < 0 {
		t.Fatal("no bucket of two: choose another seed")
	}
	for name, c := range map[string]struct {
		depth   uint8
		root    func([32]byte) [32]byte
		digests func([][DigestSize]byte) [][DigestSize]byte
		spoil   func(*Proof)
	}{
		"control":                {},
		"RT31 an entry left out": {spoil: func(p *Proof) { p.Buckets[full] = p.Buckets[full][EntrySize:] }},
		"RT33 the neighbour's bucket in its place": {spoil: func(p *Proof) { p.Buckets[full], p.Buckets[full+1] = p.Buckets[full+1], p.Buckets[full] }},
		"RT34 a digest of another bucket": {spoil: func(p *Proof) {
			b := slices.Clone(p.Buckets[full])
			b[0] ^= 0x80
			p.Buckets[full] = b
		}},
		"RT34 a digest too many": {spoil: func(p *Proof) {
			b := slices.Clone(p.Buckets[full])
			p.Buckets[full] = append(b, b[len(b)-EntrySize:]...)
			p.Buckets[full][len(p.Buckets[full])-EntrySize+DigestSize-1] ^= 1
		}},
		"RT35 unsorted": {spoil: func(p *Proof) {
			b := p.Buckets[full]
			p.Buckets[full] = slices.Concat(b[EntrySize:2*EntrySize], b[:EntrySize], b[2*EntrySize:])
		}},
		"RT35 repeated": {spoil: func(p *Proof) {
			p.Buckets[full] = append(slices.Clone(p.Buckets[full][:EntrySize]), p.Buckets[full]...)
		}},
		"RT36 a bucket missing":   {spoil: func(p *Proof) { p.Buckets = p.Buckets[1:] }},
		"a bucket left over":      {spoil: func(p *Proof) { p.Buckets = append(slices.Clone(p.Buckets), []byte{}) }},
		"another first row":       {spoil: func(p *Proof) { p.Buckets[full] = flipped(p.Buckets[full], EntrySize-2) }},
		"another direction":       {spoil: func(p *Proof) { p.Buckets[full] = flipped(p.Buckets[full], EntrySize-1) }},
		"half an entry":           {spoil: func(p *Proof) { p.Buckets[full] = p.Buckets[full][1:] }},
		"path one hash short":     {spoil: func(p *Proof) { p.Path = p.Path[1:] }},
		"path one hash longer":    {spoil: func(p *Proof) { p.Path = append(slices.Clone(p.Path), [32]byte{}) }},
		"path flipped":            {spoil: func(p *Proof) { p.Path = slices.Clone(p.Path); p.Path[3][0] ^= 1 }},
		"a lower depth":           {depth: depth - 1},
		"a greater depth":         {depth: depth + 1},
		"a depth beyond all":      {depth: 255},
		"RT32 another root":       {root: func(r [32]byte) [32]byte { r[0] ^= 1; return r }},
		"other digests asked for": {digests: func(d [][DigestSize]byte) [][DigestSize]byte { return d[1:] }},
	} {
		_, _, p, _ := proven(t, 200, 5, 20, 9)
		d, r, asked := depth, root, digests
		if c.depth != 0 {
			d = c.depth
		}
		if c.root != nil {
			r = c.root(r)
		}
		if c.digests != nil {
			asked = c.digests(asked)
		}
		if c.spoil != nil {
			c.spoil(p)
		}
		if _, err := p.Check(r, d, asked); (err == nil) != (name == "control") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func countIn(entries []Entry, depth uint8, index uint64) (n int) {
	for _, e := range entries {
		if prefix(e.Digest, depth) == index {
			n++
		}
	}
	return n
}

func flipped(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

func BenchmarkProofMillion(b *testing.B) {
	entries, digests, p, root := proven(b, 1_000_000, 16, 2000, 1)
	size := 32 * len(p.Path)
	for _, bucket := range p.Buckets {
		size += len(bucket) + 2
	}
	for b.Loop() {
		if _, err := p.Check(root, Depth(uint64(len(entries))), digests); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}
