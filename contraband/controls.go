package contraband

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// MarshalSealed is Marshal for who makes the set and knows the layer-1 digests
// whose Control the set shows: an item is looked for among those, instead of its
// Control among the controls, which would be one more SHA-256 for every item.
func (s *Set) MarshalSealed(controls [][32]byte) ([]byte, error) {
	known := make([]byte, 0, 32*len(controls))
	for _, d := range slices.SortedFunc(slices.Values(controls), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) }) {
		if shown := Control(d); !holds(s.Controls, shown[:]) {
			return nil, broken(RuleControls, "controls", fmt.Sprintf("none for %x", d[:8]), "each of the digests given")
		}
		known = append(known, d[:]...)
	}
	if err := checkOrder("digests under the controls", known); err != nil {
		return nil, err
	}
	if len(known) != len(s.Controls) {
		return nil, broken(RuleControls, "controls", len(s.Controls)/32, fmt.Sprintf("the %d given", len(controls)))
	}
	return s.marshal(func() error { return s.checkControlsOf(known) })
}

func (s *Set) checkControls() error {
	if err := s.checkControlList(); err != nil {
		return err
	}
	// An item that is a control, at its own level or one deeper, would be in
	// every run, so that a match of it would accuse everybody.
	control := among(s.Controls)
	return s.noItem(func(d []byte) bool {
		if control(d) {
			return true
		}
		deeper := Control([32]byte(d))
		return control(deeper[:])
	})
}

// checkControlsOf is checkControls where the digests under the controls are
// known, sorted and joined.
func (s *Set) checkControlsOf(known []byte) error {
	if err := s.checkControlList(); err != nil {
		return err
	}
	control, under := among(s.Controls), among(known)
	return s.noItem(func(d []byte) bool { return control(d) || under(d) })
}

func (s *Set) checkControlList() error {
	if len(s.Controls)%32 != 0 {
		return broken(RuleLength, "controls", fmt.Sprintf("%d bytes", len(s.Controls)), "a multiple of 32")
	}
	if n := len(s.Controls) / 32; n < MinControls {
		return broken(RuleControls, "controls", n, fmt.Sprintf("at least %d", MinControls))
	}
	if s.Control == "" || len(s.Control) > MaxControlText {
		return broken(RuleControls, "control text", fmt.Sprintf("%d bytes", len(s.Control)), fmt.Sprintf("1 to %d", MaxControlText))
	}
	return checkOrder("controls", s.Controls)
}

// among tells whether a digest is in a sorted list. Few of very many digests
// begin like one of the few in it.
func among(list []byte) func(d []byte) bool {
	begin := new([1 << 16 / 64]uint64)
	for d := range digests(list) {
		n := binary.BigEndian.Uint16(d)
		begin[n/64] |= 1 << (n % 64)
	}
	return func(d []byte) bool {
		n := binary.BigEndian.Uint16(d)
		return begin[n/64]>>(n%64)&1 != 0 && holds(list, d)
	}
}

// noItem refuses a set with a sealed or allowed item that is a control.
func (s *Set) noItem(control func(d []byte) bool) error {
	for _, g := range s.Groups {
		for d := range digests(g.Items) {
			if control(d) {
				return broken(RuleControlled, "groups", fmt.Sprintf("%x", d[:8]), "no item that is also a control")
			}
		}
	}
	for d := range digests(s.Allowed) {
		if control(d) {
			return broken(RuleControlled, "allowed", fmt.Sprintf("%x", d[:8]), "no item that is also a control")
		}
	}
	return nil
}
