package attest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// DigestSize is the length of a run digest d (contraband.RunDigest).
const DigestSize = 16

// DigestRoot is the Merkle root over the 16-byte digests that are concatenated
// in digests, hashed as RFC 9162, section 2.1.1 does: a leaf is
// SHA-256(0x00 || d), a node SHA-256(0x01 || left || right), and the root of no
// digest is SHA-256 of the empty string. The order is the caller's; an Entry's
// digests are sorted and unique. It panics if the length is no multiple of 16.
func DigestRoot(digests []byte) [32]byte {
	if len(digests)%DigestSize != 0 {
		panic("attest: DigestRoot: length is no multiple of 16")
	}
	var t tree
	var leaf [1 + DigestSize]byte
	for i := 0; i < len(digests); i += DigestSize {
		copy(leaf[1:], digests[i:i+DigestSize])
		t.push(sha256.Sum256(leaf[:]))
	}
	return t.root()
}

// A tree computes an RFC 9162 root from leaf hashes in order. It holds one hash
// for each complete subtree, so a million leaves take 20 hashes of memory.
type tree struct {
	size  uint64
	stack [64][32]byte // complete subtrees, left to right, sizes falling
	depth int
}

func (t *tree) push(leaf [32]byte) {
	t.stack[t.depth] = leaf
	t.depth++
	t.size++
	// Each trailing zero bit of the size is one subtree that is now complete.
	for range bits.TrailingZeros64(t.size) {
		t.fold()
	}
}

func (t *tree) fold() {
	var node [65]byte
	node[0] = 1
	t.depth--
	copy(node[1:], t.stack[t.depth-1][:])
	copy(node[33:], t.stack[t.depth][:])
	t.stack[t.depth-1] = sha256.Sum256(node[:])
}

// root may be called once.
func (t *tree) root() [32]byte {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	for t.depth > 1 {
		t.fold()
	}
	return t.stack[0]
}

// checkDigests compares each entry's root with its digests, on all processors.
// The error is that of the first event that is wrong, however the work fell.
func (ev *Evidence) checkDigests() error {
	workers := runtime.GOMAXPROCS(0)
	first := make([]int, workers) // entry that a worker found wrong, or none
	none := len(ev.entries)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			first[w] = none
			for i := w; i < none; i += workers {
				e := &ev.entries[i]
				if e.Same == nil && DigestRoot(e.Digests) != e.Root {
					first[w] = i
					return
				}
			}
		})
	}
	wg.Wait()
	wrong := none
	for _, i := range first {
		wrong = min(wrong, i)
	}
	if wrong == none {
		return nil
	}
	e := &ev.entries[wrong]
	return &EvidenceError{
		Rule: RuleRoot, Event: ev.eventOf(wrong),
		Got:  fmt.Sprintf("root %x", e.Root),
		Want: fmt.Sprintf("%x, of its %d digests", DigestRoot(e.Digests), len(e.Digests)/DigestSize),
	}
}

// eventOf finds the row of an entry.
func (ev *Evidence) eventOf(entry int) uint64 {
	for i := range ev.events {
		if ev.events[i].entry == int32(entry) {
			return uint64(i)
		}
	}
	return 0
}

// A sighting is one digest in one row. The first of each digest goes into the
// tree.
type sighting struct {
	hi, lo uint64 // the digest, big-endian
	row    uint32
	dir    journal.Direction
}

// compare decides nearly always by the first half of the digest.
func (s *sighting) compare(t *sighting) int {
	switch {
	case s.hi < t.hi:
		return -1
	case s.hi > t.hi:
		return 1
	}
	return cmp.Or(cmp.Compare(s.lo, t.lo), cmp.Compare(s.row, t.row))
}

// distinct returns the first sighting of each digest, sorted by digest. It deals
// the digests out by their first bits and sorts the parts on all processors: run
// digests are hashes, so the parts are about equal, of 16 digests each. Digests
// that are none only make it slower.
func (ev *Evidence) distinct() []sighting {
	total := 0
	for i := range ev.entries {
		total += len(ev.entries[i].Digests) / DigestSize
	}
	width := min(max(bits.Len(uint(total/16)), 1), 16)
	part := func(d []byte) int { return int(binary.BigEndian.Uint16(d)) >> (16 - width) }
	ends := make([]int, 1<<width+1)
	ev.eachDigest(func(d []byte, _ uint32, _ journal.Direction) { ends[part(d)+1]++ })
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	all := make([]sighting, total)
	next := slices.Clone(ends)
	ev.eachDigest(func(d []byte, row uint32, dir journal.Direction) {
		at := &next[part(d)]
		all[*at] = sighting{binary.BigEndian.Uint64(d), binary.BigEndian.Uint64(d[8:]), row, dir}
		*at++
	})

	parts := make([][]sighting, 1<<width)
	const batch = 64
	var take atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for from := int(take.Add(batch)) - batch; from < len(parts); from = int(take.Add(batch)) - batch {
				for i := from; i < min(from+batch, len(parts)); i++ {
					parts[i] = firsts(all[ends[i]:ends[i+1]])
				}
			}
		})
	}
	wg.Wait()
	out := all[:0]
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// firsts sorts and keeps the first sighting of each digest.
func firsts(p []sighting) []sighting {
	slices.SortFunc(p, func(a, b sighting) int { return a.compare(&b) })
	return slices.CompactFunc(p, func(a, b sighting) bool { return a.hi == b.hi && a.lo == b.lo })
}

// eachDigest visits the digests of all rows that have some of their own. A row
// that refers to an earlier one adds no first sighting.
func (ev *Evidence) eachDigest(visit func(d []byte, row uint32, dir journal.Direction)) {
	for i := range ev.events {
		e := &ev.events[i]
		if e.entry < 0 {
			continue
		}
		digests := ev.entries[e.entry].Digests
		for at := 0; at < len(digests); at += DigestSize {
			visit(digests[at:at+DigestSize], uint32(i), e.dir)
		}
	}
}

// checkTree builds the prefix-bucket tree again. A tree that leaves out a digest
// of a row, dates it later or turns its direction has another root.
func (ev *Evidence) checkTree() error {
	t := &ev.trailer
	all := ev.distinct()
	if n := uint64(len(all)); t.Digests != n || t.Depth != bucket.Depth(n) {
		return &EvidenceError{Rule: RuleTree, Got: fmt.Sprintf("%d digests, depth %d", t.Digests, t.Depth), Want: fmt.Sprintf("%d, depth %d, as in the entries", n, bucket.Depth(n))}
	}
	b := bucket.New(uint64(len(all)))
	for i := range all {
		e := bucket.Entry{First: uint64(all[i].row), Direction: uint8(all[i].dir)}
		binary.BigEndian.PutUint64(e.Digest[:], all[i].hi)
		binary.BigEndian.PutUint64(e.Digest[8:], all[i].lo)
		if err := b.Add(e); err != nil {
			return &EvidenceError{Rule: RuleTree, Cause: err}
		}
	}
	root, _, err := b.Root()
	if err != nil {
		return &EvidenceError{Rule: RuleTree, Cause: err}
	}
	if root != t.Tree {
		return &EvidenceError{Rule: RuleTree, Got: fmt.Sprintf("root %x", t.Tree), Want: fmt.Sprintf("%x, of the entries' digests", root)}
	}
	return nil
}
