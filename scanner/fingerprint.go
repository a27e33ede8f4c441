package scanner

import (
	"io"
	"sync/atomic"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/views"
)

// Canonical bytes from which content must have a digest: the guarantee of
// winnowing for the two profiles.
const (
	minCanonical     = 96
	minCanonicalText = 48
)

func least(text bool) uint64 {
	if text {
		return minCanonicalText
	}
	return minCanonical
}

// Digests in memory, at most: while one content is worked on, of all contents
// whose items are not yet written, and for the tree. More go over the disk.
const (
	spillAt     = 1 << 18
	heldAt      = 4 << 20
	treeSpillAt = 1 << 20
)

// digests of one content, sorted and unique.
type digests struct {
	n    uint64
	root [32]byte
	all  []byte  // if they are in memory
	disk *sorter // else
}

// A finding is what one content came to.
type finding struct {
	digests   digests
	canonical uint64
	opaque    uint64
	bounds    uint32
}

// The bounds of views and of evidence are the same bits, or this does not build.
var _ = [1]struct{}{}[views.BoundDepth^attest.BoundDepth|views.BoundViews^attest.BoundViews|
	views.BoundBytes^attest.BoundBytes|views.BoundRatio^attest.BoundRatio|views.BoundView^attest.BoundView]

// A worker fingerprints contents. It is used by one goroutine.
type worker struct {
	fp      *canon.Fingerprinter
	mac     *contraband.Digester
	salt    [16]byte
	scratch *scratch
	recs    []record
	tmp     []record
	held    *atomic.Int64                         // digests in memory that wait to be written
	lose    func(contraband.Class, [32]byte) bool // digests that a broken worker forgets; nil but in tests of the self-check
}

// collector returns the empty digest set and the function that fills it. The set
// is valid until seal.
func (w *worker) collector(only contraband.Class) (*sorter, canon.Emit) {
	set := &sorter{scratch: w.scratch, limit: spillAt, recs: w.recs[:0], tmp: w.tmp}
	return set, func(class contraband.Class, s [32]byte) {
		if (only == 0 || class == only) && (w.lose == nil || !w.lose(class, s)) {
			set.add(recordOf(contraband.RunDigest(w.salt, s), 0))
		}
	}
}

// object fingerprints one whole content, raw and in all views. b is the content,
// or large the file that holds it.
func (w *worker) object(c *content, b []byte, large *objects.ReaderAt) (*finding, error) {
	set, emit := w.collector(0)
	f := new(finding)
	if large == nil {
		f.canonical = w.fp.Object(b, c.text, emit)
		f.look(views.Each(b, w.viewer(c.text, emit)))
	} else {
		s := w.fp.Whole(c.text)
		buf := make([]byte, 1<<20)
		for in := io.NewSectionReader(large, 0, int64(c.row.Size)); ; {
			n, err := in.Read(buf)
			f.canonical += s.Chunk(buf[:n], emit)
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, &ContentError{Event: c.row.Seq, Err: err}
			}
		}
		f.canonical += s.End(emit)
		f.look(views.EachAt(large, int64(c.row.Size), w.viewer(c.text, emit)))
	}
	if f.canonical >= least(c.text) && set.empty() {
		emit(contraband.ClassRaw, w.mac.Digest(contraband.ClassRaw, c.sum[:]))
	}
	return f, w.seal(f, set)
}

func (w *worker) viewer(text bool, emit canon.Emit) func(views.View) {
	return func(v views.View) { w.fp.Object(v.Content, text, emit) }
}

// look takes what the views reported.
func (f *finding) look(r views.Result) {
	f.bounds |= r.Bounds
	f.opaque += r.Opaque
}

// seal sorts the digests and computes their root.
func (w *worker) seal(f *finding, set *sorter) error {
	defer func() { w.recs, w.tmp = set.recs[:0], set.tmp }()
	if err := set.finish(); err != nil {
		return err
	}
	if n := int64(len(set.recs)); w.held.Add(n) > heldAt {
		w.held.Add(-n)
		set.spill()
	}
	d := &f.digests
	if len(set.spills) == 0 {
		d.all = make([]byte, 0, len(set.recs)*attest.DigestSize)
		for _, r := range set.recs {
			d.all = r.append(d.all)
		}
		d.n, d.root = uint64(len(set.recs)), attest.DigestRoot(d.all)
		return nil
	}
	factory := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	tree := factory.NewEmptyRange(0)
	d.disk = &sorter{scratch: set.scratch, spills: set.spills, err: set.err}
	err := d.disk.each(func(r record) error {
		d.n++
		return tree.Append(rfc6962.DefaultHasher.HashLeaf(r.append(nil)), nil)
	})
	if err != nil {
		return err
	}
	root, err := tree.GetRootHash(nil)
	copy(d.root[:], root)
	return err
}

// drop forgets digests that are written.
func (w *worker) drop(d *digests) {
	w.held.Add(-int64(len(d.all) / attest.DigestSize))
	d.all = nil
}

// each visits the digests in order.
func (d *digests) each(visit func(d [16]byte) error) error {
	if d.disk != nil {
		return d.disk.each(func(r record) error { return visit(r.digest()) })
	}
	for i := 0; i < len(d.all); i += attest.DigestSize {
		if err := visit([16]byte(d.all[i:])); err != nil {
			return err
		}
	}
	return nil
}
