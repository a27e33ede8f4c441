package compiled

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// sameCode tells whether two marshalled code objects of Python 3.minor load as the
// same. Equal bytes do. Some differences mean nothing. Which objects are marked so that
// others can refer to them, which equal texts and numbers are one object and which texts
// are interned depends on what the writing process had done before (Python/marshal.c,
// w_ref). So references are compared by the object that they lead to, objects that hold
// no others by value, and sets of texts without their order. The name of the source file is replaced when a cached module
// is loaded (importlib, _compile_bytecode), in all code objects that have the name of the
// outermost; so it must be the same in all of one module, and nothing more.
//
// Neither side is loaded. An error means that they may differ.
func sameCode(want, got []byte, minor int) error {
	if bytes.Equal(want, got) {
		return nil
	}
	layout, ok := layoutOf(minor)
	if !ok {
		return fmt.Errorf("other bytes, and no layout of code objects of Python 3.%d is known here", minor)
	}
	var forms [2][]byte
	for i, b := range [...][]byte{want, got} {
		r := &marshalled{rest: b, code: layout}
		if err := r.object(0); err != nil {
			return err
		}
		if len(r.rest) > 0 {
			return fmt.Errorf("%d bytes after the code", len(r.rest))
		}
		forms[i] = r.out
	}
	if !bytes.Equal(forms[0], forms[1]) {
		return errors.New("other code")
	}
	return nil
}

// A layout is how a code object is written: numbers, objects (the one with the file's
// name among them), the first line, and more objects.
type layout struct{ numbers, before, filename, after int }

// layoutOf knows CPython's (Python/marshal.c, w_complex_object of each branch).
func layoutOf(minor int) (layout, bool) {
	switch {
	case minor < 3 || minor > 14:
		return layout{}, false
	case minor < 8:
		return layout{numbers: 5, before: 8, filename: 6, after: 1}, true
	case minor < 11:
		return layout{numbers: 6, before: 8, filename: 6, after: 1}, true
	}
	return layout{numbers: 5, before: 8, filename: 5, after: 2}, true
}

// marshalled reads one object and writes it in a form in which a reference is the
// number of its object, in the order in which objects begin, or its value.
type marshalled struct {
	rest []byte
	code layout
	out  []byte

	objects int      // that hold others
	refs    [][]byte // forms of references to the objects that were marked, in order
	file    []byte   // the source file's name, as first met
}

// maxMarshalDepth is CPython's own bound (MAX_MARSHAL_STACK_DEPTH).
const maxMarshalDepth = 2000

const marked = 0x80 // FLAG_REF

var errShort = errors.New("its code is cut off")

func (m *marshalled) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(m.rest)) {
		return nil, errShort
	}
	b := m.rest[:n]
	m.rest = m.rest[n:]
	return b, nil
}

// size reads a size of 4 bytes or 1.
func (m *marshalled) size(bytes int64) (int64, error) {
	b, err := m.take(bytes)
	switch {
	case err != nil:
		return 0, err
	case bytes == 1:
		return int64(b[0]), nil
	}
	return int64(int32(binary.LittleEndian.Uint32(b))), nil
}

func (m *marshalled) object(depth int) error {
	if depth > maxMarshalDepth {
		return errors.New("its code is nested too deeply")
	}
	head, err := m.take(1)
	if err != nil {
		return err
	}
	kind := head[0] &^ marked
	if kind == 'r' {
		form, err := m.reference()
		m.out = append(m.out, form...)
		return err
	}
	if value, ok, err := m.value(kind); ok || err != nil {
		if head[0]&marked != 0 {
			m.refs = append(m.refs, value)
		}
		m.out = append(m.out, value...)
		return err
	}
	if head[0]&marked != 0 {
		m.refs = append(m.refs, binary.BigEndian.AppendUint64([]byte{'r'}, uint64(m.objects)))
	}
	m.objects++
	m.out = append(m.out, kind)
	switch kind {
	case '(', '[':
		return m.several(depth, 4)
	case '<', '>':
		return m.set(depth)
	case ')':
		return m.several(depth, 1)
	case ':':
		return m.all(depth, 3)
	case 'c':
		return m.codeObject(depth)
	}
	return fmt.Errorf("its code holds an object of unknown kind %q", kind)
}

func (m *marshalled) reference() ([]byte, error) {
	b, err := m.take(4)
	if err != nil {
		return nil, err
	}
	i := binary.LittleEndian.Uint32(b)
	if uint64(i) >= uint64(len(m.refs)) {
		return nil, errors.New("its code refers to what is not there")
	}
	return m.refs[i], nil
}

// value reads an object that holds no others: its form is its kind and its bytes, or
// their hash, so that many references to one text stay small.
func (m *marshalled) value(kind byte) (form []byte, ok bool, err error) {
	var n int64
	switch kind {
	case '0', 'N', 'F', 'T', 'S', '.':
	case 'i':
		n = 4
	case 'I', 'g':
		n = 8
	case 'y':
		n = 16
	case 'l':
		if n, err = m.size(4); err != nil {
			return nil, false, err
		}
		if form = []byte{'l', '+'}; n < 0 {
			form[1], n = '-', -n
		}
		n *= 2
	case 's', 't', 'u', 'a', 'A':
		n, err = m.size(4)
	case 'z', 'Z':
		n, err = m.size(1)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	b, err := m.take(n)
	if err != nil {
		return nil, false, err
	}
	switch kind {
	case 't':
		kind = 'u'
	case 'A', 'z', 'Z':
		kind = 'a'
	}
	if form == nil {
		form = []byte{kind}
	}
	if len(b) <= sha256.Size {
		return append(append(form, byte(len(b))), b...), true, nil
	}
	sum := sha256.Sum256(b)
	return append(append(form, 255), sum[:]...), true, nil
}

func (m *marshalled) several(depth int, size int64) error {
	n, err := m.size(size)
	if err != nil {
		return err
	}
	if n < 0 {
		return errShort
	}
	m.out = binary.BigEndian.AppendUint64(m.out, uint64(n))
	return m.all(depth, n)
}

// set reads the elements of a set. Those of texts alone are sorted: their hashes are drawn
// by each process, so their order says nothing. Others keep the order that they were
// written in.
func (m *marshalled) set(depth int) error {
	n, err := m.size(4)
	if err != nil {
		return err
	}
	if n < 0 {
		return errShort
	}
	m.out = binary.BigEndian.AppendUint64(m.out, uint64(n))
	start, texts := len(m.out), true
	var forms []string
	for range n {
		at := len(m.out)
		if err := m.object(depth + 1); err != nil {
			return err
		}
		form := m.out[at:]
		texts = texts && (form[0] == 's' || form[0] == 'a' || form[0] == 'u')
		if texts {
			forms = append(forms, string(form))
		}
	}
	if texts {
		slices.Sort(forms)
		m.out = append(m.out[:start], strings.Join(forms, "")...)
	}
	return nil
}

func (m *marshalled) all(depth int, n int64) error {
	for range n {
		if err := m.object(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (m *marshalled) codeObject(depth int) error {
	numbers, err := m.take(int64(4 * m.code.numbers))
	if err != nil {
		return err
	}
	m.out = append(m.out, numbers...)
	for i := range m.code.before {
		at := len(m.out)
		if err := m.object(depth + 1); err != nil {
			return err
		}
		if i == m.code.filename {
			if err := m.filename(m.out[at:]); err != nil {
				return err
			}
			m.out = m.out[:at]
		}
	}
	line, err := m.take(4)
	if err != nil {
		return err
	}
	m.out = append(m.out, line...)
	return m.all(depth, int64(m.code.after))
}

// filename holds the source file's name to be a text and the same everywhere.
func (m *marshalled) filename(form []byte) error {
	if form[0] != 'a' && form[0] != 'u' {
		return errors.New("its code has no name of a source file")
	}
	if m.file == nil {
		m.file = bytes.Clone(form)
	}
	if !bytes.Equal(form, m.file) {
		return errors.New("its code names several source files")
	}
	return nil
}
