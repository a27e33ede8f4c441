package benchmark

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// MaxRow is the longest line of a data file, in bytes.
const MaxRow = 64 << 20

// maxKept is how many bytes of rows are held in memory; those behind are read
// again when their task is.
const maxKept = 64 << 20

// Field kinds: what a column of a data file is to a task.
const (
	fieldID        = "id"
	fieldTitle     = "title"
	fieldPrompt    = "prompt"
	fieldWorkspace = "workspace"
	fieldReference = "reference"
	fieldTests     = "hidden_tests"
	fieldCanaries  = "canaries"
	fieldTokens    = "tokens"
	fieldSignals   = "signals"
	fieldCommands  = "commands"
	fieldFootprint = "footprint"
)

var (
	singleFields = []string{fieldID, fieldTitle, fieldPrompt, fieldWorkspace, fieldFootprint}
	listFields   = []string{fieldReference, fieldTests, fieldCanaries, fieldTokens, fieldSignals, fieldCommands}
)

// boundFields are all, in the order in which the commitment binds them.
var boundFields = append(slices.Concat(singleFields[:4], listFields), fieldFootprint)

// A fieldMap says which columns are what: one column for singleFields, any number in
// order for the others.
type fieldMap struct {
	at      seal.Value
	columns map[string][]seal.Text
	kindOf  map[string]string // of each column
}

func newFieldMap(v seal.Value) (*fieldMap, error) {
	f := &fieldMap{at: v, columns: map[string][]seal.Text{}, kindOf: map[string]string{}}
	err := v.Mapping(func(key string, v seal.Value) (bool, error) {
		single := slices.Contains(singleFields, key)
		if !single && !slices.Contains(listFields, key) {
			return false, nil
		}
		list, err := v.Texts()
		if one, single := v.Located(); single == nil {
			list, err = []seal.Text{one}, nil
		}
		if err != nil {
			return true, v.Errorf("want the name of a column, or a list of names")
		}
		if single && len(list) > 1 {
			return true, v.Errorf("got %d columns, want one", len(list))
		}
		for _, c := range list {
			if old, twice := f.kindOf[c.Value]; twice && old != fieldID && key != fieldID {
				return true, v.Errorf("got the column %.200q, which is %s already", c.Value, old)
			}
			f.kindOf[c.Value] = key
		}
		f.columns[key] = list
		return true, nil
	}, slices.Concat(singleFields, listFields)...)
	if err == nil && (f.columns[fieldID] == nil || f.columns[fieldPrompt] == nil) {
		err = v.Errorf("want id and prompt: a run needs them")
	}
	return f, err
}

// A rowSource is a data file with one JSON object a line.
type rowSource struct {
	at         seal.Value
	file       seal.Text
	fields     *fieldMap
	workspaces *pattern // nil: the column fieldWorkspace
	common     seal.Defaults
}

func newRows(at seal.Value, file seal.Text, f *fieldMap, workspaces seal.Text, c seal.Defaults) (*rowSource, error) {
	if f == nil {
		return nil, at.Errorf("want fields: which column is what")
	}
	if f.columns[fieldFootprint] != nil && !c.HasFootprint() {
		return nil, f.at.Errorf("got the field footprint, which widens the footprint of all tasks, and there is none; state footprint beside tasks")
	}
	s := &rowSource{at: at, file: file, fields: f, common: c}
	if (workspaces.Value != "") == (f.columns[fieldWorkspace] != nil) {
		return nil, at.Errorf("want workspaces, a pattern such as repos/{column}, or the field workspace, and not both")
	}
	if workspaces.Value != "" {
		p, err := parsePattern(at, workspaces)
		if err != nil {
			return nil, err
		}
		s.workspaces = p
	}
	return s, nil
}

// list goes through the file once and remembers where each row is.
func (s *rowSource) list(b *Benchmark) error {
	name := b.path(s.file.Value)
	f, err := regular.Given(name)
	if err != nil {
		return s.at.Errorf("cannot read the data file %.200q: %v", s.file.Value, reason(err))
	}
	b.opened = append(b.opened, f)
	known := &columnCount{empty: map[string]int{}, unmapped: map[string]int{}}
	var bad []error
	h := sha256.New()
	err = eachRow(name, bufio.NewReaderSize(io.TeeReader(f, h), 1<<20), func(line int, offset int64, text []byte) {
		e, err := s.row(b, f, name, line, offset, text, known)
		if err != nil {
			bad = append(bad, err)
			return
		}
		b.entries = append(b.entries, e)
	})
	if err != nil {
		return errors.Join(append(bad, err)...)
	}
	b.files = append(b.files, seal.HashedFile{Host: name, SHA256: [32]byte(h.Sum(nil))})
	known.report(b, name)
	return errors.Join(bad...)
}

func (s *rowSource) row(b *Benchmark, f io.ReaderAt, name string, line int, offset int64, text []byte, known *columnCount) (*entry, error) {
	t, err := s.task(b, name, line, text, known)
	if err != nil {
		return nil, err
	}
	if b.kept += len(text); b.kept <= maxKept {
		return &entry{id: t.ID, at: seal.Value{File: name, Line: line}, read: func() (*seal.Task, error) { return t, nil }}, nil
	}
	id, length, sum := t.ID, len(text), sha256.Sum256(text)
	at := seal.Value{File: name, Line: line}
	return &entry{id: id, at: at, read: func() (*seal.Task, error) {
		text := make([]byte, length)
		if _, err := f.ReadAt(text, offset); err != nil || sha256.Sum256(text) != sum {
			return nil, at.Errorf("the data file changed while it was read; start again")
		}
		return s.task(b, name, line, text, nil)
	}}, nil
}

// eachRow visits the lines of a data file. text is the visitor's only until it
// returns.
func eachRow(name string, r *bufio.Reader, visit func(line int, offset int64, text []byte)) error {
	var buf []byte
	var offset int64
	for line := 1; ; line++ {
		buf = buf[:0]
		for {
			part, err := r.ReadSlice('\n')
			buf = append(buf, part...)
			if len(buf) > MaxRow {
				return seal.Value{File: name, Line: line}.Errorf("got a row of over %d bytes; split it, or name its files in a folder of tasks", MaxRow)
			}
			if err == nil {
				break
			}
			if err == io.EOF {
				if len(buf) > 0 {
					visit(line, offset, buf)
				}
				return nil
			}
			if err != bufio.ErrBufferFull {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		visit(line, offset, bytes.TrimSuffix(bytes.TrimSuffix(buf, []byte("\n")), []byte("\r")))
		offset += int64(len(buf))
	}
}

// task makes the task of one row.
func (s *rowSource) task(b *Benchmark, name string, line int, text []byte, known *columnCount) (*seal.Task, error) {
	row, err := parseRow(name, line, text)
	if err != nil {
		return nil, err
	}
	t := seal.NewRow(name, filepath.Dir(b.File), s.binding(text))
	t.Benchmark, t.Period = b.Name, b.Period
	t.Hide(append(b.around(), name)...)
	one := func(kind string) (seal.Text, error) {
		columns := s.fields.columns[kind]
		if columns == nil {
			return seal.Text{}, nil
		}
		v, err := row.single(columns[0].Value)
		return seal.Text{Value: v, Item: columns[0].Value, Line: line}, err
	}
	id, err := one(fieldID)
	if err != nil {
		return nil, err
	}
	if t.ID = id.Value; !contraband.CheckName(t.ID) {
		return nil, row.errorf(id.Item, "got the task name %.80q, want a printable one on one line, at most 1024 bytes", t.ID)
	}
	if t.Title, err = one(fieldTitle); err != nil {
		return nil, err
	}
	prompt, err := one(fieldPrompt)
	if err != nil {
		return nil, err
	}
	t.Prompt.Inline = prompt.Value
	if t.Workspace, err = one(fieldWorkspace); err != nil {
		return nil, err
	}
	if s.workspaces != nil {
		t.Workspace = seal.Text{Item: "workspaces", Line: line}
		if t.Workspace.Value, err = s.workspaces.expand(row.single); err != nil {
			return nil, err
		}
	} else if !below(t.Workspace.Value) {
		return nil, row.errorf(t.Workspace.Item, "got the workspace %.200q, want a clean path that stays below the folder of %s", t.Workspace.Value, b.File)
	}
	if err := s.lists(t, row, known); err != nil {
		return nil, err
	}
	known.row(row, s.fields, s.workspaces)
	if err := s.common.Fill(t); err != nil {
		return nil, err
	}
	return t, s.widen(t, row)
}

// widen adds what the row's own column allows. null adds nothing.
func (s *rowSource) widen(t *seal.Task, row *row) error {
	columns := s.fields.columns[fieldFootprint]
	if columns == nil {
		return nil
	}
	column := columns[0].Value
	raw, ok := row.values[column]
	if !ok {
		return row.missing(column)
	}
	if string(raw) == "null" {
		return nil
	}
	if err := t.Widen(raw); err != nil {
		return row.errorf(column, "%v", err)
	}
	return nil
}

// lists reads the columns of the kinds that have several.
func (s *rowSource) lists(t *seal.Task, row *row, known *columnCount) error {
	for kind, to := range map[string]*[]seal.Text{fieldCanaries: &t.Canaries, fieldTokens: &t.Tokens, fieldSignals: &t.Signals, fieldCommands: &t.Commands} {
		for _, column := range s.fields.columns[kind] {
			list, err := row.several(column.Value)
			if err != nil {
				return err
			}
			known.emptyIf(len(list) == 0, column.Value)
			*to = append(*to, list...)
		}
	}
	for _, k := range []struct {
		name string
		kind contraband.Kind
	}{{fieldReference, contraband.KindReference}, {fieldTests, contraband.KindTest}} {
		for _, column := range s.fields.columns[k.name] {
			list, err := row.several(column.Value)
			if err != nil {
				return err
			}
			known.emptyIf(len(list) == 0, column.Value)
			for _, text := range list {
				if err := t.Give(k.kind, text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// binding is what the commitment binds of a row: its bytes, and which column is
// what.
func (s *rowSource) binding(text []byte) []byte {
	out := []byte("cleanrun/row/v1")
	field := func(b []byte) { out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...) }
	field(text)
	for _, kind := range boundFields {
		for _, c := range s.fields.columns[kind] {
			field([]byte(kind))
			field([]byte(c.Value))
		}
	}
	return out
}

// A columnCount gathers what is to be said of a whole data file. nil counts
// nothing.
type columnCount struct {
	rows     int
	empty    map[string]int // of columns that a field names
	unmapped map[string]int // of columns that sound like an answer and that no field names
}

func (c *columnCount) emptyIf(empty bool, column string) {
	if c != nil && empty {
		c.empty[column]++
	}
}

func (c *columnCount) row(r *row, f *fieldMap, p *pattern) {
	if c == nil {
		return
	}
	c.rows++
	for _, name := range r.names {
		if _, mapped := f.kindOf[name]; !mapped && soundsLikeAnswer(name) && !(p != nil && slices.Contains(p.columns(), name)) {
			c.unmapped[name]++
		}
	}
}

func (c *columnCount) report(b *Benchmark, name string) {
	for _, column := range sortedNames(c.unmapped) {
		b.warn("%s: column %q sounds like an answer or a hint, and no field names it: it is not sealed (%d of %d rows)", name, column, c.unmapped[column], c.rows)
	}
	for _, column := range sortedNames(c.empty) {
		b.warn("%s: column %q is empty in %d of %d rows: nothing of it is sealed there", name, column, c.empty[column], c.rows)
	}
}

func sortedNames(m map[string]int) []string {
	var names []string
	for n := range m { // sorted below
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// answerWords are words of column names under which data sets keep answers.
var answerWords = []string{"answer", "answers", "explanation", "expected", "fix", "gold", "golden", "hint", "hints", "key", "label", "labels", "patch",
	"rationale", "reference", "solution", "solutions", "target", "targets", "test", "tests", "truth"}

func soundsLikeAnswer(column string) bool {
	for _, word := range strings.FieldsFunc(strings.ToLower(column), func(r rune) bool { return !('a' <= r && r <= 'z') }) {
		if slices.Contains(answerWords, word) {
			return true
		}
	}
	return false
}
