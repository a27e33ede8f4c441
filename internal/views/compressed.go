package views

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// A zlib stream must give this much before its failure is worth a report: text
// can begin like a stream, and random bits decode for a while. The lower bound is
// for output that reads as text.
const (
	falseText  = 64
	falseStart = 1 << 10
)

// sniff names the container that src begins with, "" if none.
func sniff(src source) string {
	h := bytesOf(src, 0, min(512, src.size))
	switch {
	case len(h) >= 10 && h[0] == 0x1f && h[1] == 0x8b && h[2] == 8 && h[3]&0xe0 == 0: // RFC 1952, section 2.3
		return "gzip"
	case bytes.HasPrefix(h, xzMagic):
		return "xz"
	case zstdFrame(h):
		return "zstd"
	case bytes.HasPrefix(h, zipLocal):
		return "zip"
	case tarHeader(h):
		return "tar"
	case zlibHeader(h) && zlibBegins(src):
		return "zlib"
	case zipEnd(src):
		return "zip"
	}
	return ""
}

// zstdFrame tells a Zstandard or skippable frame (RFC 8878, section 3.1).
func zstdFrame(h []byte) bool {
	return len(h) >= 8 && h[1] == 0xb5 && h[2] == 0x2f && h[3] == 0xfd && h[0] == 0x28 ||
		len(h) >= 12 && h[0]&0xf0 == 0x50 && h[1] == 0x2a && h[2] == 0x4d && h[3] == 0x18
}

// zlibHeader checks the two bytes of RFC 1950, section 2.2, without a preset
// dictionary.
func zlibHeader(h []byte) bool {
	return len(h) >= 6 && h[0]&0x0f == 8 && h[0]>>4 <= 7 && h[1]&0x20 == 0 &&
		(uint(h[0])<<8|uint(h[1]))%31 == 0
}

// zlibBegins tells whether a stream begins well, or is a short one that ends with
// its checksum.
func zlibBegins(src source) bool {
	r, err := zlib.NewReader(bufio.NewReader(src.reader()))
	if err != nil {
		return false
	}
	var out bytes.Buffer
	n, err := io.CopyN(&out, r, falseStart)
	return err == nil || n > 0 && err == io.EOF || n >= falseText && readable(out.Bytes())
}

// open derives the views of a container and returns what part of src was read.
func (w *walker) open(kind string, src source, depth int) spans {
	switch kind {
	case "zip":
		return w.zip(src, depth)
	case "tar":
		return w.tar(src, depth)
	}
	in := &counter{r: bufio.NewReaderSize(src.reader(), 64<<10)}
	out, err := w.decode(kind, in, src.size)
	if err != nil {
		w.result.Bounds |= BoundView
	}
	if kind == "zlib" && err == nil {
		if body, ok := gitObject(out); ok {
			kind, out = "git", body
		}
	}
	w.child(kind, out, depth+1, 0, packed)
	return spans{{0, in.n}}
}

// decode decompresses a stream of size bytes. A decoder that panics on hostile
// bytes has found them corrupt.
func (w *walker) decode(kind string, in *counter, size int64) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("%s: the decoder gave up: %v", kind, p)
		}
	}()
	switch kind {
	case "gzip":
		return w.drain(&members{in: in}, size, &w.large)
	case "zlib":
		z, err := zlib.NewReader(in)
		if err != nil {
			return nil, err
		}
		return w.drain(z, size, &w.large)
	case "xz":
		return w.drain(newXZ(in, max(size*MaxRatio, ratioFrom)), size, &w.large)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(MaxBytes), zstd.WithDecoderMaxMemory(MaxBytes))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return w.drain(z, size, &w.large)
	}
	return nil, fmt.Errorf("no decoder for %s", kind)
}

// counter is a reader that takes no byte more than its user asks for, so that
// its count is where a stream ended.
type counter struct {
	r *bufio.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// members reads the members of a gzip file one after the other. Bytes after the
// last that begin no member end it, as they do for gunzip; the entropy of the
// rest is looked at by node.
type members struct {
	in *counter
	z  *gzip.Reader
}

func (m *members) Read(p []byte) (int, error) {
	for {
		if m.z == nil {
			z, err := gzip.NewReader(m.in)
			if err != nil {
				return 0, noEOF(err)
			}
			m.z = z
			m.z.Multistream(false)
		}
		n, err := m.z.Read(p)
		if err != io.EOF || n > 0 {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
		if next, _ := m.in.r.Peek(3); !bytes.Equal(next, []byte{0x1f, 0x8b, 8}) {
			return 0, io.EOF
		}
		if err := m.z.Reset(m.in); err != nil {
			return 0, noEOF(err)
		}
		m.z.Multistream(false)
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// gitObject takes the header off a loose object, "blob 12\x00" and its like.
func gitObject(b []byte) (body []byte, ok bool) {
	i := bytes.IndexByte(b[:min(len(b), 32)], 0)
	if i < 0 {
		return nil, false
	}
	kind, size, ok := bytes.Cut(b[:i], []byte(" "))
	if !ok {
		return nil, false
	}
	switch string(kind) {
	case "blob", "tree", "commit", "tag":
	default:
		return nil, false
	}
	n, err := strconv.ParseUint(string(size), 10, 63)
	return b[i+1:], err == nil && n == uint64(len(b)-i-1)
}
