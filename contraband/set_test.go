package contraband

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// digest n of a test list; they ascend with n.
func digestN(list byte, n int) []byte {
	d := bytes.Repeat([]byte{list}, 32)
	binary.BigEndian.PutUint32(d[1:], uint32(n))
	return d
}

func digestList(id byte, n int) []byte {
	var out []byte
	for i := range n {
		out = append(out, digestN(id, i)...)
	}
	return out
}

func sampleSet() *Set {
	s := &Set{
		Version: Version, Profile: Profile, Benchmark: "bench", Task: "task",
		Scope:    Scope{Workspace: 1, Grants: []Grant{{Path: "/data", Mode: 0}, {Path: "/data/x", Mode: 3}}},
		Channels: []Channel{{Name: "stdin", Role: "model"}},
		Sources:  []Count{{Kind: KindID, N: 1}, {Kind: KindTest, N: 2}}, Uncovered: []Count{},
		Groups: []Group{
			{Kind: KindReference, Class: ClassRaw, Threshold: 1, Items: digestList(1, 16)},
			{Kind: KindReference, Class: ClassShingle, Threshold: 7, Items: digestList(2, 256)},
			{Kind: KindTest, Class: ClassLine, Threshold: 2, Items: digestList(3, 16)},
			{Kind: KindTest, Class: ClassLine, Threshold: 3, Items: digestList(4, 32)},
			{Kind: KindCanary, Class: ClassCanary, Threshold: 1, Items: digestList(5, 16)},
		},
		Allowed: digestList(6, 16), Controls: digestList(7, 70), Control: "control text", Kept: 9,
	}
	for i := range uint32(64) {
		s.Filter = append(s.Filter, i<<12)
	}
	return s
}

func TestSetRoundTrip(t *testing.T) {
	data, err := sampleSet().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSet(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Marshal()
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("got other bytes after a round trip, %v", err)
	}
}

// Each case breaks one rule of a set that is otherwise good, and must fail at
// that rule.
var setCases = []struct {
	name string
	want Rule
	edit func(s *Set)
}{
	{"version", RuleVersion, func(s *Set) { s.Version = "cleanrun/sealed-set/v2" }},
	{"RT29 other profile", RuleProfile, func(s *Set) { s.Profile = strings.Replace(Profile, "15.0.0", "16.0.0", 1) }},
	{"RT29 other parameters", RuleProfile, func(s *Set) { s.Profile = strings.Replace(Profile, "k48w49", "k48w81", 1) }},
	{"no task", RuleName, func(s *Set) { s.Task = "" }},
	{"line break in a name", RuleName, func(s *Set) { s.Benchmark = "a\nb" }},
	{"workspace mode", RuleScope, func(s *Set) { s.Scope.Workspace = 2 }},
	{"relative grant", RuleScope, func(s *Set) { s.Scope.Grants[0].Path = "data" }},
	{"unclean grant", RuleScope, func(s *Set) { s.Scope.Grants[0].Path = "/data/../etc" }},
	{"grant mode", RuleScope, func(s *Set) { s.Scope.Grants[0].Mode = 4 }},
	{"grants unsorted", RuleScope, func(s *Set) { slices.Reverse(s.Scope.Grants) }},
	{"grant repeated", RuleScope, func(s *Set) { s.Scope.Grants[1] = s.Scope.Grants[0] }},
	{"role", RuleChannels, func(s *Set) { s.Channels[0].Role = "friend" }},
	{"channel repeated", RuleChannels, func(s *Set) { s.Channels = append(s.Channels, s.Channels[0]) }},
	{"sources unsorted", RuleCounts, func(s *Set) { slices.Reverse(s.Sources) }},
	{"count of zero", RuleCounts, func(s *Set) { s.Sources[0].N = 0 }},
	{"unknown kind counted", RuleCounts, func(s *Set) { s.Sources[1].Kind = 8 }},
	{"RT24 kept", RuleKept, func(s *Set) { s.Kept = 11 }},
	{"RT20 unsorted", RuleOrder, func(s *Set) { swap(s.Groups[1].Items, 3, 4) }},
	{"RT20 repeated", RuleOrder, func(s *Set) { copy(s.Groups[1].Items[32:], s.Groups[1].Items[:32]) }},
	{"RT20 allowed unsorted", RuleOrder, func(s *Set) { swap(s.Allowed, 0, 1) }},
	{"RT20 controls repeated", RuleOrder, func(s *Set) { copy(s.Controls[32:], s.Controls[:32]) }},
	{"RT21 31 bytes", RuleLength, func(s *Set) { s.Groups[0].Items = s.Groups[0].Items[:16*32-1] }},
	{"RT21 allowed", RuleLength, func(s *Set) { s.Allowed = append(s.Allowed, 0) }},
	{"RT21 controls", RuleLength, func(s *Set) { s.Controls = s.Controls[1:] }},
	{"RT22 item relabelled as control", RuleControlled, func(s *Set) { s.Controls = append(digestList(7, 69), s.Groups[4].Items[:32]...); sortList(s.Controls) }},
	{"RT22 control relabelled as item", RuleControlled, func(s *Set) {
		s.Controls = append(digestList(7, 69), first32(Control([32]byte(s.Groups[0].Items[:32])))...)
		sortList(s.Controls)
	}},
	{"RT22 control is allowed", RuleControlled, func(s *Set) { copy(s.Allowed, s.Controls[:32]); sortList(s.Allowed) }},
	{"RT23 item is allowed", RuleAllowed, func(s *Set) { copy(s.Allowed, s.Groups[2].Items[:32]) }},
	{"RT91 size of a group", RulePadding, func(s *Set) { s.Groups[0].Items = digestList(1, 17) }},
	{"RT91 small group", RulePadding, func(s *Set) { s.Groups[0].Items = digestList(1, 8) }},
	{"RT91 empty group", RulePadding, func(s *Set) { s.Groups[0].Items = []byte{} }},
	{"RT91 size of allowed", RulePadding, func(s *Set) { s.Allowed = digestList(6, 24) }},
	{"RT91 size of the filter", RulePadding, func(s *Set) { s.Filter = s.Filter[1:] }},
	{"groups unsorted", RuleOrder, func(s *Set) { s.Groups[2], s.Groups[3] = s.Groups[3], s.Groups[2] }},
	{"group repeated", RuleOrder, func(s *Set) { s.Groups[3] = s.Groups[2] }},
	{"unknown kind", RuleKind, func(s *Set) { s.Groups[4].Kind = 8 }},
	{"unknown class", RuleKind, func(s *Set) { s.Groups[3].Class = 8 }},
	{"canary as a test's item", RuleKind, func(s *Set) { s.Groups[3].Class = ClassCanary }},
	{"title as a whole object", RuleKind, func(s *Set) { s.Groups[0].Kind = KindTitle }},
	{"threshold raised", RuleThreshold, func(s *Set) { s.Groups[1].Threshold = 200 }},
	{"threshold of zero", RuleThreshold, func(s *Set) { s.Groups[0].Threshold = 0 }},
	{"threshold of a line", RuleThreshold, func(s *Set) { s.Groups[2].Threshold = 4 }},
	{"few controls", RuleControls, func(s *Set) { s.Controls = s.Controls[:63*32] }},
	{"no control text", RuleControls, func(s *Set) { s.Control = "" }},
	{"filter value of 25 bits", RuleFilter, func(s *Set) { s.Filter[63] = 1 << 24 }},
	{"no filter", RuleFilter, func(s *Set) { s.Filter = []uint32{} }},
	{"filter unsorted", RuleOrder, func(s *Set) { slices.Reverse(s.Filter) }},
	{"filter without items", RuleFilter, func(s *Set) { s.Groups = s.Groups[:2] }},
}

func swap(b []byte, i, j int) {
	a := slices.Clone(b[32*i : 32*i+32])
	copy(b[32*i:], b[32*j:32*j+32])
	copy(b[32*j:], a)
}

// breakRules runs the cases whose name begins with prefix: at least n.
func breakRules(t *testing.T, prefix string, n int) {
	t.Helper()
	if data, err := sampleSet().Marshal(); err != nil {
		t.Fatalf("control: %v", err)
	} else if _, err := ParseSet(data); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, c := range setCases {
		if !strings.HasPrefix(c.name, prefix) {
			continue
		}
		n--
		s := sampleSet()
		c.edit(s)
		data, err := dcbor.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for how, err := range map[string]error{"ParseSet": second(ParseSet(data)), "Marshal": second(s.Marshal())} {
			var bad *SetError
			if !errors.As(err, &bad) || bad.Rule != c.want {
				t.Errorf("%s: %s: got %v, want rule %q", c.name, how, err, c.want)
			}
		}
	}
	if n > 0 {
		t.Errorf("%d cases fewer than there must be", n)
	}
}

func TestSetRules(t *testing.T)                   { breakRules(t, "", 45) }
func TestRT20_UnsortedOrRepeated(t *testing.T)    { breakRules(t, "RT20", 4) }
func TestRT21_WrongLength(t *testing.T)           { breakRules(t, "RT21", 3) }
func TestRT22_ControlIsNoContraband(t *testing.T) { breakRules(t, "RT22", 3) }
func TestRT23_ItemIsNotAllowed(t *testing.T)      { breakRules(t, "RT23", 1) }
func TestRT24_KeptIsTenths(t *testing.T)          { breakRules(t, "RT24", 1) }
func TestRT29_OtherProfile(t *testing.T)          { breakRules(t, "RT29", 2) }
func TestRT91_SizesArePowersOfTwo(t *testing.T)   { breakRules(t, "RT91", 5) }

// RT22: MarshalSealed, which knows what is under the controls, refuses what
// Marshal refuses, and writes the same otherwise.
func TestRT22_MarshalSealed(t *testing.T) {
	var under [][32]byte
	for i := range 70 {
		under = append(under, Control([32]byte(digestN(8, i)))) // in no order
	}
	sample := func() *Set {
		s := sampleSet()
		s.Controls = nil
		for _, d := range under {
			s.Controls = append(s.Controls, first32(Control(d))...)
		}
		sortList(s.Controls)
		return s
	}
	want, err := sample().Marshal()
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	if got, err := sample().MarshalSealed(under); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("control: got %v and %d bytes, want those of Marshal", err, len(got))
	}
	for name, c := range map[string]struct {
		want Rule
		edit func(*Set) [][32]byte
	}{
		"a control is an item": {RuleControlled, func(s *Set) [][32]byte {
			copy(s.Groups[3].Items, s.Controls[32:64])
			sortList(s.Groups[3].Items)
			return under
		}},
		"what is under one is an item": {RuleControlled, func(s *Set) [][32]byte {
			copy(s.Groups[1].Items[64:], under[69][:])
			sortList(s.Groups[1].Items)
			return under
		}},
		"what is under one is allowed":   {RuleControlled, func(s *Set) [][32]byte { copy(s.Allowed, under[0][:]); sortList(s.Allowed); return under }},
		"one is not given":               {RuleControls, func(*Set) [][32]byte { return under[1:] }},
		"another is given":               {RuleControls, func(*Set) [][32]byte { return append(slices.Clone(under[1:]), [32]byte{1}) }},
		"one is given twice for another": {RuleOrder, func(*Set) [][32]byte { return append(slices.Clone(under[1:]), under[1]) }},
		"another rule":                   {RuleKept, func(s *Set) [][32]byte { s.Kept = 11; return under }},
	} {
		s := sample()
		_, err := s.MarshalSealed(c.edit(s))
		var bad *SetError
		if !errors.As(err, &bad) || bad.Rule != c.want {
			t.Errorf("%s: got %v, want rule %q", name, err, c.want)
		}
	}
}

func first32(d [32]byte) []byte { return d[:] }

func sortList(b []byte) {
	var parts []string
	for p := range slices.Chunk(b, 32) {
		parts = append(parts, string(p))
	}
	slices.Sort(parts)
	copy(b, strings.Join(parts, ""))
}

func TestSetEncoding(t *testing.T) {
	good, err := sampleSet().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty": {}, "trailing byte": append(slices.Clone(good), 0), "cut": good[:len(good)-1],
		"unknown key": append(append([]byte{good[0] + 1}, good[1:]...), 0x15, 0x00),
	} {
		var bad *SetError
		if _, err := ParseSet(data); !errors.As(err, &bad) || bad.Rule != RuleEncoding {
			t.Errorf("%s: got %v, want rule %q", name, err, RuleEncoding)
		}
	}
}

// RT16: an empty set, or one of ids and titles only, carries no verdict.
func TestRT16_TooSmall(t *testing.T) {
	if sampleSet().TooSmall() {
		t.Error("control: a set with a whole object is too small")
	}
	empty := sampleSet()
	empty.Groups, empty.Filter = nil, nil
	data, err := empty.Marshal()
	if err != nil {
		t.Errorf("an empty set is well formed: %v", err)
	}
	if _, err := ParseSet(data); err != nil {
		t.Errorf("an empty set parses: %v", err)
	}
	// Key 18 with null for the empty list: another spelling of the same set.
	data = bytes.Replace(data, []byte{0x12, 0x80, 0x13}, []byte{0x12, 0xf6, 0x13}, 1)
	var bad *SetError
	if _, err := ParseSet(data); !errors.As(err, &bad) || bad.Rule != RuleEncoding {
		t.Errorf("null for a list: got %v, want rule %q", err, RuleEncoding)
	}
	if !empty.TooSmall() {
		t.Error("an empty set is not too small")
	}
	ids := sampleSet()
	ids.Groups = []Group{{Kind: KindID, Class: ClassAtom, Threshold: 1, Items: digestList(1, 16)}}
	if !ids.TooSmall() {
		t.Error("a set of task ids only is not too small")
	}
	small := sampleSet()
	small.Small = true
	if !small.TooSmall() {
		t.Error("a set whose owner says that it is too small is not")
	}
}

func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		class         Class
		padded, count int
		want          uint32
	}{
		{ClassShingle, 16, 5, 3}, {ClassShingle, 128, 100, 4}, {ClassShingle, 1024, 600, 26}, {ClassShingle24, 4096, 4000, 103},
		{ClassLine, 16, 1, 1}, {ClassLine, 16, 2, 2}, {ClassLine, 64, 50, 3}, {ClassRaw, 16, 1, 1}, {ClassCanary, 16, 3, 1}, {ClassAtom, 16, 1, 1},
	} {
		if got := Threshold(c.class, c.padded, c.count); got != c.want {
			t.Errorf("class %d, %d padded, %d: got %d, want %d", c.class, c.padded, c.count, got, c.want)
		}
	}
}

func FuzzParseSet(f *testing.F) {
	good, err := sampleSet().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	phased := sampleSet()
	phased.Phases = samplePhases()
	if good, err = phased.Marshal(); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	around := sampleSurroundings()
	for _, edit := range []func(){func() {}, func() { inFile(around.Expect) }, func() { inTranscript(around.Expect) }, func() { around.Footprint = nil }} {
		edit()
		if good, err = around.Marshal(); err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
	f.Add([]byte{0xb5})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSet(data)
		var bad *SetError
		if err != nil {
			if s != nil || !errors.As(err, &bad) || bad.Rule == "" {
				t.Errorf("got %v with %v, want a SetError alone", s, err)
			}
			return
		}
		again, err := s.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("got other bytes after a round trip, %v", err)
		}
		s.TooSmall()
	})
}

func ExampleSetError() {
	s := sampleSet()
	s.Groups[1].Threshold = 200
	_, err := s.Marshal()
	fmt.Println(err)
	// Output: sealed set: threshold: group 1: got 200, want 7
}
