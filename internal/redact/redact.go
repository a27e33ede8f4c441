// Package redact replaces secrets in what a run folder is about to keep: values
// that are given, and text of the shape of well-known keys. Each byte that is
// removed becomes a '*', so that sizes stay what they were.
//
// Limits first. Only the plain bytes of a value are found, not an encoding of
// it (base64, compression, escapes, a git object). A value that is written in
// pieces of at most three bytes to different places is not found. Key shapes are
// a closed list (Shapes). What a shape or a pattern removes is never looked at by
// a scanner, so an answer could hide in it: shapes are narrow, a match of them
// has at most MaxBlock bytes, and at most MaxRow bytes a content and MaxRun bytes
// a run are removed because of shapes and patterns. Beyond that nothing more is
// removed and Result.Over says so. Values are not bounded: whoever starts the run
// gives them, and nothing but the value itself is removed.
package redact

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
)

// Bounds, in bytes.
const (
	MinValue  = 8
	MaxValue  = 512
	MaxValues = 16
	MaxBlock  = 4 << 10  // of one key in PEM
	MaxRow    = 4 << 10  // that shapes and patterns remove from one content
	MaxRun    = 64 << 10 // and from all contents of a run
)

// blanks stand between words. No value and no match holds one: prose and code
// must not be removed as a secret.
const blanks = " \t\r\n\v\f"

// Mark is what stands in place of a removed byte.
const Mark = '*'

// A Config says what is removed. It can be stored as JSON.
type Config struct {
	Values   [][]byte // each of MinValue to MaxValue bytes, without blanks
	Shapes   bool     // well-known keys, see Shapes
	Patterns []string // regular expressions (Go syntax) whose matches have MinValue to MaxValue bytes and no blanks
}

// A Result says what was removed from one content.
type Result struct {
	Bytes int  // removed
	Over  bool // a key was left, since a bound was reached
}

func (r *Result) add(o Result) { r.Bytes, r.Over = r.Bytes+o.Bytes, r.Over || o.Over }

// A Redactor removes. It may be used from several goroutines. The zero Redactor
// and nil remove nothing.
type Redactor struct {
	values   [][]byte // longest first: one may begin another
	shapes   bool
	patterns []*regexp.Regexp
	left     *atomic.Int64 // of MaxRun; nil is no bound
}

// New checks a Config.
func New(c Config) (*Redactor, error) {
	r := &Redactor{shapes: c.Shapes, left: new(atomic.Int64)}
	r.left.Store(MaxRun)
	if len(c.Values) > MaxValues {
		return nil, fmt.Errorf("got %d secrets, want at most %d", len(c.Values), MaxValues)
	}
	for i, v := range c.Values {
		if len(v) < MinValue || len(v) > MaxValue {
			return nil, fmt.Errorf("secret %d: got a value of %d bytes, want %d to %d", i+1, len(v), MinValue, MaxValue)
		}
		if bytes.ContainsAny(v, blanks) {
			return nil, fmt.Errorf("secret %d: got a value with a blank in it, want one word as keys are: text is not removed", i+1)
		}
		if !slices.ContainsFunc(v, func(b byte) bool { return b != v[0] }) {
			return nil, fmt.Errorf("secret %d: got one byte again and again, want a value that stands nowhere by accident", i+1)
		}
		r.values = append(r.values, bytes.Clone(v))
	}
	slices.SortStableFunc(r.values, func(a, b []byte) int { return len(b) - len(a) })
	for _, p := range c.Patterns {
		re, err := compile(p)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, re)
	}
	return r, nil
}

// Unbounded returns a Redactor that keeps no count: for what no scanner reads.
func (r *Redactor) Unbounded() *Redactor {
	if r == nil {
		return nil
	}
	c := *r
	c.left = nil
	return &c
}

// WithoutShapes returns a Redactor that removes values and matches of patterns
// only. It shares the counts.
func (r *Redactor) WithoutShapes() *Redactor {
	if r == nil {
		return nil
	}
	c := *r
	c.shapes = false
	return &c
}

// Empty tells whether nothing can be removed.
func (r *Redactor) Empty() bool {
	return r == nil || len(r.values) == 0 && !r.shapes && len(r.patterns) == 0
}

// Bytes removes secrets from a whole content, in place.
func (r *Redactor) Bytes(b []byte) Result {
	if r.Empty() {
		return Result{}
	}
	row := r.row()
	var res Result
	for _, f := range r.find(b, true, false) {
		res.add(r.apply(b, f, row))
	}
	return res
}

// String removes secrets from a text. '/' stays where it is if path is set, so
// that a path keeps its directories.
func (r *Redactor) String(s string, path bool) (string, Result) {
	if r.Empty() || len(s) < MinValue {
		return s, Result{}
	}
	b := []byte(s)
	res := r.Bytes(b)
	if res.Bytes == 0 {
		return s, res
	}
	if path {
		for i := range b {
			if s[i] == '/' {
				b[i] = '/'
			}
		}
	}
	return string(b), res
}

// Finds tells whether s holds one of the values.
func (r *Redactor) Finds(s []byte) bool {
	return r != nil && slices.ContainsFunc(r.values, func(v []byte) bool { return bytes.Contains(s, v) })
}

// row is the count of one content.
func (r *Redactor) row() *int {
	n := MaxRow
	if r.left == nil {
		n = 1 << 62
	}
	return &n
}

// take claims n bytes for a key. The run's count is shared.
func (r *Redactor) take(row *int, n int) bool {
	if n > *row {
		return false
	}
	if r.left != nil && r.left.Add(-int64(n)) < 0 {
		r.left.Add(int64(n))
		return false
	}
	*row -= n
	return true
}

// find lists what to remove from b, in order. first says that b begins the
// content, open that a key which b cuts off counts too.
func (r *Redactor) find(b []byte, first, open bool) (found []span) {
	for _, v := range r.values {
		for at := 0; ; {
			i := bytes.Index(b[at:], v)
			if i < 0 {
				break
			}
			found = append(found, span{at + i, at + i + len(v), true})
			at += i + 1 // a value may overlap itself
		}
	}
	if r.shapes {
		found = keys(b, first, open, found)
	}
	for _, re := range r.patterns {
		for _, m := range re.FindAllIndex(b, -1) {
			found = append(found, span{m[0], m[1], false})
		}
	}
	// Values first: they are not counted, and need no second removal.
	slices.SortStableFunc(found, func(a, b span) int {
		switch {
		case a.value != b.value && a.value:
			return -1
		case a.value != b.value:
			return 1
		}
		return a.from - b.from
	})
	return found
}

// apply removes one place, clipped to b.
func (r *Redactor) apply(b []byte, f span, row *int) (res Result) {
	part := b[max(f.from, 0):min(f.to, len(b))]
	n := 0
	for _, c := range part {
		if c != Mark {
			n++
		}
	}
	if n == 0 {
		return res
	}
	if !f.value && !r.take(row, n) {
		return Result{Over: true}
	}
	for i := range part {
		part[i] = Mark
	}
	return Result{Bytes: n}
}

// A span is a place in a content.
type span struct {
	from, to int
	value    bool
}
