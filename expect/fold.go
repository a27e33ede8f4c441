package expect

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fold is how lines are compared: in one case, runs of white space as one space, and
// without white space around or punctuation at the end. Case is that of the simple
// folding of Unicode; composed and decomposed letters stay apart.
func Fold(s string) string {
	s = strings.Join(strings.Fields(strings.Map(foldRune, s)), " ")
	return strings.TrimRightFunc(s, func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSpace(r) })
}

// foldRune is the lower case of the least of all runes that differ from r in case
// alone: K for the Kelvin sign too.
func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return unicode.ToLower(least)
}

// reports tells whether a folded text holds a folded line, wrapped or not. The line is
// no part of longer words.
func reports(text, line string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], line)
		if i < 0 {
			return false
		}
		from := at + i
		to := from + len(line)
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		first, width := utf8.DecodeRuneInString(text[from:])
		last, _ := utf8.DecodeLastRuneInString(text[:to])
		after, _ := utf8.DecodeRuneInString(text[to:])
		if !(inWord(before) && inWord(first)) && !(inWord(last) && inWord(after)) {
			return true
		}
		at = from + width
	}
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r))
}

// shape of a marker: what stands behind markerPrefix.
const markerLetters = 16

// marked tells where a reply first holds the marker as a whole word, the offset behind it,
// 0 if nowhere; and whether it holds anything else of a marker's shape, in any case and
// also inside of words: a list of guesses does.
func marked(reply, marker string) (end int, other bool) {
	for i := 0; i+len(markerPrefix)+markerLetters <= len(reply); i++ {
		word := reply[i : i+len(markerPrefix)+markerLetters]
		if !shaped(word) {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(reply[:i])
		after, _ := utf8.DecodeRuneInString(reply[i+len(word):])
		if word == marker && !joins(before) && !joins(after) {
			if end == 0 {
				end = i + len(word)
			}
		} else {
			other = true
		}
	}
	return end, other
}

func joins(r rune) bool { return inWord(r) || r == '-' || r == '_' }

func shaped(word string) bool {
	if !strings.EqualFold(word[:len(markerPrefix)], markerPrefix) {
		return false
	}
	for _, c := range []byte(word[len(markerPrefix):]) {
		if letter := c | 0x20; (letter < 'a' || letter > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
