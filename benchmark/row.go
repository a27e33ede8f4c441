package benchmark

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/seal"
)

// maxColumns of a row.
const maxColumns = 4096

// A row is one JSON object of a data file, its values unread.
type row struct {
	file   string
	line   int
	names  []string // in order
	values map[string]json.RawMessage
}

func (r *row) errorf(column, format string, args ...any) error {
	return &seal.TaskError{File: r.file, Line: r.line, Item: column, Problem: fmt.Sprintf(format, args...)}
}

// parseRow reads one line strictly: one object in UTF-8, each column once. The
// error is a *TaskError.
func parseRow(file string, line int, text []byte) (*row, error) {
	r := &row{file: file, line: line, values: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, r.errorf("", "got an empty line, want one JSON object a line")
	}
	if !utf8.Valid(text) {
		return nil, r.errorf("", "got bytes that are not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return nil, r.errorf("", "got no JSON object, want {\"column\": value, ...}")
	}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, r.errorf("", "got malformed JSON: %v", err)
		}
		name, ok := tok.(string)
		if !ok || name == "" {
			return nil, r.errorf("", "got a column without a name")
		}
		if _, twice := r.values[name]; twice {
			return nil, r.errorf(name, "got the column again, want each once")
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, r.errorf(name, "got malformed JSON: %v", err)
		}
		r.names = append(r.names, name)
		if r.values[name] = v; len(r.names) > maxColumns {
			return nil, r.errorf("", "got over %d columns", maxColumns)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, r.errorf("", "got malformed JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, r.errorf("", "got more than one value on the line")
	}
	return r, nil
}

// single returns the text of a column that must have one. A whole number, as
// ids are, is its digits.
func (r *row) single(column string) (string, error) {
	raw, ok := r.values[column]
	if !ok {
		return "", r.missing(column)
	}
	if n := json.Number(raw); isInteger(string(n)) {
		return string(n), nil
	}
	s, err := r.text(column, raw)
	if err == nil && strings.TrimSpace(s) == "" {
		err = r.errorf(column, "got an empty text")
	}
	return s, err
}

func (r *row) missing(column string) error {
	return r.errorf(column, "the row has no such column, want each that fields or workspaces names")
}

// several returns the texts of a column that holds one text or a list of them.
// null, an empty text and an empty list are none.
func (r *row) several(column string) ([]seal.Text, error) {
	raw, ok := r.values[column]
	if !ok {
		return nil, r.missing(column)
	}
	if string(raw) == "null" {
		return nil, nil
	}
	if raw[0] != '[' {
		s, err := r.text(column, raw)
		if err != nil || strings.TrimSpace(s) == "" {
			return nil, err
		}
		return []seal.Text{{Value: s, Item: column, Line: r.line}}, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, r.errorf(column, "got malformed JSON: %v", err)
	}
	var list []seal.Text
	for i, p := range parts {
		item := fmt.Sprintf("%s[%d]", column, i)
		s, err := r.text(item, p)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(s) == "" {
			return nil, r.errorf(item, "got an empty text in a list")
		}
		list = append(list, seal.Text{Value: s, Item: item, Line: r.line})
	}
	return list, nil
}

// text reads a JSON string. A lone surrogate would be read as another character
// than the file has, so it is refused.
func (r *row) text(item string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", r.errorf(item, "got %.40q, want a text", raw)
	}
	s, ok := unquote(raw)
	if !ok {
		return "", r.errorf(item, "got half of a surrogate pair, which is no character")
	}
	return s, nil
}

func isInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return digits != ""
}

// unquote reads a well-formed JSON string in UTF-8. It is not ok if an escape is
// half of a surrogate pair.
func unquote(raw []byte) (s string, ok bool) {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	var b strings.Builder
	b.Grow(len(raw))
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			b.Write(raw)
			break
		}
		b.Write(raw[:n])
		switch raw = raw[n:]; raw[1] {
		case 'u':
			r := unit(raw)
			raw = raw[6:]
			if utf16.IsSurrogate(r) {
				if r = utf16.DecodeRune(r, unit(raw)); r == utf8.RuneError {
					return "", false
				}
				raw = raw[6:]
			}
			b.WriteRune(r)
		default:
			c := raw[1] // ", \ or /
			if i := strings.IndexByte("bfnrt", c); i >= 0 {
				c = "\b\f\n\r\t"[i]
			}
			b.WriteByte(c)
			raw = raw[2:]
		}
	}
	return b.String(), true
}

// unit is the number in the escape that raw begins with, 0 if there is none.
func unit(raw []byte) (r rune) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// A pattern is a path with {column} in it, relative to benchmark.yaml.
type pattern struct {
	at    seal.Value
	parts []string // text, column, text, ..., text
}

func parsePattern(at seal.Value, t seal.Text) (*pattern, error) {
	p := &pattern{at: seal.Value{File: at.File, Item: t.Item, Line: t.Line}}
	rest := t.Value
	for {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, p.at.Errorf("got %.200q, want text and {column}", t.Value)
		}
		p.parts = append(p.parts, text)
		if !found {
			return p, nil
		}
		column, more, closed := strings.Cut(after, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, p.at.Errorf("got %.200q, want text and {column}", t.Value)
		}
		p.parts = append(p.parts, column)
		rest = more
	}
}

// columns are the names in braces.
func (p *pattern) columns() (names []string) {
	for i := 1; i < len(p.parts); i += 2 {
		names = append(names, p.parts[i])
	}
	return names
}

// expand puts the values in and holds the result to a clean path that stays
// below its folder: a row must not name a workspace elsewhere on the machine.
func (p *pattern) expand(column func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for i, part := range p.parts {
		if i%2 == 0 {
			b.WriteString(part)
			continue
		}
		v, err := column(part)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
	}
	if name := b.String(); below(name) {
		return name, nil
	}
	return "", p.at.Errorf("got the workspace %.200q, want a clean path that stays below the folder of %s", b.String(), p.at.File)
}
