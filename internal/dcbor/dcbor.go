// Package dcbor reads and writes deterministic CBOR (RFC 8949, section 4.2.1)
// and nothing else.
//
// Limits: no tags, no floats, no indefinite lengths, at most MaxDepth levels of
// nesting and MaxElements elements an array or map. Unmarshal encodes what it
// decoded and compares, so two different byte strings never decode to the same
// value: a second spelling of a number, a key out of order, a missing or an
// unknown field are errors.
//
// A nil slice or map is written as the empty one, so that "none" has one
// spelling; null is written for nil pointers only, and refused elsewhere.
package dcbor

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Bounds of what Unmarshal accepts. They stop memory from being claimed by a
// length prefix alone.
const (
	MaxDepth    = 16
	MaxElements = 1 << 22
)

// ErrNotCanonical is wrapped by the error for well-formed CBOR that is not the
// deterministic encoding of its own value.
var ErrNotCanonical = errors.New("not the deterministic encoding (RFC 8949, section 4.2.1)")

var (
	enc = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		IndefLength:   cbor.IndefLengthForbidden,
		TagsMd:        cbor.TagsForbidden,
		NilContainers: cbor.NilContainerAsEmpty,
	}.EncMode())
	dec = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		UTF8:              cbor.UTF8RejectInvalid,
		MaxNestedLevels:   MaxDepth,
		MaxArrayElements:  MaxElements,
		MaxMapPairs:       MaxElements,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// Marshal returns the deterministic encoding of v.
func Marshal(v any) ([]byte, error) { return enc.Marshal(v) }

// Unmarshal decodes data, which must be exactly one deterministically encoded
// item, into v (a pointer). On error *v is not to be used.
func Unmarshal(data []byte, v any) error {
	rest, err := UnmarshalFirst(data, v)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("got %d bytes after the item, want none", len(rest))
	}
	return nil
}

// UnmarshalFirst decodes the first item of a CBOR sequence (RFC 8742) into v and
// returns the bytes after it. Only the item itself is held to be canonical.
func UnmarshalFirst(data []byte, v any) (rest []byte, err error) {
	rest, err = dec.UnmarshalFirst(data, v)
	if err != nil {
		return nil, err
	}
	again, err := enc.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data[:len(data)-len(rest)]) {
		return nil, ErrNotCanonical
	}
	return rest, nil
}
