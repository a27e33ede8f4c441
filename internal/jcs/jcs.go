// Package jcs writes our own structs as JCS (RFC 8785) in one pass. Statements
// are read strictly by encoding them again and comparing, and an audit does that
// for thousands: encoding to JSON, parsing that and sorting it, as the library
// does, took a fifth of an audit's time. The library is the oracle of the tests.
//
// It takes what statements are made of: structs with a json tag on every field,
// slices, pointers, strings, booleans and whole numbers up to 2^53-1. Anything
// else is an error.
package jcs

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// maxExact is the largest integer that JSON numbers carry exactly (RFC 8785,
// section 3.2.2.3).
const maxExact = 1<<53 - 1

// Marshal returns the JCS bytes of v.
func Marshal(v any) ([]byte, error) { return appendValue(nil, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return appendValue(b, v.Elem())
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Slice:
		return appendSlice(b, v)
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		if v.Uint() > maxExact {
			return nil, fmt.Errorf("jcs: got %d, want at most 2^53-1", v.Uint())
		}
		return strconv.AppendUint(b, v.Uint(), 10), nil
	}
	return nil, fmt.Errorf("jcs: got a %v, want what statements are made of", v.Kind())
}

func appendSlice(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return nil, errors.New("jcs: got bytes, want text")
	}
	var err error
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// A field of a struct, in the order in which it is written.
type field struct {
	index     int
	key       []byte // with quotes and colon
	name      string
	omitEmpty bool // a nil pointer is left out
}

var structs sync.Map // reflect.Type to []field

func appendStruct(b []byte, v reflect.Value) ([]byte, error) {
	fields, err := fieldsOf(v.Type())
	if err != nil {
		return nil, err
	}
	first := true
	b = append(b, '{')
	for i := range fields {
		f := &fields[i]
		value := v.Field(f.index)
		if f.omitEmpty && value.IsNil() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, f.key...)
		if b, err = appendValue(b, value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// fieldsOf sorts the fields by the UTF-16 code units of their names (RFC 8785,
// section 3.2.3).
func fieldsOf(t reflect.Type) ([]field, error) {
	if known, ok := structs.Load(t); ok {
		return known.([]field), nil
	}
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "" || name == "-" {
			return nil, fmt.Errorf("jcs: %v.%s: want an exported field with a JSON name", t, f.Name)
		}
		omit := options == "omitempty" && f.Type.Kind() == reflect.Pointer
		if options != "" && !omit {
			return nil, fmt.Errorf("jcs: %v.%s: got the option %q, want none, or omitempty of a pointer", t, f.Name, options)
		}
		key, err := appendString(nil, name)
		if err != nil {
			return nil, err
		}
		list = append(list, field{i, append(key, ':'), name, omit})
	}
	slices.SortFunc(list, func(a, b field) int {
		return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
	})
	structs.Store(t, list)
	return list, nil
}

// appendString writes a string as RFC 8785, section 3.2.2.2, does.
func appendString(b []byte, s string) ([]byte, error) {
	const hex = "0123456789abcdef"
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("jcs: got %.80q, want UTF-8", s)
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\t':
			b = append(b, '\\', 't')
		case '\n':
			b = append(b, '\\', 'n')
		case '\f':
			b = append(b, '\\', 'f')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"'), nil
}
