package verify

import "testing"

// A session forgets the sets that came first when it holds too much.
func TestSealsAreBounded(t *testing.T) {
	var s seals
	size := maxSeals/3 + 1
	for i := range byte(10) {
		s.add(&seal{sum: [32]byte{i}, size: size})
		s.add(&seal{sum: [32]byte{i}, size: size}) // known
		if s.bytes > maxSeals || len(s.order) != len(s.bySum) || s.bytes != size*len(s.order) {
			t.Fatalf("got %d bytes of %d and %d seals", s.bytes, len(s.order), len(s.bySum))
		}
	}
	if known, _ := s.get([32]byte{9}, nil); known == nil {
		t.Error("the last one is not known")
	}
	if known, _ := s.get([32]byte{0}, nil); known != nil {
		t.Error("the first one is still known")
	}
	s.add(&seal{sum: [32]byte{99}, size: maxSeals + 1})
	if known, _ := s.get([32]byte{99}, nil); known != nil {
		t.Error("a set that is larger than the bound is kept")
	}
}
