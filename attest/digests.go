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
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
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
	var t merkle.Tree
	for i := 0; i < len(digests); i += DigestSize {
		t.Push(DigestLeaf([DigestSize]byte(digests[i:])))
	}
	return t.Root()
}

// DigestLeaf is the hash of a digest as a leaf under DigestRoot.
func DigestLeaf(d [DigestSize]byte) [32]byte {
	var leaf [1 + DigestSize]byte
	copy(leaf[1:], d[:])
	return sha256.Sum256(leaf[:])
}

// noDigests is the root over no digest.
var noDigests = DigestRoot(nil)

// checkDigests compares each entry's root with its digests, on all processors.
// The error is that of the first event that is wrong, however the work fell.
func (ev *Evidence) checkDigests() error {
	bad := make([]bool, len(ev.bases))
	parallel(ev.workers(), len(bad), func(i int) { bad[i] = DigestRoot(ev.bases[i].digests) != ev.bases[i].root })
	wrong := slices.Index(bad, true)
	if wrong < 0 {
		return nil
	}
	b := &ev.bases[wrong]
	return &EvidenceError{
		Rule: RuleRoot, Event: b.seq,
		Got:  fmt.Sprintf("root %x", b.root),
		Want: fmt.Sprintf("%x, of its %d digests", DigestRoot(b.digests), len(b.digests)/DigestSize),
	}
}

// A sighting is one digest in one row. The first of each digest goes into the
// tree.
type sighting struct {
	hi, lo uint64 // the digest, big-endian
	row    uint32
	dir    journal.Direction
}

func (s *sighting) entry() bucket.Entry {
	e := bucket.Entry{First: uint64(s.row), Direction: uint8(s.dir)}
	binary.BigEndian.PutUint64(e.Digest[:], s.hi)
	binary.BigEndian.PutUint64(e.Digest[8:], s.lo)
	return e
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

// checkTree builds the prefix-bucket tree again. A tree that leaves out a digest
// of a row, dates it later or turns its direction has another root.
func (ev *Evidence) checkTree() error {
	t := &ev.trailer
	n, root, err := ev.rebuild(t.Digests)
	switch {
	case err != nil:
		return &EvidenceError{Rule: RuleTree, Cause: err}
	case t.Digests != n || t.Depth != bucket.Depth(n):
		return &EvidenceError{Rule: RuleTree, Got: fmt.Sprintf("%d digests, depth %d", t.Digests, t.Depth), Want: fmt.Sprintf("%d, depth %d, as in the entries", n, bucket.Depth(n))}
	case root != t.Tree:
		return &EvidenceError{Rule: RuleTree, Got: fmt.Sprintf("root %x", t.Tree), Want: fmt.Sprintf("%x, of the entries' digests", root)}
	}
	return nil
}

// rebuild counts the distinct digests and returns the root of their tree if
// there are as many as stated. It deals the digests out by their first bits and
// works on the parts on all processors: run digests are hashes, so the parts are
// about equal. Digests that are none only make it slower.
func (ev *Evidence) rebuild(stated uint64) (n uint64, root [32]byte, err error) {
	all, ends := ev.deal()
	stated = min(stated, uint64(len(all)))
	// A task is a node of the tree and all parts below it.
	width := min(bits.Len(uint(len(ends)-2)), int(bucket.Depth(stated)), 8)
	tasks, parts := 1<<width, (len(ends)-1)>>width
	nodes, counts, errs := make([][32]byte, tasks), make([]uint64, tasks), make([]error, tasks)
	parallel(ev.workers(), tasks, func(task int) {
		b := bucket.NewPart(stated, uint8(width), uint64(task))
		for i := task * parts; i < (task+1)*parts; i++ {
			for _, s := range firsts(all[ends[i]:ends[i+1]]) {
				counts[task]++
				if errs[task] == nil && counts[task] <= stated {
					errs[task] = b.Add(s.entry())
				}
			}
		}
		nodes[task] = b.Node()
	})
	for task := range tasks {
		n += counts[task]
		err = cmp.Or(err, errs[task])
	}
	return n, bucket.Join(nodes), err
}

// deal returns a sighting of each digest of each row, in parts by its first
// bits: part i is from ends[i] to ends[i+1].
func (ev *Evidence) deal() (all []sighting, ends []int) {
	total := 0
	for i := range ev.bases {
		total += len(ev.bases[i].digests) / DigestSize
	}
	width := min(max(bits.Len(uint(total/partSize)), 1), 16)
	part := func(d []byte) int { return int(binary.BigEndian.Uint16(d)) >> (16 - width) }

	// Each worker takes a range of entries. It counts, is told where its digests of
	// each part go, and writes them there.
	workers := ev.workers()
	next := make([][]int, workers)
	entries := func(w int) (from, to int) { return w * len(ev.bases) / workers, (w + 1) * len(ev.bases) / workers }
	parallel(workers, workers, func(w int) {
		next[w] = make([]int, 1<<width)
		from, to := entries(w)
		ev.eachDigest(from, to, func(d []byte, _ uint32, _ journal.Direction) { next[w][part(d)]++ })
	})
	ends = make([]int, 1<<width+1)
	at := 0
	for i := range 1 << width {
		for w := range next {
			at, next[w][i] = at+next[w][i], at
		}
		ends[i+1] = at
	}
	all = make([]sighting, total)
	parallel(workers, workers, func(w int) {
		to := next[w]
		from, end := entries(w)
		ev.eachDigest(from, end, func(d []byte, row uint32, dir journal.Direction) {
			at := &to[part(d)]
			all[*at] = sighting{binary.BigEndian.Uint64(d), binary.BigEndian.Uint64(d[8:]), row, dir}
			*at++
		})
	})
	return all, ends
}

// partSize is how many digests deal puts into one part, about.
const partSize = 64

// smallPack is the size in bytes up to which a pack is not worth a second
// goroutine: an audit reads many such packs, each on one processor.
const smallPack = 256 << 10

// workers is how many goroutines work on the pack's digests.
func (ev *Evidence) workers() int {
	if len(ev.pack) <= smallPack {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// parallel does n tasks by as many workers.
func parallel(workers, n int, do func(task int)) {
	if workers == 1 {
		for task := range n {
			do(task)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, workers) {
		wg.Go(func() {
			for task := int(next.Add(1)) - 1; task < n; task = int(next.Add(1)) - 1 {
				do(task)
			}
		})
	}
	wg.Wait()
}

// firsts sorts and keeps the first sighting of each digest.
func firsts(p []sighting) []sighting {
	slices.SortFunc(p, func(a, b sighting) int { return a.compare(&b) })
	return slices.CompactFunc(p, func(a, b sighting) bool { return a.hi == b.hi && a.lo == b.lo })
}

// eachDigest visits the digests of a range of entries that have some of their
// own. A row that refers to an earlier one adds no first sighting.
func (ev *Evidence) eachDigest(from, to int, visit func(d []byte, row uint32, dir journal.Direction)) {
	for i := from; i < to; i++ {
		b := &ev.bases[i]
		for at := 0; at < len(b.digests); at += DigestSize {
			visit(b.digests[at:at+DigestSize], uint32(b.seq), b.dir)
		}
	}
}
