package attest

import (
	"encoding/binary"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// A sequence walks the items of a pack without copying: byte strings that it
// returns are parts of data. It accepts only what Append writes. Nothing is
// allocated for a length before that many bytes are known to be there.
type sequence struct {
	data []byte
	at   int
}

// A shapeError says where the bytes are not what Append writes.
type shapeError struct {
	at        int
	got, want string
}

func (e *shapeError) Error() string {
	return fmt.Sprintf("at byte %d: got %s, want %s", e.at, e.got, e.want)
}

func (s *sequence) fail(got, want string) error { return &shapeError{s.at, got, want} }

// head reads the head of an item of the major type, in its shortest form only.
func (s *sequence) head(major byte, what string) (uint64, error) {
	rest := s.data[s.at:]
	if len(rest) == 0 {
		return 0, s.fail("the end", what)
	}
	if rest[0]>>5 != major {
		return 0, s.fail(fmt.Sprintf("byte 0x%02x", rest[0]), what)
	}
	info := rest[0] & 31
	if info < 24 {
		s.at++
		return uint64(info), nil
	}
	if info > 27 {
		return 0, s.fail("an indefinite or reserved length", what)
	}
	n := 1 << (info - 24)
	if len(rest) < 1+n {
		return 0, s.fail("the end", what)
	}
	var v, least uint64
	switch n {
	case 1:
		v, least = uint64(rest[1]), 24
	case 2:
		v, least = uint64(binary.BigEndian.Uint16(rest[1:])), 1<<8
	case 4:
		v, least = uint64(binary.BigEndian.Uint32(rest[1:])), 1<<16
	case 8:
		v, least = binary.BigEndian.Uint64(rest[1:]), 1<<32
	}
	if v < least {
		return 0, s.fail("a number in more bytes than it needs", what)
	}
	s.at += 1 + n
	return v, nil
}

func (s *sequence) array(n uint64, what string) error {
	at := s.at
	got, err := s.head(majorArray, what)
	if err == nil && got != n {
		s.at = at
		err = s.fail(fmt.Sprintf("an array of %d", got), fmt.Sprintf("%s, an array of %d", what, n))
	}
	return err
}

func (s *sequence) bytes(what string) ([]byte, error) {
	n, err := s.head(majorBytes, what)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(s.data)-s.at) {
		return nil, s.fail(fmt.Sprintf("a length of %d with %d bytes left", n, len(s.data)-s.at), what)
	}
	b := s.data[s.at : s.at+int(n) : s.at+int(n)]
	s.at += int(n)
	return b, nil
}

func (s *sequence) hash(what string) (h [32]byte, err error) {
	at := s.at
	b, err := s.bytes(what)
	if err == nil && len(b) != len(h) {
		s.at = at
		err = s.fail(fmt.Sprintf("%d bytes", len(b)), what+", 32 bytes")
	}
	copy(h[:], b)
	return h, err
}

func (s *sequence) null() bool {
	if s.at < len(s.data) && s.data[s.at] == cborNull {
		s.at++
		return true
	}
	return false
}

// An item of a pack. Its memory is used again for the next one.
type item struct {
	row   []byte
	entry *Entry // nil for a row without content

	own  Entry
	same uint64
}

// clone is an entry that lives on.
func (e *Entry) clone() *Entry {
	if e == nil {
		return nil
	}
	c := *e
	if e.Same != nil {
		same := *e.Same
		c.Same = &same
	}
	return &c
}

func (s *sequence) item(it *item) (err error) {
	it.entry = nil
	if err := s.array(2, "an item"); err != nil {
		return err
	}
	if it.row, err = s.bytes("a row"); err != nil {
		return err
	}
	if s.null() {
		return nil
	}
	it.own = Entry{}
	it.entry = &it.own
	return s.entry(it)
}

func (s *sequence) entry(it *item) error {
	if err := s.array(10, "an entry or null"); err != nil {
		return err
	}
	e := it.entry
	var bounds uint64
	for _, f := range []struct {
		to   *uint64
		what string
	}{
		{&e.Seen, "seen"}, {&e.Scanned, "scanned"}, {&e.Baseline, "baseline"}, {&e.Declared, "declared"},
		{&e.Opaque, "opaque"}, {&e.Canonical, "canonical"}, {&bounds, "bounds"},
	} {
		v, err := s.head(majorUint, f.what)
		if err != nil {
			return err
		}
		*f.to = v
	}
	if bounds > uint64(allBounds) {
		return s.fail(fmt.Sprintf("bounds %#x", bounds), fmt.Sprintf("bits of %#x", allBounds))
	}
	e.Bounds = uint32(bounds)
	var err error
	if !s.null() {
		if it.same, err = s.head(majorUint, "same, a row number or null"); err != nil {
			return err
		}
		e.Same = &it.same
	}
	if e.Root, err = s.hash("the entry's root"); err != nil {
		return err
	}
	e.Digests, err = s.bytes("the entry's digests")
	return err
}

func (s *sequence) trailer() (t Trailer, err error) {
	at := s.at
	fields, err := s.head(majorArray, "the trailer")
	if err != nil {
		return t, err
	}
	if fields != 4 && fields != 5 {
		s.at = at
		return t, s.fail(fmt.Sprintf("an array of %d", fields), "the trailer, an array of 4 or 5")
	}
	if t.Tree, err = s.hash("the tree's root"); err != nil {
		return t, err
	}
	depth, err := s.head(majorUint, "the tree's depth")
	if err != nil {
		return t, err
	}
	if depth > 255 {
		return t, s.fail(fmt.Sprintf("depth %d", depth), "at most 255")
	}
	t.Depth = uint8(depth)
	if t.Digests, err = s.head(majorUint, "the number of digests"); err != nil {
		return t, err
	}
	if t.Controls, err = s.bytes("the opened controls"); err != nil {
		return t, err
	}
	if fields == 5 {
		t.Openings = new(Openings)
		rest, err := dcbor.UnmarshalFirst(s.data[s.at:], t.Openings)
		if err != nil {
			return t, s.fail(err.Error(), "openings")
		}
		s.at = len(s.data) - len(rest)
	}
	if s.at != len(s.data) {
		return t, s.fail(fmt.Sprintf("%d bytes more", len(s.data)-s.at), "the end after the trailer")
	}
	return t, nil
}
