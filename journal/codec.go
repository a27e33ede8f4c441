package journal

import (
	"encoding/binary"
	"math"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Bounds of one record.
const (
	MaxRow    = 1 << 20  // bytes of a row
	MaxDetail = 16 << 20 // bytes of a detail: Linux lets argument vectors grow to 6 MiB
)

// The row's codec is written out because journals hold millions of rows. The
// generic codec of internal/dcbor is its oracle in tests; start and final values
// go through it.

// EncodeRow appends the row's deterministic encoding to dst.
func EncodeRow(dst []byte, r *Row) ([]byte, error) {
	pairs := 12
	for _, present := range [...]bool{r.Path != nil, r.Path2 != nil, r.Child != 0, r.Start != nil, r.Final != nil, r.End != nil, r.Reward != nil, r.Guard != nil} {
		if present {
			pairs++
		}
	}
	dst = append(dst, 0xa0|byte(pairs)) // at most 20 pairs: one byte
	dst = appendHead(append(dst, 1), 0, r.Seq)
	dst = appendHead(append(dst, 2), 0, r.Time)
	dst = appendHead(append(dst, 3), 0, uint64(r.Phase))
	dst = appendHead(append(dst, 4), 0, uint64(r.Proc))
	dst = appendHead(append(dst, 5), 0, uint64(r.Op))
	dst = appendHead(append(dst, 6), 0, uint64(r.Dir))
	dst = appendHead(append(dst, 7), 0, uint64(r.Origin))
	if r.Result >= 0 {
		dst = appendHead(append(dst, 8), 0, uint64(r.Result))
	} else {
		dst = appendHead(append(dst, 8), 1, uint64(-1-int64(r.Result)))
	}
	dst = appendHead(append(dst, 9), 0, uint64(r.Flags))
	dst = appendHead(append(dst, 10), 0, r.Size)
	dst = appendHead(append(dst, 11), 0, uint64(r.Object))
	dst = append(append(dst, 12, 0x58, 32), r.Commit[:]...)
	if r.Path != nil {
		dst = appendPath(append(dst, 13), r.Path)
	}
	if r.Path2 != nil {
		dst = appendPath(append(dst, 14), r.Path2)
	}
	if r.Child != 0 {
		dst = appendHead(append(dst, 15), 0, uint64(r.Child))
	}
	if r.Start != nil {
		b, err := dcbor.Marshal(r.Start)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, 16), b...)
	}
	if r.Final != nil {
		b, err := dcbor.Marshal(r.Final)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, 17), b...)
	}
	for _, part := range [...]struct {
		key     byte
		present bool
		v       any
	}{{18, r.End != nil, r.End}, {19, r.Reward != nil, r.Reward}, {20, r.Guard != nil, r.Guard}} {
		if !part.present {
			continue
		}
		b, err := dcbor.Marshal(part.v)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, part.key), b...)
	}
	return dst, nil
}

func appendPath(dst []byte, p *PathRef) []byte {
	dst = appendHead(append(dst, 0x82), 0, uint64(p.Dir))
	return append(append(dst, 0x58, 32), p.Digest[:]...)
}

// appendHead appends major type and argument in the shortest form (RFC 8949,
// section 3).
func appendHead(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

// ParseRow decodes one row. Accepted bytes are exactly those that EncodeRow
// writes; the error is a *RuleError of RuleEncoding or RuleFrame. What the row
// says is for a Checker.
func ParseRow(raw []byte) (Row, error) {
	if len(raw) > MaxRow {
		return Row{}, broken(RuleFrame, "at most 1 MiB", "a row of %d bytes", len(raw))
	}
	d := decoder{rest: raw}
	r := d.row()
	if d.err == nil && len(d.rest) != 0 {
		d.fail("the end of the row", "%d more bytes", len(d.rest))
	}
	if d.err != nil {
		return Row{}, d.err
	}
	return r, nil
}

// decoder reads one row. After the first failure it only returns zeros.
type decoder struct {
	rest []byte
	err  *RuleError
}

func (d *decoder) fail(want, gotFormat string, a ...any) {
	if d.err == nil {
		d.err = broken(RuleEncoding, want, gotFormat, a...)
		d.rest = nil
	}
}

func (d *decoder) row() (r Row) {
	pairs := d.head(5, 20)
	if d.err == nil && pairs < 12 {
		d.fail("12 to 20 keys", "%d keys", pairs)
	}
	d.key(1)
	r.Seq = d.head(0, math.MaxUint64)
	d.key(2)
	r.Time = d.head(0, math.MaxUint64)
	d.key(3)
	r.Phase = Phase(d.head(0, math.MaxUint8))
	d.key(4)
	r.Proc = uint32(d.head(0, math.MaxUint32))
	d.key(5)
	r.Op = Op(d.head(0, math.MaxUint8))
	d.key(6)
	r.Dir = Direction(d.head(0, math.MaxUint8))
	d.key(7)
	r.Origin = Origin(d.head(0, math.MaxUint8))
	d.key(8)
	if len(d.rest) > 0 && d.rest[0]>>5 == 1 {
		r.Result = int32(-1 - int64(d.head(1, math.MaxInt32)))
	} else {
		r.Result = int32(d.head(0, math.MaxInt32))
	}
	d.key(9)
	r.Flags = Flags(d.head(0, math.MaxUint32))
	d.key(10)
	r.Size = d.head(0, math.MaxUint64)
	d.key(11)
	r.Object = uint32(d.head(0, math.MaxUint32))
	d.key(12)
	d.bytes32(&r.Commit)
	for n, last := pairs-12, byte(12); n > 0 && d.err == nil; n-- {
		key := byte(d.head(0, math.MaxUint8))
		if key <= last {
			d.fail("keys in rising order", "key %d after %d", key, last)
			break
		}
		last = key
		switch key {
		case 13:
			r.Path = d.path()
		case 14:
			r.Path2 = d.path()
		case 15:
			if r.Child = uint32(d.head(0, math.MaxUint32)); r.Child == 0 {
				d.fail("no key 15 for 0", "key 15 with 0")
			}
		case 16:
			r.Start = new(Start)
			d.value(r.Start)
		case 17:
			r.Final = new(Final)
			d.value(r.Final)
		case 18:
			r.End = new(PhaseEnd)
			d.value(r.End)
		case 19:
			r.Reward = new(Reward)
			d.value(r.Reward)
		case 20:
			r.Guard = new(Guard)
			d.value(r.Guard)
		default:
			d.fail("keys 1 to 20", "key %d", key)
		}
	}
	return r
}

// head reads one head of the major type, in shortest form, up to limit.
func (d *decoder) head(major byte, limit uint64) uint64 {
	if len(d.rest) == 0 {
		d.fail("a value", "the end of the row")
		return 0
	}
	first := d.rest[0]
	if first>>5 != major {
		d.fail(majors[major], "initial byte 0x%02x", first)
		return 0
	}
	n := uint64(first & 31)
	size := 1
	if n >= 24 {
		if n > 27 {
			d.fail("a definite length of at most 8 bytes", "initial byte 0x%02x", first)
			return 0
		}
		width := 1 << (n - 24)
		size += width
		if len(d.rest) < size {
			d.fail("a value", "the end of the row")
			return 0
		}
		n = 0
		for _, b := range d.rest[1:size] {
			n = n<<8 | uint64(b)
		}
		if least := [9]uint64{1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}[width]; n < least {
			d.fail("the shortest form", "%d in %d bytes", n, size)
			return 0
		}
	}
	if n > limit {
		d.fail("a value within the key's range", "%d, limit %d", n, limit)
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

var majors = [...]string{0: "an unsigned integer", 1: "a negative integer", 2: "a byte string", 4: "an array", 5: "a map"}

func (d *decoder) key(k byte) {
	if d.err != nil {
		return
	}
	if len(d.rest) == 0 || d.rest[0] != k {
		d.fail("keys 1 to 12 in order", "another byte in place of key %d", k)
		return
	}
	d.rest = d.rest[1:]
}

func (d *decoder) bytes32(to *[32]byte) {
	n := d.head(2, math.MaxUint64)
	if d.err != nil {
		return
	}
	if n != 32 || len(d.rest) < 32 {
		d.fail("a byte string of 32 bytes", "one of %d with %d bytes left", n, len(d.rest))
		return
	}
	copy(to[:], d.rest)
	d.rest = d.rest[32:]
}

func (d *decoder) path() *PathRef {
	if n := d.head(4, math.MaxUint64); d.err == nil && n != 2 {
		d.fail("an array of 2", "an array of %d", n)
	}
	p := &PathRef{Dir: uint32(d.head(0, math.MaxUint32))}
	d.bytes32(&p.Digest)
	return p
}

func (d *decoder) value(v any) {
	if d.err != nil {
		return
	}
	rest, err := dcbor.UnmarshalFirst(d.rest, v)
	if err != nil {
		d.fail("deterministic CBOR of the closed schema", "%v", err)
		return
	}
	d.rest = rest
}
