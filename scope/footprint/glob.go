package footprint

import (
	"fmt"
	"path"
	"strings"
)

// A Pattern names paths. Between slashes, * stands for any run of bytes and ? for one,
// newlines included. A segment ** stands for any number of folders, none included, and
// as the last one also for what it stands below. Anything else, a backslash and brackets
// too, is itself; ** inside a segment is a single star. A pattern matches a whole path:
// a bare name is not what lies below it.
type Pattern struct {
	text     string
	absolute bool
	segments []string
}

// maxPattern and maxSegments bound the work of a match.
const (
	maxPattern  = 4096
	maxSegments = 128
)

// ParsePattern reads a pattern strictly.
func ParsePattern(s string) (Pattern, error) {
	p := Pattern{text: s, absolute: strings.HasPrefix(s, "/")}
	rest := strings.TrimPrefix(s, "/")
	p.segments = strings.Split(rest, "/")
	switch {
	case s == "" || rest == "":
		return Pattern{}, fmt.Errorf("pattern %q: got no name, want one; ** alone stands for everything", s)
	case len(s) > maxPattern || len(p.segments) > maxSegments:
		return Pattern{}, fmt.Errorf("pattern %.80q: got %d bytes, want at most %d in at most %d segments", s, len(s), maxPattern, maxSegments)
	case strings.ContainsRune(s, 0):
		return Pattern{}, fmt.Errorf("pattern %q: got a NUL, which no path holds", s)
	}
	for _, seg := range p.segments {
		if seg == "" || seg == "." || seg == ".." {
			return Pattern{}, fmt.Errorf("pattern %q: got an empty segment, . or .., want a clean path%s", s, cleaner(s))
		}
	}
	return p, nil
}

// cleaner says what an unclean pattern was probably meant to be, if it can be said.
func cleaner(s string) string {
	switch p := path.Clean(s); {
	case p == "." || p == "/" || p == ".." || strings.HasPrefix(p, "../"):
		return ""
	case strings.HasSuffix(s, "/"):
		return fmt.Sprintf(": %q for the folder and all below it", p+"/**")
	default:
		return fmt.Sprintf(": %q", p)
	}
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Absolute tells whether the pattern begins at / and not at a watched folder.
func (p Pattern) Absolute() bool { return p.absolute }

// Match tells whether the pattern stands for path. An absolute pattern stands for
// absolute paths alone; a relative one for those only if it begins with **.
func (p Pattern) Match(path string) bool {
	rest, absolute := strings.CutPrefix(path, "/")
	if len(p.segments) == 0 || p.absolute && !absolute || absolute && !p.absolute && p.segments[0] != "**" {
		return false
	}
	if rest == "" {
		return p.segments[0] == "**" && len(p.segments) == 1
	}
	names := strings.Split(rest, "/")
	// reached[j]: the segments so far stand for the first j names.
	reached := make([]bool, len(names)+1)
	reached[0] = true
	for _, seg := range p.segments {
		next := make([]bool, len(names)+1)
		if seg == "**" {
			open := false
			for j, r := range reached {
				open = open || r
				next[j] = open
			}
		} else {
			for j, r := range reached[:len(names)] {
				next[j+1] = r && matchName(seg, names[j])
			}
		}
		reached = next
	}
	return reached[len(names)]
}

// matchName matches one segment without **, in time of at most the product of the lengths.
func matchName(pattern, name string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p, n = p+1, n+1
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
