package expect

import (
	"strings"
	"unicode"
)

// Fold is how lines are compared: lower case, runs of white space as one space, and
// without white space around or punctuation at the end.
func Fold(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(s)), " ")
	return strings.TrimRightFunc(s, func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSpace(r) })
}
