package scanner

import (
	"io"
	"os"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
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

// Records in memory, at most: of one content (1 MiB of digests, with up to 192
// contents under way), and of the tree.
const (
	spillAt     = 1 << 16
	treeSpillAt = 1 << 20
)

// digests of one content, sorted and unique.
type digests struct {
	set  *sorter
	n    uint64
	root [32]byte
	all  []byte // nil if they are on disk
}

// A finding is what one content came to.
type finding struct {
	digests   digests
	canonical uint64
	opaque    uint64
	bounds    uint32
}

// A worker fingerprints contents. It is used by one goroutine.
type worker struct {
	fp      *canon.Fingerprinter
	mac     *contraband.Digester
	salt    [16]byte
	scratch *scratch
	lose    func(contraband.Class, [32]byte) bool // digests that a broken worker forgets; nil but in tests of the self-check
}

// collector returns an empty digest set and the function that fills it.
func (w *worker) collector(only contraband.Class) (*sorter, canon.Emit) {
	set := &sorter{scratch: w.scratch, limit: spillAt}
	return set, func(class contraband.Class, s [32]byte) {
		if (only == 0 || class == only) && (w.lose == nil || !w.lose(class, s)) {
			set.add(recordOf(contraband.RunDigest(w.salt, s), 0))
		}
	}
}

// object fingerprints one whole content, raw and in all views. b is the content,
// or large the file that holds it.
func (w *worker) object(c *content, b []byte, large *os.File) (*finding, error) {
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
	if f.canonical >= least(c.text) && len(set.recs)+len(set.spills) == 0 {
		emit(contraband.ClassRaw, w.mac.Digest(contraband.ClassRaw, c.sum[:]))
	}
	return f, f.seal(set)
}

func (w *worker) viewer(text bool, emit canon.Emit) func(views.View) {
	return func(v views.View) { w.fp.Object(v.Content, text, emit) }
}

// look takes what the views reported. Their bounds have the same bits.
func (f *finding) look(r views.Result) {
	f.bounds |= r.Bounds & (attest.BoundDepth | attest.BoundViews | attest.BoundBytes | attest.BoundRatio | attest.BoundView)
	f.opaque += r.Opaque
}

// seal sorts the digests and computes their root.
func (f *finding) seal(set *sorter) error {
	if err := set.finish(); err != nil {
		return err
	}
	d := digests{set: set}
	if len(set.spills) == 0 {
		d.all = make([]byte, 0, len(set.recs)*attest.DigestSize)
		for _, r := range set.recs {
			x := r.digest()
			d.all = append(d.all, x[:]...)
		}
		d.n, d.root = uint64(len(set.recs)), attest.DigestRoot(d.all)
		set.recs = nil
		f.digests = d
		return nil
	}
	factory := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	tree := factory.NewEmptyRange(0)
	err := set.each(func(r record) error {
		x := r.digest()
		d.n++
		return tree.Append(rfc6962.DefaultHasher.HashLeaf(x[:]), nil)
	})
	if err != nil {
		return err
	}
	root, err := tree.GetRootHash(nil)
	if err != nil {
		return err
	}
	copy(d.root[:], root)
	set.recs = nil
	f.digests = d
	return nil
}

// each visits the digests in order.
func (d *digests) each(visit func(d [16]byte) error) error {
	if d.all == nil && d.set != nil {
		return d.set.each(func(r record) error { return visit(r.digest()) })
	}
	for i := 0; i < len(d.all); i += attest.DigestSize {
		if err := visit([16]byte(d.all[i:])); err != nil {
			return err
		}
	}
	return nil
}
