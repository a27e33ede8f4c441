package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// A Line is one row with its bytes as they stand in the journal.
type Line struct {
	Row Row
	Raw []byte
}

// Rows reads a journal file row by row, in constant memory. Bytes and schema are
// checked, nothing else: the rules are a Checker's, the root is the head's. An
// error ends the sequence: a *RuleError, or the reader's own. A journal whose
// last write was torn ends with RuleFrame; see Recover.
func Rows(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		n := uint64(0)
		for raw, err := range records(r, MaxRow) {
			var row Row
			if err == nil {
				row, err = ParseRow(raw)
			}
			if err != nil {
				yield(Line{}, at(err, n))
				return
			}
			if !yield(Line{row, raw}, nil) {
				return
			}
			n++
		}
	}
}

// Details reads a detail file: the encoded detail of row 0, 1, 2, ... They are
// not authenticated: compare each with its row (Row.Opens), then decode it
// (ParseDetail).
func Details(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		n := uint64(0)
		for raw, err := range records(r, MaxDetail) {
			if err != nil {
				yield(nil, at(err, n))
				return
			}
			if !yield(raw, nil) {
				return
			}
			n++
		}
	}
}

// at sets the row number of a rule error.
func at(err error, row uint64) error {
	var rule *RuleError
	if errors.As(err, &rule) {
		rule.Row = row
	}
	return err
}

const prefixSize = 4

// records yields length-prefixed records, each in memory of its own.
func records(r io.Reader, limit uint32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewReaderSize(r, 1<<16)
		for {
			var prefix [prefixSize]byte
			got, err := io.ReadFull(in, prefix[:])
			if err == io.EOF {
				return
			}
			if err == io.ErrUnexpectedEOF {
				err = tornRecord("a length of 4 bytes", "%d bytes at the end", got)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			size := binary.BigEndian.Uint32(prefix[:])
			if size == 0 || size > limit {
				yield(nil, broken(RuleFrame, fmt.Sprintf("1 to %d bytes", limit), "a record of %d bytes", size))
				return
			}
			raw, err := readRecord(in, int(size))
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(raw, nil) {
				return
			}
		}
	}
}

// readRecord claims memory as bytes arrive: a length prefix alone claims at most
// 64 KiB.
func readRecord(in *bufio.Reader, size int) ([]byte, error) {
	raw := make([]byte, 0, min(size, 1<<16))
	for len(raw) < size {
		if len(raw) == cap(raw) {
			grown := make([]byte, len(raw), min(size, 2*cap(raw)))
			copy(grown, raw)
			raw = grown
		}
		got, err := io.ReadFull(in, raw[len(raw):min(size, cap(raw))])
		raw = raw[:len(raw)+got]
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, tornRecord(fmt.Sprintf("a record of %d bytes", size), "%d bytes at the end", len(raw))
		}
		if err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// Tail is what Recover cut.
type Tail struct {
	Rows    int64 // bytes of a torn row
	Details int64 // bytes of torn details, and of details whose row was not written
}
