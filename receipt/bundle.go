package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Member names a file of a bundle.
type Member string

const (
	MemberReceipt   Member = "receipt.cose"        // COSE_Sign1 by the runner over the statement
	MemberStatement Member = "statement.dsse.json" // DSSE by the same key over the same statement
	MemberSealed    Member = "task.sealed"         // COSE_Sign1 by the owner over the sealed set
	MemberEvidence  Member = "evidence.cbor"       // evidence pack
	MemberProof     Member = "proof.cbor"          // compact proof
	MemberLogProof  Member = "log.tlog-proof"      // inclusion in a log
	MemberLog       Member = "log.cbor"            // entries of the run in that log, see LogMember
	MemberTimestamp Member = "timestamp.tsr"       // RFC 3161 token
	MemberReceipt2  Member = "receipt2.cose"       // second required signature over the statement
)

// members are all members in the order in which they stand, with the most bytes
// that each may have.
var members = []struct {
	name     Member
	max      int64
	required bool
}{
	{MemberReceipt, MaxReceipt, true},
	{MemberStatement, MaxEnvelope, true},
	{MemberSealed, MaxSealedSet, true},
	{MemberEvidence, 2 << 30, false},
	{MemberProof, 16 << 20, false},
	{MemberLogProof, 64 << 10, false},
	{MemberLog, MaxLogMember, false},
	{MemberTimestamp, 64 << 10, false},
	{MemberReceipt2, MaxReceipt, false},
}

const blockSize = 512

// ErrNotBundle is wrapped by ParseBundle's error for a file that is no bundle at
// all: it does not begin with a USTAR header for receipt.cose. Everything that
// begins like a bundle and differs later is a broken bundle, an *Error.
var ErrNotBundle = errors.New("not a cleanrun bundle")

// Bundle is the contents of a *.cleanrun file, as found: nothing in it is
// verified. An absent member is nil; a present one has at least one byte.
type Bundle struct {
	Receipt   []byte
	Statement []byte
	Sealed    []byte
	Evidence  []byte
	Proof     []byte
	LogProof  []byte
	Log       []byte
	Timestamp []byte
	Receipt2  []byte
}

func (b *Bundle) member(name Member) *[]byte {
	switch name {
	case MemberReceipt:
		return &b.Receipt
	case MemberStatement:
		return &b.Statement
	case MemberSealed:
		return &b.Sealed
	case MemberEvidence:
		return &b.Evidence
	case MemberProof:
		return &b.Proof
	case MemberLogProof:
		return &b.LogProof
	case MemberLog:
		return &b.Log
	case MemberTimestamp:
		return &b.Timestamp
	default:
		return &b.Receipt2
	}
}

// header is the only USTAR header (POSIX.1-1988, IEEE 1003.1) that we write for
// a member: mode 0644, no owner, no time.
func header(name Member, size int64) [blockSize]byte {
	var h [blockSize]byte
	copy(h[0:], name)
	copy(h[100:], "0000644\x00")                  // mode
	copy(h[108:], "0000000\x00")                  // uid
	copy(h[116:], "0000000\x00")                  // gid
	copy(h[124:], fmt.Sprintf("%011o\x00", size)) //
	copy(h[136:], "00000000000\x00")              // mtime
	copy(h[148:], "        ")                     // checksum, counted as spaces
	h[156] = '0'                                  // regular file
	copy(h[257:], "ustar\x0000")                  // magic, version
	copy(h[329:], "0000000\x00")                  // device numbers
	copy(h[337:], "0000000\x00")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// padding is the number of zero bytes after a member.
func padding(size int64) int64 { return (blockSize - size%blockSize) % blockSize }

// A BundleWriter writes the members one after the other, so that evidence need
// not fit in memory. The bytes that it writes depend only on the members.
type BundleWriter struct {
	w    io.Writer
	next int // index into members of the first one that may still come
	err  error
}

// NewBundleWriter writes a bundle to w. Nothing is a bundle before Close
// returned nil.
func NewBundleWriter(w io.Writer) *BundleWriter { return &BundleWriter{w: w} }

// Add writes one member of exactly size bytes from r. Members come in the order
// of their constants, each at most once. After an error the writer is dead.
func (w *BundleWriter) Add(name Member, size int64, r io.Reader) error {
	if w.err == nil {
		w.err = w.add(name, size, r)
	}
	return w.err
}

func (w *BundleWriter) add(name Member, size int64, r io.Reader) error {
	i, err := place(name, size, w.next)
	if err != nil {
		return err
	}
	w.next = i + 1
	h := header(name, size)
	if _, err := w.w.Write(h[:]); err != nil {
		return err
	}
	n, err := io.Copy(w.w, io.LimitReader(r, size))
	if err != nil {
		return err
	}
	if n != size {
		return refuse(StageMember, fmt.Sprintf("%s: %d bytes", name, n), fmt.Sprintf("%d", size), "the source changed while it was read").in("bundle")
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n != 0 {
		return refuse(StageMember, fmt.Sprintf("%s: more than %d bytes", name, size), fmt.Sprintf("%d", size), "the source changed while it was read").in("bundle")
	} else if err != io.EOF {
		return err
	}
	_, err = w.w.Write(make([]byte, padding(size)))
	return err
}

// Close writes the end of the bundle. It does not close the writer below.
func (w *BundleWriter) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := noneMissing(w.next, len(members)); err != nil {
		w.err = err
		return err
	}
	_, err := w.w.Write(make([]byte, 2*blockSize))
	w.err = err
	if err == nil {
		w.err = errors.New("bundle: already closed")
	}
	return err
}

// place finds a member's index and refuses one that may not stand here.
func place(name Member, size int64, next int) (int, error) {
	for i, m := range members {
		if m.name != name {
			continue
		}
		switch {
		case i < next:
			return 0, refuse(StageMember, fmt.Sprintf("%s again or too late", name), "each member once, in fixed order", "").in("bundle")
		case size < 1 || size > m.max:
			return 0, refuse(StageMember, fmt.Sprintf("%s of %d bytes", name, size), fmt.Sprintf("1 to %d", m.max), "leave an empty member out").in("bundle")
		}
		return i, noneMissing(next, i)
	}
	return 0, refuse(StageMember, fmt.Sprintf("member %q", clip([]byte(name))), "a member of this version", "the file was made by another version, or by something else").in("bundle")
}

// noneMissing refuses a step from one member to another over a required one.
func noneMissing(from, to int) error {
	for _, m := range members[from:to] {
		if m.required {
			return refuse(StageMember, "no "+string(m.name), "receipt.cose, statement.dsse.json and task.sealed", "").in("bundle")
		}
	}
	return nil
}

// FormatBundle returns the only file that holds b.
func FormatBundle(b *Bundle) ([]byte, error) {
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Write writes the bytes that FormatBundle returns.
func (b *Bundle) Write(to io.Writer) error {
	w := NewBundleWriter(to)
	for _, m := range members {
		if data := *b.member(m.name); data != nil {
			if err := w.Add(m.name, int64(len(data)), bytes.NewReader(data)); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// ParseBundle splits a bundle. It builds each header and each padding again and
// compares, so FormatBundle of the result is data. The members are parts of
// data, not copies. The error wraps ErrNotBundle, or is an *Error.
func ParseBundle(data []byte) (*Bundle, error) {
	if !looksLikeBundle(data) {
		return nil, fmt.Errorf("%w: it does not begin with the tar header of %s", ErrNotBundle, MemberReceipt)
	}
	broken := func(at int, got, want string) error {
		return refuse(StageTar, fmt.Sprintf("%s at offset %d", got, at), want, "the file was changed, cut or repacked; get it again from its source").in("bundle")
	}
	b := new(Bundle)
	next, at := 0, 0
	for {
		if len(data)-at < 2*blockSize {
			return nil, broken(at, fmt.Sprintf("%d bytes left", len(data)-at), "a header or two end blocks")
		}
		block := data[at : at+blockSize]
		if block[0] == 0 {
			break
		}
		name, size, ok := readHeader(block)
		if !ok {
			return nil, broken(at, "another tar header", "the fixed USTAR header of a member")
		}
		i, err := place(name, size, next)
		if err != nil {
			return nil, err
		}
		next = i + 1
		at += blockSize
		if whole := size + padding(size); int64(len(data)-at) < whole {
			return nil, broken(at, fmt.Sprintf("%d bytes left", len(data)-at), fmt.Sprintf("%d for %s", whole, name))
		}
		end := at + int(size)
		*b.member(name) = data[at:end:end]
		at = end + int(padding(size))
		if !allZero(data[end:at]) {
			return nil, broken(end, "padding that is not zero", "zero bytes up to the next block")
		}
	}
	if err := noneMissing(next, len(members)); err != nil {
		return nil, err
	}
	if rest := data[at:]; len(rest) != 2*blockSize || !allZero(rest) {
		return nil, broken(at, fmt.Sprintf("%d bytes", len(rest)), "two zero blocks and the end of the file")
	}
	return b, nil
}

func looksLikeBundle(data []byte) bool {
	var name [100]byte
	copy(name[:], MemberReceipt)
	return len(data) >= blockSize && bytes.Equal(data[:100], name[:]) && bytes.Equal(data[257:265], []byte("ustar\x0000"))
}

// readHeader reads name and size and holds the block to the header that they
// give. A name or size in another spelling gives another header.
func readHeader(block []byte) (name Member, size int64, ok bool) {
	n, _, _ := bytes.Cut(block[:100], []byte{0})
	for _, c := range block[124:135] {
		if c < '0' || c > '7' {
			return "", 0, false
		}
		size = size<<3 | int64(c-'0')
	}
	again := header(Member(n), size)
	return Member(n), size, bytes.Equal(again[:], block)
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
