package contraband

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Bounds of a sealed set.
const (
	MaxSetSize     = 256 << 20 // bytes of the encoding
	MinGroup       = 16        // digests in a padded list, D9
	MinControls    = 64
	MaxControlText = 64 << 10
	maxName        = 1024 // bytes of a name or path
)

// Rule names a check of a sealed set. The list is closed (spec/sealed-set.md).
type Rule string

// The rules, in the order in which they are checked.
const (
	RuleSize       Rule = "size"         // longer than MaxSetSize
	RuleEncoding   Rule = "encoding"     // not deterministic CBOR of this schema
	RuleVersion    Rule = "version"      // another format
	RuleProfile    Rule = "profile"      // another canonical form or other parameters
	RuleName       Rule = "name"         // benchmark, task or period
	RuleScope      Rule = "scope"        // workspace mode or a grant
	RuleChannels   Rule = "channels"     // unknown role, unsorted, repeated
	RuleCounts     Rule = "counts"       // sources or uncovered
	RulePhases     Rule = "phases"       // commands, places, reward rule or guarded paths
	RuleFootprint  Rule = "footprint"    // patterns
	RuleExpect     Rule = "expect"       // named path, template, line or place of the reply
	RuleKept       Rule = "kept"         // above 10
	RuleLength     Rule = "length"       // a list that is not whole digests
	RulePadding    Rule = "padding"      // a list that is no power of two of at least 16
	RuleOrder      Rule = "order"        // unsorted or repeated digests, groups or values
	RuleKind       Rule = "kind"         // unknown kind or class, or a class that the kind cannot have
	RuleThreshold  Rule = "threshold"    // not what the rule of the class gives
	RuleAllowed    Rule = "allowed"      // an item is both sealed and allowed
	RuleControls   Rule = "controls"     // fewer than 64, or no control text
	RuleControlled Rule = "control-item" // a control is also an item, or the reverse
	RuleFilter     Rule = "filter"       // a value over 24 bits, or a filter without items, or the reverse
)

// A SetError says which rule a sealed set breaks.
type SetError struct {
	Rule      Rule
	Where     string // "group 3", "allowed", ...
	Got, Want string
}

func (e *SetError) Error() string {
	return fmt.Sprintf("sealed set: %s: %s: got %s, want %s", e.Rule, e.Where, e.Got, e.Want)
}

func broken(rule Rule, where string, got any, want string) error {
	return &SetError{Rule: rule, Where: where, Got: fmt.Sprint(got), Want: want}
}

// ParseSet decodes a sealed set and holds it to every rule. It says nothing of
// who made it: signatures are receipt's business. The error is a *SetError.
func ParseSet(data []byte) (*Set, error) {
	if len(data) > MaxSetSize {
		return nil, broken(RuleSize, "file", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxSetSize))
	}
	s := new(Set)
	if err := dcbor.Unmarshal(data, s); err != nil {
		return nil, broken(RuleEncoding, "file", err, "the deterministic CBOR of spec/sealed-set.md")
	}
	if err := s.check(s.checkControls); err != nil {
		return nil, err
	}
	return s, nil
}

// Marshal checks s as ParseSet does and encodes it. The error is a *SetError.
func (s *Set) Marshal() ([]byte, error) { return s.marshal(s.checkControls) }

func (s *Set) marshal(controls func() error) ([]byte, error) {
	if err := s.check(controls); err != nil {
		return nil, err
	}
	data, err := dcbor.Marshal(s)
	if err != nil {
		return nil, broken(RuleEncoding, "file", err, "a value that CBOR can hold")
	}
	return data, nil
}

// TooSmall tells whether the set can carry no verdict of CLEAN: no whole object
// and fewer than 8 items of references, tests and canaries. Padding hides the
// true count, so the owner states it (Small), which reveal checks; a set with
// no such group at all is too small whatever it states.
func (s *Set) TooSmall() bool {
	for _, g := range s.Groups {
		if !g.Kind.OncePerTask() {
			return s.Small
		}
	}
	return true
}

// Threshold is the number of distinct items, over the whole run, that make a
// match: padded is the group's size with dummies, count without.
func Threshold(class Class, padded, count int) uint32 {
	switch class {
	case ClassShingle, ClassShingle24:
		return uint32(max(3, (padded+39)/40))
	case ClassLine:
		return uint32(max(1, min(3, count)))
	}
	return 1
}

// Fits tells whether sources of kind k are cut into items of class c.
func (k Kind) Fits(c Class) bool {
	switch {
	case k == KindCanary:
		return c == ClassCanary
	case k.OncePerTask():
		return c == ClassShingle24 || c == ClassLine || c == ClassAtom
	case k == KindReference || k == KindTest:
		return c > ClassCanary && c <= ClassAtom
	}
	return false
}

// check holds s to every rule; controls is checkControls, or what does the same.
func (s *Set) check(controls func() error) error {
	if s.Version != Version {
		return broken(RuleVersion, "version", fmt.Sprintf("%q", s.Version), fmt.Sprintf("%q", Version))
	}
	if s.Profile != Profile {
		return broken(RuleProfile, "profile", fmt.Sprintf("%q", s.Profile), fmt.Sprintf("%q (seal the task again with this version)", Profile))
	}
	if err := s.checkNames(); err != nil {
		return err
	}
	if err := CheckPhases(s.Phases); err != nil {
		return err
	}
	if err := CheckFootprint(s.Footprint); err != nil {
		return err
	}
	if err := CheckExpect(s.Expect, s.Scope.Grants); err != nil {
		return err
	}
	if s.Kept > 10 {
		return broken(RuleKept, "kept", s.Kept, "0 to 10 tenths")
	}
	filtered, err := s.checkGroups()
	if err != nil {
		return err
	}
	if err := checkList("allowed", s.Allowed, true); err != nil {
		return err
	}
	if len(s.Allowed) > 0 {
		for _, g := range s.Groups {
			for d := range digests(g.Items) {
				if holds(s.Allowed, d) {
					return broken(RuleAllowed, "allowed", fmt.Sprintf("item %x, which is also sealed", d[:8]), "no item in both lists")
				}
			}
		}
	}
	if err := controls(); err != nil {
		return err
	}
	return s.checkFilter(filtered)
}

// CheckName tells whether a benchmark's, task's or period's name can be sealed:
// printable UTF-8 without line breaks, at most 1,024 bytes.
func CheckName(name string) bool {
	return len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '\ufeff' || r == '\u2028' || r == '\u2029'
	})
}

func (s *Set) checkNames() error {
	for _, n := range []struct {
		what, name string
		empty      bool
	}{{"benchmark", s.Benchmark, false}, {"task", s.Task, false}, {"period", s.Period, true}} {
		if !CheckName(n.name) || n.name == "" && !n.empty {
			return broken(RuleName, n.what, fmt.Sprintf("%.80q", n.name), fmt.Sprintf("a printable name of at most %d bytes", maxName))
		}
	}
	if w := scope.Mode(s.Scope.Workspace); w != scope.ReadTree && w != scope.WriteTree {
		return broken(RuleScope, "workspace", w, "mode 0 (read) or 1 (write)")
	}
	for i, g := range s.Scope.Grants {
		where := fmt.Sprintf("grant %d", i)
		if scope.Mode(g.Mode) > scope.WriteOne {
			return broken(RuleScope, where, g.Mode, "a mode from 0 to 3")
		}
		if !CheckName(g.Path) || !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path {
			return broken(RuleScope, where, fmt.Sprintf("%.80q", g.Path), "a clean absolute path")
		}
		if i > 0 && s.Scope.Grants[i-1].Path >= g.Path {
			return broken(RuleScope, where, fmt.Sprintf("%.80q", g.Path), "grants sorted by path, each once")
		}
	}
	for i, c := range s.Channels {
		where := fmt.Sprintf("channel %d", i)
		if c.Name == "" || !CheckName(c.Name) || c.Role != "model" && c.Role != "driver" {
			return broken(RuleChannels, where, fmt.Sprintf("%.80q", c.Name+": "+c.Role), `a name with the role "model" or "driver"`)
		}
		if i > 0 && s.Channels[i-1].Name >= c.Name {
			return broken(RuleChannels, where, fmt.Sprintf("%.80q", c.Name), "channels sorted by name, each once")
		}
	}
	for _, l := range []struct {
		what string
		list []Count
	}{{"sources", s.Sources}, {"uncovered", s.Uncovered}} {
		for i, c := range l.list {
			if c.Kind < KindID || c.Kind > KindCanary || c.N == 0 || i > 0 && l.list[i-1].Kind >= c.Kind {
				return broken(RuleCounts, l.what, fmt.Sprintf("kind %d, count %d", c.Kind, c.N), "known kinds in order, each once, counts above 0")
			}
		}
	}
	return nil
}

// checkGroups tells whether some items are of a filtered class.
func (s *Set) checkGroups() (filtered bool, err error) {
	for i, g := range s.Groups {
		where := fmt.Sprintf("group %d", i)
		if !g.Kind.Fits(g.Class) {
			return false, broken(RuleKind, where, fmt.Sprintf("kind %d with class %d", g.Kind, g.Class), "a known kind with a class that it can have")
		}
		if err := checkList(where, g.Items, false); err != nil {
			return false, err
		}
		if i > 0 && compareGroups(s.Groups[i-1], g) >= 0 {
			return false, broken(RuleOrder, where, "a group at or before its predecessor", "groups sorted by kind, class, items, each once")
		}
		n := len(g.Items) / 32
		want := Threshold(g.Class, n, n)
		// How many lines are real is not shown beyond "3 or more".
		if g.Threshold != want && !(g.Class == ClassLine && g.Threshold >= 1 && g.Threshold <= 3) {
			return false, broken(RuleThreshold, where, g.Threshold, fmt.Sprint(want))
		}
		filtered = filtered || g.Class.Filtered()
	}
	return filtered, nil
}

// Filtered tells whether items of c have a filter value.
func (c Class) Filtered() bool {
	return c == ClassLine || c == ClassAtom || c == ClassCanary
}

// Whole tells whether an item of c is a whole object.
func (c Class) Whole() bool { return c == ClassRaw || c == ClassCanonical }

func compareGroups(a, b Group) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Class, b.Class), bytes.Compare(a.Items, b.Items))
}

func (s *Set) checkFilter(filtered bool) error {
	if n := len(s.Filter); filtered != (n > 0) {
		return broken(RuleFilter, "filter", fmt.Sprintf("%d values", n), "values exactly if there are lines, atoms or canaries")
	} else if n > 0 && (n < MinGroup || n&(n-1) != 0) {
		return broken(RulePadding, "filter", fmt.Sprintf("%d values", n), "a power of two of at least 16")
	}
	for i, v := range s.Filter {
		if v >= 1<<FilterBits {
			return broken(RuleFilter, "filter", v, "values of 24 bits")
		}
		if i > 0 && s.Filter[i-1] >= v {
			return broken(RuleOrder, "filter", v, "values sorted, each once")
		}
	}
	return nil
}

func checkList(where string, list []byte, empty bool) error {
	if len(list)%32 != 0 {
		return broken(RuleLength, where, fmt.Sprintf("%d bytes", len(list)), "a multiple of 32")
	}
	if n := len(list) / 32; (n > 0 || !empty) && (n < MinGroup || n&(n-1) != 0) {
		return broken(RulePadding, where, fmt.Sprintf("%d digests", n), "a power of two of at least 16")
	}
	return checkOrder(where, list)
}

func checkOrder(where string, list []byte) error {
	for i := 32; i < len(list); i += 32 {
		if bytes.Compare(list[i-32:i], list[i:i+32]) >= 0 {
			return broken(RuleOrder, where, fmt.Sprintf("digest %d at or before its predecessor", i/32), "digests sorted, each once")
		}
	}
	return nil
}

// holds tells whether a sorted list of digests has d.
func holds(list, d []byte) bool {
	first := binary.BigEndian.Uint64(d)
	lo, hi := 0, len(list)/32
	for lo < hi {
		mid := (lo + hi) / 2
		at := list[32*mid : 32*mid+32]
		c := cmp.Compare(binary.BigEndian.Uint64(at), first)
		if c == 0 {
			c = bytes.Compare(at, d)
		}
		switch {
		case c == 0:
			return true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return false
}

// digests walks a list of 32-byte digests.
func digests(list []byte) iter.Seq[[]byte] { return slices.Chunk(list, 32) }
