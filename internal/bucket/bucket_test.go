package bucket

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive is the definition: sort entries into 2^depth lists, hash each, fold in
// pairs.
func naive(entries []Entry, depth uint8) [32]byte {
	lists := make([][]Entry, 1<<depth)
	for _, e := range entries {
		i := 0
		for bit := range int(depth) {
			i = i<<1 | int(e.Digest[bit/8]>>(7-bit%8)&1)
		}
		lists[i] = append(lists[i], e)
	}
	level := make([][32]byte, len(lists))
	for i, list := range lists {
		b := []byte("\x00cleanrun/bucket/v1\x00")
		b = append(b, depth)
		b = binary.BigEndian.AppendUint64(b, uint64(i))
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		for _, e := range list {
			b = append(b, e.Digest[:]...)
			b = binary.BigEndian.AppendUint64(b, e.First)
			b = append(b, e.Direction)
		}
		level[i] = sha256.Sum256(b)
	}
	for len(level) > 1 {
		var up [][32]byte
		for i := 0; i < len(level); i += 2 {
			up = append(up, sha256.Sum256(slices.Concat([]byte{1}, level[i][:], level[i+1][:])))
		}
		level = up
	}
	return level[0]
}

func random(n int, seed uint64) []Entry {
	rng := rand.New(rand.NewPCG(seed, 1))
	list := make([]Entry, n)
	for i := range list {
		binary.BigEndian.PutUint64(list[i].Digest[:], rng.Uint64())
		binary.BigEndian.PutUint64(list[i].Digest[8:], rng.Uint64())
		list[i].First, list[i].Direction = rng.Uint64N(1000), uint8(rng.UintN(3))
	}
	slices.SortFunc(list, func(a, b Entry) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	return list
}

func TestRootEqualsNaive(t *testing.T) {
	for n := range 200 {
		entries := random(n, uint64(n))
		root, depth, err := Root(entries)
		if err != nil {
			t.Fatal(err)
		}
		if want := naive(entries, depth); root != want {
			t.Fatalf("%d entries: got %x, want %x", n, root, want)
		}
	}
}

// All digests share a long prefix: one bucket holds everything.
func TestRootCrowdedBucket(t *testing.T) {
	entries := random(100, 7)
	for i := range entries {
		copy(entries[i].Digest[:], make([]byte, 8))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	root, depth, err := Root(entries)
	if err != nil || root != naive(entries, depth) {
		t.Fatalf("got %x, %v", root, err)
	}
}

func TestDepthHoldsAboutTwo(t *testing.T) {
	for _, c := range []struct {
		n     uint64
		depth uint8
	}{{0, 0}, {1, 0}, {2, 0}, {3, 1}, {4, 1}, {5, 2}, {8, 2}, {9, 3}, {1000, 9}, {1_000_000, 19}, {1 << 62, MaxDepth}} {
		if got := Depth(c.n); got != c.depth {
			t.Errorf("Depth(%d): got %d, want %d", c.n, got, c.depth)
		}
	}
}

// TestRT31_EveryEntryCounts: leaving out, changing, or moving one entry gives
// another root (REDTEAM 31, 33 to 35 at the level of the tree).
func TestRT31_EveryEntryCounts(t *testing.T) {
	entries := random(64, 3)
	good, _, err := Root(entries)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		for name, forge := range map[string]func([]Entry) []Entry{
			"left out":        func(l []Entry) []Entry { return slices.Delete(l, i, i+1) },
			"other first row": func(l []Entry) []Entry { l[i].First++; return l },
			"other direction": func(l []Entry) []Entry { l[i].Direction ^= 1; return l },
			"other digest":    func(l []Entry) []Entry { l[i].Digest[15] ^= 1; return l },
		} {
			root, _, err := Root(forge(slices.Clone(entries)))
			if err == nil && root == good {
				t.Errorf("entry %d, %s: got the root of the true tree", i, name)
			}
		}
	}
}

// The same bucket bytes under another depth or index are another leaf.
func TestLeafBindsPlace(t *testing.T) {
	seen := map[[32]byte]bool{}
	for n := range 40 { // empty trees of every depth have equal buckets but for depth and index
		b := &Builder{depth: uint8(n % 8), end: 1 << (n % 8)}
		root, _, err := b.Root()
		if err != nil {
			t.Fatal(err)
		}
		if n < 8 && seen[root] {
			t.Errorf("depth %d: got the root of another depth", n)
		}
		seen[root] = true
	}
}

func TestRT20_UnsortedRefused(t *testing.T) {
	entries := random(10, 4)
	if _, _, err := Root(entries); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	swapped := slices.Clone(entries)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	twice := slices.Insert(slices.Clone(entries), 3, entries[3])
	for name, list := range map[string][]Entry{"swapped": swapped, "repeated": twice} {
		if _, _, err := Root(list); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestPromisedCount(t *testing.T) {
	b := New(2)
	e := random(3, 5)
	if err := b.Add(e[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Root(); err == nil {
		t.Error("1 of 2 entries: got no error")
	}
	b = New(1)
	_ = b.Add(e[0])
	if err := b.Add(e[1]); err == nil {
		t.Error("2 of 1 entries: got no error")
	}
}

// The format must not change by accident.
func TestKnownRoots(t *testing.T) {
	for n, want := range map[int]string{0: "cbe6956e77c20f53499630b48a6cc13a2fcea709c39d24a775e69ab970486066", 5: "4e93cba3e5371fbf133da4458dcf7a4cbe19423e00ef5f268bff50f40215dcd4"} {
		entries := make([]Entry, n)
		for i := range entries {
			entries[i] = Entry{Digest: [16]byte{byte(i * 50)}, First: uint64(i), Direction: 1}
		}
		root, _, err := Root(entries)
		if err != nil || hex.EncodeToString(root[:]) != want {
			t.Errorf("%d entries: got %x, %v, want %s", n, root, err, want)
		}
	}
}

func BenchmarkRootMillion(b *testing.B) {
	entries := random(1_000_000, 1)
	b.ResetTimer()
	for b.Loop() {
		if _, _, err := Root(entries); err != nil {
			b.Fatal(err)
		}
	}
}

// The nodes of the parts, joined, are the root of the whole, for every width.
func TestParts(t *testing.T) {
	for _, n := range []int{0, 1, 3, 17, 1000, 4096} {
		entries := random(n, 7)
		want, depth, err := Root(entries)
		if err != nil {
			t.Fatal(err)
		}
		for width := range min(depth, 6) + 1 {
			nodes := make([][32]byte, 1<<width)
			for i := range nodes {
				b := NewPart(uint64(n), width, uint64(i))
				for _, e := range entries {
					err := b.Add(e)
					if mine := prefix(e.Digest, width) == uint64(i); mine != (err == nil) {
						t.Fatalf("%d entries, part %d of width %d: got error %v for digest %x", n, i, width, err, e.Digest)
					}
				}
				nodes[i] = b.Node()
			}
			if got := Join(nodes); got != want {
				t.Errorf("%d entries, width %d: got %x, want %x", n, width, got, want)
			}
		}
	}
}
