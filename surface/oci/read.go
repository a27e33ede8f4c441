package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// A member is one entry of an archive; it reads its content.
type member struct {
	io.Reader
	index    int
	name     string
	kind     byte // tar.Type...
	target   string
	size     int64
	modified *int64
}

// pass reads one layer to its end and holds it to its digest. The first pass counts its
// bytes and notes the digest of an archive that has none; the second must meet the same
// bytes. It is false if the observation ends here.
func (s *Source) pass(i int, c *surface.Collector, first bool, each func(*member) error) bool {
	f, err := s.layers[i].open()
	if err != nil {
		if s.kind == "tar" && first {
			_ = c.Break(surface.Unavailable)
		} else {
			_ = c.Break(surface.Failed)
		}
		return false
	}
	defer f.Close()
	h := sha256.New()
	raw := io.TeeReader(f, h)
	failed := func() bool { _ = c.Break(surface.Failed); return false }
	plain, done, err := unpack(raw)
	if err != nil {
		return failed()
	}
	defer done()
	in := c.Meter(plain, first)
	r := tar.NewReader(in)
	for n := 0; ; n++ {
		hdr, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return failed()
		}
		if first && c.Listed() != nil {
			return false
		}
		m := &member{Reader: r, index: n, name: hdr.Name, kind: hdr.Typeflag, target: hdr.Linkname, size: hdr.Size, modified: surface.Stamp(hdr.ModTime)}
		if each(m) != nil {
			_ = c.Break(surface.Failed) // unless the Collector ended it
			return false
		}
	}
	// What stands behind the archive's end is seen by other readers of archives.
	rest := &zeros{}
	if _, err := io.Copy(rest, in); err != nil {
		return failed()
	}
	if first && rest.other {
		c.Gap(surface.ListingFailed, "")
	}
	if _, err := io.Copy(io.Discard, c.Meter(raw, first)); err != nil {
		return failed()
	}
	got := hex.EncodeToString(h.Sum(nil))
	if s.layers[i].digest == "" {
		s.layers[i].digest = got
	}
	if s.layers[i].digest != got {
		return failed()
	}
	return true
}

// zeros notes whether anything but zeros was written to it.
type zeros struct{ other bool }

func (z *zeros) Write(p []byte) (int, error) {
	z.other = z.other || len(bytes.Trim(p, "\x00")) > 0
	return len(p), nil
}

// unpack tells by the first bytes how an archive is packed.
func unpack(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReader(r)
	magic, _ := in.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}
