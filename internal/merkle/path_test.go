package merkle

import (
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// The definitions of RFC 9162, sections 2.1.1, 2.1.3.1 and 2.1.4.1, as they stand
// there: the oracle of the loops over bits.

func mth(d [][32]byte) [32]byte {
	switch len(d) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return d[0]
	}
	k := split2(len(d))
	left, right := mth(d[:k]), mth(d[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

// split2 is the largest power of two below n.
func split2(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func inclusionPath(m int, d [][32]byte) [][32]byte {
	if len(d) == 1 {
		return nil
	}
	k := split2(len(d))
	if m < k {
		return append(inclusionPath(m, d[:k]), mth(d[k:]))
	}
	return append(inclusionPath(m-k, d[k:]), mth(d[:k]))
}

// subtreePath is SUBTREE_SUBPROOF of draft-ietf-plants-merkle-tree-certs; with
// start 0 it is SUBPROOF of RFC 9162.
func subtreePath(start, end int, d [][32]byte, known bool) [][32]byte {
	if start == 0 && end == len(d) {
		if known {
			return nil
		}
		return [][32]byte{mth(d)}
	}
	k := split2(len(d))
	switch {
	case end <= k:
		return append(subtreePath(start, end, d[:k], known), mth(d[k:]))
	case start >= k:
		return append(subtreePath(start-k, end-k, d[k:], known), mth(d[:k]))
	default: // start < k < end: then start is 0, as the subtree is one
		return append(subtreePath(0, end-k, d[k:], false), mth(d[:k]))
	}
}

func leaves(n int) [][32]byte {
	d := make([][32]byte, n)
	for i := range d {
		d[i] = sha256.Sum256([]byte{0, byte(i)})
	}
	return d
}

func TestInclusionRootIsThatOfTheDefinition(t *testing.T) {
	for n := 1; n <= 70; n++ {
		d := leaves(n)
		root := mth(d)
		for i := range d {
			path := inclusionPath(i, d)
			if got, err := InclusionRoot(uint64(i), uint64(n), d[i], path); err != nil || got != root {
				t.Fatalf("leaf %d of %d: got %x, %v, want %x", i, n, got, err, root)
			}
			for _, bad := range [][][32]byte{append(slices.Clone(path), [32]byte{}), path[:max(len(path)-1, 0)]} {
				if len(bad) == len(path) {
					continue
				}
				if _, err := InclusionRoot(uint64(i), uint64(n), d[i], bad); err == nil {
					t.Fatalf("leaf %d of %d: a path of %d hashes was taken, want %d", i, n, len(bad), len(path))
				}
			}
		}
		if _, err := InclusionRoot(uint64(n), uint64(n), d[0], nil); err == nil {
			t.Fatalf("leaf %d of %d was taken", n, n)
		}
	}
}

// Each valid subtree of each tree of up to 40 leaves, and so each pair of sizes.
func TestConsistencyRootsAreThoseOfTheDefinition(t *testing.T) {
	for n := 1; n <= 40; n++ {
		d := leaves(n)
		for start := range d {
			for end := start + 1; end <= n; end++ {
				size := 1
				for size < end-start {
					size *= 2
				}
				if start%size != 0 {
					if _, _, err := SubtreeConsistencyRoots(uint64(start), uint64(end), uint64(n), nil, d[0]); err == nil {
						t.Fatalf("[%d, %d) was taken for a subtree", start, end)
					}
					continue
				}
				sub, path := mth(d[start:end]), subtreePath(start, end, d, true)
				a, b, err := SubtreeConsistencyRoots(uint64(start), uint64(end), uint64(n), path, sub)
				if err != nil || a != sub || b != mth(d) {
					t.Fatalf("[%d, %d) of %d: got %x and %x, %v, want %x and %x", start, end, n, a, b, err, sub, mth(d))
				}
				if start == 0 {
					a, b, err := ConsistencyRoots(uint64(end), uint64(n), path, sub)
					if err != nil || a != sub || b != mth(d) {
						t.Fatalf("%d to %d: got %x and %x, %v, want %x and %x", end, n, a, b, err, sub, mth(d))
					}
				}
				for i := range d[start:end] {
					if got, err := SubtreeInclusionRoot(uint64(start+i), uint64(start), uint64(end), d[start+i], inclusionPath(i, d[start:end])); err != nil || got != sub {
						t.Fatalf("leaf %d of [%d, %d): got %x, %v, want %x", start+i, start, end, got, err, sub)
					}
				}
				if _, _, err := SubtreeConsistencyRoots(uint64(start), uint64(end), uint64(n), append(slices.Clone(path), sub), sub); err == nil {
					t.Fatalf("[%d, %d) of %d: a path with a hash too many was taken", start, end, n)
				}
				if len(path) > 0 {
					if _, _, err := SubtreeConsistencyRoots(uint64(start), uint64(end), uint64(n), path[:len(path)-1], sub); err == nil {
						t.Fatalf("[%d, %d) of %d: a path that lacks its last hash was taken", start, end, n)
					}
				}
				// Another hash anywhere gives another root.
				for i := range path {
					other := slices.Clone(path)
					other[i][0] ^= 1
					if a, b, err := SubtreeConsistencyRoots(uint64(start), uint64(end), uint64(n), other, sub); err == nil && a == sub && b == mth(d) {
						t.Fatalf("[%d, %d) of %d: hash %d of the path does not matter", start, end, n, i)
					}
				}
			}
		}
	}
}

func TestPathsAtTheEnds(t *testing.T) {
	const most = ^uint64(0)
	for _, c := range []struct{ older, newer uint64 }{{0, 0}, {0, 1}, {2, 1}, {most, most - 1}} {
		if _, _, err := ConsistencyRoots(c.older, c.newer, nil, [32]byte{}); err == nil {
			t.Errorf("sizes %d and %d were taken", c.older, c.newer)
		}
	}
	// The largest trees end, with any path, and hold their size.
	path := make([][32]byte, 70)
	for n := range path {
		for _, size := range []uint64{most, most - 1, 1<<63 + 1, 1 << 63} {
			InclusionRoot(size-1, size, [32]byte{}, path[:n])
			InclusionRoot(0, size, [32]byte{}, path[:n])
			ConsistencyRoots(1, size, path[:n], [32]byte{})
			ConsistencyRoots(size-1, size, path[:n], [32]byte{})
			SubtreeConsistencyRoots(1<<62, 1<<63, size, path[:n], [32]byte{})
		}
	}
	if _, err := InclusionRoot(0, most, [32]byte{}, path[:MaxPath]); err != nil {
		t.Errorf("leaf 0 of the largest tree: %v", err)
	}
	if _, err := InclusionRoot(most, most, [32]byte{}, nil); err == nil {
		t.Error("a leaf beyond the largest tree was taken")
	}
}

// Proofs with a fault take the same way here and in the library: both refuse, or
// both take what is right after all.
func TestPathsAreTakenAsByTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	taken := 0
	for range 20000 {
		n := 1 + r.IntN(33)
		d := leaves(n)
		i, older := r.IntN(n), 1+r.IntN(n)
		in, con := inclusionPath(i, d), subtreePath(0, older, d, true)
		size := uint64(n)
		switch r.IntN(4) {
		case 0:
			in, con = fault(r, in), fault(r, con)
		case 1:
			size += uint64(r.IntN(5))
		case 2:
			i, older = r.IntN(n+2), 1+r.IntN(n+1) // of an older size 0 the library takes the empty path
		}
		root, olderRoot, at := mth(d), mth(d[:min(older, n)]), d[min(i, n-1)]
		want := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(i), size, at[:], flat(in), root[:])
		got, err := InclusionRoot(uint64(i), size, at, in)
		if ok := err == nil && got == root; ok != (want == nil) {
			t.Fatalf("leaf %d of %d with %d hashes: got %x, %v, the library says %v", i, size, len(in), got, err, want)
		}
		want = proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(older), size, flat(con), olderRoot[:], root[:])
		a, b, err := ConsistencyRoots(uint64(older), size, con, olderRoot)
		ok := err == nil && a == olderRoot && b == root
		if ok != (want == nil) {
			t.Fatalf("%d to %d with %d hashes: got %x and %x, %v, the library says %v", older, size, len(con), a, b, err, want)
		}
		if ok {
			taken++
		}
	}
	if taken < 5000 || taken > 15000 {
		t.Errorf("got %d of 20000 taken, want some of both", taken)
	}
}

// fault takes a hash out, puts one in, or changes a bit.
func fault(r *rand.Rand, path [][32]byte) [][32]byte {
	path = slices.Clone(path)
	at := r.IntN(len(path) + 1)
	switch {
	case r.IntN(3) == 0 || len(path) == 0:
		return slices.Insert(path, at, sha256.Sum256([]byte{byte(at)}))
	case r.IntN(2) == 0:
		return slices.Delete(path, at%len(path), at%len(path)+1)
	}
	path[at%len(path)][r.IntN(32)] ^= 1 << r.IntN(8)
	return path
}

func flat(path [][32]byte) [][]byte {
	out := make([][]byte, len(path))
	for i := range path {
		out[i] = path[i][:]
	}
	return out
}
