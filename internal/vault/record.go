package vault

import (
	"bufio"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

// MaxRecord bounds one record, in bytes.
const MaxRecord = 1 << 24

// A Sink is where records go. *os.File is one.
type Sink interface {
	io.Writer
	Sync() error
}

// Records returns a Sink for records that are each its length, 4 bytes big
// endian, and that many bytes. Each Write must hold whole records. To w goes the
// same with each record encrypted by itself: a crash tears at most the last one.
//
// Record n is sealed by ChaCha20-Poly1305 (RFC 8439) with nonce n. The key is the
// run's own and the file is written once from its start, so no nonce is used
// twice.
func (k *Keys) Records(w Sink) (Sink, error) {
	aead, err := chacha20poly1305.New(k.record)
	if err != nil {
		return nil, err
	}
	return &sink{w: w, aead: aead}, nil
}

type sink struct {
	w    Sink
	aead cipher.AEAD
	n    uint64
	buf  []byte
	err  error
}

func (s *sink) Sync() error { return s.w.Sync() }

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil { // nothing after a gap: the numbers would be wrong
		return 0, s.err
	}
	s.buf = s.buf[:0]
	for rest := p; len(rest) > 0; {
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
			s.err = errors.New("encrypt records: a write that holds no whole record")
			return 0, s.err
		}
		size := int(binary.BigEndian.Uint32(rest))
		if size+s.aead.Overhead() > MaxRecord {
			s.err = fmt.Errorf("encrypt records: got a record of %d bytes, want at most %d", size, MaxRecord-s.aead.Overhead())
			return 0, s.err
		}
		s.buf = binary.BigEndian.AppendUint32(s.buf, uint32(size+s.aead.Overhead()))
		s.buf = s.aead.Seal(s.buf, nonce(s.n), rest[4:4+size], nil)
		s.n++
		rest = rest[4+size:]
	}
	n, err := s.w.Write(s.buf)
	if err == nil && n != len(s.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.err = err
		return 0, err
	}
	return len(p), nil
}

func nonce(n uint64) []byte {
	b := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint64(b[4:], n)
	return b
}

// OpenRecords decrypts what Records wrote. A record that is cut off at the end
// comes out cut off, so that a reader of plain records says the same of both.
func (k *Keys) OpenRecords(r io.Reader) (io.Reader, error) {
	aead, err := chacha20poly1305.New(k.record)
	if err != nil {
		return nil, err
	}
	return &source{in: bufio.NewReaderSize(r, 1<<16), aead: aead}, nil
}

type source struct {
	in   *bufio.Reader
	aead cipher.AEAD
	n    uint64
	buf  []byte // not read yet
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	for len(s.buf) == 0 {
		if s.err == nil {
			s.err = s.next()
		}
		if s.err != nil && len(s.buf) == 0 {
			return 0, s.err
		}
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

func (s *source) next() error {
	var head [4]byte
	if n, err := io.ReadFull(s.in, head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			s.buf, err = head[:n], io.EOF
		}
		return err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size <= s.aead.Overhead() || size > MaxRecord {
		return fmt.Errorf("record %d: got %d bytes, want %d to %d", s.n, size, s.aead.Overhead()+1, MaxRecord)
	}
	plain := binary.BigEndian.AppendUint32(nil, uint32(size-s.aead.Overhead()))
	// Memory is claimed as bytes arrive: a length alone claims little.
	sealed, err := io.ReadAll(io.LimitReader(s.in, int64(size)))
	if err != nil {
		return err
	}
	if len(sealed) < size {
		s.buf = plain // and nothing of the record
		return io.EOF
	}
	if s.buf, err = s.aead.Open(plain, nonce(s.n), sealed, nil); err != nil {
		s.buf = nil
		return fmt.Errorf("record %d: it was changed, or belongs to another run", s.n)
	}
	s.n++
	return nil
}
