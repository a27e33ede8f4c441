// Package views derives other readings of a byte string: what it says once
// base64, base32, hex, hex dumps and other lists of numbers, percent, JSON or HTML
// escapes, gzip, zlib, xz, zstd, zip, tar or git's loose-object form are taken off. Sealing and scanning both use it, so that an
// encoded copy of a sealed file meets the file's own digests.
//
// Limits. Base85, uuencode, quoted-printable, bzip2, git packs, deflate inside
// other formats (PDF, PNG) and all encryption are not read; compressed streams
// are looked for at the start of a content only, a zip file also from its end.
// Base64 is found in runs of at least 32 characters on lines of at least 16, base32
// of 40, contiguous hex of 48 digits. With blanks in it or on shorter lines, an
// encoding must have 80 characters, and a paragraph for itself. A list of numbers
// must give 24 bytes. What has blanks or commas in it must read: as text, or as
// the begin of a container.
//
// What counts as hitting a bound is chosen so that honest files do not:
//
//   - Depth counts containers, base64, base32, hex and lists, at most MaxDepth
//     inside each other. Escapes (JSON, percent, HTML) do not count: they come in
//     at most three layers, and the third takes off all that are left. Below the
//     last level a container by its magic, or base64, base32 or hex that decodes to
//     text or to a container, is reported as BoundDepth; a long word or a hash is
//     not, nor a list of numbers that gives no words.
//   - Views counts containers, at most MaxViews in one content. An archive is one
//     however many members it has, and short runs of base64 or hex share one
//     view, so a file of checksums is not many.
//   - Bytes counts what decompression gives, at most MaxBytes, and ratio compares
//     it with its source, from 1 MiB on. Text decoders and tar give no more than
//     they read; theirs is bounded by MaxBytes and four times the content.
//   - A stream that is cut or corrupt is BoundView if its magic is long (gzip, xz,
//     zstd, zip, tar) or if 1 KiB, or 64 bytes of text, came out of it (zlib,
//     whose magic is two bytes that also begin words). What came out is a view all the same. So is an
//     encrypted zip member, or one of a method that is not read: BoundView. In a
//     list of less than 1 KiB it is none: tests and manuals hold such examples.
package views

import (
	"bytes"
	"crypto/sha256"
	"io"
)

// Limits of one Each call.
const (
	MaxDepth = 3
	MaxViews = 64
	MaxBytes = 64 << 20
	MaxRatio = 200

	ratioFrom = 1 << 20  // outputs up to this are not held against their source
	window    = 32 << 20 // text decoders see a large content in pieces of this size
	overlap   = 64 << 10 // which share this much
	escapes   = 3        // layers of escapes
)

// Bounds, equal to attest.Bound*.
const (
	BoundDepth uint32 = 1 << iota // views nested deeper than MaxDepth
	BoundViews                    // more than MaxViews containers
	BoundBytes                    // views larger than MaxBytes together
	BoundRatio                    // a view over MaxRatio times its source
	BoundView                     // a view that began well but was cut or corrupt
)

// A View is one derived reading. Content is valid during the visit only and
// must not be changed.
type View struct {
	Kind    string // "gzip", "zlib", "git", "xz", "zstd", "zip", "tar", "base64", "base32", "hex", "numbers", "json", "percent", "html"
	Depth   int    // containers, base64, base32, hex and lists taken off, from 0 for escapes of the content itself
	Content []byte
}

// Result of a walk.
type Result struct {
	Bounds uint32 // Bound* bits: some content may not have been read
	Parsed bool   // some view was derived
	Packed bool   // the content itself is a container, and a view of it was derived
	// Opaque is how many bytes, of the content or of the views, no view could
	// read: the rest after containers are taken out, where that is Opaque.
	Opaque uint64
}

// Each calls visit for every view of content, depth first, in an order that
// depends on content alone. A view with the same bytes as an earlier one is
// left out.
func Each(content []byte, visit func(View)) Result {
	m := inMemory(content)
	return EachAt(m.r, m.size, visit)
}

// EachAt is Each for a content too large for memory: of r it holds pieces of at
// most 32 MiB. An encoded run that crosses a piece's edge is decoded in two
// parts that overlap. A failed read is reported as BoundView.
func EachAt(r io.ReaderAt, size int64, visit func(View)) Result {
	w := &walker{
		visit: visit,
		large: MaxBytes,
		small: MaxBytes + 4*size,
		seen:  make(map[[32]byte]level),
	}
	w.node(source{r, size}, 0, 0, packed)
	return w.result
}

type source struct {
	r    io.ReaderAt
	size int64
}

func (s source) reader() *io.SectionReader { return io.NewSectionReader(s.r, 0, s.size) }

type level struct{ depth, light int }

// origin of a view says what its own bytes can tell.
type origin uint8

const (
	packed  origin = iota // from a container, or the content itself: may be opaque
	encoded               // from text, where hashes and certificates are honest noise
	around                // text around escapes: its first byte begins nothing
)

type walker struct {
	visit  func(View)
	result Result
	large  int64 // bytes that decompression may still give
	small  int64 // bytes that text decoders and tar may still give
	views  int
	seen   map[[32]byte]level
}

// node derives the views of one content, depth levels and light layers of
// escapes below the root.
func (w *walker) node(src source, depth, light int, from origin) {
	var used spans
	kind := ""
	if from != around {
		kind = sniff(src)
	}
	switch {
	case kind == "":
	case depth == MaxDepth:
		w.result.Bounds |= BoundDepth
	case w.views == MaxViews:
		w.result.Bounds |= BoundViews
	default:
		w.views++
		used = w.open(kind, src, depth)
	}
	for off := int64(0); off < src.size; {
		n := min(window, src.size-off)
		buf := bytesOf(src, off, n)
		if int64(len(buf)) < n {
			w.result.Bounds |= BoundView // a read failed: the caller's hash will say so too
			return
		}
		// Compressed bytes are searched for text too: formats have comments,
		// paddings and frames that decoders skip.
		w.runs(buf, depth)
		w.numbers(buf, depth)
		w.spaced(buf, depth)
		if light < escapes {
			w.unescape(buf, depth, light)
		}
		if off += n; off < src.size {
			off -= overlap
		}
	}
	if from == packed {
		w.result.Opaque += unread(src, used.gaps(src.size))
	}
}

// unread is how many bytes of src, of those in gaps, are opaque.
func unread(src source, gaps spans) uint64 {
	var h histogram
	for _, g := range gaps {
		for off := g.from; off < g.to; {
			b := bytesOf(src, off, min(window, g.to-off))
			if len(b) == 0 {
				return 0 // reported above
			}
			h.add(b)
			off += int64(len(b))
		}
	}
	if !h.opaque() {
		return 0
	}
	return h.n
}

// bytesOf returns n bytes from off, without a copy if the source is in memory.
func bytesOf(src source, off, n int64) []byte {
	if m, ok := src.r.(memory); ok {
		return m.b[off : off+n]
	}
	b := make([]byte, n)
	k, _ := src.r.ReadAt(b, off)
	return b[:k]
}

// memory is a ReaderAt that gives its bytes away.
type memory struct {
	*bytes.Reader
	b []byte
}

func inMemory(b []byte) source { return source{memory{bytes.NewReader(b), b}, int64(len(b))} }

// child visits a view and derives its own views.
func (w *walker) child(kind string, content []byte, depth, light int, from origin) {
	if len(content) == 0 {
		return
	}
	// A view may come up twice: base64 in a JSON string is found in the raw
	// text and in the unescaped text. It is read again only if it now stands
	// higher and more can be taken off.
	id := sha256.Sum256(content)
	if was, ok := w.seen[id]; ok && was.depth <= depth && was.light <= light {
		return
	}
	w.seen[id] = level{depth, light}
	w.result.Parsed = true
	w.result.Packed = w.result.Packed || depth == 1 && from == packed
	w.visit(View{kind, depth, content})
	w.node(inMemory(content), depth, light, from)
}

// text is child for text decoders and tar, which give no more than they read.
func (w *walker) text(kind string, content []byte, depth, light int, from origin) {
	if int64(len(content)) > w.small {
		w.result.Bounds |= BoundBytes
		content = content[:w.small]
	}
	w.small -= int64(len(content))
	w.child(kind, content, depth, light, from)
}

// drain reads all that r gives, up to the bounds; from is the size of what r
// decodes. It returns what came out with the decoder's error, nil for a bound,
// which is in Bounds.
func (w *walker) drain(r io.Reader, from int64, left *int64) ([]byte, error) {
	limit, bound := *left, BoundBytes
	if ratio := max(from*MaxRatio, ratioFrom); ratio < limit {
		limit, bound = ratio, BoundRatio
	}
	out := make([]byte, 0, min(max(4*from, 512), limit+1, 1<<20))
	var err error
	for err == nil && int64(len(out)) <= limit {
		if len(out) == cap(out) {
			grown := make([]byte, len(out), min(2*int64(cap(out)), limit+1))
			copy(grown, out)
			out = grown
		}
		var n int
		n, err = r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
	}
	if int64(len(out)) > limit {
		w.result.Bounds |= bound
		out, err = out[:limit], nil
	}
	if err == io.EOF {
		err = nil
	}
	*left -= int64(len(out))
	return out, err
}
