package redact

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// compile accepts a pattern whose matches have MinValue to MaxValue bytes: a
// match of one byte would remove everything, and one without a bound could not be
// found in pieces of a content.
func compile(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	least, most := extent(tree)
	if most > MaxValue {
		return nil, fmt.Errorf("pattern %q: a match may have more than %d bytes: bound it, as in {8,64} in place of * and +", pattern, MaxValue)
	}
	if least < MinValue {
		return nil, fmt.Errorf("pattern %q: a match may have %d bytes, want at least %d", pattern, least, MinValue)
	}
	if r, ok := blank(tree); ok {
		return nil, fmt.Errorf("pattern %q: a match may hold %q: list the characters of the key, as in [A-Za-z0-9_-], since text between blanks is not removed", pattern, r)
	}
	return regexp.Compile(pattern)
}

// blank finds a blank that a match may hold. Characters that are no letters of
// keys at all, such as U+00A0, count too.
func blank(t *syntax.Regexp) (rune, bool) {
	switch t.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return ' ', true
	case syntax.OpLiteral:
		for _, r := range t.Rune {
			if unicode.IsSpace(r) {
				return r, true
			}
		}
	case syntax.OpCharClass:
		for i := 0; i+1 < len(t.Rune); i += 2 {
			for _, r := range []rune{' ', '\t', '\n', '\r', '\v', '\f', 0x85, 0xa0, 0x2003, 0x3000} {
				if t.Rune[i] <= r && r <= t.Rune[i+1] {
					return r, true
				}
			}
		}
	}
	for _, s := range t.Sub {
		if r, ok := blank(s); ok {
			return r, true
		}
	}
	return 0, false
}

// endless is more than any bound, and small enough to be added up.
const endless = 1 << 20

// extent is the least and the largest number of bytes of a match.
func extent(t *syntax.Regexp) (least, most int) {
	switch t.Op {
	case syntax.OpLiteral:
		for _, r := range t.Rune {
			n := utf8.RuneLen(r)
			least, most = least+n, most+n
			if t.Flags&syntax.FoldCase != 0 { // K has a form of three bytes, s one of two
				least, most = least-n+1, most-n+utf8.UTFMax
			}
		}
		return least, min(most, endless)
	case syntax.OpCharClass:
		if len(t.Rune) == 0 {
			return 0, 0
		}
		return utf8.RuneLen(t.Rune[0]), runeBytes(t.Rune[len(t.Rune)-1])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, utf8.UTFMax
	case syntax.OpCapture:
		return extent(t.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		low, high := t.Min, t.Max
		switch t.Op {
		case syntax.OpStar:
			low, high = 0, -1
		case syntax.OpPlus:
			low, high = 1, -1
		case syntax.OpQuest:
			low, high = 0, 1
		}
		a, b := extent(t.Sub[0])
		if high < 0 {
			high = endless
		}
		return min(a*low, endless), min(b*high, endless)
	case syntax.OpConcat:
		for _, s := range t.Sub {
			a, b := extent(s)
			least, most = min(least+a, endless), min(most+b, endless)
		}
		return least, most
	case syntax.OpAlternate:
		least, most = extent(t.Sub[0])
		for _, s := range t.Sub[1:] {
			a, b := extent(s)
			least, most = min(least, a), max(most, b)
		}
		return least, most
	}
	return 0, 0 // empty matches: line and word boundaries
}

func runeBytes(r rune) int {
	if n := utf8.RuneLen(r); n > 0 {
		return n
	}
	return utf8.UTFMax
}
