package surface

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/cases"
)

// Bounds of a condition, in bytes.
const (
	MaxLocation = 4096
	MaxPattern  = 64 << 10 // of a regular expression
	MaxWanted   = 1 << 20  // of the text of contains and equals
)

// A Location says where to look: one path, or a glob of paths. Paths are relative
// to the source's root, clean, with slashes. They are bytes: what is no UTF-8, and
// a newline, are taken as they are.
//
// A glob is doublestar's: * and ? and [a-z] and {a,b} stay within a segment, a segment
// ** is zero or more folders, a last segment ** is every file beneath, a backslash takes
// the next byte as it is. It names files, never folders.
type Location struct {
	Path string
	Glob bool
}

// A LocationError refuses a location before anything is looked at.
type LocationError struct {
	Path string
	Got  string
}

func (e *LocationError) Error() string {
	return fmt.Sprintf("location %q: got %s, want a clean relative path with slashes of at most %d bytes", e.Path, e.Got, MaxLocation)
}

// Check refuses a location that is empty, absolute, not clean or too long, that holds
// a NUL or a segment "..", or a glob that is none.
func (l Location) Check() error {
	bad := func(got string) error { return &LocationError{l.Path, got} }
	switch {
	case l.Path == "":
		return bad("nothing")
	case len(l.Path) > MaxLocation:
		return bad(fmt.Sprintf("%d bytes", len(l.Path)))
	case strings.IndexByte(l.Path, 0) >= 0:
		return bad("a NUL")
	case l.Path[0] == '/':
		return bad("an absolute path")
	}
	for _, s := range strings.Split(l.Path, "/") {
		if s == ".." {
			return bad(`".."`)
		}
	}
	if l.Path == "." || path.Clean(l.Path) != l.Path {
		return bad("a path that is not clean")
	}
	if l.Glob && !doublestar.ValidatePattern(l.Path) {
		return bad("a malformed glob")
	}
	return nil
}

// Matches tells whether a file's path is at the location.
func (l Location) Matches(file string) bool {
	if !l.Glob {
		return file == l.Path
	}
	pattern := l.Path
	// doublestar's "a/**" names a itself too; a location names what is beneath.
	if pattern == "**" || strings.HasSuffix(pattern, "/**") {
		pattern += "/*"
	}
	ok, err := doublestar.Match(pattern, file)
	return err == nil && ok
}

// split is the folder above everything that the location can name, "." for the root, and
// the segments of the glob below it, up to the first that can hold a slash: alternatives
// and classes can.
func (l Location) split() (base string, segments []string) {
	if strings.Contains(l.Path, `\`) { // which a name would have to be freed of
		return ".", []string{"**"}
	}
	base, rest := doublestar.SplitPattern(l.Path)
	for _, s := range strings.Split(rest, "/") {
		if strings.ContainsAny(s, "{[") {
			s = "**"
		}
		if segments = append(segments, s); s == "**" {
			break
		}
	}
	return base, segments
}

// Base is the folder above everything that the location can name, "." for the root.
func (l Location) Base() string {
	if !l.Glob {
		return path.Dir(l.Path)
	}
	base, _ := l.split()
	return base
}

// String is the location as screens show it.
func (l Location) String() string {
	if l.Glob {
		return fmt.Sprintf("glob %q", l.Path)
	}
	return fmt.Sprintf("%q", l.Path)
}

// A MatcherKind is how content is compared.
type MatcherKind uint8

// The matchers.
const (
	None     MatcherKind = iota // any content of at least one byte
	Contains                    // the text stands in it
	Equals                      // it is the text, byte for byte
	Regex                       // the RE2 expression matches somewhere in it
)

var matcherNames = [...]string{"none", "contains", "equals", "regex"}

// String is the matcher's name.
func (k MatcherKind) String() string {
	if int(k) < len(matcherNames) {
		return matcherNames[k]
	}
	return fmt.Sprintf("matcher %d", k)
}

// A Matcher says what the content must be.
type Matcher struct {
	Kind MatcherKind
	Text string // UTF-8; empty for None
	// IgnoreCase folds both sides (Unicode full case folding) for Contains. A regular
	// expression says (?i).
	IgnoreCase bool
}

// A Condition asks whether content was written to a location. It is made by
// NewCondition.
type Condition struct {
	Location Location
	Matcher  Matcher
	re       *regexp.Regexp
}

// NewCondition checks a location and a matcher.
func NewCondition(l Location, m Matcher) (Condition, error) {
	c := Condition{Location: l, Matcher: m}
	if err := l.Check(); err != nil {
		return Condition{}, err
	}
	limit := MaxWanted
	if m.Kind == Regex {
		limit = MaxPattern
	}
	switch {
	case m.Kind > Regex:
		return Condition{}, fmt.Errorf("got %v, want one of %s", m.Kind, strings.Join(matcherNames[:], ", "))
	case m.Kind == None && m.Text != "":
		return Condition{}, errors.New("got a text without a matcher")
	case m.Kind != None && m.Kind != Equals && m.Text == "":
		return Condition{}, fmt.Errorf("%v: got no text, which would match everything; leave the matcher out for any content", m.Kind)
	case m.IgnoreCase && m.Kind != Contains:
		return Condition{}, fmt.Errorf("%v: case is ignored by contains only; a regular expression says (?i)", m.Kind)
	case len(m.Text) > limit:
		return Condition{}, fmt.Errorf("%v: got %d bytes, want at most %d", m.Kind, len(m.Text), limit)
	case !utf8.ValidString(m.Text):
		return Condition{}, fmt.Errorf("%v: the text is not UTF-8", m.Kind)
	}
	if m.Kind == Regex {
		re, err := regexp.Compile(m.Text)
		if err != nil {
			return Condition{}, fmt.Errorf("regex: %w", err)
		}
		c.re = re
	}
	return c, nil
}

// An answer of one entry.
type answer uint8

const (
	no answer = iota
	yes
	unknown // the entry does not hold enough of the content
)

// match compares one entry. A prefix proves that a text stands in the content, and
// nothing else; a digest proves that the content is the wanted text. Only the whole
// text proves that it is not.
func (c *Condition) match(e *Entry) answer {
	whole := e.Gap == ""
	found := false
	switch c.Matcher.Kind {
	case None:
		found, whole = e.Size > 0, true
	case Contains:
		if c.Matcher.IgnoreCase {
			fold := cases.Fold()
			found = strings.Contains(fold.String(e.Text), fold.String(c.Matcher.Text))
		} else {
			found = strings.Contains(e.Text, c.Matcher.Text)
		}
	case Equals:
		found = whole && e.Text == c.Matcher.Text || e.SHA256 != nil && e.Size == uint64(len(c.Matcher.Text)) && *e.SHA256 == sum(c.Matcher.Text)
	case Regex:
		found = whole && c.re.MatchString(e.Text)
	}
	switch {
	case found:
		return yes
	case whole:
		return no
	}
	return unknown
}

// MayLieBelow tells whether a glob can name files below a folder. It may say so when
// there are none.
func (l Location) MayLieBelow(folder string) bool {
	if !l.Glob {
		return len(l.Path) > len(folder) && l.Path[:len(folder)] == folder && l.Path[len(folder)] == '/'
	}
	base, segments := l.split()
	if base != "." {
		if folder == base || strings.HasPrefix(base, folder+"/") {
			return true
		}
		var ok bool
		if folder, ok = strings.CutPrefix(folder, base+"/"); !ok {
			return false
		}
	}
	for _, name := range strings.Split(folder, "/") {
		below, deeper := next(segments, name)
		if !deeper {
			return false
		}
		segments = below
	}
	return true
}

// next tells whether a folder can hold matches, and the pattern's segments below it.
func next(segments []string, name string) (below []string, deeper bool) {
	switch {
	case segments[0] == "**":
		return segments, true
	case len(segments) == 1:
		return nil, false
	}
	ok, err := doublestar.Match(segments[0], name)
	return segments[1:], ok && err == nil
}
