package footprint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxMetadata bounds a sample's metadata, in bytes.
const maxMetadata = 1 << 20

// Widen adds what a sample's metadata allows: {"allowed": ["GLOB", ...]} and no other
// member, so a sample cannot change roots or gate. The error names the sample.
func (p Policy) Widen(sample string, metadata []byte) (Policy, error) {
	list, err := parseAllowed(metadata)
	var more Policy
	if err == nil {
		more, err = NewPolicy(list)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("sample %q: %w; want {\"allowed\": [\"GLOB\", ...]}", sample, err)
	}
	return Policy{slices.Concat(p.allowed, more.allowed)}, nil
}

// parseAllowed reads the one object token by token: a decoder into a struct would take
// a member twice, or in other letters, and half a surrogate pair as another character.
func parseAllowed(metadata []byte) (list []string, err error) {
	if len(metadata) > maxMetadata {
		return nil, fmt.Errorf("got %d bytes of metadata, want at most %d", len(metadata), maxMetadata)
	}
	if !utf8.Valid(metadata) {
		return nil, fmt.Errorf("got bytes that are not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(metadata))
	next := func() (t json.Token) {
		if err == nil {
			t, err = d.Token()
		}
		return t
	}
	if t := next(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("got no object")
	}
	if t := next(); err != nil || t != "allowed" {
		return nil, fmt.Errorf("got %.80v as the first member, want allowed alone", t)
	}
	if t := next(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("got no list of patterns")
	}
	list = []string{}
	for d.More() {
		s, ok := next().(string)
		if err != nil {
			return nil, err
		}
		if !ok || strings.ContainsRune(s, utf8.RuneError) {
			return nil, fmt.Errorf("got an entry that is no text")
		}
		list = append(list, s)
	}
	if next(); err != nil {
		return nil, err
	}
	if t := next(); err != nil || t != json.Delim('}') {
		return nil, fmt.Errorf("got %.80v beside allowed", t)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("got more after the object")
	}
	return list, nil
}
