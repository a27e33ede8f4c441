package views

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

var (
	xzMagic  = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	errXZ    = errors.New("xz: corrupt or unsupported stream")
	crcTable = crc64.MakeTable(crc64.ECMA)
)

// xzDicts bounds the dictionaries of all blocks of a file together. Each must be
// cleared, so many small blocks could keep the scanner busy for hours.
const xzDicts = 4 * MaxBytes

// An xzReader reads .xz files: concatenated streams of LZMA2 blocks (The .xz
// File Format 1.2.1). The frame is read here, because the library takes a
// dictionary of up to 4 GiB on the word of a block header; LZMA2 itself is the
// library's. Filters other than LZMA2 alone are an error.
type xzReader struct {
	in    *counter
	limit int64     // more will not be read: a larger dictionary is of no use
	dicts int64     // bytes of dictionaries so far
	block io.Reader // LZMA2 data of the current block
	start int64     // of the current block
	sum   hash.Hash // nil for no check
	check int       // length of a block's check
	state func() error
	err   error
}

func newXZ(in *counter, limit int64) io.Reader {
	x := &xzReader{in: in, limit: min(limit, MaxBytes)}
	x.state = x.streamHeader
	return x
}

func (x *xzReader) Read(p []byte) (int, error) {
	for x.err == nil {
		if x.block == nil {
			x.err = x.state()
			continue
		}
		n, err := x.block.Read(p)
		if x.sum != nil {
			x.sum.Write(p[:n])
		}
		if err == io.EOF {
			x.block = nil
			x.state = x.blockEnd
			err = nil
		}
		x.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, x.err
}

func (x *xzReader) bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(x.in, b)
	return b, noEOF(err)
}

// streamHeader is section 2.1.1 of the format.
func (x *xzReader) streamHeader() error {
	h, err := x.bytes(12)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(h, xzMagic) || h[6] != 0 || crc32.ChecksumIEEE(h[6:8]) != binary.LittleEndian.Uint32(h[8:]) {
		return errXZ
	}
	switch h[7] {
	case 0:
		x.sum, x.check = nil, 0
	case 1:
		x.sum, x.check = crc32.NewIEEE(), 4
	case 4:
		x.sum, x.check = crc64.New(crcTable), 8
	case 10:
		x.sum, x.check = sha256.New(), 32
	default:
		return errXZ
	}
	x.state = x.blockHeader
	return nil
}

// blockHeader is section 3.1, or the index if its first byte is 0.
func (x *xzReader) blockHeader() error {
	x.start = x.in.n
	first, err := x.in.ReadByte()
	if err != nil {
		return noEOF(err)
	}
	if first == 0 {
		return x.index()
	}
	h, err := x.bytes(int(first)*4 + 3)
	if err != nil {
		return err
	}
	sum := crc32.Update(crc32.ChecksumIEEE([]byte{first}), crc32.IEEETable, h[:len(h)-4])
	if sum != binary.LittleEndian.Uint32(h[len(h)-4:]) {
		return errXZ
	}
	flags, r := h[0], bytes.NewReader(h[1:len(h)-4])
	if flags&0x3f != 0 {
		return errXZ
	}
	need := uint64(x.limit)                                      // no block can use a larger dictionary than its output
	for _, present := range []byte{flags & 0x40, flags & 0x80} { // compressed, uncompressed size
		if present != 0 {
			size, err := binary.ReadUvarint(r)
			if err != nil {
				return errXZ
			}
			if present == 0x80 {
				need = min(need, size)
			}
		}
	}
	var filter [3]byte // id 0x21, one byte of properties: the dictionary's size
	if _, err := io.ReadFull(r, filter[:]); err != nil || filter[0] != 0x21 || filter[1] != 1 {
		return errXZ
	}
	for r.Len() > 0 { // padding
		if b, _ := r.ReadByte(); b != 0 {
			return errXZ
		}
	}
	dict, err := lzma.DecodeDictCap(filter[2])
	if err != nil {
		return errXZ
	}
	dict = max(min(dict, int64(need)), lzma.MinDictCap)
	if x.dicts += dict; x.dicts > xzDicts {
		return errXZ
	}
	x.block, err = lzma.Reader2Config{DictCap: int(dict)}.NewReader2(x.in)
	if x.sum != nil {
		x.sum.Reset()
	}
	return err
}

// blockEnd reads padding and check, sections 3.3 and 3.4.
func (x *xzReader) blockEnd() error {
	if err := x.padding(); err != nil {
		return err
	}
	got, err := x.bytes(x.check)
	if err != nil {
		return err
	}
	if x.sum != nil {
		want := x.sum.Sum(nil)
		if x.check < 32 { // CRCs are stored little endian
			for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
				want[i], want[j] = want[j], want[i]
			}
		}
		if !bytes.Equal(got, want) {
			return errXZ
		}
	}
	x.state = x.blockHeader
	return nil
}

func (x *xzReader) padding() error {
	for (x.in.n-x.start)%4 != 0 {
		if b, err := x.in.ReadByte(); err != nil || b != 0 {
			return errXZ
		}
	}
	return nil
}

// index skips the index and the footer, sections 4 and 2.1.2, and finds the next
// stream. What they say is not needed to read on.
func (x *xzReader) index() error {
	records, err := binary.ReadUvarint(x.in)
	if err != nil {
		return noEOF(err)
	}
	for i := uint64(0); i < records; i++ {
		for range 2 {
			if _, err := binary.ReadUvarint(x.in); err != nil {
				return noEOF(err)
			}
		}
	}
	if err := x.padding(); err != nil {
		return err
	}
	tail, err := x.bytes(4 + 12)
	if err != nil {
		return err
	}
	if string(tail[14:]) != "YZ" {
		return errXZ
	}
	for { // stream padding, section 2.2
		next, _ := x.in.r.Peek(6)
		if bytes.Equal(next, xzMagic) {
			x.state = x.streamHeader
			return nil
		}
		if len(next) < 4 || !bytes.Equal(next[:4], []byte{0, 0, 0, 0}) {
			return io.EOF
		}
		if _, err := x.bytes(4); err != nil {
			return err
		}
	}
}
