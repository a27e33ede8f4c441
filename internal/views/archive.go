package views

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
)

var (
	zipLocal = []byte("PK\x03\x04")
	zipTail  = []byte("PK\x05\x06")
	// zip64Tail is the locator before the end record (APPNOTE, section 4.3.15).
	zip64Tail = []byte("PK\x06\x07")
)

const (
	zipTailSize  = 22 + 65535 // end record and its comment (APPNOTE, section 4.3.16)
	zipDirectory = 4 << 20    // larger central directories are not read: each entry costs memory
)

// zipEnd tells a zip file by the record at its end, if something else stands
// before it (a self-extracting program). The magic alone also stands in every
// program that reads zip files, so the record must fit.
func zipEnd(src source) bool {
	size, ok := zipRecord(src)
	return ok && size > 0
}

// zipRecord finds the end record and returns the size of the central directory.
// It is false if there is none that fits, and if the archive has two readings:
// package zip would then read entries that the record does not bound.
func zipRecord(src source) (size int64, ok bool) {
	n := min(src.size, zipTailSize)
	tail := bytesOf(src, src.size-n, n)
	i := -1
	for from := 0; ; { // Index is much faster than LastIndex
		k := bytes.Index(tail[from:], zipTail)
		if k < 0 {
			break
		}
		i = from + k
		from = i + 1
	}
	if i < 0 || len(tail)-i < 22 {
		return 0, false
	}
	r, le := tail[i:], binary.LittleEndian
	if int(le.Uint16(r[20:])) > len(r)-22 {
		return 0, false
	}
	if i >= 20 && bytes.HasPrefix(tail[i-20:], zip64Tail) {
		return 1 << 62, true // its numbers are elsewhere; only huge archives have them
	}
	size = int64(le.Uint32(r[12:]))
	at, off := src.size-n+int64(i)-size, int64(le.Uint32(r[16:]))
	entry := func(at int64) bool {
		return at >= 0 && at < src.size && string(bytesOf(src, at, min(4, src.size-at))) == "PK\x01\x02"
	}
	if at < 0 || size > 0 && !entry(at) || off != at && entry(off) {
		return 0, false
	}
	return size, true
}

func (w *walker) zip(src source, depth int) spans {
	size, ok := zipRecord(src)
	if !ok {
		w.result.Bounds |= BoundView
		return w.zipCut(src, depth)
	}
	if size > zipDirectory {
		w.result.Bounds |= BoundViews
		return nil
	}
	z, err := zip.NewReader(src.r, src.size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		w.result.Bounds |= BoundView
		return w.zipCut(src, depth)
	}
	var used spans
	for _, f := range z.File {
		if f.FileInfo().IsDir() && f.UncompressedSize64 == 0 {
			continue
		}
		if w.large <= 0 {
			w.result.Bounds |= BoundBytes
			break
		}
		in, err := f.Open()
		if err != nil || f.Flags&1 != 0 { // bit 0: encrypted
			w.result.Bounds |= BoundView
			continue
		}
		if off, err := f.DataOffset(); err == nil && f.CompressedSize64 <= uint64(src.size) {
			used = append(used, span{off, min(off+int64(f.CompressedSize64), src.size)})
		}
		out, err := w.drain(in, int64(min(f.CompressedSize64, uint64(src.size))), &w.large)
		in.Close()
		if err != nil {
			w.result.Bounds |= BoundView
		}
		w.child("zip", out, depth+1, 0, packed)
	}
	return used.normal()
}

// zipCut reads a zip file without its directory from local header to local
// header (APPNOTE, section 4.3.7).
func (w *walker) zipCut(src source, depth int) spans {
	var used spans
	for off := int64(0); off+30 <= src.size && w.large > 0; {
		h := bytesOf(src, off, 30)
		if len(h) < 30 || !bytes.HasPrefix(h, zipLocal) {
			break
		}
		le := binary.LittleEndian
		flags, method, size := le.Uint16(h[6:]), le.Uint16(h[8:]), int64(le.Uint32(h[18:]))
		data := off + 30 + int64(le.Uint16(h[26:])) + int64(le.Uint16(h[28:]))
		if data >= src.size || flags&1 != 0 {
			break
		}
		in := &counter{r: bufio.NewReader(io.NewSectionReader(src.r, data, src.size-data))}
		var out []byte
		switch method {
		case zip.Store:
			if flags&8 != 0 { // the size stands after the data
				size = untilHeader(src, data)
			}
			out, _ = w.drain(io.LimitReader(in, size), src.size-data, &w.large)
		case zip.Deflate:
			out, _ = w.drain(flate.NewReader(in), src.size-data, &w.large)
		}
		end := data + max(in.n, size)
		used = append(used, span{data, min(data+in.n, src.size)})
		w.child("zip", out, depth+1, 0, packed)
		// A data descriptor of 12 to 24 bytes may stand before the next header.
		if end >= src.size {
			break
		}
		next := bytes.Index(bytesOf(src, end, min(28, src.size-end)), zipLocal)
		if next < 0 {
			break
		}
		off = end + int64(next)
	}
	return used.normal()
}

// untilHeader is the length of stored data up to the next header.
func untilHeader(src source, data int64) int64 {
	b := bytesOf(src, data, min(src.size-data, MaxBytes))
	for _, next := range [][]byte{[]byte("PK\x07\x08"), zipLocal} {
		if i := bytes.Index(b, next); i >= 0 {
			b = b[:i]
		}
	}
	return int64(len(b))
}

// tarHeader checks a header block by its sum, signed or not, which holds for
// all tar formats (POSIX.1-2017, pax, "ustar Interchange Format").
func tarHeader(h []byte) bool {
	if len(h) < 512 || h[0] == 0 {
		return false
	}
	var want int64
	field := bytes.Trim(h[148:156], " \x00")
	if len(field) == 0 {
		return false
	}
	for _, c := range field {
		if c < '0' || c > '7' {
			return false
		}
		want = want<<3 | int64(c-'0')
	}
	var unsigned, signed int64
	for i, c := range h[:512] {
		if i >= 148 && i < 156 {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return want == unsigned || want == signed
}

func (w *walker) tar(src source, depth int) spans {
	in := src.reader()
	t := tar.NewReader(in)
	var used spans
	for {
		h, err := t.Next()
		if err == io.EOF {
			return used.normal()
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			w.result.Bounds |= BoundView
			return used.normal()
		}
		if h.Size == 0 {
			continue
		}
		if w.small <= 0 {
			w.result.Bounds |= BoundBytes
			return used.normal()
		}
		from, _ := in.Seek(0, io.SeekCurrent)
		out, err := w.drain(t, h.Size, &w.small)
		to, _ := in.Seek(0, io.SeekCurrent)
		used = append(used, span{from, to})
		if err != nil {
			w.result.Bounds |= BoundView
		}
		w.child("tar", out, depth+1, 0, packed)
		if err != nil {
			return used.normal()
		}
	}
}
